"""SubjectIndex: subject → first, last and count of its messages, in the trie.

Promise
- There is one writer, the event loop's thread. Other threads look up subjects under a lease of the
  trie.
- Each message of a live subject lies between its `first` and `last`. When the message at such an
  edge is removed, the edge moves by one and is BOUND until its exact value is needed: the log then
  searches the blocks and sets it (`set_first`, `set_last`).
- A name leaves the trie only when its removal cannot be undone any more, so a slot that messages
  refer to keeps its subject through any rollback.
- Publishing to the same subject repeatedly costs a comparison, not a search.

A subject costs its share of the trie's cells and 32 bytes of content. nats-server keeps the same
three numbers in an adaptive radix tree (server/stree) and also resolves the edges lazily.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from natsd.trie.in_memory cimport RecordTrie

cdef enum:
    RECENT_ROOM_MIN = 64
    FORGOTTEN_AT_ONCE = 512     # subjects, which takes half a millisecond


cdef class SubjectIndex:
    """The index of a stream's subjects; `count` subjects have messages."""

    def __cinit__(self, uint32_t births=0, uint64_t frees=0):
        """Make an empty index that continues the births and frees of the index that it replaces."""
        self.trie = RecordTrie(SUBJECT_BYTES)
        self.births = births
        self.frees = frees
        self.arrivals = 1
        self.removed_names = {}
        self.forgettable = <uint32_t> -1
        self.recent_slot = -1

    def __dealloc__(self):
        free(self.recent)

    cdef SubjectIndex successor(self):
        cdef SubjectIndex index = SubjectIndex(self.births, self.frees + 1)
        index.arrivals = self.arrivals + 1
        return index

    cdef int outlive(self, SubjectIndex successor) except -1:
        self.births = successor.births
        self.frees = successor.frees + 1
        self.arrivals = successor.arrivals + 1
        return 0

    cdef int64_t find(self, const char* subject, Py_ssize_t length) noexcept nogil:
        if (
            self.recent_slot >= 0 and length == self.recent_len
            and memcmp(subject, self.recent, length) == 0
        ):
            return self.recent_slot
        return self.trie.find(<const unsigned char*> subject, length)

    cdef int64_t place(self, const char* subject, uint32_t length) except -1:
        if (
            self.recent_slot >= 0 and length == self.recent_len
            and memcmp(subject, self.recent, length) == 0
        ):
            return self.recent_slot
        return self.place_slowly(subject, length)

    cdef int64_t place_slowly(self, const char* subject, uint32_t length) except -1:
        cdef bint created = False
        cdef int64_t slot = self.trie.find(<const unsigned char*> subject, length)
        cdef Subject* record
        if slot < 0:
            slot = self.trie.insert(<const unsigned char*> subject, length, &created)
            self.births = self.births % BIRTH_LAST + 1
            record = self.record(slot)
            if self.frozen != NULL:
                self.keep(slot)
            self.trie.begin_write(slot)
            record.birth = self.births
            self.trie.end_write(slot)
            self.empty_subjects += 1
        self.remember(subject, length, slot)
        return slot

    cdef int remember(self, const char* subject, uint32_t length, int64_t slot) except -1:
        cdef char* recent
        self.recent_slot = -1
        if length > self.recent_room:
            recent = <char*> realloc(self.recent, max(length, RECENT_ROOM_MIN))
            if recent == NULL:
                raise MemoryError()
            self.recent = recent
            self.recent_room = max(length, RECENT_ROOM_MIN)
        memcpy(self.recent, subject, length)
        self.recent_len = length
        self.recent_slot = slot
        return 0

    cdef Subject* record(self, int64_t slot) noexcept nogil:
        return <Subject*> self.trie.record(slot)

    cdef void keep(self, int64_t slot) noexcept nogil:
        cdef int64_t page = slot >> FROZEN_PAGE_BITS
        cdef int64_t first = page << FROZEN_PAGE_BITS
        cdef int64_t place
        cdef Subject* copy
        if slot >= self.frozen.top or self.frozen.pages[page] != NULL:
            return
        copy = <Subject*> malloc(FROZEN_PAGE * sizeof(Subject))
        if copy == NULL:
            self.frozen.failed = True
            return
        for place in range(min(<int64_t> FROZEN_PAGE, self.frozen.top - first)):
            memcpy(&copy[place], self.record(first + place), SUBJECT_BYTES)
        self.frozen.pages[page] = copy

    # Messages come and go

    cdef void note(self, int64_t slot, uint64_t sequence) noexcept:
        cdef Subject* record = self.record(slot)
        if self.frozen != NULL:
            self.keep(slot)
        self.trie.begin_write(slot)
        if record.count == 0:
            record.first = sequence
            self.count += 1
            self.empty_subjects -= 1
            self.arrivals += 1
        record.count += 1
        record.last = sequence
        self.trie.end_write(slot)

    cdef void unnote(self, int64_t slot, uint64_t sequence) noexcept:
        cdef Subject* record = self.record(slot)
        assert record.count > 0
        if self.frozen != NULL:
            self.keep(slot)
        self.trie.begin_write(slot)
        record.count -= 1
        if record.count == 0:
            record.first = record.last = 0
            self.count -= 1
            self.empty_subjects += 1
        else:
            if sequence == sequence_in(record.first):
                record.first = (sequence + 1) | BOUND
            if sequence == sequence_in(record.last):
                record.last = (sequence - 1) | BOUND
            if record.count == 1 and is_exact(record.first) != is_exact(record.last):
                record.first = record.last = record.first if is_exact(record.first) else record.last
        self.trie.end_write(slot)

    cdef void renote(self, int64_t slot, uint64_t sequence) noexcept:
        cdef Subject* record = self.record(slot)
        if self.frozen != NULL:
            self.keep(slot)
        self.trie.begin_write(slot)
        if record.count == 0:
            record.first = record.last = sequence
            self.count += 1
            self.empty_subjects -= 1
            self.arrivals += 1
        elif sequence <= sequence_in(record.first):
            record.first = sequence
        elif sequence >= sequence_in(record.last):
            record.last = sequence
        record.count += 1
        self.trie.end_write(slot)

    cdef void set_first(self, int64_t slot, uint64_t sequence) noexcept:
        cdef Subject* record = self.record(slot)
        if self.frozen != NULL:
            self.keep(slot)
        self.trie.begin_write(slot)
        record.first = sequence
        if record.count == 1:
            record.last = sequence
        self.trie.end_write(slot)

    cdef void set_last(self, int64_t slot, uint64_t sequence) noexcept:
        cdef Subject* record = self.record(slot)
        if self.frozen != NULL:
            self.keep(slot)
        self.trie.begin_write(slot)
        record.last = sequence
        if record.count == 1:
            record.first = sequence
        self.trie.end_write(slot)

    # Empty subjects

    cdef int remember_removed(self, const char* subject, Py_ssize_t length) except -1:
        cdef bytes name = subject[:length]
        self.removed_names.pop(name, None)
        self.removed_names[name] = self.generation
        return 0

    cdef uint32_t seal(self) noexcept:
        """End the present generation of removed_names names and return its number."""
        self.generation += 1
        return self.generation - 1

    cdef int forget_removed_names(self, uint32_t generation) except -1:
        self.forgettable = generation
        self.forget_some()
        return 0

    cpdef bint forget_some(self) except -1:
        cdef bytes name
        cdef int64_t slot
        cdef list names = []
        cdef bint is_more = False
        if not self.removed_names:
            return False
        for name, removed_names in self.removed_names.items():
            if <int32_t> (<uint32_t> removed_names - self.forgettable) > 0:
                break
            if len(names) == FORGOTTEN_AT_ONCE:
                is_more = True
                break
            names.append(name)
        for name in names:
            del self.removed_names[name]
            slot = self.trie.find(name, len(name))
            if slot >= 0 and self.record(slot).count == 0:
                self.forget(name, len(name), slot)
        return is_more

    @property
    def num_remembered(self) -> int:
        """Number of remembered names of subjects whose last message was removed."""
        return len(self.removed_names)

    cdef int forget(self, const char* subject, Py_ssize_t length, int64_t slot) except -1:
        assert self.record(slot).count == 0
        self.trie.remove(<const unsigned char*> subject, length)
        self.empty_subjects -= 1
        self.frees += 1
        if slot == self.recent_slot:
            self.recent_slot = -1
        return 0

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory for the trie's cells, contents and bookkeeping."""
        usage = self.trie.usage()
        return usage.cell_bytes + usage.slot_bytes + usage.bookkeeping_bytes
