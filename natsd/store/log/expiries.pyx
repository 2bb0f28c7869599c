"""Expiries: the messages that expire by themselves, soonest first.

A message that is removed for another reason keeps its entry, so an entry is only a hint: its user
checks in the record whether the message expires at that time. Entries take 16 bytes in a binary
heap. When there are twice as many as were alive at the last cleanup, the heap becomes `old`, and
each `add` moves some of its entries to the new heap, except those of removed messages: no call ever
walks through all entries. A heap array without its last item is still a heap, so `old` stays one to
its end.

nats-server keeps a wheel of one-second slots (server/thw), from which a removed message must be
removed too; here a removal costs nothing, but the entry takes 16 bytes until the next cleanup.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, realloc

from natsd.store.block.array cimport Array, array_add

cdef enum:
    TIDY_AT_MIN = 1024
    CARRIED = 4                 # entries moved from `old` for each added entry


cdef int push(Heap* heap, Expiry item) noexcept nogil:
    """Add an item; return 0, or -1: out of memory."""
    cdef size_t at = heap.count, parent, capacity
    cdef Expiry* items
    if heap.count == heap.capacity:
        capacity = heap.capacity * 2 if heap.capacity else 16
        items = <Expiry*> realloc(heap.items, capacity * sizeof(Expiry))
        if items == NULL:
            return -1
        heap.items = items
        heap.capacity = capacity
    heap.count += 1
    while at > 0:
        parent = (at - 1) >> 1
        if heap.items[parent].at_ns <= item.at_ns:
            break
        heap.items[at] = heap.items[parent]
        at = parent
    heap.items[at] = item
    return 0


cdef void pop_first(Heap* heap) noexcept nogil:
    """Remove the item with the earliest time from a heap that is not empty."""
    cdef size_t at = 0, child
    cdef Expiry item
    heap.count -= 1
    item = heap.items[heap.count]
    while True:
        child = 2 * at + 1
        if child >= heap.count:
            break
        if child + 1 < heap.count and heap.items[child + 1].at_ns < heap.items[child].at_ns:
            child += 1
        if heap.items[child].at_ns >= item.at_ns:
            break
        heap.items[at] = heap.items[child]
        at = child
    heap.items[at] = item


cdef class Expiries:
    """The expiry times of a log's messages; `len()` counts entries, removed messages included."""

    def __cinit__(self):
        self.tidy_at = TIDY_AT_MIN

    def __dealloc__(self):
        free(self.heap.items)
        free(self.old.items)

    cdef int add(
        self, int64_t at_ns, uint64_t sequence, uint64_t first, SequenceSet dead,
        Array* dropped,
    ) except -1:
        """Add an entry for a new message, and move some entries from `old`.

        Messages below `first` or in `dead` are removed: their entries are not moved, but appended
        to `dropped`, unless that is NULL, because a rollback may need them again. Raises
        MemoryError.
        """
        cdef Expiry item
        cdef Expiry* place
        if push(&self.heap, Expiry(at_ns=at_ns, sequence=sequence)) < 0:
            raise MemoryError()
        if self.old.count == 0:
            if self.heap.count >= self.tidy_at:
                free(self.old.items)
                self.old = self.heap
                self.heap = Heap(items=NULL, count=0, capacity=0)
            return 0
        for _ in range(CARRIED):
            if self.old.count == 0:
                break
            item = self.old.items[self.old.count - 1]
            if item.sequence >= first and not dead.has(item.sequence):
                if push(&self.heap, item) < 0:
                    raise MemoryError()
            elif dropped != NULL:
                place = <Expiry*> array_add(dropped, sizeof(Expiry))
                if place == NULL:
                    raise MemoryError()
                place[0] = item
            self.old.count -= 1
        if self.old.count == 0:
            self.tidy_at = max(self.heap.count * 2, <size_t> TIDY_AT_MIN)
        return 0

    cdef bint peek(self, Expiry* out) noexcept nogil:
        """Copy the entry with the earliest time to `out`; return false if there is none."""
        if self.old.count and (
            self.heap.count == 0 or self.old.items[0].at_ns < self.heap.items[0].at_ns
        ):
            out[0] = self.old.items[0]
        elif self.heap.count:
            out[0] = self.heap.items[0]
        else:
            return False
        return True

    cdef void pop(self) noexcept nogil:
        """Remove the entry that `peek` returns."""
        if self.old.count and (
            self.heap.count == 0 or self.old.items[0].at_ns < self.heap.items[0].at_ns
        ):
            pop_first(&self.old)
        else:
            pop_first(&self.heap)

    def __len__(self) -> int:
        return self.heap.count + self.old.count

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory for the entries."""
        return (self.heap.capacity + self.old.capacity) * sizeof(Expiry)
