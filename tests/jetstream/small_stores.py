"""A store with every kind of stream, and checks that hold when its small files are damaged.

store = await make_store(tmp_path, key="…")   stopped; `older` holds an earlier copy of it
async with serving(root, …) as jetstream:
    await check(jetstream, store.expected)
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from natsd.jetstream.consumer.consumer import Consumer
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.jetstream.models.stream import Compression, Retention, StreamSource
from natsd.jetstream.stream.stream import Stream
from natsd.store.consumer.consumer_state import ConsumerState
from natsd.store.file_store import FileStore
from tests.jetstream.serving import account_of, ask, create, publish, serving, update
from tests.jetstream.stream.publishing import header_block
from tests.waiting import DEADLINE_S, eventually_within

Messages = dict[int, tuple[str, bytes]]

HOUR_NS: Final = 3600 * 10**9
LATER_ID: Final = "id-of-a-removed-message"


@dataclass(frozen=True)
class Expected:
    """The contents of a store when it was stopped."""

    configs: dict[str, Any]
    messages: dict[str, Messages]
    consumer_configs: dict[tuple[str, str], Any]
    states: dict[tuple[str, str], ConsumerState]


@dataclass(frozen=True)
class StoppedStore:
    root: Path
    older: Path
    expected: Expected
    settings: dict[str, Any]

    def copy_to(self, root: Path) -> None:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.root, root)


async def make_store(directory: Path, **settings: Any) -> StoppedStore:
    root, older = directory / "made", directory / "older"
    async with serving(root, **settings) as jetstream:
        await _create_streams(jetstream)
        await _work(jetstream, "first")
    shutil.copytree(root, older)
    async with serving(root, **settings) as jetstream:
        for stream in list(account_of(jetstream).streams.values()):
            await update(stream, description="changed")
            for consumer in list(stream.consumers.values()):
                changed = consumer.config.model_copy(update={"description": "changed"})
                await stream.create_consumer(changed, "")
        await _work(jetstream, "second")
        await _settled(jetstream)
        expected = await look(jetstream)
    return StoppedStore(root, older, expected, settings)


async def _create_streams(jetstream: JetStream) -> None:
    await create(jetstream, "LIMITS", subjects=["limits.*"], duplicate_window=HOUR_NS)
    await create(
        jetstream,
        "PACKED",
        subjects=["packed"],
        compression=Compression.S2,
        duplicate_window=HOUR_NS,
    )
    await create(jetstream, "KV_B", subjects=["$KV.B.>"], max_msgs_per_subject=1)
    queue = await create(jetstream, "QUEUE", subjects=["queue.*"], retention=Retention.WORKQUEUE)
    interest = await create(
        jetstream, "INTEREST", subjects=["interest.*"], retention=Retention.INTEREST
    )
    for stream, name, wanted in (
        (queue, "QA", "queue.a"),
        (queue, "QB", "queue.b"),
        (interest, "IA", "interest.a"),
        (interest, "IALL", ""),
    ):
        config = ConsumerConfig(
            durable_name=name,
            filter_subject=wanted,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=HOUR_NS,
        )
        await stream.create_consumer(config, "")
    await create(jetstream, "COPY", sources=[StreamSource(name="LIMITS")])
    await create(jetstream, "MIRROR", mirror=StreamSource(name="LIMITS"))
    await create(jetstream, "LATER", subjects=["later.*"], allow_msg_schedules=True)


async def _work(jetstream: JetStream, phase: str) -> None:
    for number in range(8):
        text = f"{phase} {number}".encode()
        headers = header_block({"Nats-Msg-Id": f"{phase}-{number}"})
        await publish(jetstream, f"limits.{number}", text, headers)
        await publish(jetstream, "packed", text * 50, headers)
        await publish(jetstream, f"$KV.B.{number % 3}", text)
        for kind in ("queue", "interest"):
            await publish(jetstream, f"{kind}.{'ab'[number % 2]}", text)
    headers = header_block({"Nats-Msg-Id": LATER_ID + phase})
    removed = (await publish(jetstream, "limits.x", b"removed", headers))["seq"]
    await account_of(jetstream).stream("LIMITS").delete_message(removed)
    for stream, name, count in (("QUEUE", "QA", 3), ("INTEREST", "IA", 3), ("INTEREST", "IALL", 5)):
        await take(jetstream, stream, name, count, acked=count - 1)
    await publish(jetstream, "later.x", b"waits", header_block({"Nats-Delay": "1h"}))
    plan = header_block({"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": "later.y"})
    await publish(jetstream, f"later.{phase}", b"plan", plan)


async def take(jetstream: JetStream, stream: str, name: str, count: int, *, acked: int) -> None:
    """Fetch `count` messages and acknowledge the first `acked`; the acks are on disk on return."""
    client, replies = account_of(jetstream).account.internal_client, list[str]()
    enough = asyncio.Event()

    def received(_subject: str, reply: str | None, _headers: bytes, _data: bytes) -> None:
        replies.append(reply or "")
        if len(replies) == count:
            enough.set()

    subscription = client.subscribe("_INBOX.take", received)
    request = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
    client.publish(request, str(count).encode(), reply="_INBOX.take")
    async with asyncio.timeout(DEADLINE_S):
        await enough.wait()
    client.unsubscribe(subscription)
    for reply in replies[:acked]:
        await ask(jetstream, reply, b"+ACK")


async def _settled(jetstream: JetStream) -> None:
    """Wait until acknowledged messages are removed and the copies have caught up."""
    streams = account_of(jetstream).streams

    def is_settled() -> bool:
        live = {name: stream.store.state().msgs for name, stream in streams.items()}
        is_copied = live["COPY"] >= live["LIMITS"] and live["MIRROR"] >= live["LIMITS"]
        return is_copied and not any(each.readers.is_rechecking for each in streams.values())

    await eventually_within(is_settled)


async def look(jetstream: JetStream) -> Expected:
    """Return the current contents of all streams and consumers."""
    streams = account_of(jetstream).streams
    consumers = [(stream, each) for stream in streams.values() for each in _own(stream)]
    return Expected(
        {name: stream.config for name, stream in streams.items()},
        {name: await messages_of(stream) for name, stream in streams.items()},
        {(stream.name, each.name): each.config for stream, each in consumers},
        {(stream.name, each.name): each.store.state() for stream, each in consumers},
    )


def _own(stream: Stream) -> Iterator[Consumer]:
    """Return the stream's consumers without the internal ones that fill copies of the stream."""
    return (each for each in stream.consumers.values() if not each.config.direct)


async def messages_of(stream: Stream) -> Messages:
    log, found = stream.readers.log, Messages()
    for sequence in range(log.first_sequence, log.last_sequence + 1):
        if log.has(sequence):
            message = await stream.store.load(sequence)
            found[sequence] = (message.subject, message.data)
    return found


async def check(jetstream: JetStream, expected: Expected, *, repeated: set[str]) -> None:
    """Check that nothing is lost; consumers in `repeated` may have forgotten acknowledgements."""
    account = account_of(jetstream)
    assert account.offline == {}
    for stream in account.streams.values():
        assert stream.offline_consumers.reasons == {}
        assert isinstance(stream.store, FileStore) and stream.store.damage == []
    await _settled(jetstream)
    found = await look(jetstream)
    assert found.configs == expected.configs
    assert found.messages == expected.messages
    assert found.consumer_configs == expected.consumer_configs
    for (stream_name, name), before in expected.states.items():
        now = found.states[stream_name, name]
        if name not in repeated:
            assert now == before, name
            continue
        live = expected.messages[stream_name].keys()
        assert now.delivered.stream <= before.delivered.stream
        assert now.ack_floor.stream <= before.ack_floor.stream
        for sequence in before.pending.keys() & live:
            assert sequence in now.pending or sequence > now.delivered.stream
    await _check_hints(jetstream)


async def _check_hints(jetstream: JetStream) -> None:
    """Check the other stored data: ids, source positions, delays and schedules."""
    for phase in ("first", "second"):
        headers = header_block({"Nats-Msg-Id": LATER_ID + phase})
        assert (await publish(jetstream, "limits.x", b"", headers))["duplicate"]
        headers = header_block({"Nats-Msg-Id": f"{phase}-3"})
        assert (await publish(jetstream, "packed", b"", headers))["duplicate"]
    account = account_of(jetstream)
    later = account.stream("LATER").scheduled
    assert later is not None
    await eventually_within(lambda: len(later.delays) == 2 and len(later.schedules) == 2)
    copies = [account.stream(name) for name in ("COPY", "MIRROR")]
    before = [each.store.state().msgs for each in copies]
    await publish(jetstream, "limits.new", b"new")

    def has_come() -> bool:
        return all(each.readers.visible > 0 and _last(each) == "limits.new" for each in copies)

    await eventually_within(has_come)
    assert [each.store.state().msgs for each in copies] == [count + 1 for count in before]


def _last(stream: Stream) -> str:
    return stream.store.load_cached(stream.readers.visible).subject
