"""Doubled files: either of the two copies alone is enough, and all damage is seen."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.store.disk.doubled_file import (
    PAGE_BYTES,
    Content,
    CopyDamage,
    decode_doubled,
    encode_doubled,
    read_file,
    replace_file,
)
from natsd.store.disk.real_disk import RealDisk

MAGIC = b"TESTFILE"
PLACE = "S/small.db"


def encode(body: bytes) -> bytes:
    return encode_doubled(Content(MAGIC, body, 7, PLACE))


def body_of(data: bytes) -> bytes | None:
    content = decode_doubled(data).content
    if content is None:
        return None
    assert content == Content(MAGIC, content.body, 7, PLACE)
    return content.body


@given(st.binary(max_size=3 * PAGE_BYTES))
def test_a_body_comes_back_from_pages(body: bytes) -> None:
    data = encode(body)
    assert len(data) % (2 * PAGE_BYTES) == 0
    assert body_of(data) == body
    assert decode_doubled(data).damage == ()


def test_every_flipped_bit_costs_nothing_and_is_seen() -> None:
    body = b"what matters"
    data = encode(body)
    halves = (range(64), range(PAGE_BYTES, PAGE_BYTES + 64), (PAGE_BYTES - 1, len(data) - 1))
    for at in (at for positions in halves for at in positions):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            doubled = decode_doubled(bytes(flipped))
            assert body_of(bytes(flipped)) == body
            damaged = at // PAGE_BYTES * PAGE_BYTES
            assert doubled.damage == (CopyDamage(damaged, PAGE_BYTES),)


@pytest.mark.parametrize("size", [0, 5000, 9000])
def test_a_zeroed_page_costs_nothing(size: int) -> None:
    body = bytes(range(256)) * (size // 256)
    data = encode(body)
    half = len(data) // 2
    for page in range(0, len(data), PAGE_BYTES):
        zeroed = data[:page] + bytes(PAGE_BYTES) + data[page + PAGE_BYTES :]
        doubled = decode_doubled(zeroed)
        assert body_of(zeroed) == body
        if zeroed != data:
            assert doubled.damage == (CopyDamage(page // half * half, half),)


def test_a_cut_costs_nothing_behind_the_first_copy_and_everything_within_it() -> None:
    body = b"what matters"
    data = encode(body)
    for size in range(0, len(data), 7):
        whole = 16 + 2 + len(PLACE) + len(body) + 8
        assert decode_doubled(data[:size]).damage
        assert body_of(data[:size]) == (body if size >= whole else None)


def test_a_file_within_a_file_passes_for_nothing() -> None:
    inner = encode(b"forged")
    data = bytearray(encode(bytes(PAGE_BYTES - 16 - 2 - len(PLACE)) + inner))
    data[8] ^= 1
    assert b"forged" in (body_of(bytes(data)) or b"")  # the second copy verifies
    for at in (8, len(data) // 2 + 8):
        data[at] ^= 2
    assert body_of(bytes(data)) is None


def test_both_copies_damaged_give_nothing() -> None:
    data = bytearray(encode(b"what matters"))
    data[20] ^= 1
    data[PAGE_BYTES + 20] ^= 1
    doubled = decode_doubled(bytes(data))
    assert doubled.content is None
    assert doubled.damage == (CopyDamage(0, PAGE_BYTES), CopyDamage(PAGE_BYTES, PAGE_BYTES))


def test_what_is_appended_is_damage_that_costs_nothing() -> None:
    data = encode(b"body")
    doubled = decode_doubled(data + b"more")
    assert body_of(data + b"more") == b"body"
    assert doubled.damage == (CopyDamage(len(data), 4),)


def test_what_an_earlier_version_wrote_is_read() -> None:
    """A file of an earlier version is read, which has neither generation nor place."""
    content = Content(MAGIC, b"body")
    data = encode_doubled(content)
    assert data[16:20] == b"body"
    assert decode_doubled(data).content == content


def test_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "small.db"
    for body in (b"first" * 3000, b"second"):
        replace_file(RealDisk(), path, encode(body))
        assert body_of(read_file(RealDisk(), path)) == body
    assert [entry.name for entry in tmp_path.iterdir()] == ["small.db"]
