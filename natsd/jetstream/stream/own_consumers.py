"""The consumers that this server's read replica of a stream serves.

    leader of the stream ── CreateConsumer, UpdateConsumer, … ──▶ all replicas know the consumer
                                                                  │ metadata natsd.read_replica: n4
    n4's read replica answers direct gets ──▶ begin ──▶ its consumers deliver what it has applied
                      │                                 └─▶ their ack floors ─▶ the stream's leader
                      is too old, lacks something, is no read replica ──▶ end: they stand still

Promise
- Whether there is such a consumer, and how it is configured, is decided by the stream's leader, as
  for all consumers. What was delivered and acknowledged is in the files of this server alone.
- The leader is told every REPORT_EVERY_S up to where everything is acknowledged, and has all
  replicas keep that. From there a consumer goes on if its state here is lost, or if another server
  is to serve it.
- They deliver only what is committed, and only from a moment at which the read replica has had all
  that was committed before. So what they delivered earlier is in the stream, unless it was removed.
- A read replica that is made anew from another one keeps their states.
- The commands of the stream's log come again after a restart. One that was made before a consumer
  that is there already, and is of an earlier one of that name, changes nothing (`is_ahead`). One
  that moves creates a later one.
- One that was not used for too long is removed by the stream's leader, which is asked.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from natsd.jetstream.consumer import lifecycle
from natsd.jetstream.consumer.consumer import Consumer, Floor
from natsd.jetstream.consumer.files import ConsumerAsset
from natsd.jetstream.stream.staleness import Staleness

_logger = logging.getLogger(__name__)

REPORT_EVERY_S: Final = 5.0

AskToDelete = Callable[[str, int], Awaitable[None]]
"""Has the stream's leader delete the consumer of that name and creation time."""
Report = Callable[[Sequence[Floor]], Awaitable[bool]]
"""Tells the stream's leader how far consumers are; returns whether it knows that now."""


class _State(NamedTuple):
    """What a consumer has delivered and what was acknowledged."""

    created_ns: int
    encoded: bytes


class OwnConsumers:
    """The consumers of one stream that this server serves."""

    def __init__(self, consumers: Mapping[str, Consumer]) -> None:
        """Find them among all `consumers` of the stream, by name."""
        self._consumers = consumers
        self._staleness: Staleness | None = None  # of the read replica, while it answers
        self._is_due = False  # some of them may have to begin
        self._beginning: asyncio.Task[None] | None = None
        self._ahead: set[str] = set()  # consumers whose creation is yet to come again
        self._set_aside: dict[str, _State] = {}
        self.on_begun: Callable[[], object] = lambda: None
        """Called when some of them have begun."""
        self.ask_to_delete: AskToDelete | None = None
        self.report: Report | None = None
        self._known: dict[str, Floor] = {}  # what the leader was told of consumers
        self._reporting: asyncio.Task[None] | None = None
        self._next_report_s = 0.0

    @property
    def all(self) -> list[Consumer]:
        """The consumers."""
        return [each for each in self._consumers.values() if each.is_own]

    # Serving

    def begin(self, staleness: Staleness) -> None:
        """Have them deliver: the read replica answers, and has what `staleness` has proven."""
        if self._staleness is not staleness:
            self._staleness, self._is_due = staleness, True
        self._begin_soon()
        self._report_soon()

    def made(self) -> None:
        """Have a consumer that was just made deliver, if the read replica answers."""
        self._is_due = True
        self._begin_soon()

    def end(self) -> None:
        """Have them stand still."""
        if self._staleness is None:
            return
        self._staleness = None
        for task in (self._beginning, self._reporting):
            if task is not None:
                task.cancel()
        self._beginning = self._reporting = None
        for consumer in self.all:
            consumer.stand_still()

    def _begin_soon(self) -> None:
        if self._is_due and self._staleness is not None and self._beginning is None:
            begin = self._begin(self._staleness)
            self._beginning = asyncio.get_running_loop().create_task(begin)

    async def _begin(self, staleness: Staleness) -> None:
        """Begin; what fails is tried again with the next `begin`, a second later."""
        has_failed = False
        while self._is_due and not has_failed:
            self._is_due = False
            for consumer in self.all:
                try:
                    if not consumer.is_serving:
                        consumer.on_unused = partial(self._remove_unused, consumer)
                        await lifecycle.serve(consumer, staleness)
                except Exception as error:
                    has_failed = True
                    _logger.error("JetStream: %s does not begin yet: %s", consumer, error)
        self._is_due |= has_failed
        self._beginning = None
        self.on_begun()

    def _report_soon(self) -> None:
        loop = asyncio.get_running_loop()
        if self.report is None or self._reporting is not None or loop.time() < self._next_report_s:
            return
        self._next_report_s = loop.time() + REPORT_EVERY_S
        floors = [each.floor for each in self.all if each.is_serving]
        news = [each for each in floors if self._known.get(each.name) != each]
        self._known = {each.name: each for each in floors if self._known.get(each.name) == each}
        if news:
            self._reporting = loop.create_task(self._tell(self.report, news))

    async def _tell(self, report: Report, news: Sequence[Floor]) -> None:
        """Report; what the leader does not get is part of a later report."""
        try:
            if await report(news):
                self._known |= {each.name: each for each in news}
        except Exception:
            _logger.exception("JetStream: the stream's leader is told later of %s", news)
        self._reporting = None

    async def _remove_unused(self, consumer: Consumer) -> None:
        """Have the stream's leader delete a consumer; its command comes with the log."""
        try:
            if self.ask_to_delete is not None:
                await self.ask_to_delete(consumer.name, consumer.created_ns)
        finally:
            consumer.count_disuse_anew()

    # Commands that come again

    def expect(self, known: Mapping[str, ConsumerAsset]) -> None:
        """Note that commands come again, from a moment at which these consumers were there."""
        self._ahead = {
            each.name
            for each in self.all
            if each.name not in known or known[each.name].created != each.created_ns
        }

    def comes_again(self, name: str, created_ns: int) -> bool:
        """Note that a consumer is created; return whether it, or a later one, is there already."""
        known = self._consumers.get(name)
        if known is None or not known.is_own:
            return False
        if known.created_ns == created_ns:
            self._ahead.discard(name)
        elif known.created_ns < created_ns and not self.is_ahead(name):
            return False
        else:
            self._ahead.add(name)
        return True

    def is_ahead(self, name: str) -> bool:
        """Tell whether commands for a consumer are still those for an earlier one of that name."""
        return name in self._ahead

    # Another copy of the stream

    def set_aside(self) -> None:
        """Stand still, and keep the states for another copy of the stream."""
        self.end()
        self._set_aside = {
            each.name: _State(each.created_ns, each.own_store.tracker.encode()) for each in self.all
        }

    def take_over(self, before: "OwnConsumers") -> None:
        """Go on as those of a stream whose place this one takes, as far as they are the same.

        Raises StoreError.
        """
        self.on_begun, self.ask_to_delete = before.on_begun, before.ask_to_delete
        self.report = before.report
        for each in self.all:
            state = before._set_aside.get(each.name)
            if state is not None and state.created_ns == each.created_ns:
                each.own_store.restore(state.encoded)
                each.has_own_state = True
