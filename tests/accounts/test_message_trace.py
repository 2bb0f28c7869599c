"""What a trace holds, and its bounds (section 3.7)."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from natsd.accounts.message_trace import (
    COMPRESSED_BYTES_MAX,
    EGRESSES_MAX,
    MessageTrace,
    TraceRequest,
    with_trace_disabled,
)
from natsd.core.routing import Subscription

HEAD = b"NATS/1.0\r\n"


class Source:
    """A server whose clock stands still."""

    accounts: Any = SimpleNamespace(system=SimpleNamespace(name="$SYS"))

    def describe(self) -> dict[str, object]:
        return {"name": "S"}

    def now_ns(self) -> int:
        return 1_700_000_000_120_000_000


def sent(block: bytes, egresses: int = 0) -> tuple[dict[str, Any], bytes, bytes]:
    """A trace, as sent and read; the bytes and headers sent."""
    got: list[tuple[str, bytes, bytes]] = []

    def publish(subject: str, payload: bytes, *, headers: bytes) -> None:
        got.append((subject, payload, headers))

    account: Any = SimpleNamespace(name="$G", internal_client=SimpleNamespace(publish=publish))
    request = TraceRequest.read(block)
    assert request is not None
    trace = MessageTrace(account, request.destination, request, 5, Source())
    peer: Any = SimpleNamespace(cid=7, name="", account_name="$G")
    trace.ingress(peer, b"foo")
    for _ in range(egresses):
        trace.egress(peer, Subscription("foo"))
    trace.send()
    ((subject, payload, headers),) = got
    assert subject == "a"
    return (json.loads(payload) if payload.startswith(b"{") else {}), payload, headers


def test_times_are_those_of_nats_server() -> None:
    trace, _, _ = sent(HEAD + b"Nats-Trace-Dest: a\r\n\r\n")
    assert trace == {
        "server": {"name": "S"},
        "request": {"header": {"Nats-Trace-Dest": ["a"]}, "msgsize": 5},
        "events": [
            {
                "type": "in",
                "ts": "2023-11-14T22:13:20.12Z",
                "kind": 0,
                "cid": 7,
                "acc": "$G",
                "subj": "foo",
            }
        ],
    }


def test_deliveries_are_listed_up_to_a_number() -> None:
    trace, _, _ = sent(HEAD + b"Nats-Trace-Dest: a\r\n\r\n", EGRESSES_MAX + 10)
    assert len(trace["events"]) == 1 + EGRESSES_MAX


def test_a_long_trace_is_not_compressed() -> None:
    asks = HEAD + b"Accept-Encoding: gzip\r\nNats-Trace-Dest: a\r\n"
    assert b"gzip" in sent(asks)[2]
    value = b"x" * COMPRESSED_BYTES_MAX
    trace, _, headers = sent(asks + b"X: " + value + b"\r\n\r\n")
    assert b"Content-Encoding: identity" in headers
    assert trace["request"]["header"]["X"] == [value.decode()]


@pytest.mark.parametrize(
    ("block", "disabled"),
    [
        (b"Nats-Trace-Dest: a\r\nX: y\r\n\r\n", b"Nats-Trace-Dest: trace disabled\r\nX: y\r\n\r\n"),
        (b"X: y\r\nNats-Trace-Dest:a\r\n\r\n", b"X: y\r\nNats-Trace-Dest: trace disabled\r\n\r\n"),
        (b"X: y\r\n\r\n", b"X: y\r\nNats-Trace-Dest: trace disabled\r\n\r\n"),
        (b"X: y\r\n", b"X: y\r\nNats-Trace-Dest: trace disabled\r\n\r\n"),
        (b"X: y", b"X: y\r\nNats-Trace-Dest: trace disabled\r\n\r\n"),
        (b"Nats-Trace-Dest: a", b"Nats-Trace-Dest: trace disabled\r\n\r\n"),
    ],
)
def test_a_trace_is_disabled_in_its_place(block: bytes, disabled: bytes) -> None:
    assert with_trace_disabled(HEAD + block) == HEAD + disabled


def test_no_line_hides_that_a_trace_is_disabled() -> None:
    """A name ends at the first colon, so a line without one is part of the next line's name."""
    block = HEAD + b"traceparent: 00-a-b-01\r\nno header\r\n\r\n"
    assert TraceRequest.read(block) is not None
    assert TraceRequest.read(with_trace_disabled(block)) is None
