"""Compressed bytes: other programs unpack them, and they are about as short as theirs."""

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.store.backup.snapshots import FrameRoom, ReusedBytes, crc32c

IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
POLYNOMIAL = 0x82F63B78
LANE = 5456
FEW_BYTES = st.lists(st.sampled_from(b"abx"), max_size=400).map(bytes)
PIECES = st.lists(
    st.tuples(st.binary(max_size=100) | FEW_BYTES, st.integers(1, 400)), max_size=12
).map(lambda drawn: b"".join(piece * times for piece, times in drawn))
RECORDS = st.lists(st.binary(min_size=17, max_size=17), max_size=300).map(
    lambda noises: b"".join(
        noise[:8] + b"\xb1\0\0\0data." + noise[8:11] + b"x" * 129 + noise[11:] for noise in noises
    )
)


def packed(data: bytes) -> bytes:
    return FrameRoom().pack(0, (data,), ReusedBytes(0))


@settings(deadline=None)
@given(PIECES | RECORDS)
def test_others_unpack_it(data: bytes) -> None:
    assert bytes(cramjam.snappy.decompress(IDENTIFIER + packed(data))) == data


@pytest.mark.parametrize("length", [*range(80), 255, 256, 257, 65535, 65536, 65537])
def test_any_length_is_unpacked(length: int) -> None:
    """Other programs unpack bytes of any length."""
    for data in (bytes(length), bytes(range(256)) * 2 + b"a" * length, b"ab" * length):
        assert bytes(cramjam.snappy.decompress(IDENTIFIER + packed(data))) == data


@settings(deadline=None)
@given(RECORDS)
def test_it_is_about_as_short_as_that_of_others(data: bytes) -> None:
    frames = -(-len(data) // (64 << 10))
    theirs = len(cramjam.snappy.compress(data))
    assert len(packed(data)) <= theirs + theirs // 20 + 20 * frames


def test_a_room_is_used_again() -> None:
    room, kept = FrameRoom(), ReusedBytes(1)
    for data in (b"short", b"long" * 100_000, b"", b"short"):
        found = room.pack(7, (data, data), kept)
        assert bytes(cramjam.snappy.decompress(IDENTIFIER + found)) == data + data


def plain_crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@given(st.binary(max_size=200))
def test_sums_are_crc32c(data: bytes) -> None:
    assert crc32c(data) == crc32c(data, by_tables=True) == plain_crc(data)
    assert crc32c(b"123456789") == 0xE3069283


@given(st.integers(3 * LANE - 20, 3 * LANE + 20) | st.integers(0, 9 * LANE), st.binary(min_size=9))
def test_long_sums_are_alike(length: int, piece: bytes) -> None:
    """The checksum by instructions, joined of three lanes, equals the one by tables."""
    data = (piece * (length // len(piece) + 1))[:length]
    assert crc32c(data) == crc32c(data, by_tables=True)
