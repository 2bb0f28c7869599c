"""Large atomic batches are appended in slices; changes to the stream meanwhile."""

import asyncio
import errno
import json
from pathlib import Path

from natsd.store.file_store import FileStore
from tests.jetstream.stream.publishing import Bench, file_bench
from tests.jetstream.stream.test_atomic_batches import offer, put
from tests.store.faulty_disk import FaultyDisk

DIRECTORY = Path("/data")
MESSAGES = 30
DATA = bytes(700_000)


def put_large(bench: Bench, batch_id: str = "large") -> str:
    """Publish a batch that takes several slices, and return the commit's reply subject."""
    for number in range(1, MESSAGES):
        put(bench, batch_id, number, "s.a", DATA, Nats_Msg_Id=f"{batch_id}{number}")
    return put(bench, batch_id, MESSAGES, "s.a", DATA, Nats_Batch_Commit="1")


async def half_stored(bench: Bench, before: int) -> None:
    """Return in the middle of the append."""
    for _ in range(1000):
        if bench.store.log.last_sequence > before:
            break
        await asyncio.sleep(0)
    assert before < bench.store.log.last_sequence < before + MESSAGES
    assert bench.store.durable_sequence <= before


async def test_what_is_published_meanwhile_comes_after_it_in_order() -> None:
    async with file_bench(DIRECTORY, disk=FaultyDisk(seed=1)) as bench:
        offer(bench, msgs_max=MESSAGES, staged_bytes_max=64 << 20)
        committed = put_large(bench)
        after = [bench.publish("s.b", b"%d" % number) for number in range(1000)]
        assert bench.store.log.last_sequence == 0  # nothing is appended in the commit's turn
        answer = json.loads(await bench.answer(committed))
        assert (answer["seq"], answer["count"]) == (MESSAGES, MESSAGES)
        sequences = [json.loads(await bench.answer(reply))["seq"] for reply in after]
        assert sequences == list(range(MESSAGES + 1, MESSAGES + 1001))


async def test_one_may_follow_the_other() -> None:
    async with file_bench(DIRECTORY, disk=FaultyDisk(seed=1)) as bench:
        offer(bench, msgs_max=MESSAGES, staged_bytes_max=64 << 20)
        replies = [put_large(bench, "first"), bench.publish("s.b"), put_large(bench, "second")]
        replies.append(bench.publish("s.b"))
        answers = [json.loads(await bench.answer(reply)) for reply in replies]
        assert [answer["seq"] for answer in answers] == [30, 31, 61, 62]


async def test_a_commit_that_fails_meanwhile_takes_all_of_it_back() -> None:
    """The commit that fails was under way when the batch began."""
    disk = FaultyDisk(seed=1)
    async with file_bench(DIRECTORY, disk=disk) as bench:
        offer(bench, msgs_max=MESSAGES, staged_bytes_max=64 << 20)
        await bench.ask("s.a")
        committed = put_large(bench)
        await half_stored(bench, 1)
        store = bench.store
        assert isinstance(store, FileStore)
        store._volume.committer.fail(store._commits, OSError(errno.ENOSPC, "no space"))
        assert json.loads(await bench.answer(committed))["error"]["err_code"] == 10023
        assert bench.store.log.last_sequence == 1
        store._volume.committer._look_for_space(store._commits)
        assert (await bench.ask("s.a"))["seq"] == 2


async def test_a_disk_that_is_full_leaves_nothing_of_it() -> None:
    disk = FaultyDisk(seed=1)
    async with file_bench(DIRECTORY, disk=disk) as bench:
        offer(bench, msgs_max=MESSAGES, staged_bytes_max=64 << 20)
        await bench.ask("s.a")
        disk.fail("pwrite", errno.ENOSPC, path=".blk")  # not index.db, which may come first
        committed = put_large(bench)
        after = bench.publish("s.a")
        for reply in (committed, after):
            assert "error" in json.loads(await bench.answer(reply))
        assert bench.store.log.last_sequence == bench.readers.visible == 1
        assert len(bench.ingest.message_ids) == 0


async def test_a_purge_meanwhile_removes_what_is_there() -> None:
    async with file_bench(DIRECTORY, disk=FaultyDisk(seed=1)) as bench:
        offer(bench, msgs_max=MESSAGES, staged_bytes_max=64 << 20)
        committed = put_large(bench)
        await half_stored(bench, 0)
        await bench.store.purge()
        assert json.loads(await bench.answer(committed))["seq"] == MESSAGES
        assert bench.store.log.last_sequence == MESSAGES


async def test_a_stream_that_ends_has_all_of_it() -> None:
    async with file_bench(DIRECTORY, disk=FaultyDisk(seed=1)) as bench:
        offer(bench, msgs_max=MESSAGES, staged_bytes_max=64 << 20)
        put_large(bench)
        bench.ingest.close()
        assert bench.store.log.last_sequence == MESSAGES
