"""The rows of a store directory equal the store's own messages, after any history."""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from natsd.jetstream.asset_file import ASSET_FILE, MAGIC
from natsd.jetstream.stream import files
from natsd.spark.ranges import DataLoss, RangeRequest
from natsd.spark.stored import store_plan
from natsd.spark.stored.offline import list_streams, plan_streams
from natsd.spark.stored.store_lock import LOCK_NAME, InUse
from natsd.spark.stored.store_plan import StoreDirectory, difference
from natsd.spark.stored.store_read import read_store
from natsd.spark.stored.stored_ranges import (
    DamagedMessages,
    StoreChanged,
    StoreKeys,
    StoreNotReadable,
)
from natsd.spark.stored.stored_stream_plan import cut
from natsd.store.commit.volume import LOCK_NAME as VOLUMES_LOCK_NAME
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.disk.disk import REMOVED_SUFFIX
from natsd.store.errors import KeyMissing, KeyWrong
from natsd.store.recovery.index_db import INDEX_NAME
from natsd.store.store import Limits
from tests.spark.stores import Stored, key_file, plan_of, row_of, rows, rows_of
from tests.store.crash import kill_midway
from tests.store.test_file_store_kill import PUBLISHER as ELSEWHERE

PUBLISHER = ELSEWHERE.replace('directory / "S"', 'directory / "$G/streams/ORDERS/msgs"')
KEY = b"a key of thirty-two bytes, or so"
HEADERS = b"NATS/1.0\r\nNats-Msg-Id: 7\r\nA: 1\r\nA: 2\r\n\r\n"


def snapshot(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


# Any history


def do(stored: Stored, what: tuple[Any, ...]) -> None:
    store, (action, *arguments) = stored.store, what
    last = store.state().last_sequence
    if action == "append":
        subject, size, headers, time = arguments
        stored.append(f"s.{subject}", b"%d " % last * size, HEADERS if headers else None, time)
    elif action == "skip":

        async def skip() -> None:
            store.skip(arguments[0])

        stored.run(skip())
    elif action in {"delete", "erase"}:
        if last - arguments[0] > 0:
            stored.run(getattr(store, action)(last - arguments[0]))
    elif action == "purge":
        pattern, back, keep = arguments
        stored.run(store.purge(pattern=pattern, up_to_sequence=max(0, last - back), keep=keep))
    elif action == "compact":
        stored.run(store.compact(max(1, last - arguments[0])))
    elif action == "truncate":
        stored.run(store.truncate(max(0, last - arguments[0])))
    elif action == "sync":
        stored.run(store.synced())
    else:
        assert action == "index"
        stored.run(store.write_index())


appends = st.tuples(
    st.just("append"), st.integers(0, 5), st.integers(0, 60), st.booleans(), st.integers(0, 50)
)
actions = st.one_of(
    *[appends] * 6,
    st.tuples(st.just("skip"), st.sampled_from([1, 3, 70_000])),
    st.tuples(st.sampled_from(["delete", "erase"]), st.integers(0, 40)),
    st.tuples(
        st.just("purge"),
        st.sampled_from([">", "s.*", "s.1", "s.3"]),
        st.integers(0, 40),
        st.sampled_from([0, 0, 1, 3]),
    ),
    st.tuples(st.just("compact"), st.integers(0, 60)),
    st.tuples(st.just("truncate"), st.integers(0, 5)),
    st.tuples(st.just("sync")),
    st.tuples(st.just("index")),
)


@pytest.mark.parametrize("kind", ["plain", "compressed", "encrypted"])
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    done=st.lists(actions, min_size=1, max_size=120),
    partitions=st.integers(1, 6),
    max_rows=st.sampled_from([0, 0, 1, 7]),
    batch_rows=st.integers(1, 40),
    data=st.data(),
)
def test_rows_are_what_the_store_says(
    kind: str, done: list[Any], partitions: int, max_rows: int, batch_rows: int, data: st.DataObject
) -> None:
    """The state comes from the journal after a crash, else from index.db, else from the blocks."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        keys = OperatorKeys(KEY) if kind == "encrypted" else None
        files = key_file(root / "key", KEY) if keys else StoreKeys()
        how: dict[str, Any] = {"partitions": partitions, "max_rows": max_rows}
        how["batch_rows"] = batch_rows
        with Stored(root / "live", compress=kind != "plain", keys=keys) as stored:
            for what in done:
                do(stored, what)
            expected = [row_of(message) for message in stored.messages()]
            crashed = stored.crashed_copy(root / "crashed")
        before = snapshot(crashed)
        assert rows(plan_of(crashed, keys=files), **how) == expected
        assert snapshot(crashed) == before
        plan = plan_of(root / "live", keys=files)
        assert rows(plan, **how) == expected
        assert plan.rows == len(expected)
        (stored.directory / INDEX_NAME).unlink(missing_ok=True)
        assert rows(plan_of(root / "live", keys=files), **how) == expected
        check_choices(plan_of(root / "live", keys=files), expected, data)


def check_choices(plan: Any, expected: list[Any], data: st.DataObject) -> None:
    """Check ranges, subjects, times and the last of each subject against filters over all rows."""
    first = data.draw(st.integers(1, max(1, plan.last_sequence)))
    last = data.draw(st.integers(0, plan.last_sequence + 2))
    subjects = data.draw(st.sampled_from([(), ("s.1",), ("s.1", "s.3"), ("s.*",), ("none.>",)]))
    start = data.draw(st.none() | st.integers(0, 50))
    end = data.draw(st.none() | st.integers(0, 50))
    wanted = [
        row
        for row in expected
        if first <= row[1] <= last
        and (subjects in ((), ("s.*",)) or row[2] in subjects)
        and (start is None or start <= row[3])
        and (end is None or row[3] < end)
    ]
    request = RangeRequest(
        "ORDERS", first, last, subjects, False, start_time_ns=start, end_time_ns=end
    )
    assert rows(plan, request) == wanted
    latest = {row[2]: row for row in wanted}
    assert rows(plan, request, last_per_subject=True) == sorted(latest.values())


# The choice of stores


def test_streams_of_an_account_are_listed(tmp_path: Path) -> None:
    for stream in ("ORDERS", "BILLS"):
        with Stored(tmp_path, stream) as stored:
            stored.publish(3)
    (tmp_path / f"$G/streams/GONE{REMOVED_SUFFIX}").mkdir()
    (tmp_path / f"$G/streams/GONE{REMOVED_SUFFIX}/meta.json").touch()
    with StoreDirectory(tmp_path) as directory:
        assert directory.streams() == ["BILLS", "ORDERS"]
        assert directory.streams("OTHER") == []
        assert directory.config("ORDERS")["name"] == "ORDERS"
        with pytest.raises(StoreNotReadable, match=r'no stream "LOST" .* BILLS, ORDERS'):
            directory.plan("LOST")


def test_several_streams_are_planned_at_once(tmp_path: Path) -> None:
    for stream in ("ORDERS", "BILLS"):
        with Stored(tmp_path, stream) as stored:
            stored.publish(3)
    assert list_streams(tmp_path) == ["BILLS", "ORDERS"]
    assert [plan.stream for plan in plan_streams(tmp_path)] == ["BILLS", "ORDERS"]
    (plan,) = plan_streams(tmp_path, ["ORDERS"])
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert len(rows(plan)) == 3


def test_the_server_s_own_directory_is_found(tmp_path: Path) -> None:
    (tmp_path / "jetstream").mkdir()
    with Stored(tmp_path / "jetstream") as stored:
        stored.publish(3)
    assert len(rows(plan_of(tmp_path))) == 3


@pytest.mark.parametrize("path", ["nothing", "."])
def test_what_is_no_store_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(StoreNotReadable, match=r"no store directory|not a directory"):
        StoreDirectory(tmp_path / path)


def test_names_are_those_of_the_server() -> None:
    assert (store_plan.STREAMS, store_plan.MESSAGES) == (files.STREAMS, files.MESSAGES)
    assert LOCK_NAME == VOLUMES_LOCK_NAME
    assert (store_plan.ASSET_FILE, store_plan.ASSET_MAGIC) == (ASSET_FILE, MAGIC)


# Running servers, and changes


def test_a_store_that_a_server_uses_is_refused_with_advice(tmp_path: Path) -> None:
    with Stored(tmp_path) as stored:
        stored.publish(3)
        with pytest.raises(InUse, match=r"in use by process .*network.*snapshot"):
            StoreDirectory(tmp_path)


def test_a_task_refuses_a_store_that_a_server_uses_by_then(tmp_path: Path) -> None:
    with Stored(tmp_path) as stored:
        stored.publish(3)
    plan = plan_of(tmp_path)
    with Stored(tmp_path), pytest.raises(InUse):
        rows(plan)
    assert len(rows(plan)) == 3


def test_several_read_at_once_and_keep_servers_out(tmp_path: Path) -> None:
    with Stored(tmp_path) as stored:
        stored.publish(3)
    with StoreDirectory(tmp_path) as one, StoreDirectory(tmp_path) as another:
        assert rows(one.plan("ORDERS")) == rows(another.plan("ORDERS"))
        with pytest.raises(Exception, match="in use"):
            Stored(tmp_path)


def test_blocks_that_were_written_anew_since_are_refused(tmp_path: Path) -> None:
    with Stored(tmp_path) as stored:
        stored.publish(30)
    plan = plan_of(tmp_path)
    times = {file.name: file.stat().st_mtime_ns for file in stored.directory.glob("*.blk")}
    shutil.rmtree(tmp_path)
    with Stored(tmp_path) as stored:
        stored.publish(30)
    for file in stored.directory.glob("*.blk"):
        os.utime(file, ns=(0, times.get(file.name, 0)))
    with pytest.raises(StoreChanged, match="start it again"):
        rows(plan)
    shutil.rmtree(stored.directory)
    with pytest.raises(StoreChanged, match="gone"):
        rows(plan)


# Data loss


def test_a_range_that_was_purged_is_a_loss(tmp_path: Path) -> None:
    with Stored(tmp_path) as stored:
        stored.publish(30)
        stored.run(stored.store.compact(11))
    plan = plan_of(tmp_path)
    assert (plan.first_sequence, plan.last_sequence) == (11, 30)
    with pytest.raises(DataLoss, match="messages 3 to 10 of"):
        rows(plan, RangeRequest("ORDERS", 3, 20))
    assert len(rows(plan, RangeRequest("ORDERS", 3, 20, fail_on_data_loss=False))) == 10
    assert rows(plan, RangeRequest("ORDERS", 11, 12))[0][1] == 11


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x20
    path.write_bytes(data)


@pytest.mark.parametrize("with_index", [True, False])
def test_a_flipped_byte_is_named_and_left_out_where_that_is_allowed(
    tmp_path: Path, with_index: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with Stored(tmp_path) as stored:
        stored.publish(100)
    block = sorted(stored.directory.glob("*.blk"))[1]
    data = block.read_bytes()
    sequence = plan_of(tmp_path).blocks[1].first + 3
    at = data.index(b"%d xxx" % sequence)
    flip(block, at)
    if not with_index:
        (stored.directory / INDEX_NAME).unlink()
    plan = plan_of(tmp_path)
    with pytest.raises(DamagedMessages) as raised:
        rows(plan)
    assert (raised.value.first, raised.value.last) == (sequence, sequence)
    assert f"message {sequence} of" in str(raised.value)
    assert f"{block}: record damaged at byte" in str(raised.value)
    assert len(rows(plan, first_sequence=sequence + 1)) == 100 - sequence
    found = rows(plan, fail_on_data_loss=False)
    assert [row[1] for row in found] == [s for s in range(1, 101) if s != sequence]
    assert '1 messages of stream "ORDERS" left out' in caplog.text


def test_a_block_that_is_missing_is_a_loss(tmp_path: Path) -> None:
    with Stored(tmp_path) as stored:
        stored.publish(100)
    part = plan_of(tmp_path).blocks[1]
    (stored.directory / part.file).unlink()
    plan = plan_of(tmp_path)
    with pytest.raises(DamagedMessages, match=rf"messages {part.first} to {part.last} .*missing"):
        rows(plan)
    assert len(rows(plan, fail_on_data_loss=False)) == 100 - part.rows


# Crashes


def test_what_only_the_journal_has_is_read_and_stays_there(tmp_path: Path) -> None:
    """The power fails when the commits of many streams are on disk only in the journal."""
    with Stored(tmp_path / "live") as stored:
        others = [stored.beside(f"OTHER{number}") for number in range(12)]
        stored.publish(30)
        before_it = stored.crashed_copy(tmp_path / "before")

        async def all_at_once() -> None:
            for store in [*others, stored.store]:
                store.append("s.1", None, b"in the journal", 1)
            await asyncio.gather(*(store.synced() for store in [*others, stored.store]))

        stored.run(all_at_once())
        crashed = stored.crashed_copy(tmp_path / "crashed")
        expected = [row_of(message) for message in stored.messages()]
        for store in others:
            stored.run(store.close())
    place = stored.directory.relative_to(tmp_path / "live")
    for block in (before_it / place).iterdir():
        shutil.copy(block, crashed / place / block.name)
    before = snapshot(crashed)
    plan = plan_of(crashed)
    assert any(part.patch for part in plan.blocks)
    assert rows(plan) == expected
    assert expected[-1][-1] == b"in the journal"
    assert snapshot(crashed) == before


def test_after_kill_9_the_rows_are_those_that_a_server_finds(tmp_path: Path) -> None:
    for number in range(2):
        root = tmp_path / str(number)
        (root / "$G/streams/ORDERS").mkdir(parents=True)
        (root / "$G/streams/ORDERS/meta.json").touch()
        kill_midway(PUBLISHER, str(root), str(number), lines=30, delay_s=0.002)
        before = snapshot(root)
        found = rows(plan_of(root), batch_rows=100)
        assert snapshot(root) == before
        with Stored(root, block_bytes=20_000) as stored:
            assert stored.store.damage == []
            assert found == [row_of(message) for message in stored.messages()]


# Keys


def test_keys_open_and_nothing_else_does(tmp_path: Path) -> None:
    with Stored(tmp_path / "S", keys=OperatorKeys(KEY)) as stored:
        stored.publish(20)
    right = key_file(tmp_path / "right", KEY)
    wrong = key_file(tmp_path / "wrong", b"another key")
    assert len(rows(plan_of(tmp_path / "S", keys=right))) == 20
    rotated = StoreKeys(wrong.key_file, right.key_file)
    assert len(rows(plan_of(tmp_path / "S", keys=rotated))) == 20
    with pytest.raises(KeyWrong):
        plan_of(tmp_path / "S", keys=wrong)
    with pytest.raises(KeyMissing):
        plan_of(tmp_path / "S")
    with pytest.raises(StoreNotReadable, match=r"key file .* cannot be read"):
        plan_of(tmp_path / "S", keys=StoreKeys(str(tmp_path / "none")))
    with pytest.raises(StoreNotReadable, match="cipher"):
        plan_of(tmp_path / "S", keys=StoreKeys(right.key_file, cipher="rot13"))


# Planning


def test_ranges_have_about_equal_bytes(tmp_path: Path) -> None:
    with Stored(tmp_path, limits=Limits()) as stored:
        stored.publish(400)
    plan = plan_of(tmp_path)
    for partitions in (1, 2, 4, len(plan.blocks), 1000):
        runs = cut(plan.blocks, partitions)
        assert [part for run in runs for part in run] == list(plan.blocks)
        assert len(runs) == min(partitions, len(plan.blocks))
    sizes = [sum(part.size_bytes for part in run) for run in cut(plan.blocks, 4)]
    assert max(sizes) <= 1.3 * min(sizes)
    assert all(each.rows <= 5 for each in plan.ranges(plan.request(), max_rows=5))


def test_the_sequence_of_a_time_is_found(tmp_path: Path) -> None:
    with Stored(tmp_path) as stored:
        stored.publish(100)
    plan = plan_of(tmp_path)
    for time_s in (0, 1, 37, 100):
        assert plan.sequence_at(time_s * 10**9) == max(1, time_s)
        assert plan.sequence_at(time_s * 10**9 + 1) == time_s + 1


def test_columns_are_chosen_and_batches_bounded(tmp_path: Path) -> None:
    with Stored(tmp_path) as stored:
        stored.publish(100)
    (asked,) = plan_of(tmp_path).ranges(plan_of(tmp_path).request())
    batches = list(read_store(asked, ("data", "seq"), max_rows=30))
    assert [batch.num_rows for batch in batches] == [30, 30, 30, 10]
    assert batches[0].schema.names == ["data", "seq"]
    assert rows_of(batches)[0] == (b"1 " + b"x" * 40, 1)


def test_a_difference_is_what_makes_one_of_the_other() -> None:
    old = bytes(20_000)
    new = bytearray(old + b"more")
    new[5000] = 1
    at, patch = difference(bytes(new), old)
    assert at == 4096
    assert old[:at] + patch == new[: at + len(patch)]
    assert difference(old, old) == (0, b"")
