"""The block: a range of a stream's messages, one record after another, as one file holds them.

    0      64                     durable.size          taken.size           size
    ┌──────┬──────────────────────┬─────────────────────┬────────────────────┐
    │header│ records and marks …  │ … being committed   │ … not yet taken    │
    └──────┴──────────────────────┴─────────────────────┴────────────────────┘
           │◀── may be evicted ──▶│◀──── always in memory: `data` ──────────▶│

Promise
- A block owns the logical bytes, the position of each message in them, and which messages are
  removed. It has no file, no clock and no random numbers: a file's content comes in as a `Scan`,
  the bytes to write go out as a `BlockExtent`. The log decides removals and when they are written.
- An extent's bytes neither move nor change while it exists: a block that grows takes a new buffer.
- `undo` takes back everything that is not on disk, except removals: for these see `mark_live`.
- The arrays take 8 bytes a message (block_index.pxd), beside the cached bytes. Both can be dropped
  and loaded again, independently. Without arrays a SequenceSet holds the dead sequences.
- Only records that verified when they were loaded are served; `damage` lists the others.

Without the GIL, `self.x += 1` is written out: a debug build would check whether self is None.
Source: nats-server's `msgBlock` (filestore.go) and its .NET port; docs/store.md.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from natsd.core.routing cimport wire_bytes
from natsd.store.block.array cimport array_add
from natsd.store.codec.records cimport (
    BLOCK_HEADER_BYTES, BLOCK_VERSION, BlockHeader, CLOSING, ERASED, MARK_BYTES, MESSAGE, Mark,
    RECORD_BYTES_MAX, RECORD_BYTES_MIN, SKIP, SUBJECT_BYTES_MAX, StoredMessage, TOMBSTONES,
    VOID_PREVIOUS, encode_block_header, encode_mark, encode_record, erased_record, message_of,
    mix_chain, record_length_at, record_size, view_record, write_u64,
)

from natsd.store.block.block_summary import BlockSummary
from natsd.store.errors import BlockFull, MaximumMessageSizeExceeded, SequenceMismatch

cdef enum:
    BUFFER_BYTES_MIN = 4096
    LOGICAL_BYTES_MAX = 0x7fffffff
    RELATIVE_MAX = 0xffffffff

cdef uint64_t SEQUENCE_LIMIT = 0xffffffffffffffff   # so that sequence + 1 never overflows


cdef class MsgBlock:
    """A block of a stream that begins with `base_sequence`; `seed` is 64 random bits."""

    def __init__(
        self, uint32_t block_id, uint64_t seed, uint64_t base_sequence, uint32_t max_bytes,
        *, int64_t created_ns=0, bytes salt=b"", uint16_t flags=0,
    ):
        cdef BlockHeader header
        if self.size:
            raise TypeError("a block is initialised once")
        if base_sequence == 0:
            raise ValueError("sequences begin with 1")
        self.block_id = header.block_id = block_id
        self.seed = header.seed = seed
        self.base_sequence = header.first_sequence = self.index.base = base_sequence
        self.last_sequence = base_sequence - 1
        self.max_bytes = max_bytes
        header.version = BLOCK_VERSION
        header.flags = flags
        header.created_ns = created_ns
        memset(header.salt, 0, 16)
        memcpy(header.salt, PyBytes_AS_STRING(salt), min(16, PyBytes_GET_SIZE(salt)))
        self.has_arrays = True
        self.damage_found = []
        self.own_bytes(BUFFER_BYTES_MIN)
        encode_block_header(self.data, &header)
        self.size = BLOCK_HEADER_BYTES
        self.durable = self.point()
        self.durable.size = 0

    def __dealloc__(self):
        index_free(&self.index)
        free(self.interruptions.items)

    @classmethod
    def from_scan(cls, Scan scan not None, uint32_t max_bytes) -> MsgBlock:
        """Return the block of a scanned file, cached; takes over the scan's index.

        Only erasures are applied: `scan.tombstones` may concern other blocks too.
        """
        cdef MsgBlock self = cls.__new__(cls)
        if not scan.readable:
            raise ValueError("neither a header nor a mark of the block could be read")
        self.block_id = scan.header.block_id
        self.seed = scan.header.seed
        self.max_bytes = max_bytes
        self.base_sequence = scan.index.base = scan.index.base or scan.last_sequence + 1
        self.last_sequence = max(scan.last_sequence, self.base_sequence - 1)
        self.size = scan.end
        self.live_bytes = scan.live_bytes
        self.message_count = scan.live_count
        self.commit_number = scan.commit_number
        self.chain = scan.chain
        self.last_checksum = scan.last_checksum
        self.void_previous = scan.torn_commit
        self.damage_found = scan.damage
        for sequence, count in scan.skips:
            self.note_skip(sequence, count)
        self.durable = self.point()
        self.adopt_arrays(scan)
        self.adopt_bytes(scan)
        self.void_torn()
        return self

    # Bytes

    cdef int own_bytes(self, size_t capacity) except -1:
        """Move the cached bytes into an own, writable buffer of `capacity` bytes."""
        cdef BlockBuffer buffer
        cdef unsigned char* moved
        cdef size_t used = self.size - self.cache_start
        if self.capacity and (<PyObject*> self.holder).ob_refcnt == 1:
            buffer = <BlockBuffer> self.holder
            moved = <unsigned char*> realloc(buffer.data, capacity)
            if moved == NULL:
                raise MemoryError
            buffer.data = moved
            buffer.capacity = <uint32_t> capacity
        else:
            buffer = new_buffer(capacity)
            if used:
                memcpy(buffer.data, self.data, used)
        self.holder = buffer
        self.data = buffer.data
        self.capacity = buffer.capacity
        return 0

    cdef int expect_full(self) except -1:
        self.own_bytes(self.full_bytes())
        populate_buffer(<BlockBuffer> self.holder)
        return 0

    cdef size_t full_bytes(self) noexcept nogil:
        return <size_t> self.max_bytes + self.max_bytes // 256 + 2 * MARK_BYTES

    cdef unsigned char* reserve(self, uint64_t sequence, size_t size) except NULL:
        """Return the place where a record of `size` bytes is to be written."""
        cdef size_t capacity, used = self.size - self.cache_start
        if <uint64_t> self.size + size > LOGICAL_BYTES_MAX:
            raise BlockFull(f"block {self.block_id} cannot grow by {size} bytes")
        if used + size > self.capacity:
            capacity = max(<size_t> self.capacity * 2, <size_t> BUFFER_BYTES_MIN)
            if self.cache_start == 0 and self.size < self.max_bytes:
                capacity = min(capacity, self.full_bytes())
            self.own_bytes(min(max(capacity, used + size), <size_t> LOGICAL_BYTES_MAX))
        return self.data + used

    cdef int adopt_bytes(self, Scan scan) except -1:
        """Cache the scanned bytes, followed by those that are not on disk yet."""
        cdef size_t durable_size = self.durable.size
        cdef size_t rest = self.size - durable_size
        cdef BlockBuffer buffer
        if rest == 0 and scan.size == durable_size:
            self.holder = scan.data
            self.data = <unsigned char*> PyBytes_AS_STRING(scan.data)
            self.capacity = 0
        else:
            buffer = new_buffer(max(<size_t> BUFFER_BYTES_MIN, <size_t> self.size))
            memcpy(buffer.data, scan.bytes_at, durable_size)
            if rest:
                memcpy(
                    buffer.data + durable_size, self.data + (durable_size - self.cache_start), rest
                )
            self.holder = buffer
            self.data = buffer.data
            self.capacity = buffer.capacity
        self.cache_start = 0
        return 0

    def clear_cache(self) -> int:
        """Drop the bytes that are on disk; return how many bytes were freed."""
        cdef int64_t before = self.cached_bytes
        cdef size_t rest = self.size - self.durable.size
        cdef BlockBuffer buffer
        if self.cache_start == self.durable.size:
            return 0
        if rest:
            buffer = new_buffer(max(rest, <size_t> BUFFER_BYTES_MIN))
            memcpy(buffer.data, self.data + (self.durable.size - self.cache_start), rest)
            self.holder = buffer
            self.data = buffer.data
            self.capacity = buffer.capacity
        else:
            self.holder = None
            self.data = NULL
            self.capacity = 0
        self.cache_start = self.durable.size
        return before - self.cached_bytes

    def take_cache_used(self) -> bool:
        """Return whether a message was read since the last call."""
        cdef bint used = self.cache_used
        self.cache_used = False
        return used

    def take_arrays_used(self) -> bool:
        """Return whether a message was looked up since the last call."""
        cdef bint used = self.arrays_used
        self.arrays_used = False
        return used

    @property
    def has_cache(self) -> bool:
        """Whether every byte of the block is in memory."""
        return self.cache_start == 0

    @property
    def cached_bytes(self) -> int:
        if self.holder is None:
            return 0
        return self.capacity if self.capacity else PyBytes_GET_SIZE(self.holder)

    @property
    def array_bytes(self) -> int:
        cdef size_t size = index_bytes(&self.index)
        size += self.interruptions.capacity * sizeof(uint32_t)
        return size if self.dead is None else size + self.dead.memory_bytes

    # Appending

    cdef int64_t append(
        self, uint64_t sequence, int64_t time_ns, int64_t expires_ns,
        const char* subject, uint16_t subject_len, const char* headers, uint32_t headers_len,
        const char* data, uint32_t data_len, uint32_t slot,
    ) except -1:
        cdef size_t size = record_size(subject_len, headers_len, data_len, expires_ns != 0)
        cdef unsigned char* to
        cdef uint64_t checksum
        assert self.has_arrays
        if size > RECORD_BYTES_MAX:
            raise MaximumMessageSizeExceeded
        if sequence <= self.last_sequence or sequence == SEQUENCE_LIMIT or (
            self.index.count and sequence - self.index.base > RELATIVE_MAX
        ):
            raise SequenceMismatch(f"sequence {sequence} after {self.last_sequence}")
        if self.index.count == 0:
            self.index.base = sequence
        to = self.reserve(sequence, size)
        checksum = encode_record(
            to, self.seed, MESSAGE, self.message_flags, sequence, time_ns, expires_ns, subject,
            subject_len, headers, headers_len, data, data_len,
        )
        if index_add(&self.index, sequence, self.size, slot) < 0:
            raise MemoryError
        self.note_record(checksum, size)
        self.last_sequence = sequence
        self.message_count += 1
        self.live_bytes += size
        return <int64_t> size

    cdef void note_record(self, uint64_t checksum, size_t size) noexcept nogil:
        self.chain = mix_chain(self.chain, checksum)
        self.last_checksum = checksum
        self.size = self.size + <uint32_t> size

    cdef int interrupt(self) except -1:
        """Note that the next record is no message."""
        cdef uint32_t* place = <uint32_t*> array_add(&self.interruptions, sizeof(uint32_t))
        if place == NULL:
            raise MemoryError
        place[0] = self.size
        return 0

    cdef int64_t append_skip(self, uint64_t sequence, uint64_t count, int64_t time_ns) except -1:
        cdef size_t size = record_size(0, 0, 8, False)
        cdef unsigned char[8] body
        cdef unsigned char* to
        if sequence <= self.last_sequence or count == 0 or sequence + count < sequence:
            raise SequenceMismatch(f"{count} sequences from {sequence} on")
        write_u64(body, count)
        to = self.reserve(sequence, size)
        self.interrupt()
        self.note_skip(sequence, count)
        self.note_record(
            encode_record(
                to, self.seed, SKIP, 0, sequence, time_ns, 0, "", 0, "", 0, <char*> body, 8
            ),
            size,
        )
        self.last_sequence = sequence + (count - 1)
        return <int64_t> size

    cdef int note_skip(self, uint64_t sequence, uint64_t count) except -1:
        if self.skipped is None:
            self.skipped = SequenceSet()
        self.skipped.add_run(sequence, sequence + (count - 1))
        return 0

    cdef int64_t append_tombstones(self, bytes encoded, bint erased, int64_t time_ns) except -1:
        cdef size_t size = record_size(0, 0, <size_t> len(encoded), False)
        cdef unsigned char* to
        if size > RECORD_BYTES_MAX:
            raise BlockFull(f"{size} bytes of removals in one record")
        to = self.reserve(self.last_sequence, size)
        self.interrupt()
        self.note_record(
            encode_record(
                to, self.seed, TOMBSTONES, ERASED if erased else 0, self.last_sequence, time_ns,
                0, "", 0, "", 0, PyBytes_AS_STRING(encoded), <uint32_t> len(encoded),
            ),
            size,
        )
        return <int64_t> size

    cdef int64_t room(self) noexcept nogil:
        return 0 if self.sealed else <int64_t> self.max_bytes - <int64_t> self.size

    def seal(self) -> None:
        """Accept only removals from now on, and free the arrays' unused capacity."""
        self.sealed = True
        index_trim(&self.index)

    @property
    def is_sealed(self) -> bool:
        return self.room() <= 0

    # Reading

    cdef Found find(self, uint64_t sequence) noexcept nogil:
        cdef int64_t place
        if self.has_arrays:
            self.arrays_used = True
            place = index_find(&self.index, sequence)
            return FOUND if place >= 0 and not self.index.offsets[place] & REMOVED else ABSENT
        if sequence < self.base_sequence or sequence > self.last_sequence:
            return ABSENT
        return ABSENT if self.dead.has(sequence) else COLD

    cdef Found view(self, uint64_t sequence, RecordView* out) noexcept nogil:
        cdef Found found = self.find(sequence)
        cdef uint32_t offset
        if found != FOUND:
            return found
        offset = self.index.offsets[index_find(&self.index, sequence)]
        if offset < self.cache_start:
            return COLD
        self.cache_used = True
        view_record(self.data + (offset - self.cache_start), out)
        return FOUND

    cdef uint32_t slot_of(self, uint64_t sequence) noexcept nogil:
        cdef int64_t place = index_find(&self.index, sequence)
        return self.index.slots[place] if place >= 0 else <uint32_t> NO_SLOT

    cdef void set_slot(self, uint64_t sequence, uint32_t slot) noexcept nogil:
        cdef int64_t place = index_find(&self.index, sequence)
        if place >= 0:
            self.index.slots[place] = slot

    cdef uint32_t size_of(self, uint64_t sequence) noexcept nogil:
        cdef int64_t place = index_find(&self.index, sequence)
        return self.size_at(<uint32_t> place) if place >= 0 else 0

    cdef uint32_t size_at(self, uint32_t place) noexcept nogil:
        """Return the record's length: the bytes up to the next message or interruption."""
        cdef uint32_t offset = self.index.offsets[place] & OFFSET_MASK
        cdef uint32_t end = self.size
        cdef uint32_t* places = <uint32_t*> self.interruptions.items
        cdef uint32_t low = 0
        cdef uint32_t high = self.interruptions.count
        cdef uint32_t middle
        if offset >= self.cache_start:
            return record_length_at(self.data + (offset - self.cache_start))
        place += 1
        while place < self.index.count and self.index.offsets[place] == 0:
            place += 1
        if place < self.index.count:
            end = self.index.offsets[place] & OFFSET_MASK
        while low < high:
            middle = low + (high - low) // 2
            if places[middle] <= offset:
                low = middle + 1
            else:
                high = middle
        return min(end, places[low]) - offset if low < self.interruptions.count else end - offset

    cdef uint64_t next_live(self, uint64_t sequence) noexcept nogil:
        cdef uint32_t place
        place = index_next_live(&self.index, <uint32_t> index_seek(&self.index, sequence))
        return index_sequence(&self.index, place) if place < self.index.count else 0

    cdef bint mark_dead(self, uint64_t sequence) noexcept nogil:
        cdef int64_t place = index_find(&self.index, sequence)
        if place < 0 or self.index.offsets[place] & REMOVED:
            return False
        self.live_bytes = self.live_bytes - self.size_at(<uint32_t> place)
        self.message_count = self.message_count - 1
        self.index.offsets[place] = self.index.offsets[place] | REMOVED
        return True

    cdef bint mark_live(self, uint64_t sequence) noexcept nogil:
        cdef int64_t place = index_find(&self.index, sequence)
        if place < 0 or not self.index.offsets[place] & REMOVED:
            return False
        self.index.offsets[place] = self.index.offsets[place] & OFFSET_MASK
        self.message_count = self.message_count + 1
        self.live_bytes = self.live_bytes + self.size_at(<uint32_t> place)
        return True

    # Committing

    cdef Point point(self) noexcept nogil:
        return Point(
            size=self.size, last_sequence=self.last_sequence, chain=self.chain,
            commit_number=self.commit_number, last_checksum=self.last_checksum,
        )

    cdef BlockExtent take(
        self, uint64_t commit_number, uint64_t first_sequence, uint64_t last_sequence,
        bint force, bint closing,
    ):
        cdef Mark mark
        cdef BlockExtent extent
        cdef unsigned char* to
        cdef int _copy
        assert self.in_flight is None
        mark.extent_start = max(self.durable.size, <uint32_t> BLOCK_HEADER_BYTES)
        if self.size == mark.extent_start and not force:
            return None
        mark.extent_length = self.size - mark.extent_start
        mark.block_id = self.block_id
        mark.seed = self.seed
        mark.commit_number = commit_number
        mark.first_sequence = first_sequence
        mark.last_sequence = self.last_sequence = max(self.last_sequence, last_sequence)
        mark.previous_chain = self.durable.chain
        mark.chain = self.chain
        mark.flags = (VOID_PREVIOUS if self.void_previous else 0) | (CLOSING if closing else 0)
        for _copy in range(2):
            to = self.reserve(last_sequence, MARK_BYTES)
            self.interrupt()
            encode_mark(to, &mark)
            self.size += MARK_BYTES
        self.commit_number = commit_number
        extent = BlockExtent.__new__(BlockExtent)
        extent.holder = <BlockBuffer> self.holder
        extent.offset = self.durable.size
        extent.data = self.data + (extent.offset - self.cache_start)
        extent.length = self.size - extent.offset
        extent.commit_number = commit_number
        extent.last_sequence = last_sequence
        self.taken = self.point()
        self.in_flight = extent
        return extent

    cdef int commit_done(self) except -1:
        assert self.in_flight is not None
        self.in_flight = None
        self.durable = self.taken
        self.void_previous = False
        return 0

    cdef int undo(self) except -1:
        cdef uint32_t size = max(self.durable.size, <uint32_t> BLOCK_HEADER_BYTES)
        cdef uint32_t* places = <uint32_t*> self.interruptions.items
        cdef uint32_t place = self.index.count
        cdef uint32_t offset
        self.in_flight = None
        while place:
            place -= 1
            offset = self.index.offsets[place]
            if offset and (offset & OFFSET_MASK) < size:
                break
            if offset and not offset & REMOVED:
                self.message_count -= 1
                self.live_bytes -= self.size_at(place)
        index_cut(&self.index, size)
        while self.interruptions.count and places[self.interruptions.count - 1] >= size:
            self.interruptions.count -= 1
        if self.skipped is not None and self.last_sequence > self.durable.last_sequence:
            self.skipped.discard_run(self.durable.last_sequence + 1, self.last_sequence)
        self.size = size
        self.last_sequence = self.durable.last_sequence
        self.chain = self.durable.chain
        self.commit_number = self.durable.commit_number
        self.last_checksum = self.durable.last_checksum
        return self.void_torn()

    cdef int void_torn(self) except -1:
        if self.void_previous:
            self.append_tombstones(SequenceSet().encode(), False, 0)
        return 0

    # Arrays and cache, dropped and loaded

    cdef int adopt_arrays(self, Scan scan) except -1:
        index_free(&self.index)
        free(self.interruptions.items)
        self.index = scan.index
        self.interruptions = scan.interruptions
        memset(&scan.index, 0, sizeof(scan.index))
        memset(&scan.interruptions, 0, sizeof(scan.interruptions))
        index_cut(&self.index, self.size)
        index_trim(&self.index)
        self.has_arrays = True
        return 0

    def drop_arrays(self) -> int:
        """Drop the arrays if all of the block is on disk; return how many bytes were freed."""
        cdef int64_t before = self.array_bytes
        if not self.has_arrays or self.durable.size != self.size:
            return 0
        self.dead = self.find_dead()
        index_free(&self.index)
        free(self.interruptions.items)
        memset(&self.interruptions, 0, sizeof(self.interruptions))
        self.has_arrays = False
        return before - self.array_bytes

    cdef SequenceSet find_dead(self):
        """Return the sequences from base_sequence to last_sequence that are no live messages."""
        cdef SequenceSet dead = SequenceSet()
        cdef uint64_t sequence = self.base_sequence
        cdef uint64_t live
        while sequence <= self.last_sequence:
            live = self.next_live(sequence) or self.last_sequence + 1
            if live > sequence:
                dead.add_run(sequence, live - 1)
            sequence = live + 1
        return dead

    def load(self, Scan scan not None) -> list[int]:
        """Cache the block's bytes, and its arrays if they were dropped, from a scan of the file.

        Takes over the scan's arrays. Returns the missing messages: they are dead now, see `damage`.
        """
        cdef list lost
        if scan.header.seed != self.seed or scan.end < self.durable.size:
            raise ValueError(f"these are not the bytes of block {self.block_id}")
        self.damage_found += [found for found in scan.damage if found not in self.damage_found]
        if self.has_arrays:
            lost = self.forget_lost(scan)
            self.adopt_bytes(scan)
        else:
            lost = self.lost_of_dead(scan)
            self.adopt_bytes(scan)
            self.adopt_arrays(scan)
            self.apply_dead()
        return lost

    def summary(self) -> BlockSummary:
        """Return what `from_summary` needs. Raises ValueError while something is not on disk."""
        if self.durable.size != self.size:
            raise ValueError(f"block {self.block_id} is not wholly on disk")
        dead = self.find_dead() if self.has_arrays else self.dead
        return BlockSummary(
            self.block_id, self.seed, self.base_sequence, self.last_sequence, self.size,
            self.commit_number, self.chain, self.last_checksum, self.message_count,
            self.live_bytes, bool(self.sealed), dead.encode(),
            b"" if self.skipped is None else self.skipped.encode(), tuple(self.damage_found),
        )

    @classmethod
    def from_summary(cls, summary, uint32_t max_bytes) -> MsgBlock:
        """Return the summarised block, without its bytes and arrays in memory; see `load`."""
        cdef MsgBlock self = cls.__new__(cls)
        self.max_bytes = max_bytes
        self.block_id = summary.block_id
        self.seed = summary.seed
        self.base_sequence = self.index.base = summary.base_sequence
        self.last_sequence = summary.last_sequence
        self.size = self.cache_start = summary.size
        self.commit_number = summary.commit_number
        self.chain = summary.chain
        self.last_checksum = summary.last_checksum
        self.message_count = summary.message_count
        self.live_bytes = summary.live_bytes
        self.sealed = summary.sealed
        self.dead = SequenceSet.decode(summary.dead)
        if summary.skipped:
            self.skipped = SequenceSet.decode(summary.skipped)
        self.damage_found = list(summary.damage)
        self.durable = self.point()
        return self

    cdef list forget_lost(self, Scan scan):
        """Remove the messages that the scan lacks from the index; return those that were live."""
        cdef list lost = []
        cdef uint64_t sequence
        cdef uint32_t place, offset
        for place in range(self.index.count):
            offset = self.index.offsets[place]
            sequence = index_sequence(&self.index, place)
            if (offset & OFFSET_MASK) >= self.durable.size:
                break
            if offset and index_find(&scan.index, sequence) < 0:
                if self.mark_dead(sequence):
                    lost.append(sequence)
                self.index.offsets[place] = 0
                self.index.messages -= 1
        return lost

    cdef list lost_of_dead(self, Scan scan):
        """Return the sequences that are neither in `dead` nor in the scan."""
        cdef list lost = []
        cdef uint64_t sequence = self.base_sequence
        while self.dead.find_absent(sequence, &sequence) and sequence <= self.last_sequence:
            if index_find(&scan.index, sequence) < 0:
                lost.append(sequence)
            sequence += 1
        return lost

    cdef int apply_dead(self) except -1:
        """Mark the dead messages in arrays that hold all records, and count the live ones again."""
        cdef uint32_t place
        cdef uint32_t* offset
        self.live_bytes = 0
        self.message_count = 0
        for place in range(self.index.count):
            offset = &self.index.offsets[place]
            if offset[0] - 1 >= OFFSET_MASK:
                continue
            if self.dead.has(index_sequence(&self.index, place)):
                offset[0] |= REMOVED
            else:
                self.message_count += 1
                self.live_bytes += self.size_at(place)
        self.dead = None
        return 0

    @property
    def damage(self) -> list[Damage]:
        return list(self.damage_found)

    def forget_damage(self, offset: int) -> None:
        """Drop the damage at `offset`: it is repaired, or was to be erased."""
        self.damage_found = [found for found in self.damage_found if found.offset != offset]

    # Erasing

    cdef bytes erase(self, uint64_t sequence, bytes noise):
        """Replace a removed message's record by noise, in the cache too; return the new record.

        Write it at `offset_of(sequence)` once the removal is on disk: earlier, a crash loses both.
        """
        cdef int64_t place = index_find(&self.index, sequence)
        cdef uint32_t offset, size
        cdef bytes record
        if place < 0 or not self.index.offsets[place] & REMOVED:
            raise ValueError(f"message {sequence} is not there to be erased")
        offset = self.index.offsets[place] & OFFSET_MASK
        size = self.size_at(<uint32_t> place)
        if <uint32_t> PyBytes_GET_SIZE(noise) != size - RECORD_BYTES_MIN:
            raise ValueError(f"{size - RECORD_BYTES_MIN} bytes of noise are needed")
        record = erased_record(self.seed, sequence, noise)
        if offset >= self.cache_start:
            if self.capacity == 0:
                self.own_bytes(self.size)       # loaded bytes may be shared
            memcpy(
                self.data + (offset - self.cache_start), PyBytes_AS_STRING(record), size
            )
        return record

    def erase_record(self, sequence: int, noise: bytes) -> bytes:
        return self.erase(sequence, noise)

    # For Python: the block's file, tests, tools

    def offset_of(self, uint64_t sequence) -> int:
        """Return the offset of the message's record, removed or not; 0: none, or no arrays."""
        cdef int64_t place = index_find(&self.index, sequence)
        return self.index.offsets[place] & OFFSET_MASK if place >= 0 else 0

    def record_bytes(self, sequence: int) -> int:
        """Return the length of the message's record, removed or not; 0: none, or no arrays."""
        return self.size_of(sequence)

    def is_like(self, MsgBlock other not None, uint64_t sequence) -> bool:
        """Return whether a message may be the one that `other` has, or had in its arrays."""
        cdef uint32_t slot = self.slot_of(sequence)
        if slot == NO_SLOT:
            return False
        if index_find(&other.index, sequence) < 0:
            return True
        return slot == other.slot_of(sequence) and self.size_of(sequence) == other.size_of(sequence)

    def put(
        self, uint64_t sequence, subject, headers, bytes data, int64_t time_ns,
        int64_t expires_ns=0, uint32_t slot=NO_SLOT,
    ) -> int:
        """Append a message; return the size of its record in bytes."""
        cdef bytes subject_bytes = wire_bytes(subject)
        cdef bytes header_bytes = b"" if headers is None else headers
        if (
            len(subject_bytes) > SUBJECT_BYTES_MAX or len(header_bytes) > RECORD_BYTES_MAX
            or len(data) > RECORD_BYTES_MAX
        ):
            raise MaximumMessageSizeExceeded
        return self.append(
            sequence, time_ns, expires_ns, subject_bytes, <uint16_t> len(subject_bytes),
            header_bytes, <uint32_t> len(header_bytes), data, <uint32_t> len(data), slot,
        )

    def skip(self, sequence: int, count: int = 1, time_ns: int = 0) -> int:
        return self.append_skip(sequence, count, time_ns)

    def put_tombstones(self, encoded: bytes, erased: bool = False, time_ns: int = 0) -> int:
        return self.append_tombstones(encoded, erased, time_ns)

    def get(self, uint64_t sequence) -> StoredMessage | None:
        """Return the message; None if there is none or it is not in memory (see `is_live`)."""
        cdef RecordView view
        return message_of(&view) if self.view(sequence, &view) == FOUND else None

    def is_live(self, uint64_t sequence) -> bool:
        """Return whether there is such a message, in memory or not."""
        return self.find(sequence) != ABSENT

    def remove(self, sequence: int) -> bool:
        return self.mark_dead(sequence)

    def restore(self, sequence: int) -> bool:
        return self.mark_live(sequence)

    def live_sequences(self) -> list[int]:
        cdef list found = []
        cdef uint64_t sequence = self.next_live(0)
        while sequence:
            found.append(sequence)
            sequence = self.next_live(sequence + 1)
        return found

    def take_extent(
        self, commit_number: int, first_sequence: int, *, force: bool = False,
        closing: bool = False,
    ) -> BlockExtent | None:
        return self.take(commit_number, first_sequence, self.last_sequence, force, closing)

    def committed(self) -> None:
        self.commit_done()

    def rolled_back(self) -> None:
        self.undo()

    @property
    def durable_size(self) -> int:
        return self.durable.size

    @property
    def durable_chain(self) -> int:
        return self.durable.chain

    def durable_bytes(self) -> bytes:
        """Return a copy of the bytes on disk. Raises ValueError unless all of it is cached."""
        if self.cache_start:
            raise ValueError(f"block {self.block_id} is not in memory")
        return PyBytes_FromStringAndSize(<const char*> self.data, self.durable.size)

    @property
    def first_sequence(self) -> int:
        """The first written or reserved sequence; base_sequence if there is none."""
        cdef uint64_t first = index_sequence(&self.index, 0) if self.index.count else 0
        cdef uint64_t skipped = self.skipped.first or 0 if self.skipped is not None else 0
        if not self.has_arrays:
            return self.base_sequence
        return min(first or skipped, skipped or first) or self.base_sequence

    @property
    def deleted_sequences(self) -> SequenceSet:
        """The removed and the reserved sequences of the block."""
        cdef SequenceSet deleted
        cdef uint32_t place
        if not self.has_arrays:
            return self.dead.copy()
        deleted = SequenceSet() if self.skipped is None else self.skipped.copy()
        for place in range(self.index.count):
            if self.index.offsets[place] & REMOVED:
                deleted.add_run(
                    index_sequence(&self.index, place), index_sequence(&self.index, place)
                )
        return deleted
