"""The headers of a message in a stream that copies it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.jetstream.sourcing.receiving import carried
from tests.jetstream.sourcing.plain_carried import plainly_carried

LINE = b"NATS/1.0\r\n"


@pytest.mark.parametrize(
    ("block", "copied"),
    [
        (b"A: b\r\n", b"A: b\r\n"),
        (b"Nats-Expected-Stream: O\r\nA: b\r\n", b"A: b\r\n"),
        (b"A: b\r\nNats-Expected-Last-Sequence: 7\r\n", b"A: b\r\n"),
        (b"Nats-Batch-Id: x\r\nNats-Batch-Sequence: 1\r\nC:d\r\n", b"C:d\r\n"),
        (b"Nats-Request-Info: {}\r\n", b""),
        (b"Nats-Request-Infos: {}\r\n", b"Nats-Request-Infos: {}\r\n"),
        (b"nats-expected-stream: O\r\n", b"nats-expected-stream: O\r\n"),
        (b"Nats-Msg-Id: 1\r\n", b"Nats-Msg-Id: 1\r\n"),
        (b"A: Nats-Expected-Stream: O\r\n", b"A: Nats-Expected-Stream: O\r\n"),
    ],
)
def test_what_only_the_first_stream_heeds_is_left_away(block: bytes, copied: bytes) -> None:
    assert carried(LINE + block + b"\r\n", is_source=False) == LINE + copied


def test_what_is_not_ended_is_kept() -> None:
    for block in (LINE + b"A: b\r\nxy", LINE + b"A: b\r\n\r", LINE[:-2], b""):
        assert carried(block, is_source=False) == block


def test_a_source_writes_its_own_source() -> None:
    block = LINE + b"Nats-Stream-Source: O 1 > > o\r\nA: b\r\n\r\n"
    assert carried(block, is_source=True) == LINE + b"A: b\r\n"
    assert carried(block, is_source=False) == block[:-2]


NAMES = st.sampled_from(
    [
        "Nats-Expected-Stream",
        "Nats-Batch-Id",
        "Nats-Request-Info",
        "Nats-Stream-Source",
        "X",
        "Nats-",
    ]
)


@given(st.lists(st.tuples(NAMES, st.text("ab: ", max_size=5))), st.booleans())
def test_like_line_by_line(headers: list[tuple[str, str]], is_source: bool) -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    block = LINE + lines.encode() + b"\r\n"
    assert carried(block, is_source=is_source) == plainly_carried(block, is_source=is_source)


@given(st.binary(min_size=12, max_size=80), st.booleans())
def test_any_bytes_are_a_block(block: bytes, is_source: bool) -> None:
    assert carried(block, is_source=is_source) == plainly_carried(block, is_source=is_source)
