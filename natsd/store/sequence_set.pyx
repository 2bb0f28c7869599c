"""SequenceSet: a set of sequences from all 2^64, made for the gaps that deletes leave.

The set consists of sorted pages of 65,536 sequences. Each holds runs or bits (sequence_page.pxd
draws them); consecutive pages that have all their sequences are one entry of 16 bytes. So:

- a lone run costs 16 bytes, alternating sequences two bits each, a purged billion 16 bytes;
- add, discard and the searches cost a binary search over pages and one in the page, plus moving at
  most 8 KiB; the page table moves only when a page is added or removed;
- `rank` adds up the pages before: 150 of them for ten million sequences.

A change happens completely or raises MemoryError and leaves the set valid. One thread at a time.

Encoding, little-endian, numbers as LEB128 varints, so that a tombstone is a few bytes:

    ┌ version 1 u8 │ entries │ { gap to the page before it │ kind u8 │ … } … ┐
                              kind 0: number of whole pages
                                   1: number of runs, { absent before the run │ its length - 1 }…
                                   2: number of u64 words, the words (the rest of the page is 0);
                                      used if that is shorter than two bytes for each run

nats-server keeps such sets in an AVL tree of bitmaps (server/avl), which grows with every long run.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

from natsd.store.errors import DamagedEncoding

include "sequence_page.pyx"

cdef enum:
    PLACE_MASK = PAGE_SIZE - 1
    PLACE_LAST = PAGE_SIZE - 1
    ENCODING_VERSION = 1
    ENCODED_FULL = 0
    ENCODED_RUNS = 1
    ENCODED_BITS = 2

cdef uint64_t SEQUENCE_LAST = ~<uint64_t> 0


cdef inline uint64_t pages_of(const Entry* entry) noexcept nogil:
    return entry.body.pages if kind_of(entry) == FULL else 1


cdef inline uint64_t size_of(const Entry* entry) noexcept nogil:
    return entry.body.pages << PAGE_BITS if kind_of(entry) == FULL else page_size(entry)


cdef class SequenceSet:
    """A mutable set of sequences (0 to 2^64 - 1)."""

    def __init__(self, sequences=()):
        """Make a set of the given sequences."""
        for sequence in sequences:
            self.add(sequence)

    def __dealloc__(self):
        self.empty()

    cdef void empty(self) noexcept nogil:
        cdef uint32_t at
        for at in range(self.entry_count):
            page_free(&self.entries[at])
        free(self.entries)
        self.entries = NULL
        self.entry_count = self.capacity = 0
        self.count = 0

    # The page table

    cdef uint32_t find_entry(self, uint64_t page) noexcept nogil:
        """Return the index of the first entry that ends at or after `page`."""
        cdef uint32_t low = 0, high = self.entry_count, middle
        while low < high:
            middle = (low + high) >> 1
            if page_of(&self.entries[middle]) + pages_of(&self.entries[middle]) <= page:
                low = middle + 1
            else:
                high = middle
        return low

    cdef Entry* open_entry(self, uint32_t at, uint64_t key) except NULL:
        """Insert a new entry before `at` and return it; the caller fills it."""
        cdef uint32_t capacity
        cdef Entry* entries
        if self.entry_count == self.capacity:
            capacity = self.capacity * 2 if self.capacity else 1
            entries = <Entry*> realloc(self.entries, capacity * sizeof(Entry))
            if entries == NULL:
                raise MemoryError()
            self.entries = entries
            self.capacity = capacity
        memmove(&self.entries[at + 1], &self.entries[at], (self.entry_count - at) * sizeof(Entry))
        self.entry_count += 1
        self.entries[at].key = key
        self.entries[at].body.pages = 0
        return &self.entries[at]

    cdef void close_entry(self, uint32_t at, uint32_t number) noexcept nogil:
        cdef uint32_t each
        for each in range(at, at + number):
            page_free(&self.entries[each])
        self.entry_count = self.entry_count - number
        memmove(
            &self.entries[at], &self.entries[at + number], (self.entry_count - at) * sizeof(Entry)
        )

    cdef int break_full(self, uint32_t at, uint64_t page) except -1:
        """Split the FULL entry at `at`, so that `page` is an entry of its own with one run.

        Returns the index of that entry.
        """
        cdef uint64_t first = page_of(&self.entries[at])
        cdef uint64_t pages = self.entries[at].body.pages
        cdef Entry* entry
        if page + 1 < first + pages:
            entry = self.open_entry(at + 1, (page + 1) << PAGE_BITS | FULL)
            entry.body.pages = first + pages - page - 1
            self.entries[at].body.pages = page + 1 - first
        if page > first:
            entry = self.open_entry(at + 1, page << PAGE_BITS | FULL)
            entry.body.pages = 1
            self.entries[at].body.pages -= 1
            at += 1
        entry = &self.entries[at]
        entry.key = page << PAGE_BITS | ONE
        entry.body.runs[0].first = 0
        entry.body.runs[0].last = PLACE_LAST
        return at

    cdef void join_full(self, uint32_t at) noexcept nogil:
        """Join the FULL entry at `at` with the adjacent FULL entries."""
        cdef Entry* entry = &self.entries[at]
        cdef Entry* before
        if (
            at + 1 < self.entry_count and kind_of(entry + 1) == FULL
            and page_of(entry) + entry.body.pages == page_of(entry + 1)
        ):
            entry.body.pages += entry[1].body.pages
            self.close_entry(at + 1, 1)
        if at == 0:
            return
        before = entry - 1
        if kind_of(before) == FULL and page_of(before) + before.body.pages == page_of(entry):
            before.body.pages += entry.body.pages
            self.close_entry(at, 1)

    # Adding

    cdef int64_t add_in_page(self, uint64_t page, uint32_t first, uint32_t last) except -1:
        cdef uint32_t at = self.find_entry(page)
        cdef Entry* entry
        cdef int added
        if at == self.entry_count or page_of(&self.entries[at]) > page:
            entry = self.open_entry(at, page << PAGE_BITS | ONE)
            entry.body.runs[0].first = first
            entry.body.runs[0].last = last
            added = last - first + 1
        else:
            entry = &self.entries[at]
            if kind_of(entry) == FULL:
                return 0
            added = page_add(entry, first, last)
            if added < 0:
                raise MemoryError()
        self.count += added
        if added and page_size(entry) == PAGE_SIZE:
            page_free(entry)
            entry.key = page << PAGE_BITS | FULL
            entry.body.pages = 1
            self.join_full(at)
        return added

    cdef uint64_t add_pages(self, uint64_t page, uint64_t upto) except? 0:
        """Add the whole pages page..upto-1; return how many sequences were added."""
        cdef uint32_t at, past
        cdef uint64_t had = self.count
        cdef Entry* entry
        at = self.find_entry(page)
        entry = self.open_entry(at, page << PAGE_BITS | FULL)
        past = at + 1
        if past < self.entry_count and page_of(&self.entries[past]) < page:
            # A FULL entry begins before `page` and contains it: the new entry takes its place.
            entry = &self.entries[at]
            upto = max(upto, page_of(entry + 1) + entry[1].body.pages)
            page = page_of(entry + 1)
        while past < self.entry_count and page_of(&self.entries[past]) < upto:
            upto = max(upto, page_of(&self.entries[past]) + pages_of(&self.entries[past]))
            self.count -= size_of(&self.entries[past])
            past += 1
        self.close_entry(at + 1, past - at - 1)
        entry = &self.entries[at]
        entry.key = page << PAGE_BITS | FULL
        entry.body.pages = upto - page
        self.count += (upto - page) << PAGE_BITS
        self.join_full(at)
        return self.count - had

    cdef uint64_t add_run(self, uint64_t first, uint64_t last) except? 0:
        cdef uint64_t page = first >> PAGE_BITS, last_page = last >> PAGE_BITS
        cdef uint64_t added = 0
        assert first <= last
        if page == last_page:
            return self.add_in_page(page, first & PLACE_MASK, last & PLACE_MASK)
        if first & PLACE_MASK:
            added += self.add_in_page(page, first & PLACE_MASK, PLACE_LAST)
            page += 1
        if last & PLACE_MASK != PLACE_LAST:
            added += self.add_in_page(last_page, 0, last & PLACE_MASK)
            last_page -= 1
        if page <= last_page:
            added += self.add_pages(page, last_page + 1)
        return added

    # Discarding

    cdef int64_t discard_in_page(self, uint64_t page, uint32_t first, uint32_t last) except -1:
        cdef uint32_t at = self.find_entry(page), size
        cdef int removed
        if at == self.entry_count or page_of(&self.entries[at]) > page:
            return 0
        if kind_of(&self.entries[at]) == FULL:
            at = self.break_full(at, page)
        size = page_size(&self.entries[at])
        removed = page_discard(&self.entries[at], first, last)
        if removed < 0:
            raise MemoryError()
        self.count -= removed
        if <uint32_t> removed == size:
            self.close_entry(at, 1)
        return removed

    cdef uint64_t discard_pages(self, uint64_t page, uint64_t upto) except? 0:
        """Discard the whole pages page..upto-1; return how many sequences were removed."""
        cdef uint32_t at = self.find_entry(page), past
        cdef uint64_t had = self.count, end
        cdef Entry* entry
        if at < self.entry_count and page_of(&self.entries[at]) < page:
            end = page_of(&self.entries[at]) + self.entries[at].body.pages
            if end > upto:
                self.open_entry(at + 1, upto << PAGE_BITS | FULL).body.pages = end - upto
            entry = &self.entries[at]
            self.count -= (min(end, upto) - page) << PAGE_BITS
            entry.body.pages = page - page_of(entry)
            at += 1
        past = at
        while past < self.entry_count and page_of(&self.entries[past]) < upto:
            entry = &self.entries[past]
            end = page_of(entry) + pages_of(entry)
            if end > upto:
                self.count -= (upto - page_of(entry)) << PAGE_BITS
                entry.key = upto << PAGE_BITS | FULL
                entry.body.pages = end - upto
                break
            self.count -= size_of(entry)
            past += 1
        self.close_entry(at, past - at)
        return had - self.count

    cdef uint64_t discard_run(self, uint64_t first, uint64_t last) except? 0:
        cdef uint64_t page = first >> PAGE_BITS, last_page = last >> PAGE_BITS
        cdef uint64_t removed = 0
        assert first <= last
        if page == last_page:
            return self.discard_in_page(page, first & PLACE_MASK, last & PLACE_MASK)
        if first & PLACE_MASK:
            removed += self.discard_in_page(page, first & PLACE_MASK, PLACE_LAST)
            page += 1
        if last & PLACE_MASK != PLACE_LAST:
            removed += self.discard_in_page(last_page, 0, last & PLACE_MASK)
            last_page -= 1
        if page <= last_page:
            removed += self.discard_pages(page, last_page + 1)
        return removed

    # Searching

    cdef bint has(self, uint64_t sequence) noexcept nogil:
        cdef uint64_t page = sequence >> PAGE_BITS
        cdef uint32_t at = self.find_entry(page)
        if at == self.entry_count or page_of(&self.entries[at]) > page:
            return False
        if kind_of(&self.entries[at]) == FULL:
            return True
        return page_contains(&self.entries[at], sequence & PLACE_MASK)

    cdef bint find_present(self, uint64_t sequence, uint64_t* found) noexcept nogil:
        cdef uint64_t page = sequence >> PAGE_BITS
        cdef uint32_t at = self.find_entry(page), place
        cdef Entry* entry
        for at in range(at, self.entry_count):
            entry = &self.entries[at]
            if page_of(entry) > page:
                page = page_of(entry)
                sequence = page << PAGE_BITS
            if kind_of(entry) == FULL:
                found[0] = sequence
                return True
            place = page_next_present(entry, sequence & PLACE_MASK)
            if place < PAGE_SIZE:
                found[0] = page << PAGE_BITS | place
                return True
            page += 1
            sequence = page << PAGE_BITS
        return False

    cdef bint find_absent(self, uint64_t sequence, uint64_t* found) noexcept nogil:
        cdef uint64_t page = sequence >> PAGE_BITS
        cdef uint32_t at = self.find_entry(page), place
        cdef Entry* entry
        for at in range(at, self.entry_count):
            entry = &self.entries[at]
            if page_of(entry) > page:
                break
            if kind_of(entry) == FULL:
                page = page_of(entry) + entry.body.pages
            else:
                place = page_next_absent(entry, sequence & PLACE_MASK)
                if place < PAGE_SIZE:
                    found[0] = page << PAGE_BITS | place
                    return True
                page += 1
            if page > SEQUENCE_LAST >> PAGE_BITS:
                return False
            sequence = page << PAGE_BITS
        found[0] = sequence
        return True

    cdef bint find_absent_back(self, uint64_t sequence, uint64_t* found) noexcept nogil:
        cdef uint64_t page = sequence >> PAGE_BITS
        cdef uint32_t at, place
        cdef Entry* entry
        while True:
            at = self.find_entry(page)
            if at == self.entry_count or page_of(&self.entries[at]) > page:
                break
            entry = &self.entries[at]
            if kind_of(entry) != FULL:
                place = page_absent_before(entry, sequence & PLACE_MASK)
                if place > 0:
                    sequence = page << PAGE_BITS | (place - 1)
                    break
            page = page_of(entry)
            if page == 0:
                return False
            sequence = (page << PAGE_BITS) - 1
            page -= 1
        found[0] = sequence
        return True

    cdef bint find_run(self, uint64_t sequence, uint64_t* first, uint64_t* last) noexcept nogil:
        if not self.find_present(sequence, first):
            return False
        last[0] = last[0] - 1 if self.find_absent(first[0], last) else SEQUENCE_LAST
        return True

    cdef uint64_t count_through(self, uint64_t sequence) noexcept nogil:
        cdef uint64_t page = sequence >> PAGE_BITS, found = 0
        cdef uint32_t at
        cdef Entry* entry
        for at in range(self.entry_count):
            entry = &self.entries[at]
            if page_of(entry) > page:
                break
            if page_of(entry) + pages_of(entry) <= page:
                found += size_of(entry)
            elif kind_of(entry) == FULL:
                found += sequence - (page_of(entry) << PAGE_BITS) + 1
            else:
                found += page_rank(entry, sequence & PLACE_MASK)
        return found

    # For Python

    def add(self, uint64_t sequence) -> bool:
        """Add a sequence; return whether it was absent."""
        return self.add_run(sequence, sequence) != 0

    def add_range(self, uint64_t first, uint64_t last) -> int:
        """Add first..last; return how many were absent. Does nothing if last < first."""
        return self.add_run(first, last) if first <= last else 0

    def discard(self, uint64_t sequence) -> bool:
        """Discard a sequence; return whether it was present."""
        return self.discard_run(sequence, sequence) != 0

    def discard_range(self, uint64_t first, uint64_t last) -> int:
        """Discard first..last; return how many were present. Does nothing if last < first."""
        return self.discard_run(first, last) if first <= last else 0

    def clear(self) -> None:
        """Discard all sequences."""
        self.empty()

    def __contains__(self, sequence) -> bool:
        return isinstance(sequence, int) and 0 <= sequence <= SEQUENCE_LAST and self.has(sequence)

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return self.count != 0

    def __eq__(self, other) -> bool:
        cdef SequenceSet theirs
        cdef uint64_t sequence = 0, first = 0, last = 0, first_there = 0, last_there = 0
        if not isinstance(other, SequenceSet):
            return NotImplemented
        theirs = other
        if self.count != theirs.count:
            return False
        while self.find_run(sequence, &first, &last):
            if not theirs.find_run(sequence, &first_there, &last_there):
                return False
            if first != first_there or last != last_there:
                return False
            if last == SEQUENCE_LAST:
                break
            sequence = last + 1
        return True

    __hash__ = None

    def __iter__(self):
        for first, last in self.runs():
            yield from range(first, last + 1)

    def __repr__(self) -> str:
        shown = [f"{first}-{last}" if last > first else f"{first}" for first, last in self.runs()]
        return f"SequenceSet({', '.join(shown)})"

    def runs(self):
        """Yield (first, last) of each run, in order.

        The set may change meanwhile: the next run is then the one that follows in the changed set.
        """
        cdef uint64_t first = 0, last = 0
        while self.find_run(first, &first, &last):
            yield first, last
            if last == SEQUENCE_LAST:
                return
            first = last + 1

    @property
    def first(self):
        """The lowest sequence; None if the set is empty."""
        cdef uint64_t found = 0
        return found if self.find_present(0, &found) else None

    @property
    def last(self):
        """The highest sequence; None if the set is empty."""
        cdef Entry* entry
        cdef uint64_t low, base
        cdef uint32_t place = 0, next_place
        if self.entry_count == 0:
            return None
        entry = &self.entries[self.entry_count - 1]
        base = page_of(entry) << PAGE_BITS
        if kind_of(entry) == FULL:
            return base + ((entry.body.pages << PAGE_BITS) - 1)
        low = 0
        while True:
            next_place = page_next_present(entry, place)
            if next_place == PAGE_SIZE:
                return base + low
            place = page_next_absent(entry, next_place)
            low = place - 1
            if place == PAGE_SIZE:
                return base + low

    def rank(self, uint64_t sequence) -> int:
        """Return how many sequences of the set are <= `sequence`."""
        return self.count_through(sequence)

    def next_absent(self, uint64_t sequence):
        """Return the lowest absent sequence that is >= `sequence`; None if there is none."""
        cdef uint64_t found = 0
        return found if self.find_absent(sequence, &found) else None

    # Sets of sets

    def copy(self) -> SequenceSet:
        """Return a copy of the set."""
        cdef SequenceSet made = SequenceSet.__new__(SequenceSet)
        cdef uint32_t at
        if self.entry_count == 0:
            return made
        made.entries = <Entry*> realloc(NULL, self.entry_count * sizeof(Entry))
        if made.entries == NULL:
            raise MemoryError()
        made.capacity = self.entry_count
        for at in range(self.entry_count):
            if page_copy(&made.entries[at], &self.entries[at]) < 0:
                raise MemoryError()
            made.entry_count += 1
        made.count = self.count
        return made

    def union_update(self, SequenceSet other not None) -> None:
        """Add all sequences of `other`."""
        cdef uint64_t sequence = 0, first = 0, last = 0
        while other is not self and other.find_run(sequence, &first, &last):
            self.add_run(first, last)
            if last == SEQUENCE_LAST:
                break
            sequence = last + 1

    def difference_update(self, SequenceSet other not None) -> None:
        """Discard all sequences of `other`."""
        cdef uint64_t sequence = 0, first = 0, last = 0
        if other is self:
            self.empty()
        while other is not self and other.find_run(sequence, &first, &last):
            self.discard_run(first, last)
            if last == SEQUENCE_LAST:
                break
            sequence = last + 1

    def intersection_update(self, SequenceSet other not None) -> None:
        """Discard all sequences that `other` lacks."""
        cdef uint64_t sequence = 0, first = 0, last = 0
        if other is self:
            return
        while other.find_run(sequence, &first, &last):
            if first > sequence:
                self.discard_run(sequence, first - 1)
            if last == SEQUENCE_LAST:
                return
            sequence = last + 1
        self.discard_run(sequence, SEQUENCE_LAST)

    # Encoding

    def encode(self) -> bytes:
        """Return the encoding that the head of this file describes."""
        cdef Writer writer = Writer()
        cdef uint64_t page = 0
        cdef uint32_t at
        cdef Entry* entry
        writer.varint(ENCODING_VERSION)
        writer.varint(self.entry_count)
        for at in range(self.entry_count):
            entry = &self.entries[at]
            writer.varint(page_of(entry) - page)
            page = page_of(entry) + pages_of(entry)
            if kind_of(entry) == FULL:
                writer.varint(ENCODED_FULL)
                writer.varint(entry.body.pages)
            else:
                write_page(writer, entry)
        return PyBytes_FromStringAndSize(<char*> writer.data, writer.size)

    @staticmethod
    def decode(data) -> SequenceSet:
        """Return the set that `data` encodes.

        Raises DamagedEncoding if `data` is not exactly one encoded set.
        """
        cdef bytes owned = bytes(data)
        cdef SequenceSet made = SequenceSet.__new__(SequenceSet)
        cdef SetReader reader = SetReader()
        cdef uint64_t page = 0, entries, pages
        reader.at = <const uint8_t*> PyBytes_AS_STRING(owned)
        reader.end = reader.at + len(owned)
        if reader.varint() != ENCODING_VERSION:
            raise DamagedEncoding("sequence set of an unknown version")
        entries = reader.varint()
        for _ in range(entries):
            page = reader.page_after(page)
            pages = read_page(made, reader, page)
            page += pages
        if reader.at != reader.end:
            raise DamagedEncoding("bytes after the end of a sequence set")
        return made

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that the set takes, without the Python object."""
        cdef uint32_t at
        cdef size_t total = self.capacity * sizeof(Entry)
        for at in range(self.entry_count):
            total += page_bytes(&self.entries[at])
        return total


cdef class Writer:
    """A growing buffer of varints."""

    cdef uint8_t* data
    cdef size_t size, capacity

    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef int reserve(self, size_t more) except -1:
        cdef uint8_t* data
        if self.size + more > self.capacity:
            data = <uint8_t*> PyMem_Realloc(self.data, (self.size + more) * 2)
            if data == NULL:
                raise MemoryError()
            self.data = data
            self.capacity = (self.size + more) * 2
        return 0

    cdef int varint(self, uint64_t number) except -1:
        self.reserve(10)
        while number >= 0x80:
            self.data[self.size] = <uint8_t> (number | 0x80)
            self.size += 1
            number >>= 7
        self.data[self.size] = <uint8_t> number
        self.size += 1
        return 0

    cdef int raw(self, const void* data, size_t size) except -1:
        self.reserve(size)
        memcpy(&self.data[self.size], data, size)
        self.size += size
        return 0


cdef class SetReader:
    """A reader of varints from bytes that may be damaged; raises DamagedEncoding."""

    cdef const uint8_t* at
    cdef const uint8_t* end

    cdef uint64_t varint(self) except? 0:
        cdef uint64_t number = 0
        cdef uint32_t shift = 0
        while self.at < self.end and shift < 64:
            number |= <uint64_t> (self.at[0] & 0x7f) << shift
            self.at += 1
            if self.at[-1] < 0x80:
                return number
            shift += 7
        raise DamagedEncoding("a sequence set ends within a number")

    cdef uint64_t below(self, uint64_t limit) except? 0:
        cdef uint64_t number = self.varint()
        if number >= limit:
            raise DamagedEncoding("a number in a sequence set is out of range")
        return number

    cdef uint64_t page_after(self, uint64_t page) except? 0:
        return page + self.below((SEQUENCE_LAST >> PAGE_BITS) + 1 - page)


cdef int write_page(Writer writer, const Entry* entry) except -1:
    cdef uint32_t count = 0, place = 0, first, past, words
    while True:
        first = page_next_present(entry, place)
        if first == PAGE_SIZE:
            break
        count += 1
        place = page_next_absent(entry, first)
    words = (place + 63) >> 6
    if count * 2 > words * 8:
        return write_bits(writer, entry, words)
    writer.varint(ENCODED_RUNS)
    writer.varint(count)
    place = 0
    while count:
        first = page_next_present(entry, place)
        past = page_next_absent(entry, first)
        writer.varint(first - place)
        writer.varint(past - first - 1)
        place = past
        count -= 1
    return 0


cdef int write_bits(Writer writer, const Entry* entry, uint32_t words) except -1:
    cdef Entry bits
    writer.varint(ENCODED_BITS)
    writer.varint(words)
    if page_copy_as_bits(&bits, entry) < 0:
        raise MemoryError()
    try:
        return writer.raw(bits.body.page + 1, words * 8)
    finally:
        page_free(&bits)


cdef uint64_t read_page(SequenceSet made, SetReader reader, uint64_t page) except 0:
    """Read one entry at `page` into the set; return how many pages it covers."""
    cdef uint64_t kind = reader.varint(), pages
    if kind == ENCODED_FULL:
        pages = reader.below((SEQUENCE_LAST >> PAGE_BITS) + 2 - page)
        if pages == 0:
            raise DamagedEncoding("an empty page in a sequence set")
        made.add_pages(page, page + pages)
        return pages
    if kind == ENCODED_RUNS:
        read_runs(made, reader, page)
    elif kind == ENCODED_BITS:
        read_bits(made, reader, page)
    else:
        raise DamagedEncoding("a page of an unknown kind in a sequence set")
    return 1


cdef int read_runs(SequenceSet made, SetReader reader, uint64_t page) except -1:
    cdef uint64_t count = reader.below(PAGE_SIZE), place = 0, first
    while count:
        first = place + reader.below(PAGE_SIZE - place)
        place = first + reader.below(PAGE_SIZE - first)
        made.add_in_page(page, first, place)
        place += 1
        count -= 1
        if count and place == PAGE_SIZE:
            raise DamagedEncoding("a number in a sequence set is out of range")
    return 0


cdef int read_bits(SequenceSet made, SetReader reader, uint64_t page) except -1:
    cdef uint64_t words = reader.below((PAGE_SIZE >> 6) + 1), word
    cdef uint32_t at, bit, past
    if <uint64_t> (reader.end - reader.at) < words * 8:
        raise DamagedEncoding("a sequence set ends within a page")
    for at in range(words):
        memcpy(&word, reader.at, 8)
        reader.at += 8
        bit = 0
        while bit < 64:
            if not (word >> bit) & 1:
                bit += 1
                continue
            past = bit
            while past < 64 and (word >> past) & 1:
                past += 1
            made.add_in_page(page, at * 64 + bit, at * 64 + past - 1)
            bit = past
    return 0
