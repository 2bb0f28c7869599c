"""Schedules: the messages of a stream that are schedules, and the messages that they publish.

    stored ─▶ note ─▶ durable: settle ─▶ table and heap ─▶ alarm ─▶ fire ─▶ Ingest.store_own
                                            ▲                                    │
                                            └── durable: its next time ◀─────────┘

    start: schedules.db ─▶ later messages, in slices ─▶ the alarm is set

Promise
- A schedule is the last message of its subject: a schedule that was purged, deleted, expired or
  replaced never fires, because this is checked when it is due. A product on the schedule's subject
  does not replace it.
- A product and the end of a schedule that fires once are stored in one commit, so neither is lost
  and neither comes twice. A repeating schedule gets its next time when its product is durable.
- A product that cannot be stored is retried. Nothing fires while the stream is searched at a start.
- After a stop, a schedule that was due in the meantime fires once. So it does after a crash, unless
  messages were removed since `schedules.db` was written, which could have been its products: then a
  repeating schedule continues with its next time.
- The table has at most one schedule per subject; schedules that are no longer in the stream are
  swept out of it.

Source: ADR-51, nats-server's `MsgScheduling`; behaviour was compared with a running nats-server
2.14.
"""

import asyncio
import contextlib
import heapq
import logging
from collections import deque
from dataclasses import dataclass
from typing import Final

from natsd.core.steps import Steps, slices
from natsd.core.wall_time import TimeError
from natsd.jetstream.headers import (
    NEXT_PURGE,
    SCHEDULE,
    SCHEDULE_NEXT,
    SCHEDULE_SOURCE,
    SCHEDULER,
    header_value,
)
from natsd.jetstream.models.times import parse_time
from natsd.jetstream.schedules.pattern import InvalidPattern, InvalidTimeZone, format_next
from natsd.jetstream.schedules.product import Product, product_of
from natsd.jetstream.schedules.rules import pattern_of
from natsd.jetstream.schedules.schedules_file import KnownSchedules, encode_schedules
from natsd.jetstream.sourcing.receiving import OF_SCHEDULES, find_messages
from natsd.jetstream.stream.answers import OwnMessageRefused
from natsd.jetstream.stream.publishing import Ingest
from natsd.jetstream.stream.state import Alarm, StreamReaders
from natsd.store.block.cold_block import ColdBlock
from natsd.store.codec.records import StoredMessage
from natsd.store.errors import MessageNotFound, StoreError, StoreUnavailable

PAUSE_NS: Final = 250_000_000
"""Least time between two searches for due schedules, as on nats-server."""
RETRY_NS: Final = 1_000_000_000
FIRED_PER_SLICE: Final = 64
SPARE: Final = 1024

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Schedule:
    """A schedule of the stream, as far as is known."""

    subject: bytes
    sequence: int
    at_ns: int  # time for which it fires next, wall-clock ns
    due_ns: int = 0  # when it is examined next, wall-clock ns; 0: it is being fired
    is_said: bool = False  # its delay was logged
    is_doubtful: bool = False  # it may have fired at `at_ns` already


@dataclass(slots=True)
class _Fired:
    """A schedule whose product is not durable yet; `next_ns` 0: it fires no more."""

    schedule: Schedule
    product: int
    next_ns: int


class Schedules:
    """Schedules of one stream; `begin` finds the existing ones."""

    def __init__(self, readers: StreamReaders, ingest: Ingest) -> None:
        self._readers = readers
        self._ingest = ingest
        self._alarm = Alarm(readers.scheduler, self._due)
        self._table: dict[bytes, Schedule] = {}  # by subject
        self._heap: list[tuple[int, int, bytes]] = []  # (due_ns, sequence, subject)
        self._noted: deque[tuple[int, bytes, bytes, int]] = deque()  # not durable yet
        self._fired: deque[_Fired] = deque()
        self._work: asyncio.Task[None] | None = None
        self._is_open = False  # all schedules were found

    def __len__(self) -> int:
        return len(self._table)

    @property
    def is_finding(self) -> bool:
        """Whether the stream is still being searched; nothing fires until then."""
        return not self._is_open

    @property
    def is_busy(self) -> bool:
        """Whether a schedule is being fired, or a message waits to become durable."""
        return self._work is not None or bool(self._noted or self._fired)

    # Start and stop

    def begin(self, known: KnownSchedules) -> None:
        """Find the existing schedules, and fire them when they are due."""
        upto = self._readers.log.last_sequence  # in a promoted mirror some may not be durable yet
        if known.upto > upto:
            known = KnownSchedules()
        self._work = asyncio.get_running_loop().create_task(self._find(known, upto))

    def close(self) -> bool:
        """Stop firing; return whether all schedules were found, as `encode` requires."""
        was_open, self._is_open = self._is_open, False
        self._alarm.cancel()
        if self._work is not None:
            self._work.cancel()
        return was_open

    def encode(self) -> Steps[bytearray]:
        """Encode the content of `schedules.db`, in steps; called after `close`."""
        self.settle(self._readers.visible)
        return encode_schedules(self._readers.visible, list(self._table.values()))

    # Calls from the ingest

    def note(self, sequence: int, subject: bytes, headers: bytes, time_ns: int) -> None:
        """Note a schedule that was appended and is not durable yet."""
        self._noted.append((sequence, subject, headers, time_ns))

    def settle(self, visible: int) -> bool:
        """Process the noted messages up to `visible`, which are durable.

        Return whether notes or products are left that are not durable.
        """
        while self._noted and self._noted[0][0] <= visible:
            self._take(*self._noted.popleft())
        while self._fired and self._fired[0].product <= visible:
            self._finish(self._fired.popleft())
        self._wake()
        return bool(self._noted or self._fired)

    def roll_back(self, durable: int) -> None:
        """Drop the notes and products above `durable`, which the stream has rolled back.

        Schedules of dropped products fire again after RETRY_NS.
        """
        while self._noted and self._noted[-1][0] > durable:
            self._noted.pop()
        again_ns = self._readers.scheduler.now_ns() + RETRY_NS
        while self._fired and self._fired[-1].product > durable:
            self._push(again_ns, self._fired.pop().schedule)
        self._wake()

    def _finish(self, fired: _Fired) -> None:
        schedule = fired.schedule
        if self._table.get(schedule.subject) is not schedule:
            return
        if fired.next_ns:
            schedule.at_ns = fired.next_ns
            self._push(fired.next_ns, schedule)
        else:
            del self._table[schedule.subject]

    # The table and the heap

    def _take(self, sequence: int, subject: bytes, headers: bytes, time_ns: int) -> None:
        """Add the schedule of a durable message, if it is one."""
        try:
            pattern = pattern_of(headers)
            if pattern is not None:
                self._add(Schedule(subject, sequence, pattern.next_ns(time_ns, time_ns)))
        except (InvalidPattern, InvalidTimeZone):
            pass  # perhaps sourced from a stream with other rules

    def _add(self, schedule: Schedule) -> None:
        known = self._table.get(schedule.subject)
        if known is not None and known.sequence >= schedule.sequence:
            return
        self._table[schedule.subject] = schedule
        self._push(schedule.at_ns, schedule)
        if len(self._table) > 2 * self._readers.log.subjects.count + SPARE:
            self._sweep()

    def _sweep(self) -> None:
        """Remove schedules that are no longer in the stream.

        At least half of the table is stale then, so the cost is spread over as many removals.
        """
        has = self._readers.log.has
        gone = [each for each in self._table.values() if not has(each.sequence)]
        for schedule in gone:
            del self._table[schedule.subject]

    def _push(self, at_ns: int, schedule: Schedule) -> None:
        schedule.due_ns = at_ns
        heapq.heappush(self._heap, (at_ns, schedule.sequence, schedule.subject))
        if len(self._heap) > 2 * len(self._table) + SPARE:
            there = (item for item in self._heap if self._of(item) is not None)
            self._heap = list(dict.fromkeys(there))
            heapq.heapify(self._heap)

    def _of(self, item: tuple[int, int, bytes]) -> Schedule | None:
        schedule = self._table.get(item[2])
        if schedule is None or (schedule.due_ns, schedule.sequence) != item[:2]:
            return None
        return schedule

    def _pop_due(self, now_ns: int) -> list[Schedule]:
        """Take due schedules from the heap, in the order of their messages."""
        due: list[Schedule] = []
        while self._heap and self._heap[0][0] <= now_ns and len(due) < FIRED_PER_SLICE:
            schedule = self._of(heapq.heappop(self._heap))
            if schedule is not None:
                schedule.due_ns = 0
                due.append(schedule)
        return sorted(due, key=lambda schedule: schedule.sequence)

    # Firing

    def _wake(self) -> None:
        if self._is_open and self._heap and (self._work is None or self._work.done()):
            now_ns = self._readers.scheduler.now_ns()
            self._alarm.set(max(self._heap[0][0], now_ns + PAUSE_NS))

    def _due(self, now_ns: int) -> None:
        self._work = asyncio.get_running_loop().create_task(self._fire_due(now_ns))

    async def _fire_due(self, now_ns: int) -> None:
        try:
            while self._is_open and (due := self._pop_due(now_ns)):
                for schedule in due:
                    await self._fire(schedule, now_ns)
                await asyncio.sleep(0)
        finally:
            self._work = None
            self._wake()

    async def _fire(self, schedule: Schedule, now_ns: int) -> None:
        try:
            message = await self._message_of(schedule)
            content = message and await self._content_of(message)
        except StoreError as error:
            self._later(schedule, error)
            return
        # No await from here on: nothing may change between the check and the append.
        if self._table.get(schedule.subject) is not schedule:
            return
        if message is None or content is None or not self._readers.log.has(schedule.sequence):
            del self._table[schedule.subject]
            return
        try:
            self._produce(schedule, message, content, now_ns)
        except (InvalidPattern, InvalidTimeZone):
            del self._table[schedule.subject]
        except (OwnMessageRefused, StoreError) as error:
            self._later(schedule, error)

    def _produce(
        self, schedule: Schedule, message: StoredMessage, content: StoredMessage, now_ns: int
    ) -> None:
        pattern = pattern_of(message.headers or b"")
        if pattern is None:
            raise InvalidPattern
        next_ns = pattern.next_ns(schedule.at_ns, now_ns) if pattern.repeats else 0
        if next_ns and schedule.is_doubtful:
            schedule.is_doubtful, schedule.at_ns = False, next_ns
            self._push(next_ns, schedule)
            return
        following = format_next(pattern, next_ns) if next_ns else None
        product: Product = product_of(message, content, following)
        sequence = self._ingest.store_own(product.subject, product.headers, product.data)
        if sequence == 0:
            self._push(now_ns + RETRY_NS, schedule)
            return
        self._fired.append(_Fired(schedule, sequence, next_ns))

    def _later(self, schedule: Schedule, error: Exception) -> None:
        if not schedule.is_said:
            schedule.is_said = True
            name = schedule.subject.decode("utf-8", "replace")
            text = "JetStream: stream %s: the schedule %s waits: %s"
            _logger.warning(text, self._readers.name, name, error)
        self._push(self._readers.scheduler.now_ns() + RETRY_NS, schedule)

    async def _message_of(self, schedule: Schedule) -> StoredMessage | None:
        """Return the schedule's message if it is still a schedule. Raises StoreError."""
        try:
            last = await self._last(schedule.subject.decode("utf-8", "surrogateescape"))
            if last.sequence != schedule.sequence:
                if not header_value(last.headers or b"", SCHEDULER):
                    return None
                last = await self._readers.store.load(schedule.sequence)
        except MessageNotFound:
            return None
        return last if header_value(last.headers or b"", SCHEDULE) else None

    async def _content_of(self, message: StoredMessage) -> StoredMessage:
        """Return the content to publish: the source subject's last message, or the schedule."""
        source = header_value(message.headers or b"", SCHEDULE_SOURCE)
        if not source:
            return message
        try:
            return await self._last(source.decode("utf-8", "surrogateescape"))
        except MessageNotFound:
            return message

    async def _last(self, subject: str) -> StoredMessage:
        found = self._readers.store.load_last_cached(subject)
        if found is None:
            found = await self._readers.store.load_last(subject)
        assert isinstance(found, StoredMessage)
        return found

    # Recovery

    async def _find(self, known: KnownSchedules, upto: int) -> None:
        """Take the schedules of the file, and search the messages after it."""
        for some in slices(known.schedules):
            for each in some:
                self._add(Schedule(*each))
            await asyncio.sleep(0)
        await self._look(known.upto, upto)
        self._work = None
        self._is_open = True
        self._wake()

    async def _look(self, known: int, upto: int) -> None:
        log, sequence, seen = self._readers.log, known + 1, 0
        try:
            while sequence <= upto:
                found: list[tuple[int, bytes, bytes, int]] = []
                try:
                    sequence, count = find_messages(log, sequence, upto, OF_SCHEDULES, found)
                except ColdBlock as cold:
                    with contextlib.suppress(StoreUnavailable):  # the next try waits for it
                        await self._readers.store.fetch(cold.block)
                    continue
                seen += count
                for each in found:
                    self._found(*each)
                await asyncio.sleep(0)
        except StoreError as error:
            _logger.error("JetStream: stream %s: schedules: %s", self._readers.name, error)
        if seen < upto - known:
            now_ns = self._readers.scheduler.now_ns()
            for schedule in self._table.values():
                schedule.is_doubtful = schedule.sequence <= upto and schedule.at_ns <= now_ns

    def _found(self, sequence: int, subject: bytes, headers: bytes, time_ns: int) -> None:
        if header_value(headers, SCHEDULE):
            self._take(sequence, subject, headers, time_ns)
        schedule = self._table.get(header_value(headers, SCHEDULER) or b"")
        if schedule is None or schedule.sequence > sequence:
            return
        following = header_value(headers, SCHEDULE_NEXT) or b""
        if following == NEXT_PURGE:
            del self._table[schedule.subject]
            return
        try:
            schedule.at_ns = parse_time(following.decode("ascii", "replace"))
        except TimeError:
            return
        self._push(schedule.at_ns, schedule)
