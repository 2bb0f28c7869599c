"""MessageIds: the ids that publishers gave to the messages of a stream, as long as they matter.

Promise
- The id of the last message is known, and with a duplicate window the ids of all messages that are
  younger than the window: from the first publish on, or, where very many messages must be read
  after a start, once `is_recollecting` is False.
- Memory is bounded by the window; ids leave it a few with each new one, and at its deadline.
- The time is given by the caller, or by the scheduler at a deadline. `remember` sets no deadline:
  a follower forgets ids by the times of the messages only.

Source: nats-server's `checkMsgId`, `storeMsgId` and `rebuildDedupe`.
"""

import asyncio
import contextlib
import secrets

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from natsd.jetstream.stream.state cimport Actor, StreamReaders
from natsd.store.block.blocks cimport COLD, FOUND, Found
from natsd.store.codec.records cimport RecordView

from natsd.store.block.cold_block import ColdBlock
from natsd.store.errors import DamagedEncoding, StoreError, StoreUnavailable

cdef enum:
    EXPIRED_PER_ID = 2
    EXPIRED_PER_SLICE = 4096
    RECOLLECTED_PER_SLICE = 4096
    ENCODED_PER_STEP = 512
    RECOLLECTED_AT_ONCE = 100_000       # more messages than that are read in the background

cdef int64_t SLICE_PAUSE_NS = 1_000_000


cdef class MessageIds(Actor):
    def __init__(self, StreamReaders stream not None):
        """Begin without a window; the last id is known if its message is in memory."""
        self.stream = stream
        self.log = stream.log
        self.window = DuplicateWindow(secrets.randbits(64))
        self.find_last()

    def __dealloc__(self):
        free(self.last_id)

    def set_window(self, int64_t window_ns) -> None:
        """Set how long ids are remembered, in ns; 0: not at all."""
        self.window_ns = window_ns
        if window_ns == 0:
            self.window = DuplicateWindow(secrets.randbits(64))

    def close(self) -> None:
        """Stop all work: the stream goes away."""
        self.stream.scheduler.set_deadline(self, 0)
        if self.recollecting is not None:
            self.recollecting.cancel()

    # Ids of publishes

    cdef uint64_t find(self, Entry* entry) noexcept nogil:
        if self.window_ns == 0:
            return 0
        return self.window.find(
            entry.message_id, entry.message_id_len, entry.time_ns - self.window_ns
        )

    cdef int remember(self, Entry* entry) except -1:
        self.set_last(entry.message_id, entry.message_id_len)
        if entry.message_id_len == 0 or self.window_ns == 0:
            return 0
        self.window.expire(entry.time_ns - self.window_ns, EXPIRED_PER_ID)
        self.window.add(
            entry.message_id, entry.message_id_len, entry.sequence, entry.time_ns
        )
        return 0

    cdef int watch(self, int64_t now_ns) except -1:
        if self.due_ns == 0 and self.window_ns:
            self.stream.scheduler.set_deadline(self, now_ns + self.window_ns)
        return 0

    cdef int forget_above(self, uint64_t durable) except -1:
        self.window.forget_above(durable, <uint64_t> -1)
        return self.find_last()

    def forget(self, bytes message_id not None) -> None:
        """Forget the id of a message that was not kept."""
        self.window.forget(PyBytes_AS_STRING(message_id), PyBytes_GET_SIZE(message_id))

    cdef int set_last(self, const char* id, size_t length) except -1:
        cdef char* room
        if length > self.last_id_room:
            room = <char*> realloc(self.last_id, length)
            if room == NULL:
                raise MemoryError()
            self.last_id = room
            self.last_id_room = length
        if length:
            memcpy(self.last_id, id, length)
        self.last_id_len = length
        return 0

    cdef int find_last(self) except -1:
        """Read the id of the last message, if that is in memory."""
        cdef PublishHeaders headers
        cdef RecordView view
        cdef uint64_t last = self.log.edges.last
        self.last_id_len = 0
        if not self.log.is_here(last):
            return 0
        if self.log.blocks.holding(last).view(last, &view) != FOUND or view.headers_len == 0:
            return 0
        find_publish_headers(view.headers, view.headers_len, &headers)
        if header_given(&headers, MESSAGE_ID):
            self.set_last(
                headers.values[<int> MESSAGE_ID].at, headers.values[<int> MESSAGE_ID].length
            )
        return 0

    cdef int expired(self, int64_t now_ns) except -1:
        """Forget ids that are past the window."""
        cdef int64_t until_ns = now_ns - self.window_ns
        if self.window.expire(until_ns, EXPIRED_PER_SLICE):
            return self.stream.scheduler.set_deadline(self, now_ns + SLICE_PAUSE_NS)
        return self.watch_window(now_ns)

    cdef int watch_window(self, int64_t now_ns) except -1:
        if self.window.oldest_ns() and self.due_ns == 0:
            self.stream.scheduler.set_deadline(
                self, max(self.window.oldest_ns() + self.window_ns, now_ns + SLICE_PAUSE_NS)
            )
        return 0

    # Saving and restoring ids

    @property
    def last(self) -> str:
        """The id of the last message; empty: it has none."""
        return self.last_id[:self.last_id_len].decode("utf-8", "surrogateescape")

    def __len__(self):
        """Return the number of ids in the window."""
        return self.window.count

    def encode(self) -> bytes:
        """Return all ids within the window, for `restore`."""
        return self.log.edges.last.to_bytes(8, "little") + self.window.encode()

    def encode_upto(self, upto):
        """Return, in steps, the ids of messages up to that sequence, which is not undone."""
        parts, number = [upto.to_bytes(8, "little")], None
        while number != 0:
            part, number = self.window.encode_some(number or 0, upto, ENCODED_PER_STEP)
            parts.append(part)
            yield
        return b"".join(parts)

    def restore(self, bytes encoded not None, int64_t now_ns):
        """Take on encoded ids, in steps; `rebuild` finds those of later messages.

        Raises DamagedEncoding; then nothing is taken on.
        """
        if len(encoded) < 8:
            raise DamagedEncoding("message ids: cut off")
        if self.window_ns:
            yield from self.window.decode(
                encoded, now_ns - self.window_ns, self.log.edges.last, at=8
            )
        self.upto = min(int.from_bytes(encoded[:8], "little"), self.log.edges.last)
        self.watch_window(now_ns)

    def merge(self, ids not None) -> None:
        """Add ids among those that are known; each is its sequence, time in ns, and the id."""
        cdef DuplicateWindow merged = DuplicateWindow(secrets.randbits(64))
        if self.window_ns == 0:
            return
        found = {sequence: (time_ns, id) for sequence, time_ns, id in ids}
        found |= {sequence: (time_ns, id) for sequence, time_ns, id in self.window.ids()}
        for sequence, (time_ns, id) in sorted(found.items()):
            merged.add_id(id, sequence, time_ns)
        self.window = merged

    def outlive_messages(self) -> bool:
        """Whether ids in the window may be of messages that were removed."""
        cdef uint64_t first = self.log.edges.first
        return self.window.count > 0 and (
            self.window.oldest_sequence < first
            or <uint64_t> self.log.msgs < self.log.edges.last - first + 1
        )

    async def rebuild(self, now_ns: int) -> None:
        """Find the ids within the window that `restore` did not bring, and the last one."""
        store = self.stream.store
        upto = self.log.last_sequence
        block = self.log.block_with(upto)
        if block is not None and self.log.has(upto):
            await store.fetch(block)
            self.find_last()
        sequence = self.upto + 1
        if self.window_ns and sequence <= upto:
            sequence = max(sequence, await store.sequence_at(now_ns - self.window_ns + 1))
            self.is_recollecting = True
            self.recollecting = asyncio.get_running_loop().create_task(
                self._recollect(sequence, upto)
            )
            if upto - sequence < RECOLLECTED_AT_ONCE:
                await self.recollecting

    async def recollected(self) -> None:
        """Return once all ids of the window are known."""
        if self.recollecting is not None:
            await asyncio.wait([self.recollecting])

    async def _recollect(self, sequence, upto) -> None:
        store = self.stream.store
        try:
            while sequence <= upto:
                try:
                    sequence = self.recollect(sequence, upto)
                except ColdBlock as cold:
                    # the next fetch waits for the one that failed
                    with contextlib.suppress(StoreUnavailable):
                        await store.fetch(cold.block)
                await asyncio.sleep(0)
        except StoreError as error:
            self.stream.scheduler.reactor.log_failure(f"message ids cannot be read: {error}")
        finally:
            self.upto = upto
            self.is_recollecting = False
            self.watch_window(self.stream.scheduler.now())

    cdef uint64_t recollect(self, uint64_t sequence, uint64_t upto) except 0:
        """Note the ids of some messages; return the sequence to go on with.

        Raises ColdBlock if the first of the messages is not in memory, so that no id is noted
        twice.
        """
        cdef PublishHeaders headers
        cdef RecordView view
        cdef Found seen
        cdef uint64_t first = sequence
        cdef int left = RECOLLECTED_PER_SLICE
        while left > 0 and self.log.next_live(sequence, &sequence) and sequence <= upto:
            left -= 1
            seen = self.log.blocks.holding(sequence).view(sequence, &view)
            if seen == COLD and sequence > first:
                return sequence
            if seen == COLD:
                raise ColdBlock(self.log.blocks.holding(sequence))
            if seen == FOUND and view.headers_len:
                find_publish_headers(view.headers, view.headers_len, &headers)
                if header_given(&headers, MESSAGE_ID):
                    self.window.add(
                        headers.values[<int> MESSAGE_ID].at,
                        headers.values[<int> MESSAGE_ID].length, sequence, view.time_ns,
                    )
            sequence += 1
        return upto + 1 if left > 0 else sequence
