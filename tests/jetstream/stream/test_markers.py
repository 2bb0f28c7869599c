"""The messages that leave a delete marker, and the marker's headers (ADR-43)."""

from __future__ import annotations

import pytest

from natsd.jetstream.stream.lifetimes import with_lifetime
from natsd.jetstream.stream.markers import is_marker, marker_headers, replace_expired
from natsd.store.mem_store import MemStore


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (b"", False),
        (b"NATS/1.0\r\nA: b\r\n\r\n", False),
        (b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\n\r\n", True),
        (b"NATS/1.0\r\nNats-Marker-Reason:\r\n\r\n", False),
        (b"NATS/1.0\r\nKV-Operation: PURGE\r\n\r\n", True),
        (b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n", False),
        (marker_headers(60_000_000_000), True),
    ],
)
def test_a_marker_leaves_none(headers: bytes, expected: bool) -> None:
    assert is_marker(headers) is expected


def test_lifetime_in_whole_seconds() -> None:
    assert b"\r\nNats-TTL: 1m30s\r\n" in marker_headers(90_999_999_999)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n", b"NATS/1.0\r\nNats-TTL: 9\r\n\r\n"),
        (
            b"NATS/1.0\r\nNats-TTL:1\r\nA: Nats-TTL: 1\r\n\r\n",
            b"NATS/1.0\r\nA: Nats-TTL: 1\r\nNats-TTL: 9\r\n\r\n",
        ),
    ],
)
def test_a_lifetime_that_is_raised(headers: bytes, expected: bytes) -> None:
    assert with_lifetime(headers, 9) == expected


class Full:
    """A store that accepts no message."""

    def store_own(self, subject: bytes, headers: bytes, data: bytes, *, is_mapped: bool) -> int:
        """Return 0: the message is not stored."""
        assert is_mapped
        return 0


async def test_what_cannot_be_replaced_stays() -> None:
    """The message stays and is due again; an expired marker is just removed."""
    store = MemStore()
    block = marker_headers(1_000_000_000)
    store.append("s.a", None, b"", 1, expires_ns=5)
    store.append("s.b", block, b"", 1, expires_ns=5)

    def replace(due: list[tuple[int, bytes, bytes]]) -> None:
        replace_expired(Full(), store, due, 1_000_000_000)  # type: ignore[arg-type]  # a fake

    assert await store.expire(5, replace) == 1
    assert store.log.has(1) and not store.log.has(2)
    assert store.next_expiry_ns() == 5
    assert await store.expire(5) == 1
