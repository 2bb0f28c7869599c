"""Which header blocks ask for a trace, and how they are read (ADR-41)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.core.network import is_asked, is_reserved, trace_headers
from tests.core.plain_trace_headers import plain_trace_headers
from tests.fuzz.fuzz_trace_headers import check

HEAD = b"NATS/1.0\r\n"
ASKS = b"Nats-Trace-Dest: a\r\n"
PIECES = [
    b"Nats-Trace-Dest",
    b"Nats-Trace-Only",
    b"traceparent",
    b"TraceParent",
    b"A",
    b":",
    b": ",
    b"\t",
    b" ",
    b"x",
    b"\r",
    b"\n",
    b"\r\n",
    b"trace disabled",
    b"00-a-b-01",
    b"\xff",
]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join))
def test_the_cheap_look_misses_nothing(lines: bytes) -> None:
    check(HEAD + lines)
    check(lines)
    check(HEAD + b"A: b\r\n" * 400 + lines)


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize(
    ("lines", "parents", "asks"),
    [
        (b"\r\n", False, False),
        (ASKS + b"\r\n", False, True),
        (b"B: c\r\n" + ASKS, False, True),
        (b"nats-trace-dest: a\r\n\r\n", False, False),
        (b"traceparent: a-b-c-01\r\n\r\n", False, False),
        (b"traceparent: a-b-c-01\r\n\r\n", True, True),
        (b"TRACEparent: a-b-c-01\r\n\r\n", True, True),
    ],
)
def test_the_cheap_look(lines: bytes, parents: bool, asks: bool, is_long: bool) -> None:
    before = b"A: " + b"x" * 3000 + b"\r\n" if is_long else b""
    assert is_asked(HEAD + before + lines, parents=parents) == asks


def test_of_very_many_headers_those_that_ask_are_read() -> None:
    many = b"Nats-X: b\r\n" * 2000
    asks = b"Nats-Trace-Dest: a\r\n" * 50 + b"traceParent: p\r\n" * 50 + b"Nats-Trace-Only: 1\r\n"
    found = trace_headers(HEAD + many + asks)
    assert found[:1024] == plain_trace_headers(HEAD + many)[:1024]
    assert found[1024:] == [
        (b"Nats-Trace-Dest", b"a"),
        (b"traceParent", b"p"),
        (b"Nats-Trace-Only", b"1"),
    ]


def test_subjects_of_the_server_s_own() -> None:
    for subject in ("$NRG.x", "_GR_.x"):
        assert is_reserved(subject)
    for subject in ("$NRG", "_GR_.", "NRG.x", "$JS.API.INFO", ""):
        assert not is_reserved(subject)
