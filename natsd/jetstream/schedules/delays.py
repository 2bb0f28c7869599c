"""Delayed messages: they wait in a second store of the stream until they are due.

    publish ─▶ take: entry ─▶ durable ─▶ PubAck, heap ─▶ alarm ─▶ copy in the stream, still hidden
                       │                                              │ durable
                       └──────────── entry removed, durable ◀─────────┘ ─▶ the copy is visible

    <account>/streams/<stream>/delayed/   entries (store/file_store.py) with their own sequences;
                                          `Nats-Delayed` holds the sequence of the PubAck

Promise
- A waiting message is no message of the stream: it only uses up a sequence there; consumers, reads,
  counts, limits and retention ignore it.
- It is acknowledged when it is on disk. At its due time it is appended like any message; messages
  with the same due time are appended in the order of their sequences.
- A message is neither lost nor stored twice, whenever the process dies: a copy becomes visible only
  when its entry is removed durably, and a start finds copies that never became visible by their
  `Nats-Delayed` header, among the messages appended since the first entry was due.
- A copy that the stream refuses is retried. At most WAITING_MAX messages wait, with at most
  `max_bytes` bytes.
- Entries that wait at the moment of a snapshot stay on disk until the hold of that moment ends:
  the snapshot copies them in the meantime.
- In a stream with replicas an entry has the sequence of its PubAck, so a command that comes again
  changes nothing. The leader's entries and removals are written when the replicas have committed
  them, and undone when it steps down; followers publish nothing, and remove what the leader does.

nats-server has no such delays; see docs/delayed-messages.md.
"""

import asyncio
import contextlib
import heapq
import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from natsd.core.routing import is_subset
from natsd.jetstream.commands.commands import Command, Runs
from natsd.jetstream.headers import (
    DELAY,
    DELAYED,
    MESSAGE_ID,
    header_value,
    with_header,
    without_headers,
)
from natsd.jetstream.schedules.delay import InvalidDelay, delayed_sequence, due_ns
from natsd.jetstream.schedules.staging import Staging
from natsd.jetstream.sourcing.receiving import OF_DELAYS, find_messages
from natsd.jetstream.stream.answers import OwnMessageRefused
from natsd.jetstream.stream.publishing import Ingest, Usage
from natsd.jetstream.stream.state import Alarm, Proposer, StreamReaders
from natsd.store.backup.frozen_store import FrozenStore
from natsd.store.block.cold_block import ColdBlock
from natsd.store.codec.records import StoredMessage
from natsd.store.errors import MessageNotFound, StoreEOF, StoreError
from natsd.store.file_store import FileStore
from natsd.store.log.message_log import MessageLog
from natsd.store.log_store import LogStore
from natsd.store.mem_store import MemStore

WAITING_MAX: Final = 100_000
RELEASED_AT_ONCE: Final = 64
RETRY_NS: Final = 1_000_000_000
FOUND_PER_SLICE: Final = 256
FOUND_BYTES_MAX: Final = 1 << 20
LOOKED_BACK_MIN: Final = 10_000
"""Messages at the end of a stream that are always searched for copies: the clock may go back."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class DelayedEntry:
    """A waiting message; `number` is its sequence in the store of entries."""

    due_ns: int
    sequence: int
    number: int


class Delays:
    """Delayed messages of one stream; `begin` finds those that wait already."""

    def __init__(
        self, readers: StreamReaders, ingest: Ingest, store: LogStore, usage: Usage
    ) -> None:
        self._readers = readers
        self._ingest = ingest
        self._store = store
        self._usage = usage
        self._is_memory = isinstance(store, MemStore)
        self._alarm = Alarm(readers.scheduler, self._due)
        self._waiting: dict[int, DelayedEntry] = {}  # by acknowledged sequence
        self._heap: list[DelayedEntry] = []  # durable entries, the earliest first; some may be gone
        self._unsaved: deque[tuple[DelayedEntry, bytes]] = (
            deque()
        )  # not yet durable, with their message ids
        self._gone: set[int] = set()  # numbers of entries whose removal must be retried
        self._known_ids: dict[bytes, tuple[int, int]] = {}  # id ─▶ sequence, publish time in ns
        self._counted_bytes = 0  # part of `usage`
        self._holds = 0  # snapshots that need all entries kept
        self._unheld = asyncio.Event()
        self._unheld.set()
        self._work: asyncio.Task[None] | None = None
        self._staging: Staging | None = None  # of a stream with replicas
        self._is_open = False  # all entries were found
        self._is_said = False  # the present error was logged
        store.set_durability_listener(self)
        self._count()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_finding(self) -> bool:
        """Whether the entries are still being read; nothing is published until then."""
        return not self._is_open

    @property
    def is_busy(self) -> bool:
        """Whether a message is being published, or waits to become durable."""
        return self._work is not None or bool(self._unsaved)

    # Start and stop

    async def prepare(self, since_ns: int, *, is_led: bool) -> None:
        """Reserve the sequences of waiting messages, and read message ids newer than `since_ns`.

        Afterwards no acknowledged sequence is given to another message. `is_led`: the stream
        follows a leader, whose commands say which sequences are used up. Raises StoreError.
        """
        try:
            last = await self._store.load_last(">")
        except MessageNotFound:
            return
        await self._find_ids(await self._store.sequence_at(since_ns + 1))
        behind = self._sequence_of(last.headers) - self._readers.log.last_sequence
        if behind > 0 and not is_led:
            self._ingest.skip(behind)
            await self._readers.store.synced()

    async def _find_ids(self, number: int) -> None:
        while batch := await self._read(number):
            for message in batch:
                message_id = header_value(message.headers or b"", MESSAGE_ID)
                if message_id:
                    sequence = self._sequence_of(message.headers)
                    self._known_ids[message_id] = (sequence, message.time_ns)
            number = batch[-1].sequence + 1
            await asyncio.sleep(0)

    async def _read(self, number: int) -> list[StoredMessage]:
        try:
            return await self._store.read_batch(number, FOUND_PER_SLICE, FOUND_BYTES_MAX)
        except StoreEOF:
            return []

    def begin(self) -> None:
        """Start to find the entries, and to publish those that are due."""
        upto = self._store.log.last_sequence
        self._work = asyncio.get_running_loop().create_task(self._find(upto))

    def replicate(self) -> None:
        """Keep the entries of a stream with replicas from now on."""
        if self._staging is None:
            self._staging = Staging(self._store)

    async def follow(self) -> None:
        """Find the entries, and publish none: the stream's leader does. Raises StoreError."""
        self.replicate()
        await self._find_waiting(self._store.log.last_sequence)

    def begin_proposing(self, proposer: Proposer) -> None:
        """Have changes wait for the replicas from now on; all earlier ones are committed."""
        self.replicate()
        assert self._staging is not None
        self._staging.begin(proposer)

    def note_committed(self, command: Command) -> None:
        """Note that the replicas have committed a command that concerns delayed messages."""
        if self._staging is not None:
            self._staging.note_committed(command)

    def commit(self) -> None:
        """Write what the replicas have committed."""
        if self._staging is not None:
            self._staging.commit()

    async def stop(self) -> None:
        """Publish nothing more: the stream does not lead any more."""
        self._is_open = False
        self._alarm.cancel()
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
            self._work = None

    async def undo(self) -> list[tuple[int, Command]]:
        """Go back to what is written, after `stop`; `follow` comes next.

        Return the committed commands behind it, with their indexes. Raises StoreError.
        """
        assert self._staging is not None
        commands = await self._staging.undo()
        self._waiting.clear()
        self._heap.clear()
        self._unsaved.clear()
        self._gone.clear()
        return commands

    async def close(self) -> None:
        """Stop publishing and close the store; all entries are on disk then. Raises StoreError."""
        await self._end()
        await self._store.close()

    async def abandon(self) -> None:
        """Stop publishing and release the entries; the caller removes the stream's files."""
        await self._end()
        self._usage.count(is_memory=self._is_memory, change=-self._counted_bytes)
        await self._store.abandon()

    async def _end(self) -> None:
        if self._staging is not None:  # what is published is undone, or waits for nobody
            await self.stop()
            with contextlib.suppress(StoreError):  # it was logged before
                await self._staging.undo()
        was_open, self._is_open = self._is_open, False
        self._alarm.cancel()
        if self._work is not None:
            if not was_open:
                self._work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._work  # a message that is being published gets its entry removed
        self._store.set_durability_listener(None)

    # Publishing of a delayed message

    def has_room(self, size: int) -> bool:
        """Return whether there is room for one more message of `size` bytes."""
        log, bytes_max = self._store.log, self._readers.log.limits.max_bytes
        has_bytes = bytes_max <= 0 or log.live_bytes + size <= bytes_max
        return has_bytes and len(self._waiting) < WAITING_MAX

    def take(
        self, sequence: int, subject: bytes, headers: bytes, data: bytes, time_ns: int
    ) -> bool:
        """Store a checked message as the entry of `sequence`.

        A follower has it already if the command comes again. Return whether its acknowledgement
        must wait for the disk. Raises StoreError.
        """
        staging = self._staging
        if staging is not None and not staging.is_leading and sequence <= self.last_entry:
            return False
        at_ns = due_ns(header_value(headers, DELAY) or b"", time_ns)
        mark = f"{self._readers.name} {sequence}".encode("utf-8", "surrogateescape")
        headers = with_header(without_headers(headers, _MARK), DELAYED, mark)
        own = 0 if staging is None else sequence
        number = self._store.append(subject, headers, data, time_ns, sequence=own)
        if staging is not None:
            staging.appended()
        entry = DelayedEntry(at_ns, sequence, number)
        self._waiting[sequence] = entry
        self._count()
        if self._is_memory and (staging is None or not staging.is_leading):
            self._push(entry)
            return False
        self._unsaved.append((entry, header_value(headers, MESSAGE_ID) or b""))
        return True

    def find_id(self, message_id: bytes, since_ns: int) -> int:
        """Return the sequence of an entry from before the start with this message id; 0: none.

        Entries published at `since_ns` or earlier do not count.
        """
        sequence, time_ns = self._known_ids.get(message_id, (0, 0))
        return sequence if time_ns > since_ns else 0

    def is_unsaved(self, sequence: int) -> bool:
        """Return whether the entry of this sequence is not yet on disk."""
        entry = self._waiting.get(sequence)
        return entry is not None and entry.number > self._store.durable_sequence

    def roll_back(self, durable: int) -> None:
        """Drop the entries of all sequences above `durable`, which the stream has rolled back.

        With replicas they are undone by `undo`, or come again from the RAFT log.
        """
        if self._staging is not None:
            return
        late = [sequence for sequence in self._waiting if sequence > durable]
        # Their publishers got an error, and other messages may get their sequences before the
        # entries are on disk.
        self._unsaved = deque(each for each in self._unsaved if each[0].sequence <= durable)
        self._gone.update(self._waiting.pop(sequence).number for sequence in late)
        if late:
            self._wake(self._readers.scheduler.now_ns() + RETRY_NS)

    # Listener of the store of entries

    def durable(self, number: int) -> None:
        """Acknowledge all entries up to `number`, which are on disk now."""
        while self._unsaved and self._unsaved[0][0].number <= number:
            entry, _ = self._unsaved.popleft()
            if self._waiting.get(entry.sequence) is entry:
                self._push(entry)
            self._ingest.release_answer(entry.sequence)

    def failed(self, error: StoreError) -> None:
        """Fail the publishes of entries that the store has rolled back."""
        last = self._store.log.last_sequence
        while self._unsaved and self._unsaved[-1][0].number > last:
            entry, message_id = self._unsaved.pop()
            self._waiting.pop(entry.sequence, None)
            self._ingest.message_ids.forget(message_id)
            self._ingest.fail_answer(entry.sequence, error)
        self._count()
        if self._staging is not None and self._ingest.failing is not None:
            self._ingest.failing(error)  # the replica applies it again

    def _count(self) -> None:
        change = self._store.log.live_bytes - self._counted_bytes
        self._counted_bytes += change
        self._usage.count(is_memory=self._is_memory, change=change)

    @property
    def used_bytes(self) -> int:
        """The bytes of the entries that count as used."""
        return self._counted_bytes

    def count_in(self, usage: Usage) -> None:
        """Count the entries' bytes in `usage` from now on."""
        self._usage.count(is_memory=self._is_memory, change=-self._counted_bytes)
        self._usage, self._counted_bytes = usage, 0
        self._count()

    # Snapshots

    def hold(self) -> list[DelayedEntry]:
        """Return the entries that wait now, and keep them all in the store until `let_go`.

        No message of the stream is a copy of one of them: a message is either an entry or a copy.
        """
        self._holds += 1
        self._unheld.clear()
        return list(self._waiting.values())

    def let_go(self) -> None:
        """End one hold."""
        self._holds -= 1
        if not self._holds:
            self._unheld.set()

    async def freeze(self, directory: Path, entries: Iterable[DelayedEntry]) -> FrozenStore:
        """Freeze the store with these entries of a lasting hold (see `FileStore.freeze`).

        With replicas, all that they have committed is frozen. Raises StoreError, OSError.
        """
        assert self._holds and isinstance(self._store, FileStore)
        frozen = await self._store.freeze(directory)
        if self._staging is not None:
            return frozen
        try:
            await frozen.keep_only(entry.number for entry in entries)
        except BaseException:
            await frozen.release()
            raise
        return frozen

    @property
    def store(self) -> LogStore:
        """The store of the entries."""
        return self._store

    @property
    def log(self) -> MessageLog:
        """The log of the entries, for a copy of those that wait."""
        return self._store.log

    # Deletion of delayed messages

    async def cancel(self, sequence: int) -> bool:
        """Remove the entry of this sequence durably; return if there was one. Raises StoreError."""
        await self.found_all()
        entry = self._waiting.pop(sequence, None)
        if entry is None:
            return False
        await self._remove((entry.number,))
        return True

    @property
    def is_replicated(self) -> bool:
        """Whether the stream has replicas, which have these messages too."""
        return self._staging is not None

    @property
    def last_entry(self) -> int:
        """Sequence of the newest entry, waiting or not, in the store of entries."""
        return self._store.log.last_sequence

    @property
    def write_error(self) -> StoreError | None:
        """Reason why nothing can be changed now; None: it can."""
        return self._store.write_error

    async def purge(self, pattern: str, last_entry: int = 0) -> int:
        """Remove entries to matching subjects, up to `last_entry` (0: all); return how many.

        An empty pattern matches all subjects. Raises StoreError, InvalidSubject.
        """
        await self.found_all()
        await self._unheld.wait()
        if self._staging is not None:
            return await self._purge_replicated(pattern)
        upto = last_entry + 1 if last_entry else 0
        removed = await self._store.purge(pattern=pattern or None, up_to_sequence=upto)
        await self._store.synced()
        has = self._store.log.has
        for entry in [each for each in self._waiting.values() if not has(each.number)]:
            del self._waiting[entry.sequence]
        self._count()
        return removed

    async def _purge_replicated(self, pattern: str) -> int:
        number, found = 1, set[int]()
        while batch := await self._read(number):
            found |= {
                each.sequence for each in batch if not pattern or is_subset(each.subject, pattern)
            }
            number = batch[-1].sequence + 1
        for entry in [each for each in self._waiting.values() if each.number in found]:
            del self._waiting[entry.sequence]
        await self._remove(found)
        return len(found)

    async def drop(self, runs: Runs) -> None:
        """Remove the entries that the stream's leader has removed. Raises StoreError."""
        assert self._staging is not None
        numbers = set[int]()
        for first, last in runs:
            while first <= last and (batch := await self._read(first)):
                numbers.update(each.sequence for each in batch if each.sequence <= last)
                first = batch[-1].sequence + 1
        await self._staging.remove(sorted(numbers))
        for entry in [each for each in self._waiting.values() if each.number in numbers]:
            del self._waiting[entry.sequence]
        self._count()

    async def synced(self) -> None:
        """Return once every change made before the call is durable. Raises StoreError."""
        await self._store.synced()

    async def found_all(self) -> None:
        """Wait until all entries from before the start are known."""
        if self._work is not None and not self._is_open:
            await asyncio.shield(self._work)

    async def _remove(self, numbers: Iterable[int]) -> None:
        """Remove entries durably; failed removals stay noted for a retry. Raises StoreError."""
        self._gone.update(numbers)
        await self._unheld.wait()
        removed = list(self._gone)
        if self._staging is not None:
            await self._staging.remove(removed)
        else:
            for number in removed:
                await self._store.delete(number)
        await self._store.synced()
        self._gone.difference_update(removed)
        self._count()

    # Publishing of due messages

    def _push(self, entry: DelayedEntry) -> None:
        heapq.heappush(self._heap, entry)
        self._wake(self._heap[0].due_ns)

    def _wake(self, at_ns: int) -> None:
        if self._is_open and (self._work is None or self._work.done()):
            self._alarm.set(at_ns)

    def _due(self, now_ns: int) -> None:
        self._work = asyncio.get_running_loop().create_task(self._publish_due(now_ns))

    async def _publish_due(self, now_ns: int) -> None:
        wait_ns = 0
        try:
            while self._is_open and wait_ns == 0 and (due := self._pop_due(now_ns)):
                if not await self._publish(due):
                    wait_ns = RETRY_NS
            if self._gone:
                await self._remove(())
        except StoreError as error:
            wait_ns = RETRY_NS
            self._say(error)
        finally:
            self._work = None
            if self._heap:
                self._wake(max(self._heap[0].due_ns, now_ns + wait_ns))
            elif self._gone:
                self._wake(now_ns + RETRY_NS)

    def _pop_due(self, now_ns: int) -> list[DelayedEntry]:
        due: list[DelayedEntry] = []
        while self._heap and self._heap[0].due_ns <= now_ns and len(due) < RELEASED_AT_ONCE:
            entry = heapq.heappop(self._heap)
            if self._waiting.get(entry.sequence) is entry:
                due.append(entry)
        return due

    async def _publish(self, due: list[DelayedEntry]) -> bool:
        """Publish due entries in that order.

        Return False if some were not published; those wait as before.
        """
        copies: list[tuple[DelayedEntry, int]] = []
        error: Exception | None = None
        try:
            try:
                for entry in due:
                    message = await self._load(entry)
                    sequence = self._publish_one(entry, message, is_first=not copies)
                    if sequence:
                        copies.append((entry, sequence))
                await self._readers.store.synced()
            except (OwnMessageRefused, StoreError) as caught:
                error = caught
                self._say(caught)
            await self._settle(due, copies)
        finally:
            self._readers.hide_from(0)
        self._is_said = self._is_said and error is not None
        return error is None

    async def _load(self, entry: DelayedEntry) -> StoredMessage | None:
        try:
            return await self._store.load(entry.number)
        except MessageNotFound:  # removed in the meantime, or damaged
            return None

    def _publish_one(
        self, entry: DelayedEntry, message: StoredMessage | None, *, is_first: bool
    ) -> int:
        """Append a copy and return its sequence; 0: the entry is gone.

        Raises OwnMessageRefused, StoreError.
        """
        if message is None or self._waiting.get(entry.sequence) is not entry:
            return 0
        if is_first:
            self._readers.hide_from(self._readers.log.last_sequence + 1)
        sequence = self._ingest.store_own(
            message.subject.encode("utf-8", "surrogateescape"),
            without_headers(message.headers or b"", _DELAY),
            message.data,
            is_mapped=True,
        )
        if sequence == 0:
            raise OwnMessageRefused(b"the stream takes nothing now")
        del self._waiting[entry.sequence]
        return sequence

    async def _settle(
        self, due: list[DelayedEntry], copies: list[tuple[DelayedEntry, int]]
    ) -> None:
        """Remove the entries whose copies are durable, requeue the others. Raises StoreError."""
        durable = self._readers.store.durable_sequence
        done = [entry for entry, sequence in copies if sequence <= durable]
        for entry, sequence in copies:
            if sequence > durable:  # the stream has rolled it back
                self._waiting[entry.sequence] = entry
        for entry in due:
            if self._waiting.get(entry.sequence) is entry:
                if self._store.log.has(entry.number):
                    heapq.heappush(self._heap, entry)
                else:
                    del self._waiting[entry.sequence]
        if done:
            await self._remove(entry.number for entry in done)

    def _say(self, error: Exception) -> None:
        if not self._is_said:
            self._is_said = True
            text = "JetStream: stream %s: delayed messages wait: %s"
            _logger.warning(text, self._readers.name, error)

    # Recovery

    async def _find(self, upto: int) -> None:
        """Find the entries up to that number, and drop those whose copies exist."""
        try:
            await self._find_waiting(upto)
            await self._drop_published()
        except StoreError as error:
            self._say(error)
        self._work = None
        self._is_open = True
        heapq.heapify(self._heap)
        if self._heap:
            self._wake(self._heap[0].due_ns)

    async def _find_waiting(self, upto: int) -> None:
        number = 1
        while number <= upto and (batch := await self._read(number)):
            for message in batch:
                if message.sequence <= upto:
                    self._found(message)
            number = batch[-1].sequence + 1
            await asyncio.sleep(0)

    def _found(self, message: StoredMessage) -> None:
        headers = message.headers or b""
        sequence = self._sequence_of(headers)
        if sequence in self._waiting:  # known since this server followed a leader
            return
        try:
            at_ns = due_ns(header_value(headers, DELAY) or b"", message.time_ns)
        except InvalidDelay:
            return
        entry = DelayedEntry(at_ns, sequence, message.sequence)
        self._waiting[sequence] = entry
        self._heap.append(entry)

    async def _drop_published(self) -> None:
        """Remove due entries whose copies exist, which a crash left."""
        log, now_ns = self._readers.log, self._readers.scheduler.now_ns()
        due = [entry for entry in self._heap if entry.due_ns <= now_ns]
        if not due:
            return
        upto = log.last_sequence
        since = await self._readers.store.sequence_at(min(due).due_ns)
        sequence = max(1, min(since, upto - LOOKED_BACK_MIN))
        published: list[int] = []
        while sequence <= upto:
            found: list[tuple[int, bytes, bytes, int]] = []
            try:
                sequence, _ = find_messages(log, sequence, upto, OF_DELAYS, found)
            except ColdBlock as cold:
                await self._readers.store.fetch(cold.block)
                continue
            for copy, _, headers, _ in found:
                entry = self._waiting.get(self._sequence_of(headers))
                if entry is not None and entry.sequence < copy and entry.due_ns <= now_ns:
                    del self._waiting[entry.sequence]
                    published.append(entry.number)
            await asyncio.sleep(0)
        if published:
            await self._remove(published)

    def _sequence_of(self, headers: bytes | None) -> int:
        return delayed_sequence(self._readers.name, headers)


_MARK: Final = f"{DELAYED}:".encode()
_DELAY: Final = f"{DELAY}:".encode()
