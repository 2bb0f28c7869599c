"""Requests for traces in header blocks (ADR-41).

The quick check never says no if the complete reading says yes, and disabling a trace changes
nothing else.

Input: a header block.
"""

from natsd.accounts.message_trace import TraceRequest, with_trace_disabled
from natsd.core.network import is_asked, trace_headers
from tests.core.plain_trace_headers import VERSION, plain_trace_headers

MODULES = ["natsd.core.network"]
DESTINATION = b"Nats-Trace-Dest"
SHOWN_MAX = 1024
"""Headers that a trace shows; of later headers only those that ask for a trace are read."""
SEEDS = [
    b"",
    b"NATS/1.0\r\n",
    b"NATS/1.0\r\n\r\n",
    b"NATS/1.0\r\nNats-Trace-Dest: a\r\n\r\n",
    b"NATS/1.0\r\nNats-Trace-Dest:a\r\n",
    b"NATS/1.0\r\nNats-Trace-Dest:",
    b"NATS/1.0\r\nA: b\r\n\r\nNats-Trace-Dest: \t a b \t\r\n",
    b"NATS/1.0\r\nNats-Trace-Dest: trace disabled\r\nNats-Trace-Dest: a\r\n\r\n",
    b"NATS/1.0\r\na\r\nNats-Trace-Dest: a\r\n\r\n",
    b"NATS/1.0\r\ntraceParent: 00-a-b-01\r\nNats-Trace-Only: 1\r\n\r\n",
    b"NATS/1.0\r\ntraceparent: 00-a-b-01\r\nno header\r\n\r\n",
    b"NATS/1.0\r\ntraceparent: 00-a-b-+1\r\n:\r\n: a\r\nb:\r\n\r\n",
    b"NATS/1.0\r\n" + b"A: b\r\n" * 400 + b"Nats-Trace-Dest: a\r\n\r\n",
    b"NATS/1.0\r\n" + b"\n" * 3000 + b"Nats-Trace-Dest: a\r\n\r\n",
]


def check(data: bytes) -> None:
    headers, plain = trace_headers(data), plain_trace_headers(data)
    assert headers[:SHOWN_MAX] == plain[:SHOWN_MAX]
    assert set(headers[SHOWN_MAX:]) <= set(plain[SHOWN_MAX:])
    names = [name for name, _ in plain]
    assert (DESTINATION in names) == (DESTINATION in dict(headers))
    if DESTINATION in names:
        assert is_asked(data)
        assert is_asked(data, parents=True)
    if any(name.lower() == b"traceparent" for name in names):
        assert is_asked(data, parents=True)
    request = TraceRequest.read(data)
    assert request is None or is_asked(data, parents=True)
    if request is not None and data.endswith(b"\r\n\r\n"):
        changed = with_trace_disabled(data)
        assert changed.startswith(VERSION)
        assert changed.endswith(b"\r\n")
        assert TraceRequest.read(changed) is None
