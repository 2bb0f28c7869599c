"""MemStore: a stream's messages in memory.

Every change is durable at once, and all messages are gone with the process. The store is the
message log of the file store over blocks without files, so both stores decide everything alike.
Blocks are small, and a block that has become less than half full is rewritten without its dead
messages, so that memory follows the live messages. Erased messages are overwritten at once.
"""

from __future__ import annotations

from natsd.store.block.blocks import MsgBlock, copy_messages
from natsd.store.errors import StoreClosed
from natsd.store.log.message_log import MessageLog
from natsd.store.log_store import LogStore
from natsd.store.store import Limits

BLOCK_BYTES_MAX = 1 << 20  # a rewrite takes half a millisecond
BLOCK_BYTES_LIMIT = (1 << 31) - 1
RECORD_OVERHEAD_BYTES = 40  # bytes of a record that erasing keeps: header and checksum


class MemStore(LogStore):
    """A Store in memory; `close`, `abandon` and `destroy` all drop the messages."""

    def __init__(self, limits: Limits | None = None, *, block_bytes: int = BLOCK_BYTES_MAX) -> None:
        self._block_count = 0
        self._block_bytes = block_bytes
        super().__init__(MessageLog(limits, self._make_block))
        self.append = self._log.append  # type: ignore[method-assign]  # halves the time of a call

    def _make_block(self, base_sequence: int) -> MsgBlock:
        """Make a block with seed 0.

        Seeds keep payloads from passing for records when a file is scanned; these blocks are never
        scanned.
        """
        self._block_count += 1
        return MsgBlock(self._block_count, 0, base_sequence, self._block_bytes)

    @property
    def durable_sequence(self) -> int:
        """Sequence of the last message: every message is durable at once."""
        return self._log.last_sequence

    @property
    def is_over_limit(self) -> bool:
        """False: nothing ever waits to be durable."""
        return False

    async def room(self) -> None:
        """Return at once: there is always room."""

    def changed(self) -> None:
        """Overwrite erased messages, and rewrite blocks that became sparse."""
        log = self._log
        log.needs_care = False
        if log.erasures:
            self._overwrite_erased()
        while log.sparse:
            self._rewrite(log.sparse.pop())

    def _overwrite_erased(self) -> None:
        for sequence in self._log.erasures:
            block = self._log.block_with(sequence)
            if block is not None and (size := block.record_bytes(sequence)):
                block.erase_record(sequence, bytes(size - RECORD_OVERHEAD_BYTES))
        self._log.erasures.clear()

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
        self._log.clear(self._log.last_sequence + 1)
        self._log.refuse_changes(StoreClosed)

    async def abandon(self) -> None:
        """Drop all messages, as `close` does."""
        await self.close()

    async def destroy(self) -> None:
        """Drop all messages, as `close` does."""
        await self.close()
