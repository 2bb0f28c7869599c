"""A block file in any form gives the same messages, and tells damage where it is in the file."""

import os
import random

import pytest

from natsd.store.block import MsgBlock
from natsd.store.block_form import (
    WRAPPED,
    BlockForm,
    BlockHeader,
    make_file,
    wrap_extent,
)
from natsd.store.keys import Cipher, DataKey
from natsd.store.scan import Scan

SEED = 0x5EED5EED5EED5EED
KEY = DataKey(Cipher.CHACHA20_POLY1305, bytes(range(32)))
FORMS = [(None, False), (None, True), (KEY, False), (KEY, True)]
forms = pytest.mark.parametrize(("data_key", "compress"), FORMS)


def extents(*commits: int) -> list[bytes]:
    """What a block of that many messages in each commit writes."""
    block = MsgBlock(1, SEED, 1, 1 << 20)
    noise = random.Random(5)
    found = []
    for number, count in enumerate(commits, 1):
        for _ in range(count):
            sequence = block.last_sequence + 1
            block.put(sequence, f"orders.{sequence}", None, noise.randbytes(90), sequence)
        extent = block.take_extent(number, 1)
        assert extent is not None
        found.append(bytes(memoryview(extent)))
        block.committed()
    return found


def read(file: bytes, data_key: DataKey | None) -> tuple[BlockForm, Scan]:
    form = BlockForm.read(file, 1, data_key, os.urandom)
    return form, Scan(form.logical)


@forms
def test_every_form_gives_the_same_messages(data_key: DataKey | None, compress: bool) -> None:
    logical = b"".join(extents(3, 900, 2))
    file = make_file(logical, data_key, os.urandom, compress=compress)
    form, scan = read(file, data_key)
    assert form.logical[64:] == logical[64:]
    assert scan.message_count == 905
    assert scan.damage == []
    header = BlockHeader.parse(file)
    assert header is not None
    assert bool(header.flags & WRAPPED) == (compress or data_key is not None)
    assert (header.seed, header.block_id, header.first_sequence) == (SEED, 1, 1)
    again = make_file(form.logical, None, os.urandom, compress=False)
    assert again == logical


def test_an_encrypted_block_grows_extent_by_extent() -> None:
    seal = KEY.seal(SEED, 1, os.urandom)
    logical = file = b""
    for extent in extents(2, 1, 300):
        file += wrap_extent(extent, len(logical), SEED, seal)
        logical += extent
        form, scan = read(file + bytes(100), KEY)
        assert form.logical[64:] == logical[64:]
        assert form.file_offset(len(logical)) == len(file)
        assert not scan.damage


@forms
def test_damage_is_told_where_it_is_in_the_file(data_key: DataKey | None, compress: bool) -> None:
    logical = b"".join(extents(*([40] * 60)))
    file = make_file(logical, data_key, os.urandom, compress=compress)
    for at in range(100, len(file) - 2000, 3001):
        flipped = file[:at] + bytes([file[at] ^ 16]) + file[at + 1 :]
        form, scan = read(flipped, data_key)
        (damage,) = form.locate(scan.damage)
        assert damage.offset <= at < damage.offset + damage.length
        assert scan.message_count < 2400 or not damage.first_sequence
        for sequence in range(1, 2401):
            assert (scan.read(sequence) is not None) != damage.covers(sequence)


@forms
def test_a_damaged_header_costs_nothing(data_key: DataKey | None, compress: bool) -> None:
    file = make_file(b"".join(extents(5, 5)), data_key, os.urandom, compress=compress)
    for at in range(64):
        form, scan = read(file[:at] + bytes([file[at] ^ 1]) + file[at + 1 :], data_key)
        assert scan.message_count == 10
        assert [damage.what for damage in form.locate(scan.damage)] == ["block header damaged"]


def test_what_is_not_encrypted_does_not_count_where_a_key_is_given() -> None:
    file = make_file(b"".join(extents(5)), None, os.urandom, compress=False)
    _, scan = read(file, KEY)
    assert scan.message_count == 0
    _, scan = read(make_file(b"".join(extents(5)), KEY, os.urandom, compress=False), None)
    assert scan.message_count == 0
