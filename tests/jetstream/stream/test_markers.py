"""Which messages leave a delete marker, and what it says (reference §6.4, §6.7)."""

from __future__ import annotations

import pytest

from natsd.jetstream.stream.markers import is_marker, marker_headers, place_markers
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


async def test_only_where_nothing_is() -> None:
    """A message that came meanwhile, and a marker that expired, need none."""

    class Placed:
        def __init__(self) -> None:
            self.subjects: list[bytes] = []

        def publish_internal(self, subject: bytes, headers: bytes, data: bytes) -> None:
            self.subjects.append(subject)

    store, placed = MemStore(), Placed()
    store.append("came", None, b"", 1)
    expired = [(b"gone", b""), (b"came", b""), (b"marked", marker_headers(1_000_000_000))]
    place_markers(placed, store, expired, 1_000_000_000)  # type: ignore[arg-type]  # a fake
    assert placed.subjects == [b"gone"]
