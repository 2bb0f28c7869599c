"""index.db, a checksummed snapshot of a store's state, verifies wholly or not at all."""

import os

import pytest

from natsd.store.codec.block_encoding import Seal
from natsd.store.crypto.keys import Cipher, DataKey
from natsd.store.recovery.index_db import DamagedIndex, IndexWriter, StoreImage, read_index

IMAGE = StoreImage(
    commit_number=4,
    first_sequence=2,
    last_sequence=9,
    first_time_ns=200,
    last_time_ns=900,
    births=3,
    message_count=7,
    live_bytes=1234,
    packed_blocks=bytes(range(72)) * 2,
    deleted=b"\x01\x00",
    expiries=b"",
    damage=b"[]",
)
SEED = 0x1234_5678_9ABC_DEF0


def seal(seed: int = SEED) -> Seal:
    return DataKey(Cipher.CHACHA20_POLY1305, bytes(32)).seal(seed, 0, os.urandom)


@pytest.fixture(params=["plain", "encrypted"])
def key(request: pytest.FixtureRequest) -> Seal | None:
    return seal() if request.param == "encrypted" else None


def written(image: StoreImage, pieces: list[bytes], key: Seal | None) -> bytes:
    writer = IndexWriter(SEED, key)
    out = [writer.begin(image)]
    out += [writer.subjects(piece) for piece in pieces]
    return b"".join([*out, writer.end()])


def test_what_was_written_is_read(key: Seal | None) -> None:
    data = written(IMAGE, [b"first", b"second"], key)
    assert read_index(data, key) == (IMAGE, [b"first", b"second"])


def test_an_empty_store(key: Seal | None) -> None:
    assert read_index(written(StoreImage(), [], key), key) == (StoreImage(), [])


def test_any_flipped_bit_is_noticed(key: Seal | None) -> None:
    data = written(IMAGE, [b"subjects"], key)
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedIndex):
            read_index(bytes(flipped), key)


def test_any_cut_and_any_piece_that_is_missing_is_noticed(key: Seal | None) -> None:
    data = written(IMAGE, [b"subjects"], key)
    for size in range(len(data)):
        with pytest.raises(DamagedIndex):
            read_index(data[:size], key)


def test_a_key_is_needed_exactly_where_it_was_used() -> None:
    with pytest.raises(DamagedIndex, match="encrypted"):
        read_index(written(IMAGE, [], seal()), None)
    with pytest.raises(DamagedIndex, match="encrypted"):
        read_index(written(IMAGE, [], None), seal())
