"""The headers that a stream observes, found as nats-server finds them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.jetstream.stream.checks import number_of, publish_headers, stripped
from tests.jetstream.stream.plain_headers import NAMES, plain_headers

NONE = 2**64 - 1  # no sequence


def test_every_name_is_found() -> None:
    lines = b"".join(b"Nats-%b: v%d\r\n" % (name.encode(), at) for at, name in enumerate(NAMES))
    expected = {name: b"v%d" % at for at, name in enumerate(NAMES)}
    assert publish_headers(b"NATS/1.0\r\n" + lines + b"\r\n") == expected


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (b"Nats-Msg-Id:a\r\n", {"Msg-Id": b"a"}),
        (b"Nats-Msg-Id:   a b \r\n", {"Msg-Id": b"a b "}),
        (b"Nats-Msg-Id:\r\n", {"Msg-Id": b""}),
        (b"Nats-Msg-Id: a\rb\nc\r\n", {"Msg-Id": b"a\rb\nc"}),
        (b"Nats-Msg-Id: first\r\nNats-Msg-Id: second\r\n", {"Msg-Id": b"first"}),
        (b"nats-msg-id: a\r\n", {}),
        (b"Nats-Msg-Id : a\r\n", {}),
        (b" Nats-Msg-Id: a\r\n", {}),
        (b"X-Nats-Msg-Id: a\r\n", {}),
        (b"A: b\nNats-Msg-Id: a\r\n", {}),
        (b"Nats-Msg-Id\r\n", {}),
        (b"Nats-Msg-Ids: a\r\n", {}),
    ],
)
def test_lines(lines: bytes, found: dict[str, bytes]) -> None:
    assert publish_headers(b"NATS/1.0\r\n" + lines + b"\r\n") == found


pieces = st.sampled_from(
    [b"NATS/1.0", b"\r\n", b"\r", b"\n", b": ", b":", b" ", b"Nats-", b"1", b"x"]
    + [f"Nats-{name}".encode() for name in NAMES]
)


@given(st.lists(pieces, max_size=30).map(b"".join))
def test_any_bytes_are_read_as_lines(block: bytes) -> None:
    assert publish_headers(block) == plain_headers(block)
    left = stripped(block)
    assert len(left) <= len(block)
    assert "Request-Info" not in publish_headers(left)
    assert stripped(left) == left


@pytest.mark.parametrize(
    ("block", "left"),
    [
        (b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n"),
        (b"NATS/1.0 503\r\n\r\n", b""),
        (b"NATS/1.0 100 Idle\r\nA: b\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n"),
        (b"NATS/1.0\r\nNats-Request-Info: {}\r\n\r\n", b""),
        (b"NATS/1.0\r\nNats-Request-Info: {}\r\nA: b\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n"),
    ],
)
def test_what_is_stored_of_a_block(block: bytes, left: bytes) -> None:
    assert stripped(block) == left


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"0", 0),
        (b"42", 42),
        (b"18446744073709551615", NONE),
        (b"-1", NONE),
        (b"", NONE),
        (b"1x", NONE),
        (b" 1", NONE),
    ],
)
def test_sequences(text: bytes, number: int) -> None:
    assert number_of(text) == number
