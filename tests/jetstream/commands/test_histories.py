"""Random histories of a stream and its consumers: their commands make the same state again.

The clock is the test's; a history has publishes of all kinds, removals, expiry, updates, consumers,
deliveries and acknowledgements, in any order.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.jetstream.errors import ApiError
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.stream.stream import Stream
from tests.jetstream.clock import SECOND_NS, Clock
from tests.jetstream.commands.replay import Recorder, check_replay
from tests.jetstream.serving import account_of, ask, create, serving, update
from tests.store.crash import TORTURE

INBOX = "_INBOX.history"
TURNS = 8
"""Turns of the event loop after each step: deliveries, acknowledgements and removals happen."""

subjects = st.sampled_from(["s.a", "s.b", "s.c"])
headers = st.sampled_from(
    [
        b"",
        b"",
        b"",
        b"Nats-Msg-Id: one\r\n",
        b"Nats-Msg-Id: two\r\n",
        b"Nats-Rollup: sub\r\n",
        b"Nats-Rollup: all\r\n",
        b"Nats-TTL: 2s\r\n",
        b"Nats-TTL: never\r\n",
        b"Nats-Expected-Last-Sequence: 3\r\n",
    ]
)
acks = st.sampled_from(
    [b"+ACK", b"+ACK", b"-NAK", b'-NAK {"delay": 1000000000}', b"+WPI", b"+TERM", b"+NXT"]
)
names = st.sampled_from(["A", "B", "C"])
policies = st.sampled_from(["explicit", "explicit", "all", "none"])
numbers = st.integers(0, 30)
publishes = st.tuples(st.just("publish"), subjects, headers)
steps = st.one_of(
    publishes,
    publishes,
    publishes,
    st.tuples(st.just("batch"), subjects, st.integers(1, 4)),
    st.tuples(st.just("wait"), st.sampled_from([1, 3, 20]), st.none()),
    st.tuples(st.just("delete"), numbers, st.booleans()),
    st.tuples(st.just("purge"), st.sampled_from(["", "s.a", "s.*"]), numbers),
    st.tuples(st.just("keep"), st.sampled_from(["", "s.b"]), st.integers(1, 4)),
    st.tuples(st.just("limits"), st.sampled_from([-1, 2, 6]), st.sampled_from([-1, 1, 2])),
    st.tuples(st.just("consumer"), names, policies),
    st.tuples(st.just("change"), names, st.integers(1, 5)),
    st.tuples(st.just("pause"), names, st.booleans()),
    st.tuples(st.just("drop"), names, st.none()),
    st.tuples(st.just("reset"), names, st.none()),
    st.tuples(st.just("pull"), names, st.integers(1, 6)),
    st.tuples(st.just("pull"), names, st.integers(1, 6)),
    st.tuples(st.just("ack"), numbers, acks),
    st.tuples(st.just("ack"), numbers, acks),
    st.tuples(st.just("ack"), numbers, acks),
)


class History:
    """One stream, its recorder, and what was delivered and can be acknowledged."""

    def __init__(self, jetstream: JetStream, stream: Stream, clock: Clock) -> None:
        self.jetstream = jetstream
        self.stream = stream
        self.clock = clock
        self.client = account_of(jetstream).account.internal_client
        self.replies: list[str] = []
        self.client.subscribe(INBOX, self._delivered)
        self.batches = 0

    def _delivered(self, _subject: str, reply: str | None, _head: bytes, _data: bytes) -> None:
        if reply is not None:
            self.replies.append(reply)

    async def step(self, what: str, one: Any, other: Any) -> None:
        self.clock.now_ns += 1_000_000
        with contextlib.suppress(ApiError):
            await getattr(self, what)(one, other)
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def publish(self, subject: str, lines: bytes) -> None:
        block = b"NATS/1.0\r\n" + lines + b"\r\n" if lines else b""
        await ask(self.jetstream, subject, b"%d" % self.clock.now_ns, block)

    async def batch(self, subject: str, count: int) -> None:
        self.batches += 1
        for at in range(1, count + 1):
            lines = b"Nats-Batch-Id: %d\r\nNats-Batch-Sequence: %d\r\n" % (self.batches, at)
            commit = b"Nats-Batch-Commit: 1\r\n" if at == count else b""
            await ask(self.jetstream, subject, b"", b"NATS/1.0\r\n" + lines + commit + b"\r\n")

    async def wait(self, seconds: int, _: None) -> None:
        self.clock.now_ns += seconds * SECOND_NS
        await self.stream.store.expire(self.clock.now_ns)

    async def delete(self, sequence: int, erase: bool) -> None:
        await self.stream.delete_message(sequence, erase=erase)

    async def purge(self, subject: str, sequence: int) -> None:
        await self.stream.purge(subject, sequence)

    async def keep(self, subject: str, keep: int) -> None:
        await self.stream.purge(subject, 0, keep)

    async def limits(self, max_msgs: int, max_msgs_per_subject: int) -> None:
        await update(self.stream, max_msgs=max_msgs, max_msgs_per_subject=max_msgs_per_subject)

    async def consumer(self, name: str, policy: str) -> None:
        given = {"durable_name": name, "ack_policy": policy, "ack_wait": 5 * SECOND_NS}
        if self.stream.config.retention.value == "workqueue":
            given |= {"filter_subject": f"s.{name.lower()}", "ack_policy": "explicit"}
        await self.stream.create_consumer(ConsumerConfig.model_validate(given), "")

    async def change(self, name: str, max_deliver: int) -> None:
        config = self.stream.consumer(name).config
        changed = config.model_copy(update={"max_deliver": max_deliver})
        await self.stream.create_consumer(changed, "update")

    async def pause(self, name: str, is_paused: bool) -> None:
        until_ns = self.clock.now_ns + SECOND_NS if is_paused else 0
        await self.stream.consumer(name).pause(until_ns)

    async def drop(self, name: str, _: None) -> None:
        await self.stream.delete_consumer(name)

    async def reset(self, name: str, _: None) -> None:
        await self.stream.consumer(name).reset(0)

    async def pull(self, name: str, batch: int) -> None:
        self.stream.consumer(name)
        self.client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.S.{name}",
            b'{"batch": %d, "no_wait": true}' % batch,
            reply=INBOX,
        )

    async def ack(self, which: int, body: bytes) -> None:
        if self.replies:
            self.client.publish(self.replies[which % len(self.replies)], body)


async def create_stream(jetstream: JetStream, retention: str, storage: str) -> Stream:
    """Create a stream in which every operation of a history may succeed."""
    return await create(
        jetstream,
        "S",
        subjects=["s.*"],
        retention=retention,
        storage=storage,
        max_age=10 * SECOND_NS,
        duplicate_window=4 * SECOND_NS,
        allow_msg_ttl=True,
        allow_rollup_hdrs=True,
        allow_atomic=True,
    )


async def run(
    history: list[tuple[str, Any, Any]], retention: str, storage: str, directory: Path
) -> None:
    clock = Clock()
    recorders: list[Recorder] = []

    def committer_of(stream: Stream) -> Recorder:
        recorders.append(Recorder(stream))
        return recorders[-1]

    async with serving(directory / "leader", clock=clock) as jetstream:
        jetstream.committer_of = committer_of
        stream = await create_stream(jetstream, retention, storage)
        played = History(jetstream, stream, clock)
        for step in history:
            await played.step(*step)
        await stream.store.settle()
        await check_replay(recorders[0], directory / "follower")


@settings(max_examples=40 * TORTURE)
@given(
    st.lists(steps, max_size=40),
    st.sampled_from(["limits", "limits", "interest", "workqueue"]),
    st.sampled_from(["file", "memory"]),
)
def test_the_commands_of_a_history_make_its_state(
    history: list[tuple[str, Any, Any]], retention: str, storage: str
) -> None:
    with TemporaryDirectory() as directory:
        asyncio.run(run(history, retention, storage, Path(directory)))
