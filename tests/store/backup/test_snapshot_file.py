"""Snapshots: entries come back as they were, and damaged, cut or foreign snapshots are refused."""

import io
import tarfile
from random import Random

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.store.backup.snappy_frames import REPEATED_BYTES_MIN, FramePacker, FrameUnpacker
from natsd.store.backup.snapshot_file import SnapshotReader, SnapshotWriter
from natsd.store.errors import DamagedEncoding, ForeignSnapshot

Entries = list[tuple[str, bytes]]
ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(["meta.json", "msgs/000001.blk", "obs/1/state.db"]),
        st.binary(max_size=300),
        st.sampled_from([0, 1, 700]),  # how many times the body is repeated
    ),
    max_size=5,
)


def snapshot_of(entries: Entries) -> bytes:
    writer = SnapshotWriter()
    parts = [writer.begin(), *(writer.entry(*entry) for entry in entries), writer.end()]
    return b"".join(parts)


def read(data: bytes, part_bytes: int = 1 << 20) -> Entries:
    """Return the entries of a snapshot that is fed in parts of `part_bytes` bytes."""
    reader = SnapshotReader()
    found: Entries = []
    for at in range(0, len(data), part_bytes):
        found += reader.feed(data[at : at + part_bytes])
    reader.finish()
    return found


@settings(deadline=None)
@given(ENTRIES, st.integers(1, 5000))
def test_entries_come_back_however_the_snapshot_is_cut(
    drawn: list[tuple[str, bytes, int]], part_bytes: int
) -> None:
    entries = [(name, body * times) for name, body, times in drawn]
    assert read(snapshot_of(entries), part_bytes) == entries


def test_other_programs_unpack_a_snapshot() -> None:
    """Snappy and tar unpack a snapshot; each entry's body is followed by its checksum."""
    unpacked = bytes(cramjam.snappy.decompress(snapshot_of([("meta.json", b"{}")])))
    with tarfile.open(fileobj=io.BytesIO(unpacked)) as tar:
        assert tar.getnames() == ["natsd", "meta.json", "end"]
        content = tar.extractfile("meta.json")
        assert content is not None
        assert content.read()[:-8] == b"{}"


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 7))
def test_a_flipped_bit_is_found_or_changes_nothing(place: int, bit: int) -> None:
    entries = [("meta.json", b"{}"), ("msgs/000001.blk", bytes(range(256)) * 300)]
    data = bytearray(snapshot_of(entries))
    data[place % len(data)] ^= 1 << bit
    try:
        found = read(bytes(data))
    except DamagedEncoding:
        return
    assert found == entries


@settings(deadline=None)
@given(st.integers(0, 10**6))
def test_a_cut_snapshot_is_refused(place: int) -> None:
    data = snapshot_of([("meta.json", b"{}"), ("msgs/000001.blk", bytes(100_000))])
    with pytest.raises(DamagedEncoding):
        read(data[: place % len(data)])


def test_entries_that_were_exchanged_do_not_verify() -> None:
    """An entry in another's place is refused, since each checksum covers all entries before it."""
    parts = []
    for body in (b"one", b"two"):
        writer = SnapshotWriter()
        writer.begin()
        parts.append(writer.entry("obs/1", body))
        parts.append(writer.entry("obs/2", body))
    first, _, _, second = parts
    with pytest.raises(DamagedEncoding, match="does not verify"):
        read(SnapshotWriter().begin() + first + second)


def test_what_follows_the_end_is_refused() -> None:
    with pytest.raises(DamagedEncoding, match="not whole"):
        read(snapshot_of([]) + FramePacker().packing(b"more")())


def tar_with(name: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    return file.getvalue()


def test_a_snapshot_of_nats_server_is_told_from_a_damaged_one() -> None:
    """A snapshot of nats-server is refused with an error of its own.

    It is known by its S2 frames.
    """
    with pytest.raises(ForeignSnapshot, match="made by nats-server"):
        read(b"\xff\x06\x00\x00S2sTwO" + bytes(100))


@pytest.mark.parametrize("data", [b"x" * 1000, bytes(1000), b"\xff\x06\x00\x00sNaPpX" + bytes(99)])
def test_what_is_no_snapshot_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedEncoding, match="no snapshot"):
        read(data)


def test_a_later_version_is_refused() -> None:
    writer = SnapshotWriter()
    data = writer._frames.begin() + writer.entry("natsd", b'{"version":2}')
    with pytest.raises(DamagedEncoding, match="version"):
        read(data)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=70_000), max_size=4), st.integers(1, 9999))
def test_frames_give_back_what_was_packed(pieces: list[bytes], part_bytes: int) -> None:
    packer, unpacker = FramePacker(), FrameUnpacker()
    data = packer.begin() + packer.packing(*pieces)()
    unpacked = b"".join(
        unpacker.feed(data[at : at + part_bytes]) for at in range(0, len(data), part_bytes)
    )
    assert unpacked == b"".join(pieces)
    assert unpacker.is_between_frames


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=300), st.integers(1, 900)), max_size=8))
def test_frames_and_those_of_other_programs_are_alike(drawn: list[tuple[bytes, int]]) -> None:
    """Other programs read these frames, and theirs are read here.

    Bytes that do not compress are stored as they are.
    """
    data = b"".join(piece * times for piece, times in drawn)
    packer = FramePacker()
    packed = packer.begin() + packer.packing(data)()
    assert bytes(cramjam.snappy.decompress(packed)) == data
    assert FrameUnpacker().feed(bytes(cramjam.snappy.compress(data))) == data
    assert len(packed) <= len(data) + 20 * (1 + len(data) // (64 << 10)) + 10


def test_what_does_not_compress_stays_as_it_is() -> None:
    noise = Random(1).randbytes(100_000)
    packed = FramePacker().packing(noise)()
    assert len(packed) == len(noise) + 2 * 20
    assert noise[: 64 << 10] in packed


@pytest.mark.parametrize("piece", [bytes(64), b"ab" * 32, bytes(range(64)), bytes(range(65))])
def test_no_two_parts_in_a_row_are_alike(piece: bytes) -> None:
    """No two parts in a row are alike, even if the packed bytes repeat themselves.

    A restore therefore knows that two equal parts in a row are one part that was sent twice.
    """
    packer = FramePacker()
    data = packer.packing(piece * ((1 << 20) // len(piece)))()
    for part_bytes in range(REPEATED_BYTES_MIN, REPEATED_BYTES_MIN + 8):
        for at in range(0, len(data) - 2 * part_bytes, part_bytes):
            part = data[at : at + part_bytes]
            assert part != data[at + part_bytes : at + 2 * part_bytes]
