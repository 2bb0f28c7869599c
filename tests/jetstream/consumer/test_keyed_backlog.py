"""Ordered work, one message of a key at a time (docs/ordered-work.md): keys and order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from natsd.jetstream.consumer.delivery import ConsumerEngine, key_name
from natsd.jetstream.consumer.settings import EngineSettings
from natsd.jetstream.errors import ApiError
from natsd.store.consumer.consumer_state import AckPolicyCode, ConsumerOptions
from natsd.store.consumer.memory_consumer_store import MemoryConsumerStore
from tests.jetstream.clock import SECOND_NS
from tests.jetstream.consumer.bench import Bench, Delivery
from tests.jetstream.consumer.serving import serving
from tests.waiting import Eventually

KEYED = EngineSettings(stream="S", key_token=2)


@pytest.mark.parametrize(
    ("subject", "token", "key"),
    [
        (b"a.b.c", 1, b"a"),
        (b"a.b.c", 2, b"b"),
        (b"a.b.c", 3, b"c"),
        (b"a.b.c", 4, b".a.b.c"),  # the subject has fewer tokens: its key is all of it
        (b"b", 1, b"b"),
        (b"b", 2, b".b"),  # differs from a token b
    ],
)
def test_the_key_of_a_subject(subject: bytes, token: int, key: bytes) -> None:
    assert key_name(subject, token) == key


async def sequences(bench: Bench) -> list[int]:
    return [got.numbers[1] for got in await bench.take() if got.reply]


async def messages(bench: Bench) -> list[Delivery]:
    return [got for got in await bench.take() if got.reply]


async def test_what_follows_waits_for_the_one_before(bench: Bench) -> None:
    engine = bench.engine(KEYED)
    bench.listen("inbox")
    bench.append("k.a", "k.a", "k.b", "k.a", "k.b", "k.c")
    bench.pull(b"10")
    first, second, third = await messages(bench)
    assert [first.numbers[1], second.numbers[1], third.numbers[1]] == [1, 3, 6]
    assert engine.num_pending == 3
    bench.ack(second)
    assert await sequences(bench) == [5]
    bench.ack(first)
    assert await sequences(bench) == [2]
    assert engine.num_pending == 1
    assert engine.ack_floor().stream == 1
    assert engine.delivered().stream == 6


async def test_pending_numbers_in_the_reply_are_exact(bench: Bench) -> None:
    bench.engine(KEYED)
    bench.listen("inbox")
    bench.append("k.a", "k.a", "k.b", "k.a")
    bench.pull(b"10")
    assert [got.numbers[4] for got in await messages(bench)] == [3, 2]


async def test_a_redelivery_comes_before_what_is_behind_it(bench: Bench) -> None:
    bench.engine(replace(KEYED, ack_wait_ns=10 * SECOND_NS))
    bench.listen("inbox")
    bench.append("k.a", "k.a", "k.b")
    bench.pull(b"10")
    first, _ = await messages(bench)
    bench.ack(first, b"-NAK")
    assert await sequences(bench) == [1]
    await bench.advance(11)
    assert await sequences(bench) == [1, 3]
    bench.ack(first)
    assert await sequences(bench) == [2]


async def test_a_late_first_delivery_is_not_redelivered_early(bench: Bench) -> None:
    """Deadlines are no longer in the order of sequences."""
    bench.engine(replace(KEYED, ack_wait_ns=10 * SECOND_NS))
    bench.listen("inbox")
    bench.append("k.a", "k.a", "k.b")
    bench.pull(b"10")
    first, _ = await messages(bench)
    await bench.advance(5)
    bench.ack(first)
    assert await sequences(bench) == [2]
    await bench.advance(6)
    assert await sequences(bench) == [3]
    await bench.advance(5)
    assert await sequences(bench) == [2]


async def test_a_pull_that_does_not_wait_is_told_that_there_is_nothing(bench: Bench) -> None:
    bench.engine(KEYED)
    bench.listen("inbox")
    bench.append("k.a", "k.a")
    bench.pull(b'{"batch":5,"no_wait":true}')
    got = await bench.take()
    assert got[0].numbers[1] == 1
    bench.pull(b'{"batch":5,"no_wait":true}')
    assert await bench.take_statuses() == ["404 No Messages"]


async def test_no_more_is_read_than_may_wait(bench: Bench) -> None:
    engine = bench.engine(replace(KEYED, key_look_ahead=3))
    bench.listen("inbox")
    bench.append("k.a", "k.a", "k.a", "k.a", "k.b", "k.c")
    bench.pull(b"10")
    [first] = await messages(bench)  # three wait: k.b is not checked
    assert engine.num_pending == 5
    bench.ack(first)
    assert await sequences(bench) == [2, 5, 6]


async def test_places_of_messages_that_are_gone_are_taken_back(bench: Bench) -> None:
    engine = bench.engine(replace(KEYED, key_look_ahead=4))
    bench.listen("inbox")
    bench.append("k.a", "k.a", "k.a", "k.a", "k.a", "k.b")
    bench.pull(b"10")
    assert await sequences(bench) == [1]
    for sequence in (2, 4, 5):
        await bench.store.delete(sequence)
    assert await sequences(bench) == [6]
    assert engine.num_pending == 1


@pytest.mark.parametrize("filters", [(), ("k.>",)])
async def test_a_purge_takes_what_waits(bench: Bench, filters: tuple[str, ...]) -> None:
    engine = bench.engine(replace(KEYED, filters=filters))
    bench.listen("inbox")
    bench.append("k.a", "k.a", "k.b", "k.a")
    bench.pull(b"10")
    assert await sequences(bench) == [1, 3]
    await bench.store.purge()
    await bench.settle()
    assert engine.num_ack_pending == 0
    assert engine.num_pending == 0
    bench.append("k.a", "k.b")
    assert await sequences(bench) == [5, 6]


async def test_new_filters_are_for_what_waits_too(bench: Bench) -> None:
    engine = bench.engine(replace(KEYED, filters=("k.>",)))
    bench.listen("inbox")
    bench.append("k.a.1", "k.a.2", "k.a.1", "k.b.1", "k.b.2")
    bench.pull(b"10")
    first, second = await messages(bench)
    engine.configure(replace(KEYED, filters=("k.*.1",)))
    assert await sequences(bench) == []
    assert engine.num_pending == 1
    bench.ack(first)
    bench.ack(second)
    assert await sequences(bench) == [3]
    assert engine.num_pending == 0


async def test_the_key_never_changes(bench: Bench) -> None:
    engine = bench.engine(KEYED)
    with pytest.raises(ValueError, match="never change"):
        engine.configure(replace(KEYED, key_token=1))


async def test_a_queue_group_gets_one_of_a_key_at_a_time(bench: Bench) -> None:
    engine = bench.engine(replace(KEYED, deliver_subject="d"))
    bench.listen("d", "workers")
    bench.listen("d", "workers")
    engine.set_push_interest(True)
    bench.append("k.a", "k.a", "k.b")
    first, second = await messages(bench)
    assert [first.numbers[1], second.numbers[1]] == [1, 3]
    bench.ack(first)
    assert await sequences(bench) == [2]


async def test_the_last_of_each_subject_first(bench: Bench) -> None:
    bench.append("k.a.1", "k.a.2", "k.a.1", "k.b")
    bench.engine(replace(KEYED, filters=("k.>",)), last_per_subject=[2, 3, 4])
    bench.listen("inbox")
    bench.append("k.b", "k.c")
    bench.pull(b"10")
    first, second, third = await messages(bench)
    assert [first.numbers[1], second.numbers[1], third.numbers[1]] == [2, 4, 6]
    bench.ack(second)
    assert await sequences(bench) == [5]
    bench.ack(first)
    assert await sequences(bench) == [3]


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
async def test_what_waits_is_needed_after_a_restart_too(bench: Bench, retention: str) -> None:
    bench.readers.set_retention(retention)
    store = MemoryConsumerStore(ConsumerOptions(AckPolicyCode.EXPLICIT))
    engine = bench.engine(KEYED, store=store)
    bench.listen("inbox")
    bench.append("k.a", "k.a", "k.b", "k.b")
    bench.pull(b"10")
    _, second = await messages(bench)
    bench.ack(second)
    assert await sequences(bench) == [4]
    assert [bench.store.log.has(n) for n in (1, 2, 3, 4)] == [True, True, False, True]
    engine.stop()
    again = bench.engine(KEYED, name="D", start=5, store=store)
    bench.readers.recheck_soon()
    await bench.settle()
    assert [again.is_needed(n) for n in (1, 2, 4)] == [True, True, True]
    assert [bench.store.log.has(n) for n in (1, 2, 3, 4)] == [True, True, False, True]
    assert again.num_pending == 1


async def test_what_was_held_and_is_gone_after_a_restart(bench: Bench) -> None:
    store = MemoryConsumerStore(ConsumerOptions(AckPolicyCode.EXPLICIT))
    engine = bench.engine(KEYED, store=store)
    bench.listen("inbox")
    bench.append("k.a", "k.a", "k.a", "k.b")
    bench.pull(b"10")
    [first, _] = await messages(bench)
    assert store.state().held == ((2, 3),)
    engine.stop()
    await bench.store.delete(2)
    again = bench.engine(KEYED, name="D", start=5, store=store)
    assert again.num_pending == 1
    assert store.state().held == ((3, 3),)
    bench.pull(b"10", name="D")
    acknowledge(bench, again, first)
    assert await sequences(bench) == [3]


def acknowledge(bench: Bench, engine: ConsumerEngine, delivery: Delivery) -> None:
    tokens = (delivery.reply or "").split(".")
    tokens[3] = engine.name
    bench.publish(".".join(tokens))


# With a disk


async def test_a_key_is_free_when_its_ack_is_durable(
    tmp_path: Path, eventually: Eventually
) -> None:
    """A crash cannot undo an ack after the delivery of a later message of the key."""
    async with serving(tmp_path) as served:
        stream = await served.stream()
        consumer = await served.consumer(stream, metadata={"natsd.key_token": "2"})
        served.listen("inbox")
        await served.publish("a.k", "a.k")
        served.ask("C", b"10")
        await eventually(lambda: len(served.received) == 1)
        changes = consumer.store.tracker.change_count
        served.acknowledge(served.received[0][1])
        await eventually(lambda: len(served.received) == 2)
        assert consumer.store.durable_changes > changes


async def test_a_restart_goes_on_where_it_was(tmp_path: Path, eventually: Eventually) -> None:
    fields: dict[str, Any] = {"metadata": {"natsd.key_token": "2"}}
    async with serving(tmp_path) as served:
        stream = await served.stream(retention="workqueue")
        await served.consumer(stream, **fields)
        served.listen("inbox")
        await served.publish("a.k", "a.k", "a.l", "a.k")
        served.ask("C", b"10")
        await eventually(lambda: len(served.received) == 2)
        served.acknowledge(served.received[1][1])
        await eventually(lambda: stream.readers.log.msgs == 3)
        first = served.received[0][1]
    async with serving(tmp_path) as served:
        stream = await served.stream(retention="workqueue")
        info = stream.consumer("C").info()
        assert (info.num_pending, info.num_ack_pending) == (2, 1)
        assert (info.ack_floor.stream_seq, info.delivered.stream_seq) == (0, 3)
        served.listen("inbox")
        served.ask("C", b"10")
        await served.publish("a.k", "a.l")
        await eventually(lambda: served.received)
        assert [subject for subject, _, _, _ in served.received] == ["a.l"]
        served.acknowledge(first)
        await eventually(lambda: len(served.received) == 2)
        assert (served.received[1][1] or "").split(".")[5] == "2"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"metadata": {"natsd.key_token": "0"}}, "key token '0' is not a number from 1 to 99"),
        ({"metadata": {"natsd.key_token": "x"}}, "key token 'x' is not a number from 1 to 99"),
        ({"metadata": {"natsd.key_token": "100"}}, "key token '100' is not a number from 1 to 99"),
        ({"metadata": {"natsd.key_token": "٣"}}, "key token '٣' is not a number from 1 to 99"),
        ({"ack_policy": "none"}, "with a key token needs ack policy explicit"),
        ({"ack_policy": "all"}, "with a key token needs ack policy explicit"),
        ({"replay_policy": "original"}, "with a key token can not replay as it was published"),
    ],
)
async def test_what_is_refused(tmp_path: Path, fields: dict[str, Any], text: str) -> None:
    async with serving(tmp_path) as served:
        stream = await served.stream()
        with pytest.raises(ApiError) as error:
            await served.consumer(stream, **{"metadata": {"natsd.key_token": "1"}} | fields)
        assert error.value.err_code == 10094
        assert error.value.description == f"consumer {text}"


async def test_an_update_may_not_change_the_key(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        stream = await served.stream()
        await served.consumer(stream, metadata={"natsd.key_token": "1"})
        for metadata in ({"natsd.key_token": "2"}, {}):
            with pytest.raises(ApiError) as error:
                await served.consumer(stream, metadata=metadata)
            assert error.value.description == "key token can not be updated"
        await served.consumer(stream, metadata={"natsd.key_token": "1", "mine": "x"})
