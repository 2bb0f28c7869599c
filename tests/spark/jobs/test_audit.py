"""`natsd pipeline audit` finds each change to a store, or to one of its replicas."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any

import pytest

from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.snapshot.offline import write_snapshot
from natsd.spark.jobs.audit import add_arguments, audit
from natsd.spark.jobs.audit_findings import Audited
from natsd.spark.jobs.audit_tasks import UNREAD, AuditTask, run_task
from natsd.spark.stored.offline import plan_streams
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.disk.real_disk import RealDisk
from natsd.store.recovery.index_db import INDEX_NAME
from tests.spark.stores import Stored, key_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = 300
Kinds = dict[str, int]


def fill(root: Path, **options: Any) -> Path:
    with Stored(root, **options) as stored:
        stored.publish(MESSAGES)
        stored.run(stored.store.delete(10))
        stored.run(stored.store.delete(11))
    return root


def block(root: Path, number: int = 1) -> Path:
    return sorted(root.glob("**/msgs/*.blk"))[number]


def block_with(root: Path, data: bytes) -> Path:
    """Return the block that holds these bytes; the number of commits decides where blocks end."""
    return next(path for path in root.glob("**/msgs/*.blk") if data in path.read_bytes())


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x20
    path.write_bytes(data)


def change(root: Path, work: Callable[[Stored], None]) -> None:
    with Stored(root) as stored:
        work(stored)


def test_what_is_whole_is_clean(spark: SparkSession, tmp_path: Path) -> None:
    root = fill(tmp_path / "S")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    found = audit(spark, [root])
    assert (found.exit_code, found.findings, found.unread) == (0, [], [])
    (state,) = found.streams
    assert (state.first, state.last, state.messages) == (1, MESSAGES, MESSAGES - 2)
    assert (state.deleted, state.deleted_runs, state.missing) == (2, [(10, 11)], 0)
    assert found.text().endswith("clean")
    assert json.loads(json.dumps(found.as_json()))["clean"] is True
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("with_index", [True, False])
def test_flipped_bytes_are_named(spark: SparkSession, tmp_path: Path, with_index: bool) -> None:
    """Stream, sequence, file and offset are reported."""
    root = fill(tmp_path / "S")
    sequence = 135
    path = block_with(root, b"%d xxx" % sequence)
    data = path.read_bytes()
    at = data.index(b"%d xxx" % sequence)
    flip(path, at)
    if not with_index:
        (path.parent / INDEX_NAME).unlink()
    found = audit(spark, [root])
    assert found.exit_code == 1
    (finding,) = found.findings
    assert (finding.kind, finding.stream) == ("damage", "ORDERS")
    assert (finding.first, finding.last) == (sequence, sequence)
    assert finding.file == str(path)
    assert finding.offset <= at < finding.offset + finding.length
    assert f"message {sequence}: record damaged ({path} at byte" in found.text()
    (state,) = found.streams
    assert (state.missing, state.deleted) == (1, 2)


def test_a_mark_and_small_files_are_verified_too(spark: SparkSession, tmp_path: Path) -> None:
    root = fill(tmp_path / "S")
    stream = root / "$G/streams/ORDERS"
    path = block(root)
    flip(path, path.read_bytes().index(b"MARK") + 20)
    flip(stream / "meta.json", 100)
    flip(stream / "msgs" / INDEX_NAME, 200)
    found = audit(spark, [root])
    assert {Path(finding.file).name for finding in found.findings} == {
        path.name,
        "meta.json",
        INDEX_NAME,
    }
    assert all(finding.kind == "damage" and not finding.first for finding in found.findings)
    assert found.streams[0].missing == 0


def test_a_missing_block_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    root = fill(tmp_path / "S")
    block(root).unlink()
    found = audit(spark, [root])
    (finding,) = found.findings
    assert finding.kind == "missing"
    assert "block missing" in finding.what
    assert found.streams[0].missing == finding.last - finding.first + 1


def test_ids_within_the_window_and_times_that_go_back(spark: SparkSession, tmp_path: Path) -> None:
    second = 10**9

    def headers(number: int) -> bytes:
        return b"NATS/1.0\r\nA: 1\r\nNats-Msg-Id: %d\r\n\r\n" % number

    config = StreamConfig(name="ORDERS", duplicate_window=100 * second)
    with Stored(tmp_path / "S", config=config) as stored:
        for number in range(1, 100):
            stored.append("s.a", b"", headers(number), number * second)
        stored.append("s.a", b"", headers(50), 149 * second)  # of message 5; within the window
        stored.append("s.a", b"", headers(20), 151 * second)  # 131 s later: allowed
        stored.append("s.b", b"", None, 10 * second)  # older, but the first of its subject
        stored.append("s.b", b"", None, 9 * second)
    found = audit(spark, [tmp_path / "S"])
    assert {(finding.kind, finding.first) for finding in found.findings} == {
        ("duplicate id", 100),
        ("time order", 103),
    }
    assert "99.0 s after message 50 with the same Nats-Msg-Id" in found.text()
    assert "older by 1.0 s than message 102" in found.text()
    mirror = StreamConfig(name="ORDERS", mirror={"name": "ORIGIN"})
    shutil.rmtree(tmp_path / "S")
    with Stored(tmp_path / "S", config=mirror) as stored:
        stored.append("s.a", b"", headers(1), second)
        stored.append("s.a", b"", headers(1), second)
    assert audit(spark, [tmp_path / "S"]).exit_code == 0


def replicas(directory: Path) -> list[Path]:
    first = fill(directory / "n1")
    return [first, *(shutil.copytree(first, directory / name) for name in ("n2", "n3"))]


def told(found: Audited) -> set[tuple[str, int, int]]:
    return {(finding.kind, finding.first, finding.last) for finding in found.findings}


def test_replicas_that_are_alike_are_clean(spark: SparkSession, tmp_path: Path) -> None:
    """Their blocks may be cut, compressed or encrypted differently; a snapshot is a replica too."""
    roots = replicas(tmp_path)[:2]
    key = key_file(tmp_path / "key", b"a key")
    third = tmp_path / "other"
    fill(third, block_bytes=500, compress=True, keys=OperatorKeys(b"a key"))
    snapshot = tmp_path / "snapshot"
    with snapshot.open("wb") as out:
        where = roots[0] / "$G/streams/ORDERS"
        write_snapshot(RealDisk(), where, out, OperatorKeys(), os.urandom, lambda *_: None)
    found = audit(spark, [*roots, third, snapshot], keys=key)
    assert (found.findings, found.unread, found.compared) == ([], [], MESSAGES)


def test_a_row_level_diff_of_replicas(spark: SparkSession, tmp_path: Path) -> None:
    roots = replicas(tmp_path)

    def second(stored: Stored) -> None:
        for sequence in (50, 51, 52, 60):
            stored.run(stored.store.delete(sequence))

    def third(stored: Stored) -> None:
        stored.run(stored.store.compact(6))
        stored.run(stored.store.truncate(MESSAGES - 5))
        for number in range(5):
            stored.append("s.1", b"other", None, (MESSAGES + number) * 10**9)
        stored.append("s.1", b"more", None, (MESSAGES + 9) * 10**9)

    change(roots[1], second)
    change(roots[2], third)
    found = audit(spark, roots)
    assert found.exit_code == 1
    assert told(found) == {
        ("only in some", 50, 52),
        ("only in some", 60, 60),
        ("only in some", 1, 5),  # on n1 and n2
        ("only in some", MESSAGES + 1, MESSAGES + 1),
        ("different", MESSAGES - 4, MESSAGES),
    } | {finding for finding in told(found) if finding[0] == "different"}
    assert found.counts["only in some"] == 3 + 1 + 5 + 5 + 1
    assert found.counts["different"] == 5
    text = found.text()
    assert "messages 50 to 52: in n1, n3, not in n2 (removed)" in text
    assert "data differ" in text or "data differs" in text
    assert "other" not in text


def test_damage_in_one_replica_is_told_from_a_removal(spark: SparkSession, tmp_path: Path) -> None:
    roots = replicas(tmp_path)[:2]
    path = block_with(roots[1], b"135 xxx")
    flip(path, path.read_bytes().index(b"135 xxx"))
    found = audit(spark, roots)
    assert told(found) == {("damage", 135, 135), ("only in some", 135, 135)}
    assert "in n1, not in n2 (damaged)" in found.text()


def test_lists_are_cut_and_counts_are_not(spark: SparkSession, tmp_path: Path) -> None:
    roots = replicas(tmp_path)[:2]

    def every_other(stored: Stored) -> None:
        for sequence in range(20, 100, 2):
            stored.run(stored.store.delete(sequence))

    change(roots[1], every_other)
    found = audit(spark, roots, limit=7)
    assert len(found.findings) == 7
    assert found.counts == {"only in some": 40}
    assert "40 × only in some" in found.text()


def test_what_cannot_be_read_is_told_and_the_rest_is_audited(
    spark: SparkSession, tmp_path: Path
) -> None:
    roots = replicas(tmp_path)
    fill(tmp_path / "secret", keys=OperatorKeys(b"a key"))
    with Stored(roots[1]):
        found = audit(spark, [*roots, tmp_path / "secret", tmp_path / "none"])
    assert found.exit_code == 2
    assert len(found.unread) == 3
    assert "in use" in found.unread[0]
    assert "no key is given" in found.unread[1]
    assert "not a directory" in found.unread[2]
    assert found.findings == []
    assert found.compared == MESSAGES
    assert audit(spark, [roots[0]], streams=["LOST"]).exit_code == 2


def test_a_stream_that_one_replica_lacks(spark: SparkSession, tmp_path: Path) -> None:
    roots = replicas(tmp_path)[:2]
    with Stored(roots[0], "BILLS") as stored:
        stored.publish(3)
    found = audit(spark, roots)
    assert [str(finding) for finding in found.findings] == [
        "only in some: BILLS: the stream is in n1, not in n2"
    ]
    assert audit(spark, roots, streams=["ORDERS"]).exit_code == 0


def test_the_command_s_arguments() -> None:
    import argparse

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = parser.parse_args(["a", "b", "--stream", "S", "--limit", "3"])
    assert (given.directory, given.stream, given.limit) == (["a", "b"], ["S"], 3)


def test_a_task_whose_machine_does_not_reach_the_directory_says_so(tmp_path: Path) -> None:
    (plan,) = plan_streams(fill(tmp_path / "S"))
    (blocks,) = plan.ranges(plan.request(), min_partitions=1)
    shutil.rmtree(tmp_path / "S")
    (told,) = (row for batch in run_task(AuditTask(0, blocks)) for row in batch.to_pylist())
    assert told["kind"] == UNREAD
    assert f"{gethostname()} does not reach it: on a cluster every executor must" in told["text"]
