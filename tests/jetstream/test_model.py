"""A server with JetStream against the plain model of tests/jetstream/plain_stream.py.

Publishes, pulls, acknowledgements of all kinds, deletes, purges and restarts run in any order;
sequences, counts, pending messages and redeliveries always agree.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import nats
import pytest
import uvloop
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.clients.target import start_on_loop, stop_on_loop
from tests.jetstream.behaviour.api import Api
from tests.jetstream.behaviour.puller import Puller, deliveries_of, pending_of, sequence_of
from tests.jetstream.plain_stream import Delivery, PlainConsumer, PlainStream
from tests.store.crash import TORTURE

pytestmark = pytest.mark.torture

SUBJECTS = ["s.a", "s.b", "s.c"]
CONSUMERS = {
    "limits": {"All": SUBJECTS, "A": ["s.a"], "BC": ["s.b", "s.c"]},
    "interest": {"All": SUBJECTS, "AB": ["s.a", "s.b"]},
    "workqueue": {"A": ["s.a"], "BC": ["s.b", "s.c"]},
}

subjects = st.sampled_from(SUBJECTS)
choices = st.integers(0, 1000)
few = st.integers(1, 6)


class JetStreamModel(RuleBasedStateMachine):
    """One stream, its consumers and one client."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self.directory = tempfile.TemporaryDirectory()

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.runner.run(asyncio.wait_for(coroutine, 20))

    async def start(self) -> None:
        store = {"store_dir": str(Path(self.directory.name) / "store")}
        self.server = await start_on_loop({"jetstream": store})
        self.api = Api(await nats.connect(self.server.url, allow_reconnect=False))
        self.pullers: dict[str, Puller] = {}

    async def stop(self) -> None:
        await self.api.nc.close()
        await stop_on_loop(self.server)

    @initialize(
        retention=st.sampled_from(sorted(CONSUMERS)),
        storage=st.sampled_from(["memory", "file", "file"]),
        max_msgs=st.sampled_from([0, 0, 5, 12]),
    )
    def create(self, retention: str, storage: str, max_msgs: int) -> None:
        self.run(self.create_all(retention, storage, max_msgs))

    async def create_all(self, retention: str, storage: str, max_msgs: int) -> None:
        await self.start()
        self.storage = storage
        self.plain = PlainStream(retention, max_msgs)
        await self.api.create_stream(
            "S",
            subjects=["s.*"],
            storage=storage,
            retention=retention,
            max_msgs=max_msgs or -1,
        )
        for name, filters in CONSUMERS[retention].items():
            self.plain.consumers[name] = PlainConsumer(name, frozenset(filters))
            chosen = {} if filters == SUBJECTS else {"filter_subjects": filters}
            await self.api.create_consumer("S", name, ack_wait=3600 * 10**9, **chosen)
        await self.listen()

    async def listen(self) -> None:
        for name in self.plain.consumers:
            self.pullers[name] = await Puller.of(self.api.nc, "S", name)

    def chosen(self, choice: int) -> PlainConsumer:
        found = list(self.plain.consumers.values())
        return found[choice % len(found)]

    @rule(subject=subjects, count=few)
    def publish(self, subject: str, count: int) -> None:
        self.run(self.publish_all(subject, count))

    async def publish_all(self, subject: str, count: int) -> None:
        for _ in range(count):
            acknowledged = await self.api.publish(subject, b"data")
            assert acknowledged == {"stream": "S", "seq": self.plain.publish(subject)}

    @rule(choice=choices, batch=few)
    def fetch(self, choice: int, batch: int) -> None:
        self.run(self.fetch_some(self.chosen(choice), batch))

    async def fetch_some(self, consumer: PlainConsumer, batch: int) -> None:
        """Fetch: redeliveries come first, then new messages, and no more than exist."""
        new = self.plain.new_for(consumer)
        expected = min(batch, len(consumer.again) + len(new))
        if not expected:
            return
        puller = self.pullers[consumer.name]
        await puller.ask(batch=expected)
        for message in await puller.messages(expected):
            sequence = sequence_of(message)
            if consumer.again:
                assert sequence in consumer.again
                consumer.again.remove(sequence)
                count = consumer.waiting[sequence].count + 1
            else:
                assert sequence == new.pop(0)
                consumer.next_sequence = sequence + 1
                count = 1
            assert deliveries_of(message) == count
            assert pending_of(message) == len(new)
            assert message.subject == self.plain.messages[sequence]
            consumer.waiting[sequence] = Delivery(sequence, count, message.reply)
        await puller.nothing()

    @rule(choice=choices, which=choices, body=st.sampled_from([b"", b"+ACK", b"+TERM", b"+TERM x"]))
    def acknowledge(self, choice: int, which: int, body: bytes) -> None:
        consumer = self.chosen(choice)
        if waiting := sorted(consumer.waiting):
            sequence = waiting[which % len(waiting)]
            self.run(self.answer(consumer.waiting[sequence], body))
            self.plain.done(consumer, sequence)

    @rule(choice=choices, which=choices)
    def refuse(self, choice: int, which: int) -> None:
        consumer = self.chosen(choice)
        if waiting := sorted(consumer.waiting):
            sequence = waiting[which % len(waiting)]
            self.run(self.answer(consumer.waiting[sequence], b"-NAK"))
            if sequence not in consumer.again:
                consumer.again.append(sequence)

    @rule(choice=choices, which=choices)
    def ask_for_time(self, choice: int, which: int) -> None:
        consumer = self.chosen(choice)
        waiting = [s for s in sorted(consumer.waiting) if s not in consumer.again]
        if waiting:
            self.run(self.answer(consumer.waiting[waiting[which % len(waiting)]], b"+WPI"))

    async def answer(self, delivery: Delivery, body: bytes) -> None:
        assert (await self.api.nc.request(delivery.reply, body, 5)).data == b""

    @precondition(lambda self: self.plain.messages)
    @rule(which=choices)
    def delete(self, which: int) -> None:
        live = sorted(self.plain.messages)
        sequence = live[which % len(live)]
        self.run(self.delete_one(sequence))

    async def delete_one(self, sequence: int) -> None:
        await self.api.ok("STREAM.MSG.DELETE.S", {"seq": sequence})
        self.plain.remove(sequence)

    @rule(subject=st.one_of(st.none(), subjects), keep=st.integers(0, 4))
    def purge_all_but(self, subject: str | None, keep: int) -> None:
        request: dict[str, Any] = {"filter": subject} if subject else {}
        self.run(self.purge({**request, **({"keep": keep} if keep else {})}))

    @rule(subject=st.one_of(st.none(), subjects), back=st.integers(0, 8))
    def purge_below(self, subject: str | None, back: int) -> None:
        request: dict[str, Any] = {"filter": subject} if subject else {}
        self.run(self.purge({**request, "seq": max(1, self.plain.last - back)}))

    async def purge(self, request: dict[str, Any]) -> None:
        purged = (await self.api.ok("STREAM.PURGE.S", request))["purged"]
        expected = self.plain.purge(
            request.get("filter"), request.get("keep", 0), request.get("seq", 0)
        )
        assert purged == expected

    @precondition(lambda self: self.storage == "file")
    @rule()
    def restart(self) -> None:
        self.run(self.restart_all())

    async def restart_all(self) -> None:
        """Restart; naks may be forgotten, so messages for redelivery are taken first."""
        for consumer in self.plain.consumers.values():
            await self.fetch_some(consumer, len(consumer.again))
        await self.stop()
        await self.start()
        await self.listen()

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "plain"):
            self.run(self.compare())

    async def compare(self) -> None:
        plain = self.plain
        await self.api.until_messages("S", len(plain.messages))
        state = await self.api.stream_state("S", subjects_filter=">")
        assert (state["first_seq"], state["last_seq"]) in self.bounds()
        counts: dict[str, int] = {}
        for subject in plain.messages.values():
            counts[subject] = counts.get(subject, 0) + 1
        assert (state.get("subjects") or {}) == counts
        for consumer in plain.consumers.values():
            info = await self.api.consumer_info("S", consumer.name)
            assert info["num_pending"] == len(plain.new_for(consumer)), consumer
            assert info["num_ack_pending"] == len(consumer.waiting), consumer
            assert info["num_waiting"] == 0
            assert info["ack_floor"]["stream_seq"] < min(consumer.waiting, default=plain.last + 1)

    def bounds(self) -> list[tuple[int, int]]:
        plain = self.plain
        if plain.last == 0:
            return [(0, 0), (1, 0)]
        return [(plain.first, plain.last)]

    def teardown(self) -> None:
        try:
            if hasattr(self, "plain"):
                self.run(self.stop())
        finally:
            self.runner.close()
            self.directory.cleanup()


TestJetStreamModel = JetStreamModel.TestCase
TestJetStreamModel.settings = settings(
    max_examples=12 * TORTURE, stateful_step_count=25, deadline=None, print_blob=False
)
