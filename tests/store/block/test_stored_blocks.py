"""A block file in any form gives the same messages; damage is reported with its file offset."""

import os
import random
from pathlib import Path

import pytest

from natsd.store.block.blocks import MsgBlock, Scan
from natsd.store.block.stored_blocks import WRAPPED, StoredBlocks
from natsd.store.codec.block_encoding import BLOCK_HEADER_BYTES, wrap
from natsd.store.crypto.keys import Cipher, DataKey
from natsd.store.disk.real_disk import RealDisk

SEED = 0x5EED5EED5EED5EED
KEY = DataKey(Cipher.CHACHA20_POLY1305, bytes(range(32)))
forms = pytest.mark.parametrize(
    ("data_key", "compress"), [(None, False), (None, True), (KEY, False), (KEY, True)]
)


def stored_blocks(data_key: DataKey | None) -> StoredBlocks:
    directory = Path("/nowhere")
    return StoredBlocks(
        RealDisk(), directory, os.urandom, block_bytes_max=1 << 20, data_key=data_key
    )


def make_block(*commits: int, data_key: DataKey | None = None) -> bytes:
    """Return the logical bytes of a block with `commits[i]` messages in commit i."""
    block = MsgBlock(1, SEED, 1, 1 << 20, flags=0 if data_key is None else WRAPPED)
    noise = random.Random(5)
    logical = b""
    for number, count in enumerate(commits, 1):
        for _ in range(count):
            sequence = block.last_sequence + 1
            block.put(sequence, f"orders.{sequence}", None, noise.randbytes(90), sequence)
        extent = block.take_extent(number, 1)
        assert extent is not None
        logical += bytes(memoryview(extent))
        block.committed()
    return logical


def make_file(logical: bytes, data_key: DataKey | None, *, compress: bool) -> bytes:
    block = MsgBlock.from_scan(Scan(logical), 1 << 20)
    return stored_blocks(data_key).sealed_bytes(logical, block, compress=compress)


@forms
def test_every_form_gives_the_same_messages(data_key: DataKey | None, compress: bool) -> None:
    logical = make_block(3, 900, 2)
    read = stored_blocks(data_key).scan(make_file(logical, data_key, compress=compress), 1)
    assert read.scan.data[64:] == logical[64:]
    assert (read.scan.message_count, read.damage) == (905, [])
    assert read.physical_offset(0) == 0


@forms
def test_damage_is_told_where_it_is_in_the_file(data_key: DataKey | None, compress: bool) -> None:
    file = make_file(make_block(*([40] * 60)), data_key, compress=compress)
    for at in range(100, len(file) - 2000, 3001):
        flipped = file[:at] + bytes([file[at] ^ 16]) + file[at + 1 :]
        read = stored_blocks(data_key).scan(flipped, 1)
        (damage,) = read.damage
        assert damage.offset <= at < damage.offset + damage.length
        for sequence in range(1, 2401):
            assert (read.scan.read(sequence) is not None) != damage.covers(sequence)


@forms
def test_a_damaged_header_costs_nothing(data_key: DataKey | None, compress: bool) -> None:
    file = make_file(make_block(5, 5), data_key, compress=compress)
    for at in range(64):
        flipped = file[:at] + bytes([file[at] ^ 1]) + file[at + 1 :]
        read = stored_blocks(data_key).scan(flipped, 1)
        assert read.scan.message_count == 10
        assert [damage.what for damage in read.damage] == ["block header damaged"]


def test_an_end_that_is_missing_is_damage_where_it_is_proven() -> None:
    logical = make_block(5, 5)
    file = make_file(logical, KEY, compress=False)
    cut = file[:-300]
    torn = stored_blocks(KEY).scan(cut, 1)
    assert torn.damage == []
    for proven in (-1, len(logical)):
        (damage,) = stored_blocks(KEY).scan(cut, 1, proven=proven).damage
        assert (damage.what, damage.offset + damage.length) == (
            "envelopes missing or damaged",
            len(cut),
        )


def test_a_clear_block_that_was_cut_is_told_wherever_that_was() -> None:
    """A cut of a clear block is reported; if it is right behind a mark, only by index.db's size."""
    logical = make_block(3, 2)
    blocks = stored_blocks(None)
    assert blocks.scan(logical + bytes(100), 1, proven=-1).damage == []
    first = len(make_block(3))  # a commit's mark is written twice
    for size in range(65, len(logical)):
        read = blocks.scan(logical[:size], 1, proven=-1)
        assert read.damage or read.scan.message_count == 5 or size in {first, first - 104}
        assert blocks.scan(logical[:size], 1, proven=-1, size_min=len(logical)).damage


def test_only_what_is_encrypted_counts_where_there_is_a_key() -> None:
    logical = make_block(5)
    for compress in (False, True):
        clear = make_file(logical, None, compress=compress)
        assert stored_blocks(KEY).scan(clear, 1).scan.message_count == 0
        encrypted = make_file(logical, KEY, compress=compress)
        assert stored_blocks(None).scan(encrypted, 1).scan.message_count == 0


def test_envelopes_in_a_payload_do_not_make_a_clear_block_a_wrapped_one() -> None:
    """A clear block with an envelope as a payload is read as a clear one.

    Its header is damaged, and its end is torn where the payload's envelope ends.
    """
    forged = wrap(make_block(3)[BLOCK_HEADER_BYTES:], BLOCK_HEADER_BYTES, 77)
    block = MsgBlock(1, SEED, 1, 1 << 20)
    block.put(1, "orders", None, b"mine", 1)
    extent = block.take_extent(1, 1)
    assert extent is not None
    file = bytearray(bytes(memoryview(extent)))
    block.committed()
    block.put(2, "orders", None, forged, 2)
    following = block.take_extent(2, 1)
    assert following is not None
    data = bytes(memoryview(following))
    file += data[: data.index(forged) + len(forged)]
    file[20] ^= 1
    read = stored_blocks(None).scan(bytes(file), 1)
    message = read.scan.read(1)
    assert message is not None
    assert message.data == b"mine"
