"""The rows of a snapshot are the rows of its store."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.jetstream.snapshot.offline import write_snapshot
from natsd.spark.stored.offline import list_streams, plan_streams
from natsd.spark.stored.snapshot_plan import plan_snapshot, read_snapshot
from natsd.spark.stored.stored_ranges import StoreChanged, StoreNotReadable
from natsd.store.backup.snappy_frames import S2_IDENTIFIER, FrameUnpacker
from natsd.store.backup.snapshot_file import SnapshotReader, SnapshotWriter
from natsd.store.backup.snapshot_map import map_snapshot, read_body
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.disk.real_disk import RealDisk
from natsd.store.errors import DamagedEncoding, ForeignSnapshot
from tests.spark.stores import Row, Stored, row_of, rows

KEY = OperatorKeys(b"operator's key")


def snapshot_of_rows(
    directory: Path, *, encrypted: bool = False, data: bytes = b"x" * 40
) -> tuple[Path, list[Row]]:
    """Return the path of a snapshot, and the rows of its store."""
    keys = KEY if encrypted else None
    with Stored(directory / "S", compress=encrypted, keys=keys) as stored:
        stored.publish(200, data=data)
        for sequence in (1, 2, 3, 50, 51, 120, 199):
            stored.run(stored.store.delete(sequence))
        stored.run(stored.store.purge(pattern="s.4"))
        expected = [row_of(message) for message in stored.messages()]
    path = directory / "orders.snapshot"
    with path.open("wb") as out:
        where = stored.directory.parent
        write_snapshot(RealDisk(), where, out, stored.operator, os.urandom, lambda *_: None)
    return path, expected


@pytest.mark.parametrize("encrypted", [False, True])
def test_rows_are_those_of_the_stream(tmp_path: Path, encrypted: bool) -> None:
    path, expected = snapshot_of_rows(tmp_path, encrypted=encrypted)
    plan, config = read_snapshot(path)
    assert plan.stream == config["name"] == "ORDERS"
    assert (plan.rows, plan.last_sequence) == (len(expected), 200)
    for partitions in (1, 3, 100):
        assert rows(plan, partitions=partitions) == expected
    latest = {row[2]: row for row in expected}
    assert len(rows(plan, last_per_subject=True)) == len(latest)
    assert rows(plan, subjects=("s.2",)) == [row for row in expected if row[2] == "s.2"]


def test_a_directory_of_the_nats_cli_s_backup_will_do(tmp_path: Path) -> None:
    path, expected = snapshot_of_rows(tmp_path)
    backup = tmp_path / "backup"
    backup.mkdir()
    path.rename(backup / "stream.tar.s2")
    (backup / "backup.json").touch()
    assert list_streams(backup) == ["ORDERS"]
    (plan,) = plan_streams(backup, ["ORDERS"])
    assert rows(plan) == expected
    with pytest.raises(StoreNotReadable, match=r'no stream "BILLS" .* it is ORDERS'):
        plan_streams(backup, ["BILLS"])


def test_an_empty_stream_has_no_rows(tmp_path: Path) -> None:
    with Stored(tmp_path / "S") as stored:
        stored.publish(1)
        stored.run(stored.store.purge())
    path = tmp_path / "empty"
    with path.open("wb") as out:
        where = stored.directory.parent
        write_snapshot(RealDisk(), where, out, OperatorKeys(), os.urandom, lambda *_: None)
    assert rows(plan_snapshot(path)) == []


def test_every_flipped_bit_is_refused(tmp_path: Path) -> None:
    path, _ = snapshot_of_rows(tmp_path)
    data = path.read_bytes()
    for at in range(10, len(data), len(data) // 60):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        try:
            plan_snapshot(path)
        except DamagedEncoding:
            continue
        with path.open("rb") as snapshot:  # the checksum omits only a frame's number
            unpacked = FrameUnpacker().feed(snapshot.read())
        assert unpacked == FrameUnpacker().feed(data)


def test_a_cut_snapshot_is_refused(tmp_path: Path) -> None:
    path, _ = snapshot_of_rows(tmp_path)
    data = path.read_bytes()
    for end in range(0, len(data), len(data) // 60):
        path.write_bytes(data[:end])
        with pytest.raises(DamagedEncoding):
            plan_snapshot(path)


def test_damage_that_came_after_the_plan_is_found(tmp_path: Path) -> None:
    """A task returns the planned rows, or none, wherever the damage is.

    The file keeps its size and time: the read data is identified by its checksum.
    """
    path, expected = snapshot_of_rows(tmp_path)
    plan = plan_snapshot(path)
    data, times = path.read_bytes(), path.stat()
    within = range(plan.blocks[0].offset, plan.blocks[0].offset + 400, 100)
    for offset in (*range(0, len(data), 197), *within):
        path.write_bytes(data[:offset] + bytes([data[offset] ^ 4]) + data[offset + 1 :])
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        try:
            found = rows(plan)
        except StoreChanged:
            continue
        assert found == expected
        assert offset not in within
    path.unlink()
    with pytest.raises(StoreChanged, match="gone"):
        rows(plan)


def test_a_snapshot_is_known_by_what_it_holds(tmp_path: Path) -> None:
    """Its contents identify it, not its time, size or file: a copy may take its place."""
    path, expected = snapshot_of_rows(tmp_path)
    other, _ = snapshot_of_rows(tmp_path / "other", data=b"y" * 40)
    plan = plan_snapshot(path)
    times, copy = path.stat(), tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    copy.replace(path)
    os.utime(path, ns=(0, 0))
    assert rows(plan) == expected
    other.replace(path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(StoreChanged, match="changed since"):
        rows(plan)


def test_snapshots_of_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "stream.tar.s2"
    with pytest.raises(StoreNotReadable, match="neither a snapshot"):
        plan_snapshot(path)
    path.write_bytes(S2_IDENTIFIER + bytes(20))
    with pytest.raises(ForeignSnapshot):
        plan_snapshot(path)
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as out:
        out.addfile(tarfile.TarInfo("meta.inf"))
    path.write_bytes(bytes(cramjam.snappy.compress(tar.getvalue())))
    with pytest.raises(DamagedEncoding, match="no snapshot of a stream"):
        plan_snapshot(path)


@settings(max_examples=50, deadline=None)
@given(bodies=st.lists(st.binary(max_size=300) | st.sampled_from([bytes(70_000)]), max_size=8))
def test_entries_are_where_the_map_says(bodies: list[bytes]) -> None:
    writer = SnapshotWriter()
    data = writer.begin()
    for number, body in enumerate(bodies):
        data += writer.entry(f"entry {number}", body)
    data += writer.end()
    found = list(map_snapshot(io.BytesIO(data)))
    assert [body for _, body in found] == bodies
    for place, body in found:
        assert read_body(io.BytesIO(data), place) == body
    assert [place.name for place, _ in found] == [n for n, _ in SnapshotReader().feed(data)]


def test_a_snapshot_that_was_packed_anew_is_refused(tmp_path: Path) -> None:
    writer = SnapshotWriter()
    data = writer.begin() + writer.entry("a", b"1" * 100) + writer.end()
    again = bytes(cramjam.snappy.compress(FrameUnpacker().feed(data)))
    with pytest.raises(DamagedEncoding, match="packed anew"):
        list(map_snapshot(io.BytesIO(again)))
