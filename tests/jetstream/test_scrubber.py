"""The scrub of a server's files: what it finds and repairs, and what does not disturb it."""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import timedelta
from pathlib import Path

import pytest

from natsd.config.jetstream_options import NO_SCRUB, JetStreamOptions
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.stream.stream import Stream
from natsd.store.consumer.consumer_store import ConsumerStore
from natsd.store.errors import MessageDamaged
from natsd.store.file_store import FileStore
from tests.jetstream.serving import account_of, ask, create, publish, serving
from tests.store.maintenance.test_block_repair import block_files, evict, flip, of_block
from tests.waiting import eventually_within

MESSAGES = 75
LIMITS = {"subjects": ["orders.>"], "max_bytes": 128_000}
"""With these the stream has small blocks, of about twenty messages each."""
NEXT = "$JS.API.CONSUMER.MSG.NEXT.ORDERS.worker"


def store_of(stream: Stream) -> FileStore:
    assert isinstance(stream.store, FileStore)
    return stream.store


async def filled(jetstream: JetStream) -> Stream:
    """Return a stream of several blocks that are not in memory."""
    stream = await create(jetstream, "ORDERS", **LIMITS)
    chance = random.Random(3)
    bodies = [chance.randbytes(1500) for _ in range(MESSAGES)]
    await asyncio.gather(*(publish(jetstream, "orders.new", body) for body in bodies))
    await stream.store.synced()
    await eventually_within(lambda: store_of(stream)._jobs._task is None)
    assert len(block_files(store_of(stream))) >= 3
    evict(store_of(stream))
    return stream


def configure(
    jetstream: JetStream, *, interval: timedelta = NO_SCRUB, speed: int = 1 << 40
) -> None:
    """Scrub as often and as fast as this."""
    options = JetStreamOptions(scrub_interval=interval, scrub_speed=speed)
    jetstream.scrubber.configure(options)


@pytest.fixture(autouse=True)
def errors(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.ERROR)
    return caplog


async def test_a_scrub_reads_everything_and_keeps_nothing_in_memory(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        stream = await filled(jetstream)
        await stream.create_consumer(ConsumerConfig(durable_name="worker"), "create")
        await ask(jetstream, NEXT, b"1")
        await eventually_within(lambda: not store_of(stream)._cache._loading)
        evict(store_of(stream))
        files, before = block_files(store_of(stream)), stream.store.cached_bytes
        configure(jetstream)
        scrub = await jetstream.scrubber.scrub()
        assert (scrub.streams, scrub.blocks, scrub.consumers) == (1, len(files), 1)
        assert scrub.bytes == sum(path.stat().st_size for path in files)
        assert (scrub.repaired, scrub.left) == (0, 0)
        assert stream.store.cached_bytes == before
        assert jetstream.scrubber.last is scrub
        assert jetstream.scrubber.running is None
        assert scrub.ended_ns > scrub.began_ns


async def test_damage_on_one_server_is_reported_once(
    tmp_path: Path, errors: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as jetstream:
        stream = await filled(jetstream)
        path = block_files(store_of(stream))[1]
        lost = of_block(store_of(stream), path).base_sequence
        flip(path, 700)
        configure(jetstream)
        for _ in range(2):
            evict(store_of(stream))
            scrub = await jetstream.scrubber.scrub()
            assert (scrub.repaired, scrub.left) == (0, 1)
        assert sum(f"message {lost}" in line for line in errors.messages) == 1
        assert [each.first_sequence for each in stream.damage] == [lost]
        with pytest.raises(MessageDamaged):
            await stream.store.load(lost)
        for sequence in set(range(1, MESSAGES + 1)) - {lost}:
            assert (await stream.store.load(sequence)).sequence == sequence


async def test_a_block_in_memory_is_written_again(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        stream = await filled(jetstream)
        for sequence in range(1, MESSAGES + 1):
            await stream.store.load(sequence)
        path = block_files(store_of(stream))[1]
        before = path.read_bytes()
        flip(path, 700)
        configure(jetstream)
        scrub = await jetstream.scrubber.scrub()
        assert (scrub.repaired, scrub.left) == (1, 0)
        assert path.read_bytes() == before


async def test_a_damaged_consumer_is_written_anew(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        stream = await filled(jetstream)
        consumer = await stream.create_consumer(ConsumerConfig(durable_name="worker"), "create")
        for _ in range(2):  # the first changes make a checkpoint, the next ones go into the log
            await ask(jetstream, NEXT, b"10", answers=10)
            await consumer.store.synced()
        (log,) = (stream.directory / "obs" / "worker" / "state").glob("*.log")
        await jetstream.volume.committer.until_on_disk()
        flip(log, 80)
        configure(jetstream)
        scrub = await jetstream.scrubber.scrub()
        assert (scrub.repaired, scrub.left) == (1, 0)
        await consumer.store.synced()
        assert (await jetstream.scrubber.scrub()).repaired == 0
        expected = consumer.store.state()
    async with serving(tmp_path) as jetstream:
        again = account_of(jetstream).streams["ORDERS"].consumers["worker"].store
        assert again.state() == expected
        assert isinstance(again, ConsumerStore)
        assert not again.recovery.damage


async def test_streams_and_blocks_go_during_a_scrub(
    tmp_path: Path, errors: pytest.LogCaptureFixture
) -> None:
    """Purges, compactions and deletions are no damage, whenever they come."""
    for round_ in range(8):
        async with serving(tmp_path / str(round_)) as jetstream:
            stream, chance = await filled(jetstream), random.Random(round_)
            configure(jetstream)

            async def scrub() -> list[int]:
                return [(await jetstream.scrubber.scrub()).left for _ in range(5)]

            scrubbing = asyncio.create_task(scrub())
            for sequence in chance.sample(range(1, MESSAGES + 1), 60):
                await stream.store.delete(sequence)
                if chance.random() < 0.3:
                    await asyncio.sleep(0)
            await stream.store.synced()
            for number in range(40):
                await publish(jetstream, "orders.new", b"%d" % number * 700)
            await stream.purge()
            await account_of(jetstream).delete_stream("ORDERS")
            assert await scrubbing == [0] * 5
            assert not errors.messages


async def test_a_scrub_keeps_to_its_speed(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        await filled(jetstream)
        configure(jetstream, speed=200_000)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        scrub = await jetstream.scrubber.scrub()
        assert loop.time() - began_s >= 0.9 * scrub.bytes / 200_000 > 0.3


async def test_scrubs_come_at_the_interval_until_it_is_off(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        await filled(jetstream)
        scrubber = jetstream.scrubber
        configure(jetstream, interval=timedelta(milliseconds=10))
        await eventually_within(lambda: scrubber.ended >= 2)
        configure(jetstream, interval=timedelta(milliseconds=10), speed=1000)
        await eventually_within(lambda: scrubber.running and scrubber.running.blocks)
        configure(jetstream)
        await eventually_within(lambda: scrubber.running is None)
        assert scrubber._task is None
        configure(jetstream, interval=timedelta(milliseconds=10))
        await eventually_within(lambda: scrubber.ended >= 3)
