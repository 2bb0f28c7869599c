"""Deletes and purges that the disk refuses, and streams that are removed and made again.

After a refusal the stream or consumer is unchanged and answers. Records of a removed stream do not
overwrite its successor (docs/store.md).
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from natsd.jetstream.errors import ApiError
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.store.disk.disk import REMOVED_SUFFIX
from tests.jetstream.faults import contents, started
from tests.jetstream.serving import account_of, create, publish
from tests.store.faulty_disk import FaultyDisk

BUSY = 12
"""The number of streams that are published to at once."""
STREAMS = Path("/data/jetstream/$G/streams")
STREAM_PATHS = {"rename": "streams/S", "sync_dir": "streams"}
CONSUMER_PATHS = {"rename": "obs/C", "sync_dir": "obs"}
JOURNAL = Path("/data/jetstream/journal.0")


@asynccontextmanager
async def restarted(disk: FaultyDisk) -> AsyncIterator[JetStream]:
    """Yield a server on the files that a killed server left."""
    after = disk.kill()
    disk.is_off = False
    async with started(after, "plain") as jetstream:
        yield jetstream


async def publish_to_all(jetstream: JetStream, payload: bytes, count: int) -> list[int]:
    """Publish to all streams and return how many messages each acknowledged."""
    acknowledged = [0] * BUSY
    for _ in range(count):
        answers = await asyncio.gather(
            *(publish(jetstream, f"S{number}", payload) for number in range(BUSY))
        )
        for number, answer in enumerate(answers):
            acknowledged[number] += "error" not in answer
    return acknowledged


@pytest.mark.parametrize("moment", range(0, 40, 8))
async def test_a_recreated_stream_is_not_overwritten(
    moment: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A journal that is kept after a failed sync does not overwrite a recreated stream.

    One sync of a stream's file fails, so that the journal is kept. The stream is deleted, made
    again and published to; then a restart replays the journal.
    """
    disk = FaultyDisk(seed=moment)
    with caplog.at_level(logging.CRITICAL):
        async with started(disk, "plain") as jetstream:
            for number in range(BUSY):
                await create(jetstream, f"S{number}", subjects=[f"S{number}"])
            disk.fail("fdatasync", errno.EIO, path="S0/msgs/000001.blk", after=moment // 8)
            acknowledged = await publish_to_all(jetstream, b"old" * 50, 20)
            while not disk.has_failed_one:
                await publish(jetstream, "S0", b"old" * 50)
            assert disk.exists(JOURNAL)
            await account_of(jetstream).delete_stream("S0")
            assert "S0" not in account_of(jetstream).streams
            await create(jetstream, "S0", subjects=["S0"])
            new = [(await publish(jetstream, "S0", b"new %d" % n))["seq"] for n in range(50)]
            assert new == list(range(1, 51))
            async with restarted(disk) as after:
                found = await contents(account_of(after).stream("S0"))
                assert found == {n + 1: b"new %d" % n for n in range(50)}
                for number in range(1, BUSY):
                    others = await contents(account_of(after).stream(f"S{number}"))
                    assert len(others) >= acknowledged[number]


@pytest.mark.parametrize(("call", "after"), [("rename", 0), ("sync_dir", 0), ("sync_dir", 1)])
async def test_a_stream_whose_delete_fails_is_as_it_was(call: str, after: int) -> None:
    disk = FaultyDisk()
    async with started(disk, "plain") as jetstream:
        stream = await create(jetstream, "S", subjects=["s"])
        consumer = await stream.create_consumer(
            ConsumerConfig(durable_name="C", ack_policy=AckPolicy.EXPLICIT), ""
        )
        await publish(jetstream, "s", b"one")
        disk.fail(call, errno.EIO, path=STREAM_PATHS[call], after=after)
        with pytest.raises(ApiError, match="10050"):
            await account_of(jetstream).delete_stream("S")
        assert (await publish(jetstream, "s", b"two"))["seq"] == 2
        assert account_of(jetstream).consumer("S", "C") is consumer
        assert consumer.info().num_pending == 2
        async with restarted(disk) as again:
            assert len(await contents(account_of(again).stream("S"))) == 2
        await account_of(jetstream).delete_stream("S")
        assert disk.listdir(STREAMS) == []


@pytest.mark.parametrize(("call", "after"), [("rename", 0), ("sync_dir", 0), ("sync_dir", 1)])
async def test_a_consumer_whose_delete_fails_is_as_it_was(call: str, after: int) -> None:
    disk = FaultyDisk()
    async with started(disk, "plain") as jetstream:
        stream = await create(jetstream, "S", subjects=["s"])
        config = ConsumerConfig(durable_name="C", ack_policy=AckPolicy.EXPLICIT)
        consumer = await stream.create_consumer(config, "")
        disk.fail(call, errno.EIO, path=CONSUMER_PATHS[call], after=after)
        with pytest.raises(ApiError):
            await stream.delete_consumer("C")
        await publish(jetstream, "s", b"one")
        assert stream.consumer("C") is consumer
        assert consumer.info().num_pending == 1
        async with restarted(disk) as again:
            assert list(account_of(again).stream("S").consumers) == ["C"]
        await stream.delete_consumer("C")
        assert disk.listdir(STREAMS / "S" / "obs") == []


async def test_what_cannot_be_removed_goes_at_the_next_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The stream is gone all the same, and can be made again."""
    disk = FaultyDisk()
    async with started(disk, "plain") as jetstream:
        await create(jetstream, "S", subjects=["s"])
        await publish(jetstream, "s", b"old")
        disk.fail("rmtree", errno.EIO)
        await account_of(jetstream).delete_stream("S")
        assert disk.listdir(STREAMS) == [f"S{REMOVED_SUFFIX}"]
        await create(jetstream, "S", subjects=["s"])
        await publish(jetstream, "s", b"new")
        async with restarted(disk) as again:
            assert await contents(account_of(again).stream("S")) == {1: b"new"}
            assert list(account_of(again).streams) == ["S"]
            assert account_of(again).offline == {}
            assert again.volume.disk.listdir(STREAMS) == ["S"]
    assert "cannot be removed" in caplog.text


@pytest.mark.parametrize("keep", [0, 2])
@pytest.mark.parametrize("filter_subject", ["", "s.1"])
async def test_a_purge_refused_for_want_of_space_changes_nothing(
    keep: int, filter_subject: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The purge stays undone when there is space again, and after a restart."""
    disk = FaultyDisk()
    async with started(disk, "plain") as jetstream:
        stream = await create(jetstream, "S", subjects=["s.*"])
        for number in range(10):
            await publish(jetstream, f"s.{number % 2}", b"%d" % number * 50)
        before = await contents(stream)
        disk.capacity_bytes = 0
        while "error" not in await publish(jetstream, "s.0", b"no room" * 100):
            before = await contents(stream)
        with pytest.raises(ApiError, match="No space left"):
            await stream.purge(filter_subject, keep=keep)
        with pytest.raises(ApiError, match="No space left"):
            await stream.purge(sequence=5)
        assert await contents(stream) == before
        disk.capacity_bytes = None
        async with asyncio.timeout(20):
            while True:
                answer = await publish(jetstream, "s.0", b"room")
                if "error" not in answer:
                    break
                await asyncio.sleep(0.05)
        before[answer["seq"]] = b"room"
        assert await contents(stream) == before
        async with restarted(disk) as again:
            assert await contents(account_of(again).stream("S")) == before
        removed = await stream.purge(filter_subject, keep=keep)
        assert removed > 0
        assert len(await contents(stream)) == len(before) - removed
