"""MemStore: a stream's messages in memory.

Every change is durable at once, and all messages are gone with the process. Only if the stream has
replicas (`begin_commits`), a change is durable once they have committed it, and can be undone until
then.

The store is the message log of the file store over blocks without files, so both stores decide
everything alike. Blocks are small, and a block that has become less than half full is rewritten
without its dead messages, so that memory follows the live messages. Erased messages are overwritten
at once.
"""

from __future__ import annotations

import asyncio

from natsd.store.block.blocks import MsgBlock, copy_messages
from natsd.store.errors import StoreClosed, StoreError
from natsd.store.log.message_log import LogCommits, MessageLog
from natsd.store.log_store import LogStore
from natsd.store.sequence_set import SequenceSet
from natsd.store.store import DurabilityListener, Limits

BLOCK_BYTES_MAX = 1 << 20  # a rewrite takes half a millisecond
BLOCK_BYTES_LIMIT = (1 << 31) - 1
RECORD_OVERHEAD_BYTES = 40  # bytes of a record that erasing keeps: header and checksum


class MemStore(LogStore):
    """A Store in memory; `close`, `abandon` and `destroy` all drop the messages."""

    def __init__(self, limits: Limits | None = None, *, block_bytes: int = BLOCK_BYTES_MAX) -> None:
        self._block_count = 0
        self._block_bytes = block_bytes
        self._commits: LogCommits | None = None
        self._committed_sequence = 0
        self._is_due = False  # a commit was scheduled
        self._failures = 0
        self._listener: DurabilityListener | None = None
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._num_taken = 0  # commits taken so far
        self._taken_sequence = 0  # last message of the last one
        super().__init__(MessageLog(limits, self._make_block))
        self.append = self._log.append  # type: ignore[method-assign]  # halves the time of a call

    def _make_block(self, base_sequence: int) -> MsgBlock:
        """Make a block with seed 0.

        Seeds keep payloads from passing for records when a file is scanned; these blocks are never
        scanned.
        """
        self._block_count += 1
        return MsgBlock(self._block_count, 0, base_sequence, self._block_bytes)

    def begin_commits(self) -> None:
        """Have the changes from now on wait for the stream's replicas."""
        if self._commits is None:
            self._commits = LogCommits(self._log)
            self._commits.take(0, True)
            self._commits.committed()
            self._committed_sequence = self._log.last_sequence

    def set_durability_listener(self, listener: DurabilityListener | None) -> None:
        """Register the listener; without replicas it is never called. See Store."""
        self._listener = listener

    @property
    def durable_sequence(self) -> int:
        """Sequence of the last message that is committed; without replicas, of the last one."""
        return self._log.last_sequence if self._commits is None else self._committed_sequence

    @property
    def failures(self) -> int:
        """See LogStore."""
        return self._failures

    async def synced(self) -> None:
        """Return once every change made before the call is committed. Raises StoreError."""
        if self._commits is None or self._commits.is_quiet:
            return
        number = self._num_taken + (1 if self._commits.is_dirty else 0)
        future = asyncio.get_running_loop().create_future()
        self._waiters.append((number, future))
        self.changed()
        await future

    async def undo(self, error: StoreError) -> None:
        """Undo all changes that are not committed; see LogStore."""
        assert self._commits is not None
        self._commits.rolled_back()
        self._failures += 1
        waiters, self._waiters = self._waiters, []
        for _, future in waiters:
            if not future.done():
                future.set_exception(error)
        if self._listener is not None:
            self._listener.failed(error)

    @property
    def is_over_limit(self) -> bool:
        """False: nothing ever waits to be durable."""
        return False

    async def room(self) -> None:
        """Return at once: there is always room."""

    async def fetch(self, block: MsgBlock) -> None:
        """Return at once: every block is in memory."""

    def changed(self) -> None:
        """Overwrite erased messages, and rewrite blocks that became sparse; or commit soon."""
        log = self._log
        if self._commits is not None:
            if not self._is_due:
                self._is_due = True
                asyncio.get_running_loop().call_soon(self._commit, self._commits)
            return
        log.needs_care = False
        if log.erasures:
            self._overwrite(log.erasures)
        self._rewrite_sparse()

    def _commit(self, commits: LogCommits) -> None:
        """Commit what the replicas have; take what was changed since, and commit it if they do."""
        self._is_due = False
        while not self._closed:
            if not commits.is_taken:
                if not commits.take(self._num_taken + 1):
                    break
                self._num_taken += 1
                self._taken_sequence = self._log.last_sequence
            if commits.is_held:
                break
            commits.committed()
            self._overwrite(commits.erased)
            self._committed_sequence = self._taken_sequence
            if commits.is_quiet:  # otherwise an undo may need the dead messages
                self._rewrite_sparse()
            self._tell_committed()

    def _tell_committed(self) -> None:
        waiters, self._waiters = self._waiters, []
        for number, future in waiters:
            if number > self._num_taken:
                self._waiters.append((number, future))
            elif not future.done():
                future.set_result(None)
        if self._listener is not None:
            self._listener.durable(self._committed_sequence)

    def _rewrite_sparse(self) -> None:
        while self._log.sparse:
            self._rewrite(self._log.sparse.pop())

    def _overwrite(self, erased: SequenceSet) -> None:
        for sequence in erased:
            block = self._log.block_with(sequence)
            if block is not None and (size := block.record_bytes(sequence)):
                block.erase_record(sequence, bytes(size - RECORD_OVERHEAD_BYTES))
        erased.clear()

    def _rewrite(self, block: MsgBlock) -> None:
        if block.message_count == 0:
            self._log.drop_block(block)
            return
        smaller = self._make_block(block.base_sequence)
        copy_messages(block, smaller, 0, block.last_sequence, BLOCK_BYTES_LIMIT)
        self._log.replace_block(block, smaller)

    async def cut(self, sequence: int) -> None:
        """End the log at `sequence`; rewrite its last block without the messages above."""
        _, cut = self._log.cut(sequence)
        if cut is not None:
            shorter = self._make_block(cut.base_sequence)
            copy_messages(cut, shorter, 0, sequence, BLOCK_BYTES_LIMIT)
            self._log.replace_block(cut, shorter)
        self.changed()

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that records, arrays, subjects, gaps and expiries take."""
        log = self._log
        held = sum(block.cached_bytes + block.array_bytes for block in log.all_blocks)
        return held + log.subjects.memory_bytes + log.dead.memory_bytes + log.expiries.memory_bytes

    async def close(self) -> None:
        """Drop all messages; later calls raise StoreClosed."""
        if self._closed:
            return
        self._closed = True
        for _, future in self._waiters:
            if not future.done():
                future.set_exception(StoreClosed())
        self._log.clear(self._log.last_sequence + 1)
        self._log.refuse_changes(StoreClosed)

    async def abandon(self) -> None:
        """Drop all messages, as `close` does."""
        await self.close()

    async def destroy(self) -> None:
        """Drop all messages, as `close` does."""
        await self.close()
