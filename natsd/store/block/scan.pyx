"""The scan of a whole block that trusts no byte: one linear pass over its bytes, without the GIL.

    header │ record record MARK MARK │ record damaged record MARK MARK │ record rec~~ 000000000
             └─── a commit ────┘  ×2   └── body bad: skipped ──┘         └─ torn: cut ┘ └ zeros

Promise
- Any bytes can be scanned, in time proportional to their number. A record is accepted only if its
  header and its XXH64 verify with the block's seed, its sequence is above all before, and its
  subject can be sent to a client (sendable.pxd).
- Where no header verifies, the walk continues at the next byte where a record does. So damage costs
  only the records that it touches, and each damage is noted with its offset and sequences.
- If the disk wrote a part of the block to a wrong place in it, the records there verify. The marks
  tell them from the records that belong there: such damage costs the overwritten messages, and at
  most the others of the same commit.
- Bytes behind the last mark were never acknowledged: they are cut, unless the caller declares them
  `proven` to be on disk (a sealed block, or bytes that index.db covers). If proven bytes do not
  verify, they are damage, and their valid records are kept.
- If the last commit is neither whole nor proven, its valid messages are kept and none of its
  removals is applied (`torn_commit`). Nothing of its batches is kept, also when the block is read
  again later: the next mark says that the commit before it was torn.
- The caller must cut the file at `end`, and sync that, before anything is written behind it.
- The seed comes from the block's header, or from the marks if the header is damaged. A mark counts
  only in its own place: the bytes that it covers end where it begins.

Without the GIL, `self.x += 1` is written out: a debug build would check whether self is None.

Source: docs/store.md, "What an acknowledgement means" and "Damaged files".
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdlib cimport free
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memmove

from natsd.store.block.array cimport array_add
from natsd.store.block.sendable cimport is_sendable
from natsd.store.codec.records cimport (
    BLOCK_HEADER_BYTES, BLOCK_VERSION, CLOSING, ERASED, MARK, MARK_BYTES, MESSAGE, RECORD_BYTES_MIN,
    RECORD_HEADER_BYTES, RecordView, SKIP, StoredMessage, TOGETHER, TOMBSTONES, VOID_PREVIOUS,
    body_is_whole, message_of, mix_chain, parse_block_header, parse_header, parse_mark, read_u64,
    record_checksum, record_length_at, view_record,
)

from natsd.store.block.damage import Damage

DAMAGE_TEXTS = (
    "block header damaged",
    "records damaged",
    "record damaged",
    "commit mark damaged",
    "record out of order",
    "commit does not match its mark",
)


cdef inline int interrupt(Scan scan, uint32_t at) noexcept nogil:
    """Note that there is no message at the offset `at`; return 0, or -1: out of memory."""
    cdef uint32_t* slot = <uint32_t*> array_add(&scan.interruptions, sizeof(uint32_t))
    if slot == NULL:
        return -1
    slot[0] = at
    return 0


cdef inline uint64_t extent_end(const Mark* mark) noexcept nogil:
    return <uint64_t> mark.extent_start + mark.extent_length


cdef inline bint in_place(const Mark* mark, uint32_t at) noexcept nogil:
    """Return whether the mark stands where it says, as the first or the second of its pair."""
    cdef uint64_t end = extent_end(mark)
    return mark.extent_start >= BLOCK_HEADER_BYTES and (end == at or end + MARK_BYTES == at)


cdef class Scan:
    """The content of one block, fully known when the constructor returns.

    `data` is the block's logical bytes. The first `proven` bytes are known to have been synced; if
    `data` is shorter, its end is damaged. `first_sequence` is the block's first sequence, if the
    caller knows it; it is used if the header is damaged. (With 0 it is not known which sequences
    are missing before the first valid message.) Raises ValueError for 2 GiB or more, or
    MemoryError.
    """

    def __cinit__(self, bytes data not None, *, uint32_t proven=0, uint64_t first_sequence=0):
        cdef int rc = 0
        if max(len(data), proven) > LOGICAL_BYTES_MAX:
            raise ValueError(f"a block of {max(len(data), proven)} bytes")
        if len(data) < proven:
            data = data.ljust(proven, b"\0")
        self.data = data
        self.bytes_at = <const unsigned char*> PyBytes_AS_STRING(data)
        self.size = <uint32_t> len(data)
        with nogil:
            self.readable = self.open_header(first_sequence)
            if self.readable:
                rc = self.walk()
            if rc >= 0:
                rc = self.finish(<uint32_t> rc, proven)
        if rc < 0:
            raise MemoryError

    def __dealloc__(self):
        index_free(&self.index)
        free(self.interruptions.items)
        free(self.removals.items)
        free(self.reserved.items)
        free(self.damaged.items)

    # The block's header

    cdef bint open_header(self, uint64_t first_sequence) noexcept nogil:
        """Find the seed and start the walk's state; return false if the seed is unknown."""
        self.header_is_whole = parse_block_header(self.bytes_at, self.size, &self.header)
        if self.header_is_whole:
            if self.header.version != BLOCK_VERSION:
                return False
            first_sequence = self.header.first_sequence
        elif not self.find_seed(&self.header.seed, &self.header.block_id):
            return False
        self.header.first_sequence = first_sequence
        self.index.base = first_sequence
        self.last_sequence = first_sequence - 1 if first_sequence else 0
        self.committed_sequence = self.last_sequence
        self.extent_start = BLOCK_HEADER_BYTES
        self.extent_whole = True
        return True

    cdef bint find_seed(self, uint64_t* seed, uint32_t* block_id) noexcept nogil:
        """Find the seed in marks that stand in their place; return whether there is one.

        That is a seed with which the first record verifies, or else the last mark's. A mark in a
        payload does not stand in its place, or is not the last one.
        """
        cdef Mark mark
        cdef RecordHeader first
        cdef const unsigned char* records = self.bytes_at + BLOCK_HEADER_BYTES
        cdef uint32_t at = BLOCK_HEADER_BYTES
        cdef bint found = False
        while at + MARK_BYTES <= self.size:
            if read_u64(self.bytes_at + at) == 0:
                at += 8         # a mark begins with its length, which is not 0
                continue
            if parse_mark(self.bytes_at + at, self.size - at, &mark) and in_place(&mark, at):
                found = True
                seed[0] = mark.seed
                block_id[0] = mark.block_id
                if parse_header(records, self.size - BLOCK_HEADER_BYTES, mark.seed, &first):
                    return True
            at += 1
        return found

    cdef bint mark_is_ours(self, const Mark* mark, uint32_t at) noexcept nogil:
        """Return whether the mark was written for this block and this place."""
        if mark.seed != self.header.seed or mark.block_id != self.header.block_id:
            return False
        if self.has_mark and mark.commit_number <= self.mark.commit_number and (
            not self.is_twin(mark)
        ):
            return False        # its commit was undone, and its place written again
        return in_place(mark, at)

    cdef bint is_twin(self, const Mark* mark) noexcept nogil:
        """Return whether the mark is the second mark of the last commit."""
        return (
            mark.commit_number == self.mark.commit_number
            and mark.extent_start == self.mark.extent_start
            and mark.extent_length == self.mark.extent_length
            and mark.chain == self.mark.chain
        )

    # The walk

    cdef int walk(self) noexcept nogil:
        """Take every record that verifies.

        Returns the offset from which on nothing verifies; -1: out of memory.
        """
        cdef uint32_t at = BLOCK_HEADER_BYTES
        cdef uint32_t next_at
        cdef RecordHeader header
        cdef Mark mark
        cdef const unsigned char* record
        if not self.header_is_whole and (
            self.note_damage(0, BLOCK_HEADER_BYTES, 0, 0, BAD_BLOCK_HEADER) < 0
        ):
            return -1
        while at + RECORD_BYTES_MIN <= self.size:
            record = self.bytes_at + at
            if record[4] == MARK:
                if parse_mark(record, self.size - at, &mark) and self.mark_is_ours(&mark, at):
                    if self.may_be_misled(&mark, at):
                        at = self.walk_back()
                        continue
                    if self.take_mark(&mark, at) < 0:
                        return -1
                    at += MARK_BYTES
                    continue
            elif (
                parse_header(record, self.size - at, self.header.seed, &header)
                and header.length <= self.size - at and self.is_in_order(&header, at)
            ):
                if body_is_whole(record, &header, self.header.seed):
                    if self.take_record(&header, at) < 0:
                        return -1
                    at += header.length
                    continue
                if self.resync(at, at + header.length) == 0:
                    if self.note_bad_body(&header, at) < 0:
                        return -1
                    at += header.length
                    continue
            next_at = self.resync(at, self.size)
            if next_at == 0:
                return <int> at
            if self.note_gap(at, next_at) < 0:
                return -1
            at = next_at
        return <int> at

    cdef bint may_be_misled(self, const Mark* mark, uint32_t at) noexcept nogil:
        """Return whether misplaced records may have been taken since the last commit.

        If so, bounds the sequences that the next walk up to this mark accepts. True once for each
        mark.
        """
        cdef uint64_t first = 0
        if self.extent_whole or self.walked_again_to == at:
            return False
        if mark.extent_start > self.extent_start and self.extent_verifies(mark):
            # All of this commit is as it was written, so everything before it must be older.
            first = self.first_in_extent(mark)
        if first:
            self.highest, self.highest_upto = first - 1, mark.extent_start
        elif max(self.last_sequence, self.last_damaged()) > mark.last_sequence:
            self.highest, self.highest_upto = mark.last_sequence, at
        else:
            return False
        self.walked_again_to = at
        return True

    cdef uint64_t last_damaged(self) noexcept nogil:
        """Return the highest sequence known to be damaged since the last commit; 0: none."""
        cdef Damaged* damaged = <Damaged*> self.damaged.items
        cdef uint64_t last = 0
        cdef uint32_t place = self.damaged.count
        while place and damaged[place - 1].offset >= self.end:
            place -= 1
            last = max(last, damaged[place].last_sequence)
        return last

    cdef uint64_t first_in_extent(self, const Mark* mark) noexcept nogil:
        """Return the first sequence of an extent that verifies; 0: there is none."""
        cdef RecordHeader header
        cdef uint64_t at = mark.extent_start
        while at < extent_end(mark):
            parse_header(self.bytes_at + at, self.size - at, self.header.seed, &header)
            if header.kind == MESSAGE or header.kind == SKIP:
                return header.sequence
            at += header.length
        return 0

    cdef uint32_t walk_back(self) noexcept nogil:
        """Forget all that was read since the last commit; return the offset of its end."""
        self.end = max(self.end, <uint32_t> BLOCK_HEADER_BYTES)
        self.cut()
        self.last_sequence = self.committed_sequence
        self.extent_start = self.end
        self.extent_chain = self.chain
        self.extent_whole = True
        self.extent_altered = False
        self.last_checksum = self.committed_checksum
        return self.end

    cdef bint is_in_order(self, const RecordHeader* header, uint32_t at) noexcept nogil:
        """Return whether the record's sequence fits this place."""
        if at < self.highest_upto and header.sequence > self.highest:
            return False
        return header.kind == TOMBSTONES or header.sequence > self.last_sequence

    cdef int take_record(self, const RecordHeader* header, uint32_t at) noexcept nogil:
        cdef Tombstones* removals
        self.last_checksum = record_checksum(self.bytes_at + at)
        self.extent_chain = mix_chain(self.extent_chain, self.last_checksum)
        if header.kind == MESSAGE:
            return self.take_message(header, at)
        if interrupt(self, at) < 0:
            return -1
        if header.kind == SKIP:
            return self.take_skip(header, at)
        removals = <Tombstones*> array_add(&self.removals, sizeof(Tombstones))
        if removals == NULL:
            return -1
        removals.offset = at + RECORD_HEADER_BYTES
        removals.length = header.length - RECORD_BYTES_MIN
        removals.erased = header.flags & ERASED
        return 0

    cdef int take_message(self, const RecordHeader* header, uint32_t at) noexcept nogil:
        cdef uint32_t removed = 0
        if self.index.count == 0 and not self.header.first_sequence:
            self.index.base = header.sequence
        if header.sequence - self.index.base > RELATIVE_MAX:
            self.extent_whole = False
            return self.note_damage(at, header.length, 0, 0, BAD_ORDER)
        if header.flags & ERASED:
            self.extent_altered = True
            removed = REMOVED
        elif not self.can_be_sent(at):
            self.last_sequence = header.sequence
            return self.note_damage(
                at, header.length, header.sequence, header.sequence, BAD_BODY
            )
        else:
            self.live_bytes = self.live_bytes + header.length
            self.live_count = self.live_count + 1
        self.last_sequence = header.sequence
        return index_add(&self.index, header.sequence, at | removed, NO_SLOT)

    cdef bint can_be_sent(self, uint32_t at) noexcept nogil:
        cdef RecordView view
        view_record(self.bytes_at + at, &view)
        return is_sendable(view.subject, view.subject_len)

    cdef int take_skip(self, const RecordHeader* header, uint32_t at) noexcept nogil:
        cdef uint64_t count = 0
        cdef Skip* skip
        if header.length == RECORD_BYTES_MIN + 8:
            count = read_u64(self.bytes_at + at + RECORD_HEADER_BYTES)
        if count == 0 or header.sequence + count < header.sequence:
            self.extent_whole = False
            return self.note_damage(at, header.length, 0, 0, BAD_ORDER)
        skip = <Skip*> array_add(&self.reserved, sizeof(Skip))
        if skip == NULL:
            return -1
        skip.offset = at
        skip.sequence = header.sequence
        skip.count = count
        self.last_sequence = header.sequence + (count - 1)
        return 0

    cdef int take_mark(self, const Mark* mark, uint32_t at) noexcept nogil:
        """Take a commit's first mark, which ends the commit, or skip its second mark."""
        if interrupt(self, at) < 0:
            return -1
        if self.has_mark and self.is_twin(mark):
            self.extent_start = at + MARK_BYTES
            self.end = at + MARK_BYTES
            return 0
        if mark.flags & VOID_PREVIOUS:
            self.drop_tombstones(self.last_tombstones[0], self.last_tombstones[1])
            self.tombstones_before = self.last_tombstones[0]
            self.first_sequence = self.floor_before
            self.drop_batches()
        if self.judge(mark) < 0:
            return -1
        self.floor_before = self.first_sequence
        self.first_sequence = mark.first_sequence
        self.last_sequence = max(self.last_sequence, mark.last_sequence)
        self.committed_sequence = self.last_sequence
        self.committed_checksum = self.last_checksum
        self.last_tombstones[0] = self.tombstones_before
        self.last_tombstones[1] = self.removals.count
        self.mark = mark[0]
        self.has_mark = True
        self.chain = self.extent_chain = mark.chain
        self.end = self.extent_start = at + MARK_BYTES
        self.extent_whole = True
        self.extent_altered = False
        self.tombstones_before = self.removals.count
        return 0

    cdef int judge(self, const Mark* mark) noexcept nogil:
        """Decide whether the commit that ends with this mark is whole."""
        if mark.extent_start != self.extent_start:
            # The marks of the commit before are lost, and with them the place where this commit
            # began.
            self.last_commit_whole = self.extent_verifies(mark)
            return 0
        self.last_commit_whole = self.extent_whole
        if not self.extent_whole or self.extent_altered:
            return 0
        if mark.chain == self.extent_chain and mark.previous_chain == self.chain:
            return 0
        self.last_commit_whole = False
        return self.note_damage(mark.extent_start, mark.extent_length, 0, 0, BAD_CHAIN)

    cdef bint extent_verifies(self, const Mark* mark) noexcept nogil:
        cdef RecordHeader header
        cdef uint64_t chain = mark.previous_chain
        cdef uint64_t at = mark.extent_start
        cdef uint64_t end = extent_end(mark)
        cdef const unsigned char* record
        cdef bint altered = False
        while at < end:
            record = self.bytes_at + at
            if not parse_header(record, end - at, self.header.seed, &header):
                return False
            if header.length > end - at or not body_is_whole(record, &header, self.header.seed):
                return False
            chain = mix_chain(chain, record_checksum(record))
            if header.kind == MESSAGE and header.flags & ERASED:
                altered = True
            at += header.length
        return altered or chain == mark.chain

    # Damage

    cdef int note_bad_body(self, const RecordHeader* header, uint32_t at) noexcept nogil:
        self.extent_whole = False
        if header.kind != MESSAGE:
            return self.note_damage(at, header.length, 0, 0, BAD_BODY)
        self.last_sequence = header.sequence
        return self.note_damage(at, header.length, header.sequence, header.sequence, BAD_BODY)

    cdef bint verifies(self, uint32_t at, uint64_t* sequence) noexcept nogil:
        """Return whether a valid record stands here that can follow the records read so far.

        `sequence` is then set to its sequence, or to the next one after a mark or removals.
        """
        cdef RecordHeader header
        cdef Mark mark
        cdef const unsigned char* record = self.bytes_at + at
        if record[4] == MARK:
            if not parse_mark(record, self.size - at, &mark) or not self.mark_is_ours(&mark, at):
                return False
            sequence[0] = mark.last_sequence + 1
            return True
        if (
            not parse_header(record, self.size - at, self.header.seed, &header)
            or header.length > self.size - at or not self.is_in_order(&header, at)
            or not body_is_whole(record, &header, self.header.seed)
        ):
            return False
        sequence[0] = header.sequence + (header.kind == TOMBSTONES)
        return sequence[0] > self.last_sequence

    cdef uint32_t resync(self, uint32_t at, uint32_t upto) noexcept nogil:
        """Return the next offset before `upto` where a record verifies; 0: none."""
        cdef uint64_t sequence
        cdef unsigned char kind
        if self.size < RECORD_BYTES_MIN:
            return 0
        upto = min(upto, self.size - RECORD_BYTES_MIN + 1)
        at += 1
        while at < upto:
            if read_u64(self.bytes_at + at) == 0:
                at += 5     # at each of these bytes a length of four zero bytes would begin
                continue
            kind = self.bytes_at[at + 4]
            if MESSAGE <= kind <= MARK and self.verifies(at, &sequence):
                return at
            at += 1
        return 0

    cdef int note_gap(self, uint32_t at, uint32_t upto) noexcept nogil:
        """Note what is missing between `at` and `upto`, where no header verified."""
        cdef uint64_t sequence = 0
        cdef Mark mark
        if upto - at == MARK_BYTES:
            if self.has_mark and at == extent_end(&self.mark) + MARK_BYTES:
                self.extent_start = upto        # it was the second mark of the commit before
                return self.note_damage(at, MARK_BYTES, 0, 0, BAD_MARK)
            if parse_mark(self.bytes_at + upto, self.size - upto, &mark) and (
                extent_end(&mark) == at
            ):
                return self.note_damage(at, MARK_BYTES, 0, 0, BAD_MARK)
        self.extent_whole = False
        self.verifies(upto, &sequence)
        if sequence > self.last_sequence + 1:
            return self.note_damage(
                at, upto - at, self.last_sequence + 1, sequence - 1, BAD_RECORDS
            )
        return self.note_damage(at, upto - at, 0, 0, BAD_RECORDS)

    cdef int note_damage(
        self, uint32_t at, uint32_t length, uint64_t first, uint64_t last, int kind
    ) noexcept nogil:
        cdef Damaged* damaged = <Damaged*> array_add(&self.damaged, sizeof(Damaged))
        if damaged == NULL:
            return -1
        damaged.offset = at
        damaged.length = length
        damaged.first_sequence = first
        damaged.last_sequence = last
        damaged.kind = kind
        return interrupt(self, at) if at >= BLOCK_HEADER_BYTES and kind != BAD_CHAIN else 0

    # The end

    cdef int finish(self, uint32_t walked, uint32_t proven) noexcept nogil:
        """Decide how much of the block's end counts, and forget the rest."""
        cdef uint32_t at
        if not self.readable:
            return 0
        self.commit_number = self.mark.commit_number if self.has_mark else 0
        self.closed = self.has_mark and (self.mark.flags & CLOSING) != 0
        self.end = max(self.end, <uint32_t> BLOCK_HEADER_BYTES)
        if walked > max(self.end, proven):
            self.last_checksum = self.committed_checksum
        if proven > self.end:
            self.end = proven
            self.last_commit_whole = True
            if walked < proven and self.note_damage(
                walked, proven - walked, self.last_sequence + 1, 0, BAD_RECORDS
            ) < 0:
                return -1
        elif self.has_mark and not self.last_commit_whole and proven < self.end:
            self.torn_commit = True
            self.first_sequence = self.floor_before
        self.cut()
        if self.torn_commit:
            self.drop_tombstones(self.last_tombstones[0], self.last_tombstones[1])
            self.drop_batches()
        at = self.size
        while at > self.end and self.bytes_at[at - 1] == 0:
            at -= 1
        self.torn_bytes = at - self.end if at > self.end else 0
        return 0

    cdef void cut(self) noexcept nogil:
        """Forget everything at `end` and behind it."""
        cdef Tombstones* removals = <Tombstones*> self.removals.items
        cdef Skip* skips = <Skip*> self.reserved.items
        cdef Damaged* damaged = <Damaged*> self.damaged.items
        cdef uint32_t* places = <uint32_t*> self.interruptions.items
        cdef uint64_t last = 0
        cdef uint32_t place = self.index.count
        cdef uint32_t offset
        while place:
            place -= 1
            offset = self.index.offsets[place]
            if offset and (offset & OFFSET_MASK) < self.end:
                last = index_sequence(&self.index, place)
                break
            if offset and not offset & REMOVED:
                self.live_bytes = self.live_bytes - record_length_at(self.bytes_at + offset)
                self.live_count = self.live_count - 1
        index_cut(&self.index, self.end)
        while self.removals.count and removals[self.removals.count - 1].offset >= self.end:
            self.removals.count = self.removals.count - 1
        while self.reserved.count and skips[self.reserved.count - 1].offset >= self.end:
            self.reserved.count = self.reserved.count - 1
        while self.damaged.count and damaged[self.damaged.count - 1].offset >= self.end:
            self.damaged.count = self.damaged.count - 1
        while self.interruptions.count and places[self.interruptions.count - 1] >= self.end:
            self.interruptions.count = self.interruptions.count - 1
        if self.reserved.count:
            skips += self.reserved.count - 1
            last = max(last, skips.sequence + (skips.count - 1))
        place = self.damaged.count      # the sequences of some damage are unknown
        while place and damaged[place - 1].last_sequence == 0:
            place -= 1
        if place:
            last = max(last, damaged[place - 1].last_sequence)
        self.last_sequence = max(last, self.committed_sequence)

    cdef void drop_tombstones(self, uint32_t first, uint32_t upto) noexcept nogil:
        cdef Tombstones* removals = <Tombstones*> self.removals.items
        memmove(
            &removals[first], &removals[upto], (self.removals.count - upto) * sizeof(Tombstones)
        )
        self.removals.count = self.removals.count - (upto - first)

    cdef void drop_batches(self) noexcept nogil:
        """Mark the messages of the last commit's batches as removed: the commit is not whole."""
        cdef uint32_t place = self.index.count
        cdef uint32_t offset
        while place:
            place -= 1
            offset = self.index.offsets[place]
            if offset == 0:
                continue
            if (offset & OFFSET_MASK) < self.mark.extent_start:
                return
            if not offset & REMOVED and self.bytes_at[offset + 5] & TOGETHER:
                self.index.offsets[place] = offset | REMOVED
                self.live_bytes = self.live_bytes - record_length_at(self.bytes_at + offset)
                self.live_count = self.live_count - 1

    # For Python

    @property
    def block_id(self):
        """The block's number in its stream."""
        return self.header.block_id

    @property
    def seed(self):
        """The random number that seeds the block's checksums."""
        return self.header.seed

    @property
    def version(self):
        """The version of the block's format."""
        return self.header.version

    @property
    def created_ns(self):
        """The time when the block was created, in ns since 1970."""
        return self.header.created_ns

    @property
    def store_id(self):
        """The id of the block's store (block_identity.py), from its header; 0: unknown."""
        return read_u64(self.header.salt) if self.header_is_whole else 0

    @property
    def follows(self):
        """The stream's sequence when the block began, from its header; 0: unknown."""
        return read_u64(self.header.salt + 8) if self.header_is_whole else 0

    @property
    def base_sequence(self):
        """The block's first sequence, from its header or from the caller; 0: unknown."""
        return self.header.first_sequence

    @property
    def message_count(self):
        """The number of messages that verify, removed ones included."""
        return self.index.messages

    @property
    def damage(self) -> list[Damage]:
        """The damage found, in the order of the offsets."""
        cdef Damaged* damaged = <Damaged*> self.damaged.items
        return [
            Damage(
                damaged[i].offset, damaged[i].length, damaged[i].first_sequence,
                damaged[i].last_sequence, DAMAGE_TEXTS[damaged[i].kind],
            )
            for i in range(self.damaged.count)
        ]

    @property
    def tombstones(self) -> list[tuple[int, bool, bytes]]:
        """The removals to apply: (offset, whether to overwrite the bytes, encoded sequences)."""
        cdef Tombstones* removals = <Tombstones*> self.removals.items
        return [
            (
                removals[i].offset, removals[i].erased,
                self.data[removals[i].offset:removals[i].offset + removals[i].length],
            )
            for i in range(self.removals.count)
        ]

    @property
    def skips(self) -> list[tuple[int, int]]:
        """The sequences reserved without a message: (first sequence, count)."""
        cdef Skip* skips = <Skip*> self.reserved.items
        return [(skips[i].sequence, skips[i].count) for i in range(self.reserved.count)]

    def sequences(self) -> list[int]:
        """Return the sequences of the messages that verify and are not erased, ascending."""
        cdef uint32_t place
        return [
            index_sequence(&self.index, place)
            for place in range(self.index.count)
            if self.index.offsets[place] and not self.index.offsets[place] & REMOVED
        ]

    def read(self, uint64_t sequence) -> StoredMessage | None:
        """Return a message of the block even if a later record removes it; None: there is none."""
        cdef RecordView view
        cdef int64_t place = index_find(&self.index, sequence)
        if place < 0 or self.index.offsets[place] & REMOVED:
            return None
        view_record(self.bytes_at + self.index.offsets[place], &view)
        return message_of(&view)
