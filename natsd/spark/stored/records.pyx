"""Records: the messages of one scanned block become rows, straight from the block's bytes.

    scan.index   place ─▶ offset ─▶ record │ header │ subject │ headers │ payload │
                                                      └────────┴─────────┴─▶ a MessageBatch

Promise
- A row is a message that the scan verified (header and body checksums), from `first` to `last`, not
  in `dead`, with a wanted subject and time; rows are in the order of their sequences, each once.
- `fill` stops as soon as the batch is full and continues there at the next call; it copies only the
  columns of the batch, without the GIL.
- `missing` lists the sequences from `first` to `last` that should be live but do not verify or are
  absent.
"""

from libc.stdint cimport INT64_MAX, INT64_MIN, uint32_t, uint64_t

from natsd.spark.rows.message_batch cimport MessageBatch
from natsd.store.block.blocks cimport BlockIndex, OFFSET_MASK, Scan, index_seek, index_sequence
from natsd.store.codec.records cimport RecordView, view_record
from natsd.store.log.subjects cimport Filter, SubjectIndex
from natsd.store.sequence_set cimport SequenceSet


cdef class Records:
    """The wanted messages of a block, from `first` to `last` and not in `dead`.

    `start_time_ns` (inclusive) and `end_time_ns` (exclusive) are ns since the epoch, or None.
    """

    def __init__(
        self, Scan scan not None, uint64_t first, uint64_t last, SequenceSet dead not None,
        Filter wanted not None, start_time_ns=None, end_time_ns=None,
    ):
        self.scan = scan
        self.first_sequence = first
        self.last_sequence = last
        self.dead = dead
        self.wanted = wanted
        self.start_time_ns = INT64_MIN if start_time_ns is None else start_time_ns
        self.end_time_ns = INT64_MAX if end_time_ns is None else end_time_ns
        self.place = <uint32_t> index_seek(&scan.index, first)

    cdef bint view(self, uint32_t place, RecordView* view) noexcept nogil:
        """View the message at a position of the index; return False if no live message is there."""
        cdef uint32_t offset = self.scan.index.offsets[place]
        if offset - 1 >= OFFSET_MASK:       # a hole, or a removed message
            return False
        if self.dead.count and self.dead.has(index_sequence(&self.scan.index, place)):
            return False
        view_record(self.scan.bytes_at + offset, view)
        return True

    cdef bint is_wanted(self, const RecordView* view) noexcept nogil:
        if not self.start_time_ns <= view.time_ns < self.end_time_ns:
            return False
        return self.wanted.matches(view.subject, view.subject_len)

    def fill(self, MessageBatch batch not None):
        """Append rows until the batch is full; return False if no row is left."""
        with nogil:
            self.append_rows(batch)
        return self.place < self.scan.index.count

    cdef int append_rows(self, MessageBatch batch) except -1 nogil:
        cdef RecordView view
        while self.place < self.scan.index.count and not batch.full():
            if index_sequence(&self.scan.index, self.place) > self.last_sequence:
                self.place = self.scan.index.count
                return 0
            if self.view(self.place, &view) and self.is_wanted(&view):
                batch.append(
                    NULL, 0, view.subject, view.subject_len, view.sequence, view.time_ns,
                    view.headers, view.headers_len, view.data, view.data_len,
                )
            self.place = self.place + 1
        return 0

    cdef uint64_t expected(self) noexcept nogil:
        """Return how many messages should be live."""
        cdef uint64_t dead = self.dead.count_through(self.last_sequence)
        dead -= self.dead.count_through(self.first_sequence - 1)
        return self.last_sequence - self.first_sequence + 1 - dead

    cdef uint64_t found(self) noexcept nogil:
        """Return how many live messages are in the block."""
        cdef const BlockIndex* index = &self.scan.index
        cdef uint32_t place = <uint32_t> index_seek(index, self.first_sequence)
        cdef uint32_t end = <uint32_t> index_seek(index, self.last_sequence + 1)
        cdef uint64_t count = 0
        if self.dead.count == 0:
            while place < end:
                count += index.offsets[place] - 1 < OFFSET_MASK
                place += 1
            return count
        while place < end:
            if index.offsets[place] - 1 < OFFSET_MASK:
                count += not self.dead.has(index_sequence(index, place))
            place += 1
        return count

    def missing(self):
        """Return the sequences that should be live and are missing."""
        cdef SequenceSet lost = SequenceSet()
        cdef uint32_t place
        cdef uint64_t sequence
        if self.last_sequence < self.first_sequence or self.found() == self.expected():
            return lost
        lost.add_run(self.first_sequence, self.last_sequence)
        lost.difference_update(self.dead)
        place = <uint32_t> index_seek(&self.scan.index, self.first_sequence)
        while place < self.scan.index.count:
            sequence = index_sequence(&self.scan.index, place)
            if sequence > self.last_sequence:
                break
            if self.scan.index.offsets[place] - 1 < OFFSET_MASK:
                lost.discard_run(sequence, sequence)
            place += 1
        return lost

    def last_of_subjects(self, SubjectIndex seen not None):
        """Return the wanted messages that are the last of their subject.

        Goes from the last message to the first; a message counts if its subject is not in `seen`,
        to which its subject is then added.
        """
        cdef SequenceSet last = SequenceSet()
        cdef RecordView view
        cdef uint32_t place = self.scan.index.count
        while place:
            place -= 1
            if index_sequence(&self.scan.index, place) > self.last_sequence:
                continue
            if index_sequence(&self.scan.index, place) < self.first_sequence:
                break
            if not self.view(place, &view) or not self.is_wanted(&view):
                continue
            if seen.find(view.subject, view.subject_len) < 0:
                seen.place(view.subject, view.subject_len)
                last.add_run(view.sequence, view.sequence)
        return last

    def first_wanted(self):
        """Return the sequence of the first wanted message; None: there is none."""
        cdef RecordView view
        cdef uint32_t place = self.place
        while place < self.scan.index.count:
            if index_sequence(&self.scan.index, place) > self.last_sequence:
                break
            if self.view(place, &view) and self.is_wanted(&view):
                return view.sequence
            place += 1
        return None
