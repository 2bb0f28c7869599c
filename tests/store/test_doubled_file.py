"""Doubled files: either copy alone is enough, and damage of any kind is seen."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.store.disk import RealDisk
from natsd.store.doubled_file import (
    PAGE_BYTES,
    CopyDamage,
    decode_doubled,
    encode_doubled,
    read_file,
    replace_doubled,
)

MAGIC = b"TESTFILE"


@given(st.binary(max_size=3 * PAGE_BYTES))
def test_a_body_comes_back_from_pages(body: bytes) -> None:
    data = encode_doubled(MAGIC, body)
    assert len(data) % (2 * PAGE_BYTES) == 0
    assert decode_doubled(MAGIC, data).body == body
    assert decode_doubled(MAGIC, data).damage == ()


def test_every_flipped_bit_costs_nothing_and_is_seen() -> None:
    body = b"what matters"
    data = encode_doubled(MAGIC, body)
    halves = (range(64), range(PAGE_BYTES, PAGE_BYTES + 64), (PAGE_BYTES - 1, len(data) - 1))
    for at in (at for positions in halves for at in positions):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            doubled = decode_doubled(MAGIC, bytes(flipped))
            assert doubled.body == body
            damaged = at // PAGE_BYTES * PAGE_BYTES
            assert doubled.damage == (CopyDamage(damaged, PAGE_BYTES),)


@pytest.mark.parametrize("size", [0, 5000, 9000])
def test_a_zeroed_page_costs_nothing(size: int) -> None:
    body = bytes(range(256)) * (size // 256)
    data = encode_doubled(MAGIC, body)
    half = len(data) // 2
    for page in range(0, len(data), PAGE_BYTES):
        zeroed = data[:page] + bytes(PAGE_BYTES) + data[page + PAGE_BYTES :]
        doubled = decode_doubled(MAGIC, zeroed)
        assert doubled.body == body
        if zeroed != data:
            assert doubled.damage == (CopyDamage(page // half * half, half),)


def test_a_cut_costs_nothing_behind_the_first_copy_and_everything_within_it() -> None:
    body = b"what matters"
    data = encode_doubled(MAGIC, body)
    for size in range(0, len(data), 7):
        doubled = decode_doubled(MAGIC, data[:size])
        assert doubled.damage
        assert doubled.body == (body if size >= 16 + len(body) + 8 else None)


def test_a_file_within_a_file_passes_for_nothing() -> None:
    inner = encode_doubled(MAGIC, b"forged")
    data = bytearray(encode_doubled(MAGIC, bytes(PAGE_BYTES - 16) + inner))
    data[8] ^= 1
    assert b"forged" in (decode_doubled(MAGIC, bytes(data)).body or b"")  # the second copy
    for at in (8, len(data) // 2 + 8):
        data[at] ^= 2
    assert decode_doubled(MAGIC, bytes(data)).body is None


def test_both_copies_damaged_give_nothing() -> None:
    data = bytearray(encode_doubled(MAGIC, b"what matters"))
    data[20] ^= 1
    data[PAGE_BYTES + 20] ^= 1
    doubled = decode_doubled(MAGIC, bytes(data))
    assert doubled.body is None
    assert doubled.damage == (CopyDamage(0, PAGE_BYTES), CopyDamage(PAGE_BYTES, PAGE_BYTES))


def test_what_is_appended_is_damage_that_costs_nothing() -> None:
    data = encode_doubled(MAGIC, b"body")
    doubled = decode_doubled(MAGIC, data + b"more")
    assert doubled.body == b"body"
    assert doubled.damage == (CopyDamage(len(data), 4),)


def test_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "small.db"
    for body in (b"first" * 3000, b"second"):
        replace_doubled(RealDisk(), path, MAGIC, body)
        assert decode_doubled(MAGIC, read_file(RealDisk(), path)).body == body
    assert [entry.name for entry in tmp_path.iterdir()] == ["small.db"]
