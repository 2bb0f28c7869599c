"""Envelopes hold the same logical bytes in any form; damage costs one envelope and is reported."""

import os
import struct
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.store.codec.block_encoding import (
    BLOCK_HEADER_BYTES,
    HEADER_BYTES,
    PIECE_BYTES,
    Seal,
    find_seed,
    unwrap,
    wrap,
    wrap_block,
)
from natsd.store.codec.records import KIND_MARK, KIND_MESSAGE, encode
from natsd.store.crypto.keys import Cipher, DataKey

SEED = 0x1122334455667788
BLOCK_HEADER = b"NATSDBLK" + bytes(range(56))
KEYS = {cipher: DataKey(cipher, bytes(range(32))) for cipher in Cipher}


def seal_of(cipher: Cipher | None, seed: int = SEED) -> Seal | None:
    return None if cipher is None else KEYS[cipher].seal(seed, 1, os.urandom)


def record(sequence: int, data: bytes, kind: int = KIND_MESSAGE) -> bytes:
    return encode(SEED, sequence, "orders.new", None, data, 1_000 + sequence, kind=kind)


def block(*payloads: bytes) -> bytes:
    records = (record(sequence, data) for sequence, data in enumerate(payloads, 1))
    marks = record(len(payloads), b"mark", KIND_MARK) * 2
    return BLOCK_HEADER + b"".join(records) + marks


forms = pytest.mark.parametrize("cipher", [None, *Cipher])
TEXT = b"the same words again and again " * 40
BLOCK = block(*(TEXT * (1 + index % 5) for index in range(60)), os.urandom(5000))


@forms
def test_a_sealed_block_comes_back(cipher: Cipher | None) -> None:
    wrapped = wrap_block(BLOCK, SEED, seal_of(cipher))
    assert wrapped[:BLOCK_HEADER_BYTES] == BLOCK_HEADER
    assert len(wrapped) < len(BLOCK) / 3
    unwrapped = unwrap(wrapped, SEED, seal_of(cipher))
    assert unwrapped.logical == BLOCK
    assert unwrapped.damage == []
    assert not unwrapped.torn
    assert unwrapped.physical_end == len(wrapped)


@forms
def test_commit_after_commit_comes_back_up_to_the_preallocated_zeros(
    cipher: Cipher | None,
) -> None:
    logical, file = BLOCK_HEADER, BLOCK_HEADER
    for commit in range(5):
        extent = record(commit, os.urandom(50 * commit)) + record(commit, b"", KIND_MARK) * 2
        file += wrap(extent, len(logical), SEED, seal_of(cipher))
        logical += extent
    unwrapped = unwrap(file + bytes(9000), SEED, seal_of(cipher))
    assert (unwrapped.logical, unwrapped.physical_end) == (logical, len(file))
    assert not unwrapped.torn


@given(sizes=st.lists(st.integers(0, 90_000), max_size=8), cipher=st.sampled_from([None, *Cipher]))
@settings(max_examples=50)
def test_pieces_end_where_records_end(sizes: list[int], cipher: Cipher | None) -> None:
    logical = block(*(bytes(size) for size in sizes))
    unwrapped = unwrap(wrap_block(logical, SEED, seal_of(cipher)), SEED, seal_of(cipher))
    assert unwrapped.logical == logical
    starts = set()
    at = BLOCK_HEADER_BYTES
    while at < len(logical):
        starts.add(at)
        at += struct.unpack_from("<I", logical, at)[0]
    for span, following in pairwise(unwrapped.spans[1:]):
        assert following.logical in starts
        pieces = [start for start in starts if span.logical <= start < following.logical]
        assert span.logical_length <= PIECE_BYTES or len(pieces) == 1


def test_nothing_is_kept_in_clear_of_what_is_encrypted() -> None:
    wrapped = wrap_block(BLOCK, SEED, seal_of(Cipher.CHACHA20_POLY1305))
    assert b"orders" not in wrapped
    assert b"words" not in wrapped
    # Each envelope has a random nonce.
    assert wrap_block(BLOCK, SEED, seal_of(Cipher.CHACHA20_POLY1305)) != wrapped


def test_what_does_not_shrink_is_kept_as_it_is() -> None:
    data = os.urandom(3000)
    assert data in wrap_block(block(data), SEED)


@forms
def test_every_flipped_bit_costs_one_piece_and_is_reported(cipher: Cipher | None) -> None:
    """A flipped bit serves no wrong byte, costs one envelope, and is reported."""
    extents = [record(n, bytes([n]) * 5) for n in range(3)] + [record(3, b"", KIND_MARK)] * 2
    logical, file, bounds = BLOCK_HEADER, BLOCK_HEADER, []
    for extent in extents:
        start = len(file)
        file += wrap(extent, len(logical), SEED, seal_of(cipher))
        bounds.append((start, len(file), len(logical), len(extent)))
        logical += extent
    for start, end, logical_start, length in bounds[:-1]:
        expected = bytearray(logical)
        expected[logical_start : logical_start + length] = bytes(length)
        for bit in range(8 * start, 8 * end, 1 if cipher is None else 5):
            flipped = bytearray(file)
            flipped[bit // 8] ^= 1 << bit % 8
            unwrapped = unwrap(flipped, SEED, seal_of(cipher))
            assert unwrapped.logical == expected
            (damage,) = unwrapped.damage
            assert (damage.offset, damage.length) == (start, end - start)
            assert (damage.logical_offset, damage.logical_length) == (logical_start, length)
            assert not unwrapped.torn


@forms
def test_what_is_damaged_or_torn_at_the_end_is_not_taken(cipher: Cipher | None) -> None:
    """A last envelope that does not verify is not read.

    The commit marks decide whether it is damaged or torn: natsd/store/block/scan.pyx has the rules.
    """
    first = wrap(record(1, b"first"), 64, SEED, seal_of(cipher))
    last = wrap(record(2, b"last"), 64 + len(record(1, b"first")), SEED, seal_of(cipher))
    file = BLOCK_HEADER + first + last
    whole = BLOCK_HEADER + record(1, b"first")
    for size in range(len(file) - len(last) + 1, len(file)):
        unwrapped = unwrap(file[:size], SEED, seal_of(cipher))
        assert unwrapped.logical == whole
        assert unwrapped.torn
        assert unwrapped.physical_end == len(file) - len(last)


@forms
@pytest.mark.parametrize("page", [512, 4096])
def test_a_zeroed_page_costs_the_pieces_it_touches(cipher: Cipher | None, page: int) -> None:
    logical = block(*(os.urandom(700) for _ in range(200)))
    file = wrap_block(logical, SEED, seal_of(cipher))
    spans = unwrap(file, SEED, seal_of(cipher)).spans[1:]
    for at in range(page, len(file) - 2 * page, 8 * page + 512):
        zeroed = file[:at] + bytes(page) + file[at + page :]
        expected = bytearray(logical)
        for span in spans:
            if span.physical < at + page and at < span.physical + span.physical_length:
                expected[span.logical : span.logical + span.logical_length] = bytes(
                    span.logical_length
                )
        unwrapped = unwrap(zeroed, SEED, seal_of(cipher))
        assert unwrapped.logical == expected
        assert unwrapped.damage


@forms
def test_a_block_survives_the_loss_of_its_header(cipher: Cipher | None) -> None:
    file = wrap_block(BLOCK, SEED, seal_of(cipher))
    damaged = bytes(BLOCK_HEADER_BYTES) + file[BLOCK_HEADER_BYTES:]
    assert find_seed(damaged) == SEED
    assert find_seed(damaged + bytes(5000)) == SEED
    unwrapped = unwrap(damaged, SEED, seal_of(cipher))
    assert unwrapped.logical[BLOCK_HEADER_BYTES:] == BLOCK[BLOCK_HEADER_BYTES:]
    # Without the headers of block and first envelope, the seed comes from the last envelope.
    damaged = bytes(BLOCK_HEADER_BYTES + HEADER_BYTES) + file[BLOCK_HEADER_BYTES + HEADER_BYTES :]
    assert find_seed(damaged) == SEED
    assert find_seed(damaged + bytes(5000)) == SEED
    assert find_seed(os.urandom(1000)) is None


def test_a_block_file_as_a_payload_passes_for_nothing() -> None:
    """A payload cannot forge an envelope, since it does not know the seed or the place."""
    forged_seed = 77
    forged = wrap_block(block(b"forged" * 100), forged_seed)
    logical = block(b"first", os.urandom(100) + forged, b"last")
    file = BLOCK_HEADER + wrap(logical[BLOCK_HEADER_BYTES:], BLOCK_HEADER_BYTES, SEED)
    assert forged in file
    for at in range(BLOCK_HEADER_BYTES, BLOCK_HEADER_BYTES + HEADER_BYTES):
        flipped = bytearray(file)
        flipped[at] ^= 4
        unwrapped = unwrap(flipped, SEED)
        assert b"forged" not in unwrapped.logical
        assert find_seed(flipped) == SEED


@forms
def test_an_envelope_in_the_wrong_place_is_not_taken(cipher: Cipher | None) -> None:
    one, two = record(1, b"one"), record(2, b"two")
    first = wrap(one, 64, SEED, seal_of(cipher))
    second = wrap(two, 64 + len(one), SEED, seal_of(cipher))
    repeated = unwrap(BLOCK_HEADER + first + first + second, SEED, seal_of(cipher))
    assert repeated.logical == BLOCK_HEADER + one + two
    assert repeated.damage[0].offset == 64 + len(first)
    missing = unwrap(BLOCK_HEADER + second, SEED, seal_of(cipher))
    assert missing.logical == BLOCK_HEADER + bytes(len(one)) + two
    assert missing.damage[0].what == "envelope missing"


def test_what_is_in_clear_is_not_taken_where_it_should_be_encrypted() -> None:
    """A user who can write the file but lacks the key cannot add records to an encrypted block."""
    file = wrap_block(BLOCK, SEED)
    unwrapped = unwrap(file, SEED, seal_of(Cipher.AES_256_GCM))
    assert not any(unwrapped.logical[BLOCK_HEADER_BYTES:])
    assert unwrapped.damage


def test_another_seed_or_key_opens_nothing() -> None:
    file = wrap_block(BLOCK, SEED, seal_of(Cipher.AES_256_GCM))
    other = seal_of(Cipher.AES_256_GCM, seed=1)
    for seed, seal in ((1, other), (SEED, other), (SEED, None)):
        assert not any(unwrap(file, seed, seal).logical[BLOCK_HEADER_BYTES:])


def test_offsets_are_told_in_the_file() -> None:
    first, second = record(1, TEXT), record(2, b"", KIND_MARK)
    file = BLOCK_HEADER + wrap(first + second, 64, SEED, compress=True)
    unwrapped = unwrap(file, SEED)
    second_at = unwrapped.spans[2].physical
    assert unwrapped.physical_offset(10) == 10
    assert unwrapped.physical_offset(64) == 64
    assert unwrapped.physical_offset(64 + len(first) - 1) == 64
    assert unwrapped.physical_offset(64 + len(first)) == second_at
    assert unwrapped.physical_offset(len(unwrapped.logical)) == len(file)


@given(st.binary(max_size=400))
def test_garbage_gives_nothing_and_does_not_raise(garbage: bytes) -> None:
    unwrapped = unwrap(BLOCK_HEADER + garbage, SEED)
    assert unwrapped.logical == BLOCK_HEADER
    assert unwrap(garbage, SEED).logical[BLOCK_HEADER_BYTES:] == b""
