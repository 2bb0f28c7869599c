"""The journal's bytes: which are torn, which are damaged, and what a replay writes."""

import random
from pathlib import Path

import pytest

from natsd.store.block.blocks import MsgBlock
from natsd.store.codec.records import checksum
from natsd.store.disk.real_disk import RealDisk
from natsd.store.wal.entries import Extent, encode_entries
from natsd.store.wal.format import HEADER_BYTES, SECTOR_BYTES, encode_batch, encode_header
from natsd.store.wal.replay import Replayed, replay
from natsd.store.wal.write_ahead_log import (
    FORGET,
    HEADER_MAGIC,
    IDENTITY,
    VERSION,
    WRITE,
    WRITE_ANY,
    WriteAheadLog,
)
from tests.store.faulty_disk import FaultyDisk

DISK = RealDisk()
SEED = 0x1234


def entry(name: str, offset: int, data: bytes, seed: int = SEED, identity: int = 0) -> bytes:
    named = name.encode() + IDENTITY.pack(identity)
    return encode_entries(seed, [(WRITE, named, offset, data)])


def forget(name: str) -> bytes:
    return encode_entries(SEED, [(FORGET, name.encode(), 0, b"")])


def batch(number: int, *entries: bytes, seed: int = SEED) -> bytes:
    return encode_batch(seed, number, len(entries), b"".join(entries))


def write_journal(
    directory: Path, *batches: bytes, name: str = "journal.0", epoch: int = 1
) -> Path:
    """Write a journal of these batches, followed by zeros, and return its path."""
    path = directory / name
    path.write_bytes(
        encode_header(HEADER_MAGIC, VERSION, epoch, SEED) + b"".join(batches) + bytes(4096)
    )
    return path


def test_layout() -> None:
    """Header, entries and batches are laid out as natsd/store/wal/format.py draws them."""
    header = encode_header(HEADER_MAGIC, VERSION, 7, SEED)
    assert (len(header), header[:512]) == (HEADER_BYTES, header[512:])
    assert (header[:8], header[8:10]) == (b"NATSDJNL", b"\2\0")
    assert int.from_bytes(header[16:24], "little") == 7
    assert int.from_bytes(header[24:32], "little") == SEED
    one = entry("a/1.blk", 64, b"data", identity=258)
    assert (len(one), one[:8]) == (32 + 7 + 8 + 4, b"\4\0\0\0\x0f\0\3\0")
    assert int.from_bytes(one[8:16], "little") == 64
    assert one[32:] == b"a/1.blk\2\1\0\0\0\0\0\0data"
    whole = batch(3, one, one)
    assert len(whole) == SECTOR_BYTES
    assert (whole[:4], int.from_bytes(whole[4:8], "little")) == (b"JBAT", 2 * len(one))
    assert int.from_bytes(whole[8:16], "little") == 3
    assert int.from_bytes(whole[16:20], "little") == 2


def test_later_batches_win(tmp_path: Path) -> None:
    write_journal(tmp_path, batch(1, entry("f", 0, b"aaaa")), batch(2, entry("f", 2, b"bb")))
    replayed = replay(DISK, tmp_path)
    assert (tmp_path / "f").read_bytes() == b"aabb"
    assert replayed == Replayed([tmp_path / "f"], 6, [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f"]


def test_segments_are_replayed_in_the_order_of_their_batches(tmp_path: Path) -> None:
    write_journal(tmp_path, batch(3, entry("f", 0, b"new")), epoch=2)
    write_journal(tmp_path, batch(1, entry("f", 0, b"old")), batch(2), name="journal.1")
    assert replay(DISK, tmp_path).damage == []
    assert (tmp_path / "f").read_bytes() == b"new"


def test_what_is_forgotten_is_not_written(tmp_path: Path) -> None:
    write_journal(
        tmp_path,
        batch(1, entry("f", 0, b"old"), entry("g", 0, b"g")),
        batch(2, forget("f"), forget("g")),
        batch(3, forget("f"), forget("g")),
        batch(4, entry("g", 5, b"new")),
    )
    replay(DISK, tmp_path)
    assert not (tmp_path / "f").exists()
    assert (tmp_path / "g").read_bytes() == bytes(5) + b"new"


@pytest.mark.parametrize("damaged", [0, 1])
def test_a_damaged_forget_brings_nothing_back(tmp_path: Path, damaged: int) -> None:
    """A file stays forgotten if one of its two FORGET entries is damaged."""
    forgets = [batch(2, forget("f")), batch(3, forget("f"))]
    flipped = bytearray(forgets[damaged])
    flipped[40] ^= 4
    forgets[damaged] = bytes(flipped)
    write_journal(tmp_path, batch(1, entry("f", 0, b"old")), *forgets, batch(4))
    assert len(replay(DISK, tmp_path).damage) == 1
    assert not (tmp_path / "f").exists()


def test_a_directory_that_is_gone_stays_gone(tmp_path: Path) -> None:
    write_journal(tmp_path, batch(1, entry("gone/f", 0, b"x")))
    assert replay(DISK, tmp_path) == Replayed()
    assert list(tmp_path.iterdir()) == []


def block_header(seed: int) -> bytes:
    extent = MsgBlock(1, seed, 1, 1000).take_extent(1, 1, force=True)
    assert extent is not None
    return bytes(extent)[:64]


@pytest.mark.parametrize("others_first", [False, True])
def test_what_was_written_to_an_earlier_file_is_not_written_to_a_later_one(
    tmp_path: Path, others_first: bool
) -> None:
    """A replay writes nothing to a later file at the same path, even without a FORGET entry.

    A file is recognized by the random number in its header.
    """
    (tmp_path / "f").write_bytes(block_header(7) + b"seven")
    pieces = [entry("f", 64, b"eight", identity=8), entry("f", 69, b" seven", identity=7)]
    write_journal(
        tmp_path, *(batch(1 + i, p) for i, p in enumerate(pieces[:: 1 - 2 * others_first]))
    )
    replayed = replay(DISK, tmp_path)
    assert (tmp_path / "f").read_bytes()[64:] == b"seven seven"
    assert replayed == Replayed([tmp_path / "f"], 6, [tmp_path / "f"])


@pytest.mark.parametrize("found", [b"", bytes(100), block_header(7)[:40], b"x" * 64])
def test_a_file_whose_header_is_not_there_is_the_last_one(tmp_path: Path, found: bytes) -> None:
    """A file without a header gets the newest header and the entries that belong to it.

    After a power cut the journal may be the only place where the header is.
    """
    (tmp_path / "f").write_bytes(found)
    header = block_header(8)
    write_journal(
        tmp_path,
        batch(1, entry("f", 0, block_header(7) + b"seven and more", identity=7)),
        batch(2, entry("f", 0, header, identity=8), entry("f", 64, b"eight", identity=8)),
    )
    assert replay(DISK, tmp_path).foreign == [tmp_path / "f"]
    assert (tmp_path / "f").read_bytes()[:69] == header + b"eight"


def test_a_journal_of_the_version_before_is_replayed(tmp_path: Path) -> None:
    """A journal of version 1 is replayed, whose entries carry no identity."""
    old = encode_entries(SEED, [(WRITE_ANY, b"f", 64, b"data")])
    path = write_journal(tmp_path, batch(1, old))
    data = bytearray(path.read_bytes())
    for at in (0, 512):
        data[at + 8] = 1
        data[at + 32 : at + 40] = checksum(bytes(data[at : at + 32])).to_bytes(8, "little")
    path.write_bytes(data)
    (tmp_path / "f").write_bytes(block_header(7))
    assert replay(DISK, tmp_path) == Replayed([tmp_path / "f"], 4)
    assert (tmp_path / "f").read_bytes()[64:] == b"data"


def test_a_torn_end_is_no_damage(tmp_path: Path) -> None:
    """A torn last batch is not reported as damage, since it was never acknowledged."""
    whole, torn = batch(1, entry("f", 0, b"a" * 600)), batch(2, entry("f", 600, b"b" * 600))
    for cut in range(0, len(torn), 100):
        write_journal(tmp_path, whole, torn[:cut])
        assert replay(DISK, tmp_path).damage == []
        assert (tmp_path / "f").read_bytes()[:600] == b"a" * 600
        (tmp_path / "f").unlink()


def test_a_batch_of_another_epoch_is_none(tmp_path: Path) -> None:
    """A replay ignores the batches of an earlier epoch behind the end of a reused segment."""
    write_journal(
        tmp_path, batch(9, entry("f", 0, b"new")), batch(2, entry("f", 0, b"old", 5), seed=5)
    )
    assert replay(DISK, tmp_path).damage == []
    assert (tmp_path / "f").read_bytes() == b"new"


def test_a_journal_as_a_payload_is_a_payload(tmp_path: Path) -> None:
    inner = bytes(SECTOR_BYTES - 65) + batch(7, entry("g", 0, b"forged", 5), seed=5)
    write_journal(tmp_path, batch(1, entry("f", 0, inner)), batch(2, entry("f", 0, b"x")))
    assert replay(DISK, tmp_path).damage == []
    assert not (tmp_path / "g").exists()


def test_every_flipped_bit_is_damage_to_one_batch_at_most(tmp_path: Path) -> None:
    """A flipped bit writes no wrong byte and costs no other batch."""
    batches = [batch(i, entry(f"f{i}", 0, bytes([i]) * 10)) for i in (1, 2, 3)]
    path = write_journal(tmp_path, *batches)
    good = path.read_bytes()
    used = [
        range(HEADER_BYTES + 512 * i, HEADER_BYTES + 512 * i + 32 + 32 + 10 + 10) for i in range(3)
    ]
    for where in (range(40), range(512, 552), *used[:2]):
        for at in where:
            bad = bytearray(good)
            bad[at] ^= 1 << at % 8
            path.write_bytes(bad)
            damage = replay(DISK, tmp_path).damage
            for i in (1, 2, 3):
                found = tmp_path / f"f{i}"
                is_hit = at in used[i - 1]
                assert found.exists() is not is_hit
                if not is_hit:
                    assert found.read_bytes() == bytes([i]) * 10
                    found.unlink()
            hit = [i for i in range(2) if at in used[i]]
            assert [(d.path, d.offset) for d in damage] == [
                (path, HEADER_BYTES + 512 * i) for i in hit
            ]


def test_a_lost_header_is_damage(tmp_path: Path) -> None:
    path = write_journal(tmp_path, batch(1, entry("f", 0, b"x")))
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    data[512] ^= 1
    path.write_bytes(data)
    damage = replay(DISK, tmp_path).damage
    assert [(d.path, d.offset, d.what) for d in damage] == [
        (path, 0, "no header verifies; its batches are lost")
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["journal.0.damaged"]


def test_missing_batches_between_segments_are_damage(tmp_path: Path) -> None:
    path = write_journal(tmp_path, batch(1, entry("f", 0, b"x")))
    write_journal(tmp_path, batch(4, entry("f", 1, b"y")), name="journal.1")
    damage = replay(DISK, tmp_path).damage
    assert [(d.path, d.offset, d.what) for d in damage] == [
        (path, HEADER_BYTES + SECTOR_BYTES, "2 batches are missing")
    ]
    assert (tmp_path / "f").read_bytes() == b"xy"


@pytest.mark.parametrize("content", [b"", b"x", bytes(100), bytes(5000), b"NATSDJNL"])
def test_a_journal_that_was_never_begun(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "journal.0").write_bytes(content)
    assert replay(DISK, tmp_path) == Replayed()
    assert list(tmp_path.iterdir()) == []


def test_a_journal_bounds_its_segments(tmp_path: Path) -> None:
    """A journal with two full segments refuses writes until a checkpoint has freed one."""
    journal = WriteAheadLog(DISK, tmp_path, lambda n: b"s" * n, segment_bytes_max=4096)
    workers = DISK.commit_workers(1)
    file = DISK.open(tmp_path / "f", create=True)
    taken = 0
    while True:
        job = workers.job()
        if not journal.add_writes(job, [Extent(file, 0, b"x" * 400)]):
            break
        workers.submit(job)
        taken += 1
    assert taken == 12
    assert journal.speaks_of(file.path)
    segments = journal.full_segments
    assert [segment.path.name for segment in segments] == ["journal.0"]
    job = workers.job()
    journal.add_retirement(job, segments)
    workers.submit(job)
    journal.retired(segments)
    job = workers.job()
    assert journal.add_writes(job, [Extent(file, 0, b"last")])
    workers.submit(job)
    workers.close()
    assert [job.error for job in workers.take_completed()] == [None] * 14
    assert replay(DISK, tmp_path).damage == []
    assert (tmp_path / "f").read_bytes()[:5] == b"lastx"
    file.close()


@pytest.mark.parametrize("seed", range(20))
def test_a_retired_epoch_stays_retired(seed: int) -> None:
    """After a segment is retired, no crash brings back its entries."""
    disk = FaultyDisk(seed)
    root = Path("/")
    journal = WriteAheadLog(disk, root, random.Random(seed).randbytes)
    workers = disk.commit_workers(1)
    file = disk.open(root / "f", create=True)
    job = workers.job()
    assert journal.add_writes(job, [Extent(file, 0, b"old")])
    workers.submit(job)
    workers.wait()
    job = workers.job()
    journal.add_retirement(job, journal.used_segments)
    workers.submit(job)
    workers.close()
    journal.retired(journal.used_segments)
    assert not journal.speaks_of(file.path)
    disk = disk.crash(seed)
    assert replay(disk, root) == Replayed()
