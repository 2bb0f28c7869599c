"""The bytes of nats-server's files: checksums, S2 frames, records, index.db."""

from __future__ import annotations

import pytest

from natsd.store.backup.snappy_frames import FramePacker
from natsd.store.backup.snapshots import crc32c
from natsd.store.errors import DamagedEncoding
from natsd.store.nats_server.blocks import (
    BlockFile,
    IndexFile,
    highway_hash,
    unpack_frames,
)
from tests.store.nats_server.writing import ERASED, TOMBSTONE, Message, hash_key, record

KEY = hash_key("S-1")


def test_vectors_of_highway_hash() -> None:
    """The first 18 of the vectors of the reference implementation, and two long ones."""
    key = bytes(range(32))
    expected = (
        "536ec222de567a90 78ddcdc7aa43ab7e 623db5b09a56d0b8 803d468aabef6b5c "
        "da7e009368a405f2 4145a9e468168a2b 6fcaef5b32cc4cbd 8294f53817ae024d "
        "71315fe5085120e1 84157ac74e64d232 0ba903b1cd0ae1f6 155c415b61f4bbc3 "
        "9cfa630004c23c24 ff41e665ce589aa8 235a4548a331b024 3bf349a4863f7940 "
        "32b87ef98934abcf e2c0c5c8d267fe19"
    )
    for length, value in enumerate(expected.split()):
        assert highway_hash(key, bytes(range(length))).hex() == value
    assert highway_hash(key, bytes(range(32))).hex() == "fc80d5ecd964c9a0"
    assert highway_hash(key, bytes(range(56))).hex() == "e8c3229ec19c7d4c"


def frame(body: bytes, content: bytes) -> bytes:
    crc = crc32c(content)
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    data = masked.to_bytes(4, "little") + body
    return b"\x00" + len(data).to_bytes(3, "little") + data


@pytest.mark.parametrize(
    ("body", "content"),
    [
        (b"\x04\x0cabcd", b"abcd"),
        (b"\x0c\x0cabcd\x11\x04", b"abcdabcdabcd"),  # a copy of 8 bytes from 4 before
        (b"\x0d\x0cabcd\x01\x04\x05\x00", b"abcdabcdabcda"),  # a copy of 4, and one of 5 …
        (b"\x10\x0cabcd\x01\x04\x11\x00", b"abcdabcdabcdabcd"),  # … repeating its offset
        (b"\x11\x0cabcd\x01\x04\x15\x00\x01", b"abcdabcdabcdabcda"),  # a longer length
        (b"\x8c\x02\x0cabcd\x01\x04\x19\x00\x00\x00", b"abcd" * 67),  # and a still longer one
        (b"\x0a\x0cabcd\x16\x04\x00", b"abcdabcdab"),
        (b"\x0a\x0cabcd\x17\x04\x00\x00\x00", b"abcdabcdab"),
    ],
)
def test_an_s2_block_may_repeat_the_last_offset(body: bytes, content: bytes) -> None:
    assert unpack_frames(b"\xff\x06\x00\x00S2sTwO" + frame(body, content)) == (content, 0)


def test_a_damaged_frame_costs_only_itself() -> None:
    packer = FramePacker()
    content = bytes(range(256)) * 1_024
    packed = packer.begin() + packer.packing(content)()
    assert unpack_frames(packed) == (content, 0)
    for at in range(10, len(packed), 97):
        damaged = bytearray(packed)
        damaged[at] ^= 0x41
        found, count = unpack_frames(bytes(damaged))
        assert count in (0, 1)  # 0: the number before a frame
        assert len(found) <= len(content)
    assert unpack_frames(packed[:-1])[1] == 1


def block(*records: bytes) -> BlockFile:
    return BlockFile(b"".join(records), KEY)


def messages(count: int) -> list[bytes]:
    return [record(Message(n, b"s.%d" % n, b"data", time_ns=n), KEY) for n in range(1, count + 1)]


def test_records_tombstones_and_erased_messages() -> None:
    first, second, third = messages(3)
    erased = record(Message(2, b"", b"random"), KEY, ERASED)
    removed = record(Message(1, b"", time_ns=9), KEY, TOMBSTONE)
    found = block(first, erased, third, removed)
    assert (found.messages, found.first_sequence, found.last_sequence) == (2, 1, 3)
    assert list(found.tombstones) == [1]
    assert (found.last_tombstone, found.last_tombstone_ns) == (1, 9)
    assert not found.damage
    assert block(first, second, second, first).messages == 2
    assert block().messages == 0


def test_damage_is_skipped_and_told() -> None:
    first, second, third = messages(3)
    offset = len(first)
    for at in range(len(second)):
        damaged = bytearray(second)
        damaged[at] ^= 0x10
        found = block(first, bytes(damaged), third)
        if at in (20, 21):  # the length of the subject has no checksum
            continue
        assert found.damage == [(offset, len(second), 1, 3)]
        assert (found.messages, found.last_sequence) == (2, 3)


def test_a_torn_end_is_no_damage() -> None:
    first, second, third = messages(3)
    for size in range(1, len(third)):
        found = block(first, second, third[:size])
        assert (found.messages, found.torn_bytes, found.damage) == (2, size, [])
    assert block(first, bytes(100)).torn_bytes == 100


def test_a_wrong_length_of_headers_shows() -> None:
    whole = record(Message(1, b"s.1", b"body", b"NATS/1.0\r\nA: b\r\n\r\n"), KEY)
    assert block(whole).messages == 1
    for bit in range(32):
        damaged = bytearray(whole)
        damaged[25 + bit // 8] ^= 1 << bit % 8
        assert block(bytes(damaged)).messages == 0


@pytest.mark.parametrize("data", [b"", b"\x0b", b"\x0b\x05", b"\x0c\x04" + bytes(40), b"\x0b\x04"])
def test_what_is_no_index_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedEncoding):
        IndexFile(data)
