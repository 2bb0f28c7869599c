"""A consumer engine and its stream: retention, blocks not in memory, and loops."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from natsd.core.network import AccountPublisher
from natsd.core.routing import Subscription
from natsd.jetstream.consumer.delivery import ConsumerEngine
from natsd.jetstream.consumer.settings import EngineSettings
from natsd.jetstream.stream.state import StreamReaders
from natsd.store.commit.volume import Volume
from natsd.store.consumer.consumer_state import AckPolicyCode, ConsumerOptions
from natsd.store.consumer.memory_consumer_store import MemoryConsumerStore
from natsd.store.disk.real_disk import RealDisk
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.store import Limits
from tests.jetstream.clock import SECOND_NS
from tests.jetstream.consumer.bench import Bench, Events


def left(bench: Bench) -> list[int]:
    return [at for at in range(1, bench.store.log.last_sequence + 1) if bench.store.log.has(at)]


@pytest.mark.parametrize(
    ("policy", "acked", "remaining"),
    [
        (AckPolicyCode.EXPLICIT, 1, [1, 3, 4]),
        (AckPolicyCode.ALL, 1, [3, 4]),
        (AckPolicyCode.NONE, None, [4]),
    ],
)
async def test_a_work_queue(
    bench: Bench, policy: AckPolicyCode, acked: int | None, remaining: list[int]
) -> None:
    """An acked message is removed before the ack is answered; without acks delivery removes it."""
    bench.readers.set_retention("workqueue")
    bench.engine(EngineSettings(stream="S", ack_policy=policy))
    bench.listen("inbox")
    bench.append(*"abcd")
    bench.pull(b"3")
    got = await bench.take()
    if acked is not None:
        bench.ack(got[acked], b"+ACK", "inbox")
        await bench.take()
    assert left(bench) == remaining


async def test_interest(bench: Bench) -> None:
    """A message is removed when all interested consumers acked it, not after max_deliver."""
    bench.readers.set_retention("interest")
    settings = EngineSettings(stream="S", max_deliver=1, ack_wait_ns=SECOND_NS)
    bench.engine(settings)
    other = bench.engine(EngineSettings(stream="S", filters=("b", "c")), name="F")
    bench.listen("inbox")
    bench.append(*"abc")
    bench.pull(b"3")
    first = await bench.take()
    bench.ack(first[0])
    bench.ack(first[1])
    await bench.settle()
    assert left(bench) == [2, 3]
    bench.pull(b"3", name="F")
    for message in await bench.take():
        bench.ack(message)
    await bench.settle()
    assert left(bench) == [3]
    assert other.num_ack_pending == 0
    await bench.advance(2)
    assert left(bench) == [3]  # max_deliver is reached without an ack
    bench.ack(first[2])
    await bench.settle()
    assert left(bench) == []


async def test_a_request_that_asks_itself(bench: Bench) -> None:
    """The request's reply is the subject for requests, so deliveries become requests."""
    engine = bench.engine()
    bench.append(*"abc")
    bench.pull(b"2", reply="$JS.API.CONSUMER.MSG.NEXT.S.C")
    await bench.settle()
    assert (engine.num_pending, engine.num_ack_pending) == (0, 3)


async def test_hints_do_not_pile_up(bench: Bench) -> None:
    """Many naks of one message with different delays do not fill the memory."""
    engine = bench.engine()
    bench.listen("inbox")
    bench.append("a")
    bench.pull()
    (message,) = await bench.take()
    for at in range(2000):
        bench.ack(message, b"-NAK %dms" % (50_000 - at))
        bench.ack(message, b"+WPI")
    assert engine.memory_bytes < 5_000


async def test_blocks_that_are_not_in_memory(bench: Bench, tmp_path: Path) -> None:
    """Blocks are loaded one after the other; redeliveries read from the stream's beginning."""
    volume = Volume.open(RealDisk(), tmp_path, os.urandom, loop=asyncio.get_running_loop())
    options = FileOptions(block_bytes_max=4096)
    store = await FileStore.open(volume, tmp_path / "msgs", Limits(), os.urandom, options)
    for at in range(500):
        store.append(f"s.{at % 7}", None, b"x" * 50, 1 + at)
    await store.close()
    store = await FileStore.open(volume, tmp_path / "msgs", Limits(), os.urandom, options)
    assert sum(not block.has_arrays for block in store.log.all_blocks) > 5
    readers = StreamReaders(
        "S", store, AccountPublisher(bench.reactor, bench.sublist), bench.scheduler
    )
    state = MemoryConsumerStore(ConsumerOptions())
    settings = EngineSettings(stream="S", filters=("s.1", "s.3"), ack_wait_ns=SECOND_NS)
    engine = ConsumerEngine(readers, "C", settings, state, Events())
    bench.engines.append(engine)
    bench.listen("inbox")
    engine.start(1)
    await engine.counted()
    wanted = [at + 1 for at in range(500) if at % 7 in (1, 3)]
    assert engine.num_pending == len(wanted)
    await pull_all(bench, engine, len(wanted))
    assert [got.numbers[1] for got in bench.inbox] == wanted
    bench.inbox.clear()
    engine.configure(replace(settings, ack_wait_ns=1))
    bench.clock.now_ns += 2 * SECOND_NS
    await pull_all(bench, engine, len(wanted))
    assert [got.numbers[1] for got in bench.inbox] == wanted
    engine.stop()
    readers.close()
    await store.close()
    await volume.close()


async def pull_all(bench: Bench, engine: ConsumerEngine, count: int) -> None:
    door = Subscription("next", sink=engine.inbox.pull_sink)
    bench.sublist.insert(door)
    bench.publish("next", b'{"batch":%d}' % count, "inbox")
    while len(bench.inbox) < count:
        await bench.turn()
    bench.sublist.remove(door)
