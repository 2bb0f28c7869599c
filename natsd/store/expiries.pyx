"""Expiries: the messages that expire on their own, soonest first.

A message that is removed otherwise stays in here, so an entry is a hint: whoever takes it asks the
record whether it expires at that time. Entries are 16 bytes in a binary heap. When there are twice
as many as were alive at the last look, the heap becomes `old`, and each `add` carries some of its
entries over, without those whose message is gone: no call ever walks through all of them. Taking
the last item off an array that is a heap leaves a heap, so `old` is one to its end.

nats-server keeps a wheel of one-second slots (server/thw), which finds a message in order to remove
it; here that costs nothing at removal, and 16 bytes until the next look.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, realloc

from natsd.store.array cimport Array, array_add

cdef enum:
    TIDY_AT_MIN = 1024
    CARRIED = 4                 # entries for each one added


cdef int push(Heap* heap, Expiry item) noexcept nogil:
    """-1: out of memory."""
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
    def __cinit__(self):
        self.tidy_at = TIDY_AT_MIN

    def __dealloc__(self):
        free(self.heap.items)
        free(self.old.items)

    cdef int add(
        self, int64_t at_ns, uint64_t sequence, uint64_t first, SequenceSet dead,
        Array* dropped,
    ) except -1:
        """`first` and `dead` tell which messages of those that were added before are gone; those
        entries go to `dropped`, unless that is NULL, for they may be needed after a rollback."""
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
        """The soonest; False: none."""
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
        """Drop what `peek` gives."""
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
        return (self.heap.capacity + self.old.capacity) * sizeof(Expiry)
