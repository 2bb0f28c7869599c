"""Pull requests with priority groups against a plain model of their order (ADR-42)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.jetstream.consumer.delivery import ConsumerEngine
from natsd.jetstream.consumer.settings import EngineSettings, PriorityPolicyCode
from tests.jetstream.clock import SECOND_NS
from tests.jetstream.consumer.bench import Bench, Delivery

CLIENTS = ("a", "b", "c")
TIMEOUT_S = 10
EXPIRES_S = 25
MAX_ACK_PENDING = 6


@dataclass
class Asked:
    """A waiting request."""

    client: str
    left: int
    expires_s: float
    priority: int = 0
    min_pending: int = 0
    min_ack_pending: int = 0
    pin: int | None = None  # number of a pin


class Model:
    """A list of requests that is searched from its beginning for each message."""

    def __init__(self, policy: PriorityPolicyCode) -> None:
        self.policy = policy
        self.now_s = 0.0
        self.waiting: list[Asked] = []
        self.pending = 0
        self.ack_pending = 0
        self.sequence = 0
        self.pins = 0
        self.pin: int | None = None
        self.pin_ends_s = 0.0
        self.heard: list[tuple[str, object]] = []

    def ask(self, asked: Asked) -> None:
        if asked.pin is not None and self.pin is not None:
            if asked.pin != self.pin:
                self.heard.append((asked.client, "423 Nats-Pin-Id mismatch"))
                return
            self.pin_ends_s = self.now_s + TIMEOUT_S
        self.waiting.append(asked)
        self.serve()

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.pending += 1
        self.serve()

    def ack(self) -> None:
        self.ack_pending = 0
        self.serve()

    def unpin(self) -> None:
        self.pin = None
        self.serve()

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        if self.pin is not None and self.now_s >= self.pin_ends_s:
            self.pin = None
        for asked in [each for each in self.in_order() if self.now_s >= each.expires_s]:
            self.end(asked, "408 Request Timeout")
        self.serve()

    def in_order(self) -> list[Asked]:
        if self.policy is PriorityPolicyCode.PRIORITIZED:
            return sorted(self.waiting, key=lambda asked: asked.priority)
        if self.policy is PriorityPolicyCode.PINNED_CLIENT:
            return sorted(self.waiting, key=lambda asked: asked.pin is None)
        return list(self.waiting)

    def serve(self) -> None:
        while self.pending and self.ack_pending < MAX_ACK_PENDING:
            asked = self.next()
            if asked is None:
                return
            self.pending -= 1
            self.ack_pending += 1
            self.sequence += 1
            self.heard.append((asked.client, self.sequence))
            asked.left -= 1
            self.waiting.remove(asked)
            if asked.left:
                self.waiting.append(asked)

    def next(self) -> Asked | None:
        for asked in self.in_order():
            if self.policy is PriorityPolicyCode.PINNED_CLIENT:
                if asked.pin is not None and asked.pin != self.pin:
                    self.end(asked, "423 Nats-Wrong-Pin-Id")
                    continue
                if self.pin is None:
                    self.pin = asked.pin = self.pins
                    self.pins += 1
                    self.pin_ends_s = self.now_s + TIMEOUT_S
                elif asked.pin is None:
                    return None
            elif not self.is_over(asked):
                continue
            return asked
        return None

    def is_over(self, asked: Asked) -> bool:
        if not (asked.min_pending or asked.min_ack_pending):
            return True
        return (
            0 < asked.min_pending <= self.pending or 0 < asked.min_ack_pending <= self.ack_pending
        )

    def end(self, asked: Asked, status: str) -> None:
        self.heard.append((asked.client, status))
        self.waiting.remove(asked)


class Run:
    """The engine and the model, side by side."""

    def __init__(self, policy: PriorityPolicyCode) -> None:
        self.bench = Bench()
        self.model = Model(policy)
        self.policy = policy
        self.heard: list[tuple[str, object]] = []
        self.unacked: list[Delivery] = []
        self.pin_ids: list[str] = []
        self.engine: ConsumerEngine = self.bench.engine(
            EngineSettings(
                stream="S",
                max_ack_pending=MAX_ACK_PENDING,
                ack_wait_ns=10**6 * SECOND_NS,
                priority_policy=policy,
                priority_groups=("A",),
                priority_timeout_ns=TIMEOUT_S * SECOND_NS,
            )
        )
        for client in CLIENTS:
            self._listen(client)

    def _listen(self, client: str) -> None:
        self.bench.listen_with(client, self._hearer(client))

    def _hearer(self, client: str) -> Callable[[str, str | None, bytes, bytes], None]:
        def heard(subject: str, reply: str | None, headers: bytes, data: bytes) -> None:
            delivery = Delivery(subject, reply, headers, data)
            if not reply:
                self.heard.append((client, delivery.status))
                return
            self.heard.append((client, delivery.numbers[1]))
            self.unacked.append(delivery)
            if self.policy is PriorityPolicyCode.PINNED_CLIENT:
                pin = headers.decode().split("Nats-Pin-Id: ")[1].strip()
                if pin not in self.pin_ids:
                    self.pin_ids.append(pin)

        return heard

    async def check(self) -> None:
        await self.bench.settle()
        assert self.heard == self.model.heard
        self.heard.clear()
        self.model.heard.clear()
        assert self.engine.num_waiting == len(self.model.waiting)
        assert self.engine.num_pending == self.model.pending
        assert len(self.pin_ids) == self.model.pins
        pin = self.model.pin
        assert self.engine.pin_id == ("" if pin is None else self.pin_ids[pin])

    def ask(self, draw: st.DataObject) -> None:
        client = draw.draw(st.sampled_from(CLIENTS))
        asked = Asked(client, draw.draw(st.integers(1, 4)), self.model.now_s + EXPIRES_S)
        body: dict[str, object] = {
            "group": "A",
            "batch": asked.left,
            "expires": EXPIRES_S * SECOND_NS,
        }
        pins = len(self.pin_ids)
        if self.policy is PriorityPolicyCode.OVERFLOW:
            body["min_pending"] = asked.min_pending = draw.draw(st.integers(0, 5))
            body["min_ack_pending"] = asked.min_ack_pending = draw.draw(st.integers(0, 5))
        elif self.policy is PriorityPolicyCode.PRIORITIZED:
            body["priority"] = asked.priority = draw.draw(st.integers(0, 9))
        elif pins:
            asked.pin = draw.draw(st.none() | st.integers(0, pins - 1))
        if asked.pin is not None:
            body["id"] = self.pin_ids[asked.pin]
        self.model.ask(asked)
        self.bench.pull(json.dumps(body).encode(), reply=client)

    def publish(self, draw: st.DataObject) -> None:
        count = draw.draw(st.integers(1, 5))
        self.model.publish(count)
        self.bench.append(*["s"] * count)

    def ack(self, _draw: st.DataObject) -> None:
        """Acknowledge all messages one by one; nothing is delivered in between."""
        self.model.ack()
        for delivery in self.unacked:
            self.bench.ack(delivery)
        self.unacked.clear()

    def unpin(self, _draw: st.DataObject) -> None:
        self.model.unpin()
        self.engine.unpin("A")


async def both(policy: PriorityPolicyCode, draw: st.DataObject) -> None:
    run = Run(policy)
    steps: list[Callable[[st.DataObject], None]] = [run.ask, run.ask, run.publish, run.ack]
    if policy is PriorityPolicyCode.PINNED_CLIENT:
        steps.append(run.unpin)
    try:
        for _ in range(draw.draw(st.integers(1, 25))):
            if draw.draw(st.integers(0, 5)) == 0:
                seconds = draw.draw(st.integers(1, 12)) + 0.5
                run.model.advance(seconds)
                await run.bench.advance(seconds)
            else:
                draw.draw(st.sampled_from(steps))(draw)
            await run.check()
    finally:
        run.bench.close()


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([each for each in PriorityPolicyCode if each]), st.data())
def test_whose_turn_it_is(policy: PriorityPolicyCode, draw: st.DataObject) -> None:
    asyncio.run(both(policy, draw))
