"""LogStore: the part of a store that is the same in files and in memory.

It gives a MessageLog the interface of `natsd.store.store.Store`: reads that answer at once or
awaitably, long operations in slices of about a millisecond, deferred work in the background. A kind
of store adds how a block gets into memory (`fetch`), what follows a change (`changed`), and what
durable means.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from natsd.core.steps import run_cooperatively
from natsd.store.block.blocks import MsgBlock
from natsd.store.block.cold_block import ColdBlock
from natsd.store.codec.records import StoredMessage
from natsd.store.errors import (
    MessageNotFound,
    StoreClosed,
    StoreEOF,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from natsd.store.log.message_log import (
    Compact,
    EnforcePerSubjectLimit,
    Expire,
    LastMatch,
    MessageLog,
    MultiLast,
    NextMatch,
    NumPending,
    Operation,
    Purge,
    RemoveAbove,
    SequenceAt,
    SubjectTotals,
    Sweep,
    last_of_subject,
    read_batch,
    settle_limits,
)
from natsd.store.log.subjects import Filter
from natsd.store.store import DurabilityListener, Limits, RemovalCause, Store, StoreState

SLICE = 400_000  # an operation's budget: about a millisecond of the loop
EXPIRY_SLICE = SLICE // 2  # shorter, since publishers wait during each slice
REMOVALS_PER_SLICE = 5_000
UNDO_BYTES_MAX = 16 << 20  # of undo data: then a long operation waits for a commit
NAMES_MAX = 65_536  # names of emptied subjects to forget: then it waits for a commit too
FILTERS_MAX = 1024
KEPT_PATTERNS_MAX = 256
"""A filter of more patterns takes much memory; it is built in steps, and not kept."""
EMPTY_SUBJECTS_MIN = 1024  # subjects without messages in the index: then a sweep removes them

Replace = Callable[[list[tuple[int, bytes, bytes]]], None]
"""Handler of expired messages; each is given as (sequence, subject, headers)."""


class LogStore(Store):
    """The owner of a MessageLog; the public methods are those of Store."""

    def __init__(self, log: MessageLog) -> None:
        self._log = log
        log.set_listener(self._heard)
        self._filters: dict[str | tuple[str, ...], Filter] = {}
        self._thinning: EnforcePerSubjectLimit | None = None
        self._settling: asyncio.Task[None] | None = None
        self._closed = False
        # Called after each slice of removals, before anything else can change; None: nobody asks.
        self.on_removed: Callable[[RemovalCause], None] | None = None

    def _tell_removed(self, cause: RemovalCause) -> None:
        if self.on_removed is not None:
            self.on_removed(cause)

    def _heard(self) -> None:
        """Pass changes of the log on to `changed`, and start its deferred work."""
        self.changed()
        if self._log.is_behind:
            self._settle_soon()

    @property
    def log(self) -> MessageLog:
        """The message log, for compiled callers that append, read and search without the loop.

        What they remove is as durable as any change, and the log tells the store about it.
        """
        return self._log

    # Defined by each kind of store

    @property
    def durable_sequence(self) -> int:
        """See Store."""
        raise NotImplementedError

    @property
    def write_error(self) -> StoreError | None:
        """Why nothing can be written; None: writing works.

        The reason may pass, or last until the store is opened again.
        """
        return None

    @property
    def failures(self) -> int:
        """Number of times that changes which were not durable yet were taken back."""
        return 0

    async def fetch(self, block: MsgBlock) -> None:
        """Return once the block's arrays and bytes are in memory. Raises StoreError."""
        raise NotImplementedError

    def set_durability_listener(self, listener: DurabilityListener | None) -> None:
        """Register a listener that is told of each later commit; None: no listener.

        A store in memory need not call it.
        """

    def changed(self) -> None:
        """Act on appends or removals.

        It is called at least once for all changes until the next commit is taken.
        """

    def write_behind(self) -> None:
        """Collect changes before they are written: another log has them, and they count already.

        A store in memory has nothing to write.
        """

    async def synced(self) -> None:
        """Return once every change made before the call is durable."""

    async def undo(self, error: StoreError) -> None:
        """Undo all changes that are not durable, and raise `error` for those who wait for them.

        Raises StoreError. A store in memory has none: its changes are durable at once.
        """

    async def abandon(self) -> None:
        """Drop everything, written or not.

        The caller removes the files that the store leaves on disk.
        """
        raise NotImplementedError

    async def cut(self, sequence: int) -> None:
        """Finish `truncate`: all messages above `sequence` are removed, and the log ends there."""
        raise NotImplementedError

    # Writing

    @property
    def limits(self) -> Limits:
        """The current limits."""
        return self._log.limits

    def append(
        self,
        subject: str | bytes,
        headers: bytes | None,
        data: bytes,
        time_ns: int,
        *,
        sequence: int = 0,
        expires_ns: int = 0,
    ) -> int:
        """See Store."""
        return self._log.append(
            subject, headers, data, time_ns, sequence=sequence, expires_ns=expires_ns
        )

    def append_together(
        self, messages: Iterable[tuple[str | bytes, bytes | None, bytes]], time_ns: int
    ) -> int:
        """See Store."""
        return self._log.append_together(messages, time_ns)

    def append_many(
        self, messages: Iterable[tuple[str | bytes, bytes | None, bytes]], time_ns: int
    ) -> int:
        """See Store."""
        return self._log.append_many(messages, time_ns)

    def skip(self, count: int = 1) -> int:
        """See Store."""
        return self._log.skip(count)

    async def delete(self, sequence: int) -> bool:
        """See Store."""
        return await self._delete(sequence, erase=False)

    async def erase(self, sequence: int) -> bool:
        """See Store."""
        return await self._delete(sequence, erase=True)

    async def _delete(self, sequence: int, *, erase: bool) -> bool:
        failures = self.failures
        while True:
            try:
                was_there = self._log.delete(sequence, erase=erase)
                self._tell_removed(RemovalCause.ERASED if erase else RemovalCause.DELETED)
                return was_there
            except ColdBlock as cold:
                await self.fetch(cold.block)
                self._check_writable(failures)

    async def purge(
        self, *, pattern: str | None = None, up_to_sequence: int = 0, keep: int = 0
    ) -> int:
        """See Store."""
        operation = Purge(self._log, self.filter_of(pattern or ">"), up_to_sequence, keep)
        await self._run_change(operation)
        return operation.result

    async def compact(self, sequence: int) -> int:
        """See Store."""
        if sequence == 0:
            return await self.purge()
        operation = Compact(self._log, sequence)
        await self._run_change(operation)
        return operation.result

    async def truncate(self, sequence: int) -> None:
        """See Store."""
        self._check_writable(self.failures)
        if sequence >= self._log.last_sequence:
            return
        if sequence == 0:
            self._log.clear(1)
            self.changed()
            return
        await self._run_change(RemoveAbove(self._log, sequence))
        await self.cut(sequence)

    def update_limits(self, limits: Limits, now_ns: int) -> None:
        """See Store.

        More than one slice of work is done in the background. `expire` removes the messages that
        are over age at `now_ns`: all of them if `now_ns` is 0, else those that one slice leaves.
        """
        self._check_open()
        before = self._log.limits
        self._log.set_limits(limits)
        per_subject = limits.max_msgs_per_subject
        if per_subject > 0 and not 0 < before.max_msgs_per_subject <= per_subject:
            self._thinning = EnforcePerSubjectLimit(self._log)
        if self._thinning is not None or self._log.is_behind:
            self._settle_some()
        if limits.max_age_ns and now_ns:
            self._expire_some(now_ns)
        self.changed()

    def next_expiry_ns(self) -> int | None:
        """See Store."""
        return self._log.next_expiry_ns()

    async def expire(self, now_ns: int, replace: Replace | None = None) -> int:
        """See Store.

        A message that is due and the last of its subject is given to `replace`, several at a time;
        `replace` removes or replaces them at once. Those that it leaves stay due, and then this
        method returns early.
        """
        operation = Expire(self._log, now_ns, replace is not None)
        while True:
            self._check_open()
            done, cold = False, None
            try:
                done = operation.step(EXPIRY_SLICE)
            except ColdBlock as error:
                cold = error.block
            self._tell_removed(RemovalCause.EXPIRED)
            if operation.last and replace is not None:
                replace(operation.last)
                self._tell_removed(RemovalCause.EXPIRED)
                done = not operation.replaced() or done
            if done:
                self.changed()
                return operation.result
            if cold is not None:
                await self.fetch(cold)
            else:
                await self._breathe()
            if self.is_over_limit:
                await self.room()

    def _expire_some(self, now_ns: int) -> None:
        with contextlib.suppress(ColdBlock):  # `expire` does the rest
            Expire(self._log, now_ns).step(SLICE)
        self._tell_removed(RemovalCause.EXPIRED)

    # Deferred work

    def _settle_some(self) -> bool:
        """Do one slice of deferred work; return True if nothing is left.

        The background task fetches a block that is needed and not in memory.
        """
        try:
            if self._thinning is not None:
                if not self._thinning.step(SLICE):
                    return self._settle_soon()
                self._thinning = None
            return settle_limits(self._log, REMOVALS_PER_SLICE) or self._settle_soon()
        except ColdBlock:
            return self._settle_soon()
        finally:
            self._tell_removed(RemovalCause.OVER_LIMIT)

    def _settle_soon(self) -> bool:
        if self._settling is None or self._settling.done():
            try:
                self._settling = asyncio.get_running_loop().create_task(self._settle_all())
            except RuntimeError:  # no running loop: the caller runs `settle` itself
                self._settling = None
        return False

    async def _settle_all(self) -> None:
        """Run `settle` in the background; after an error the next change starts it again."""
        while True:
            try:
                return await self.settle()
            except StoreUnavailable:  # `fetch` waits for a while before it reads again
                continue
            except StoreError:
                return

    async def settle(self) -> None:
        """Do all deferred work that the limits ask for.

        Then forget the names of subjects without messages, if there are many.
        """
        while not self._closed and (self._thinning is not None or self._log.is_behind):
            if self._log.is_overcrowded:
                self._log.is_overcrowded = False
                self._thinning = EnforcePerSubjectLimit(self._log)
            try:
                if self._thinning is None:
                    settle_limits(self._log, REMOVALS_PER_SLICE)
                elif self._thinning.step(SLICE):
                    self._thinning = None
            except ColdBlock as cold:
                self._tell_removed(RemovalCause.OVER_LIMIT)
                await self.fetch(cold.block)
            self._tell_removed(RemovalCause.OVER_LIMIT)
            await self._breathe()
        if self._log.subjects.empty_subjects > max(
            EMPTY_SUBJECTS_MIN, self._log.subjects.count // 4
        ):
            await self.run(Sweep(self._log))

    async def _breathe(self) -> None:
        """Let commits and other tasks run between two slices of removals."""
        self.changed()
        subjects = self._log.subjects
        subjects.forget_some()
        if self._log.undo_bytes > UNDO_BYTES_MAX or subjects.num_remembered > NAMES_MAX:
            await self.synced()
        await asyncio.sleep(0)

    # Running operations

    def filter_of(self, patterns: str | Sequence[str]) -> Filter:
        """Return the filter of these patterns, with its memo.

        At most FILTERS_MAX filters are kept. A filter of more than KEPT_PATTERNS_MAX patterns is
        not kept.
        """
        key = patterns if isinstance(patterns, str) else tuple(patterns)
        if not isinstance(key, str) and len(key) > KEPT_PATTERNS_MAX:
            return Filter(key)
        known = self._filters.get(key)
        if known is None:
            if len(self._filters) >= FILTERS_MAX:
                del self._filters[next(iter(self._filters))]
            known = Filter((key,) if isinstance(key, str) else key)
            self._filters[key] = known
        return known

    @asynccontextmanager
    async def filtering(self, patterns: str | Sequence[str]) -> AsyncIterator[Filter]:
        """Yield the filter of these patterns.

        A filter of very many patterns is built, and freed, in steps between which other tasks run.
        """
        if isinstance(patterns, str) or len(patterns) <= KEPT_PATTERNS_MAX:
            yield self.filter_of(patterns)
            return
        wanted = await run_cooperatively(Filter.in_steps(patterns))
        try:
            yield wanted
        finally:
            await run_cooperatively(wanted.release())

    async def run(self, operation: Operation) -> None:
        """Run the operation to its end, in slices. Raises StoreClosed and StoreError."""
        while True:
            self._check_open()
            try:
                if operation.step(SLICE):
                    return
            except ColdBlock as cold:
                await self.fetch(cold.block)
                continue
            await asyncio.sleep(0)

    async def _run_change(self, operation: Operation) -> None:
        """Run an operation that removes messages to its end, in slices.

        Raises StoreError as soon as nothing can be written, or when its changes were taken back:
        then none of them remains.
        """
        failures = self.failures
        while True:
            self._check_writable(failures)
            try:
                done = operation.step(SLICE)
            except ColdBlock as cold:
                self._tell_removed(RemovalCause.PURGED)
                await self.fetch(cold.block)
                continue
            self._tell_removed(RemovalCause.PURGED)
            if done:
                self.changed()
                return
            await self._breathe()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed

    def _check_writable(self, failures: int) -> None:
        """Check that changes can be made.

        Raises StoreError if they cannot, or if some were taken back since `failures` was read.
        """
        self._check_open()
        if self.write_error is not None:
            raise self.write_error
        if self.failures != failures:
            raise StoreFull("what was done was taken back: there was no space")

    # Reading

    def load_cached(self, sequence: int) -> StoredMessage | None:
        """See Store."""
        return self._log.load(sequence)

    async def load(self, sequence: int) -> StoredMessage:
        """See Store."""
        while True:
            message = self._log.load(sequence)
            if message is not None:
                return message
            assert self._log.wanted is not None
            await self.fetch(self._log.wanted)

    def load_last_cached(self, subject: str) -> StoredMessage | None:
        """See Store."""
        try:
            last = last_of_subject(self._log, subject)
            if last is None:
                operation = LastMatch(self._log, self.filter_of(subject))
                if not operation.step(SLICE):
                    return None
                last = operation.result
        except ColdBlock:
            return None
        if last == 0:
            raise MessageNotFound
        return self._log.load(last)

    async def load_last(self, subject: str) -> StoredMessage:
        """See Store."""
        while True:
            operation = LastMatch(self._log, self.filter_of(subject))
            await self.run(operation)
            if operation.result == 0:
                raise MessageNotFound
            try:
                return await self.load(operation.result)
            except MessageNotFound:
                if self._log.has(operation.result):
                    raise

    async def load_next(
        self, filters: str | Sequence[str], from_sequence: int
    ) -> tuple[StoredMessage, int]:
        """See Store."""
        while True:
            operation = NextMatch(self._log, self.filter_of(filters), from_sequence)
            await self.run(operation)
            if operation.result == 0:
                raise StoreEOF
            try:
                message = await self.load(operation.result)
            except MessageNotFound:
                if self._log.has(operation.result):
                    raise
                continue
            return message, operation.result - max(from_sequence, 1)

    def read_batch_cached(
        self, from_sequence: int, messages_max: int, bytes_max: int
    ) -> list[StoredMessage] | None:
        """See Store."""
        try:
            return read_batch(self._log, from_sequence, messages_max, bytes_max)
        except ColdBlock:
            return None

    async def read_batch(
        self, from_sequence: int, messages_max: int, bytes_max: int
    ) -> list[StoredMessage]:
        """See Store."""
        while True:
            try:
                return read_batch(self._log, from_sequence, messages_max, bytes_max)
            except ColdBlock as cold:
                await self.fetch(cold.block)

    async def multi_last(
        self, filters: Sequence[str], up_to_sequence: int = 0, max_allowed: int = -1
    ) -> list[int]:
        """See Store."""
        async with self.filtering(filters) as wanted:
            operation = MultiLast(self._log, wanted, up_to_sequence, max_allowed)
            await self.run(operation)
            return operation.result

    @property
    def cached_bytes(self) -> int:
        """Bytes of message records in memory.

        The store's indexes of its messages take memory besides.
        """
        return sum(block.cached_bytes for block in self._log.all_blocks)

    def state(self, *, with_deleted: bool = False) -> StoreState:
        """See Store."""
        return self._log.state(with_deleted=with_deleted)

    async def subject_totals(self, pattern: str) -> dict[str, int]:
        """See Store."""
        operation = SubjectTotals(self._log, self.filter_of(pattern))
        await self.run(operation)
        return operation.result

    async def num_pending(
        self, from_sequence: int, filters: str | Sequence[str], last_per_subject: bool = False
    ) -> tuple[int, int]:
        """See Store."""
        async with self.filtering(filters) as wanted:
            operation = NumPending(self._log, wanted, from_sequence, last_per_subject)
            await self.run(operation)
            return operation.result

    async def sequence_at(self, time_ns: int) -> int:
        """See Store."""
        operation = SequenceAt(self._log, time_ns)
        await self.run(operation)
        return operation.result
