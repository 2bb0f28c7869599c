"""Consumers: how they are created, changed, deleted, and recovered after a restart."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from natsd.jetstream.consumer.consumer import Consumer
from natsd.jetstream.consumer.engine_settings import store_options
from natsd.jetstream.consumer.files import STATE, STATE_DAMAGED
from natsd.jetstream.consumer.start_position import StartPosition
from natsd.jetstream.errors import ApiError
from natsd.store.consumer.consumer_state import SequencePair
from natsd.store.consumer.consumer_store import ConsumerStore
from tests.jetstream.consumer.serving import SECOND, Served, found, serving, wipe
from tests.waiting import Eventually


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as served:
        yield served


# Names


async def test_a_durable_consumer_is_called_by_its_durable_name(served: Served) -> None:
    stream = await served.stream()
    consumer = await served.consumer(stream, durable_name="D")
    assert consumer.name == "D"
    assert stream.consumer("D") is consumer


async def test_an_ephemeral_consumer_without_a_name_gets_one(served: Served) -> None:
    stream = await served.stream()
    first = await served.consumer(stream, durable_name="")
    second = await served.consumer(stream, durable_name="")
    assert first.name != second.name
    assert len(first.name) == 8 and first.name.isalnum()
    assert first.config.inactive_threshold == 5 * SECOND


@pytest.mark.parametrize(
    ("fields", "err_code"),
    [({"durable_name": "x" * 256}, 10102), ({"durable_name": "", "name": "x" * 256}, 10012)],
)
async def test_a_name_has_at_most_255_bytes(
    served: Served, fields: dict[str, Any], err_code: int
) -> None:
    stream = await served.stream()
    with pytest.raises(ApiError) as refused:
        await served.consumer(stream, **fields)
    assert refused.value.err_code == err_code
    assert not stream.consumers


# Create, update, or either


async def test_create_and_update_say_which_of_the_two_is_meant(served: Served) -> None:
    stream = await served.stream()
    with pytest.raises(ApiError) as refused:
        await served.consumer(stream, "update")
    assert refused.value.err_code == 10149
    consumer = await served.consumer(stream, "create")
    assert await served.consumer(stream, "create") is consumer
    with pytest.raises(ApiError) as refused:
        await served.consumer(stream, "create", description="other")
    assert refused.value.err_code == 10148
    assert await served.consumer(stream, "update", description="other") is consumer
    assert consumer.config.description == "other"
    assert await served.consumer(stream, description="again") is consumer


async def test_what_is_refused_changes_nothing(served: Served) -> None:
    stream = await served.stream()
    consumer = await served.consumer(stream)
    before = consumer.config
    with pytest.raises(ApiError) as refused:
        await served.consumer(stream, ack_policy="all")
    assert refused.value.err_code == 10012
    assert consumer.config == before


async def test_the_number_of_consumers_is_limited(served: Served) -> None:
    stream = await served.stream(max_consumers=1)
    await served.consumer(stream)
    await served.consumer(stream, description="the same one")
    with pytest.raises(ApiError) as refused:
        await served.consumer(stream, durable_name="D")
    assert refused.value.err_code == 10026


async def test_an_update_of_a_filter_changes_what_is_pending(served: Served) -> None:
    stream = await served.stream()
    await served.publish("a.1", "a.2", "b")
    consumer = await served.consumer(stream)
    assert consumer.info().num_pending == 3
    await served.consumer(stream, filter_subject="b")
    await consumer.counted()
    assert consumer.info().num_pending == 1


async def test_a_deliver_subject_is_changed_while_nobody_listens(served: Served) -> None:
    stream = await served.stream()
    consumer = await served.consumer(stream, deliver_subject="d.x")
    listener = served.listen("d.x")
    assert consumer.info().push_bound
    with pytest.raises(ApiError) as refused:
        await served.consumer(stream, deliver_subject="d.y")
    assert refused.value.err_code == 10013
    served.ignore(listener)
    assert not consumer.info().push_bound
    await served.consumer(stream, deliver_subject="d.y")
    served.listen("d.y")
    assert consumer.info().push_bound


async def test_what_is_pending_goes_to_the_new_deliver_subject(
    served: Served, eventually: Eventually
) -> None:
    stream = await served.stream()
    await served.consumer(stream, deliver_subject="d.x")
    listener = served.listen("d.x")
    await served.publish("b", "b")
    await eventually(lambda: len(served.received) == 2)
    served.acknowledge(served.received[0][1])
    served.ignore(listener)
    consumer = await served.consumer(stream, deliver_subject="d.y")
    await eventually(lambda: consumer.info().num_ack_pending == 1)
    served.listen("d.y")
    await eventually(lambda: len(served.received) == 3)
    assert (served.received[2][1] or "").startswith("$JS.ACK.S.C.2.2.3.")


# Start positions


@pytest.mark.parametrize(
    ("fields", "pending", "delivered"),
    [
        ({"deliver_policy": "all"}, 4, 0),
        ({"deliver_policy": "new"}, 0, 4),
        ({"deliver_policy": "last"}, 1, 3),
        ({"deliver_policy": "last", "filter_subject": "a.1"}, 1, 2),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 3}, 2, 2),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 9}, 0, 8),
        ({"deliver_policy": "last_per_subject", "filter_subject": "a.*"}, 2, 1),
    ],
)
async def test_a_new_consumer_tells_where_it_begins(
    served: Served, fields: dict[str, Any], pending: int, delivered: int
) -> None:
    stream = await served.stream()
    await served.publish("a.1", "a.2", "a.1", "b")
    info = (await served.consumer(stream, **fields)).info()
    assert info.num_pending == pending
    assert (info.delivered.consumer_seq, info.delivered.stream_seq) == (0, delivered)
    assert info.ack_floor.stream_seq == delivered


# Files and restarts


async def test_a_consumer_comes_back_where_it_was(tmp_path: Path, eventually: Eventually) -> None:
    async with serving(tmp_path) as served:
        clock = served.clock
        consumer = await served.consumer(await served.stream(), max_deliver=5)
        await served.publish("b", "b", "b")
        served.listen("inbox")
        served.ask("C", b"2")
        await eventually(lambda: len(served.received) == 2)
        served.acknowledge(served.received[0][1])
        await eventually(lambda: consumer.info().num_ack_pending == 1)
        config, created_ns = consumer.config, consumer.created_ns
    async with serving(tmp_path, clock) as served:
        stream = await served.stream()
        consumer = stream.consumer("C")
        await consumer.counted()
        assert consumer.created_ns == created_ns
        assert consumer.config == config
        after = consumer.info()
        assert (after.num_ack_pending, after.num_pending) == (1, 1)
        assert after.delivered.consumer_seq == 2
        assert after.ack_floor.consumer_seq == 1


async def test_consumers_in_memory_leave_no_files(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        stream = await served.stream()
        await served.consumer(stream, mem_storage=True)
        memory = await served.stream(name="M", subjects=["m"], storage="memory")
        await served.consumer(memory)
        assert not found(tmp_path, "obs/*")
    async with serving(tmp_path) as served:
        assert not (await served.stream()).consumers


async def test_what_is_deleted_stays_deleted(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        stream = await served.stream()
        await served.consumer(stream)
        await stream.delete_consumer("C")
        with pytest.raises(ApiError) as refused:
            stream.consumer("C")
        assert refused.value.err_code == 10014
        assert not found(tmp_path, "obs/*")
        await served.consumer(stream)
        await served.consumer(stream, durable_name="D")
        await stream.delete_consumer("C")
    async with serving(tmp_path) as served:
        assert set((await served.stream()).consumers) == {"D"}


async def test_a_create_that_died_never_happened(tmp_path: Path) -> None:
    """The crash left the directory under the name that it has until it is complete."""
    async with serving(tmp_path) as served:
        await served.consumer(await served.stream())
    (directory,) = found(tmp_path, "obs/C")
    unfinished = directory.rename(directory.with_name("C.new"))
    (unfinished / "meta.json.copy").unlink()
    async with serving(tmp_path) as served:
        stream = await served.stream()
        assert not stream.consumers
        assert not stream.offline_consumers.reasons
        assert not unfinished.exists()
        await served.consumer(stream)


async def test_a_create_that_died_in_an_earlier_version_never_happened(tmp_path: Path) -> None:
    """The crash left an initial state and no configuration."""
    async with serving(tmp_path) as served:
        stream = await served.stream()
        consumer = await served.consumer(stream)
        assert consumer.directory is not None
        directory, volume = consumer.directory, served.jetstream.volume
        options, state = store_options(consumer.config), directory / STATE
        await stream.delete_consumer("C")
        store = await ConsumerStore.create(volume, state, options, os.urandom)
        await store.abandon()
    async with serving(tmp_path) as served:
        stream = await served.stream()
        assert not stream.consumers
        assert not stream.offline_consumers.reasons
        assert not directory.exists()
        await served.consumer(stream)


async def test_a_consumer_has_no_state_on_disk_until_it_delivers(tmp_path: Path) -> None:
    """It begins where it was to begin, also after a restart."""
    async with serving(tmp_path) as served:
        stream = await served.stream()
        await served.publish("a.1", "a.1", "a.1")
        consumer = await served.consumer(stream, deliver_policy="last")
        assert consumer.directory is not None
        state = consumer.directory / STATE
    assert not state.exists()
    async with serving(tmp_path) as served:
        consumer = (await served.stream()).consumer("C")
        assert consumer.store.state().delivered.stream == 2
        consumer.store.update_delivered(1, 3, 1, 1)
        await consumer.store.synced()
        assert state.exists()
    async with serving(tmp_path) as served:
        consumer = (await served.stream()).consumer("C")
        assert consumer.store.state().delivered.stream == 3


def contents(root: Path) -> dict[Path, bytes]:
    (directory,) = found(root, "obs/C")
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


async def test_a_damaged_configuration_takes_the_consumer_offline(tmp_path: Path) -> None:
    """The consumer keeps its name and files until it is deleted; the others are served."""
    async with serving(tmp_path) as served:
        stream = await served.stream()
        await served.consumer(stream)
        await served.consumer(stream, durable_name="D")
    for meta in found(tmp_path, "obs/C/meta.json*"):
        wipe(meta)
    before = contents(tmp_path)
    async with serving(tmp_path) as served:
        stream = await served.stream()
        assert set(stream.consumers) == {"D"}
        with pytest.raises(ApiError, match=r"meta\.json is damaged") as refused:
            await served.consumer(stream)
        assert refused.value.err_code == 10195
        with pytest.raises(ApiError, match=r"meta\.json is damaged") as refused:
            stream.consumer("C")
        assert refused.value.err_code == 10195
    assert contents(tmp_path) == before
    async with serving(tmp_path) as served:
        stream = await served.stream()
        await stream.delete_consumer("C")
        assert not found(tmp_path, "obs/C")
        await served.consumer(stream)


async def ask(served: Served, request: str) -> dict[str, Any]:
    answer = await served.account.account.internal_client.request(f"$JS.API.{request}", b"")
    return dict(json.loads(answer))


@pytest.mark.parametrize("wound", ["configuration", "no configuration", "state", "engine"])
async def test_messages_wait_for_a_consumer_that_is_offline(
    tmp_path: Path,
    wound: str,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Stored and new messages are kept, because the consumer's filters are unknown."""
    async with serving(tmp_path) as served:
        stream = await served.stream(retention="interest")
        consumer = await served.consumer(stream, filter_subject="a.1")
        await served.consumer(stream, durable_name="D", filter_subject="b")
        await served.publish(*["a.1"] * 100)
        if wound == "state":
            consumer.store.update_delivered(1, 1, 1, 1)
    if wound == "configuration":
        for meta in found(tmp_path, "obs/C/meta.json*"):
            wipe(meta)
    elif wound == "no configuration":
        for meta in found(tmp_path, "obs/C/meta.json*"):
            meta.unlink()
    elif wound == "state":
        for path in found(tmp_path, "obs/C/state/state.db*"):
            path.unlink()
            path.mkdir()  # neither copy can be read
    with monkeypatch.context() as patched:
        if wound == "engine":
            patched.setattr(Consumer, "begin", fail_for("C", Consumer.begin))
        async with serving(tmp_path) as served:
            stream = served.account.stream("S")
            assert set(stream.consumers) == {"D"}
            await served.publish("a.1")
            await eventually(lambda: not stream.readers.is_rechecking)
            assert stream.store.state().msgs == 101
            listed = await ask(served, "CONSUMER.LIST.S")
            assert list(listed["offline"]) == ["C"]
            assert [each["name"] for each in listed["consumers"]] == ["D"]
            info = await ask(served, "CONSUMER.INFO.S.C")
            assert info["error"]["err_code"] == 10195
    lines = [text for text in caplog.messages if "is offline" in text]
    assert len(lines) == 1
    assert "S > C' is offline: " in lines[0]
    if wound == "engine":
        async with serving(tmp_path) as served:
            consumer = served.account.stream("S").consumer("C")
            await consumer.counted()
            assert consumer.info().num_pending == 101
        return
    async with serving(tmp_path) as served:
        stream = served.account.stream("S")
        await stream.delete_consumer("C")
        await eventually(lambda: stream.store.state().msgs == 0)


def fail_for(name: str, begin: Callable[..., None]) -> Callable[..., None]:
    def begin_or_fail(consumer: Consumer, start: StartPosition) -> None:
        if consumer.name == name:
            raise ValueError("it was built, and does not start")
        begin(consumer, start)

    return begin_or_fail


async def test_a_damaged_state_begins_where_the_consumer_began(
    tmp_path: Path, eventually: Eventually
) -> None:
    async with serving(tmp_path) as served:
        clock = served.clock
        stream = await served.stream()
        await served.publish("b", "b")
        clock.advance(1)
        await served.consumer(stream, deliver_policy="new", ack_policy="none")
        clock.advance(1)
        await served.publish("b", "b")
        served.listen("inbox")
        served.ask("C", b"2")
        await eventually(lambda: len(served.received) == 2)
    (state,) = found(tmp_path, f"obs/C/{STATE}")
    wipe(state)
    async with serving(tmp_path, clock) as served:
        consumer = (await served.stream()).consumer("C")
        await consumer.counted()
        assert consumer.info().num_pending == 2
        assert consumer.engine.delivered() == SequencePair(0, 2)
        assert (state.parent / STATE_DAMAGED / STATE).is_dir()


async def test_the_last_messages_of_subjects_are_gone_on_with(
    tmp_path: Path, eventually: Eventually
) -> None:
    """nats-server delivers all messages after a restart in the middle of them."""
    async with serving(tmp_path) as served:
        clock = served.clock
        stream = await served.stream()
        await served.publish("a.1", "a.2", "a.1", "a.3", "a.2", "a.3")
        fields: dict[str, Any] = {"deliver_policy": "last_per_subject", "filter_subject": "a.*"}
        await served.consumer(stream, **fields)
        served.listen("inbox")
        served.ask("C", b"1")
        await eventually(lambda: len(served.received) == 1)
        assert served.received[0][0] == "a.1"
    async with serving(tmp_path, clock) as served:
        consumer = (await served.stream()).consumer("C")
        await consumer.counted()
        assert consumer.info().num_pending == 2
        served.listen("inbox")
        served.ask("C", b"2")
        await eventually(lambda: len(served.received) == 2)
        assert [message[0] for message in served.received] == ["a.2", "a.3"]


# Interest


async def test_what_only_a_deleted_consumer_wanted_goes(
    served: Served, eventually: Eventually
) -> None:
    stream = await served.stream(retention="interest")
    await served.consumer(stream, durable_name="C")
    await served.consumer(stream, durable_name="D", filter_subject="b")
    await served.publish("a.1", "b", "a.2")
    assert stream.store.state().msgs == 3
    await stream.delete_consumer("C")
    await eventually(lambda: stream.store.state().msgs == 1)
    await stream.delete_consumer("D")
    await eventually(lambda: stream.store.state().msgs == 0)


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
async def test_what_is_needed_outlives_a_restart(
    tmp_path: Path, eventually: Eventually, retention: str
) -> None:
    async with serving(tmp_path) as served:
        stream = await served.stream(retention=retention)
        await served.consumer(stream)
        await served.publish("b", "b", "b")
        served.listen("inbox")
        served.ask("C", b"2")
        await eventually(lambda: len(served.received) == 2)
        served.acknowledge(served.received[0][1])
        await eventually(lambda: stream.store.state().msgs == 2)
    async with serving(tmp_path) as served:
        stream = await served.stream(retention=retention)
        await eventually(lambda: not stream.readers.is_rechecking)
        assert stream.store.state().msgs == 2
        consumer = stream.consumer("C")
        await consumer.counted()
        assert (consumer.info().num_pending, consumer.info().num_ack_pending) == (1, 1)


async def test_a_stream_goes_with_its_consumers(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        stream = await served.stream()
        consumer = await served.consumer(stream)
        await served.account.delete_stream("S")
        assert not found(tmp_path, "obs/*")
        with pytest.raises(ApiError) as refused:
            consumer.info()
        assert refused.value.err_code == 10014
        with pytest.raises(ApiError) as refused:
            await consumer.pause(1)
        assert refused.value.err_code == 10149


async def test_a_stream_that_is_deleted_takes_nobody_in(served: Served) -> None:
    stream = await served.stream()
    answers = await asyncio.gather(
        served.consumer(stream, durable_name="A"),
        served.account.delete_stream("S"),
        served.consumer(stream, durable_name="B"),
        return_exceptions=True,
    )
    assert isinstance(answers[0], Consumer)
    assert answers[1] is None
    assert not stream.consumers
    assert not found(stream.directory, "*")
    with pytest.raises(ApiError) as refused:
        await served.consumer(stream)
    assert refused.value.err_code == 10059
