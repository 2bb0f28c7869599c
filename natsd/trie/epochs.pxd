"""Epochs and readers' leases: they tell when cells that a write made obsolete may be reused.

    lease.state   0                        free
                  epoch << 2 | PINNED      its reader is reading now: never becomes stale
                  epoch << 2               resting between two steps of a cursor
                  epoch << 2 | STALE       rested too long; its cells may be recycled

- A reader enters with the epoch that it sees, before it loads the root. The writer first detaches
  cells, then retires them with its epoch. Now and then it begins the next epoch and looks at all
  leases: cells retired in an epoch before the oldest lease's are recycled, because that reader came
  when they were already unreachable. Neither side ever waits for the other.
- A cursor's lease rests between its steps. When more than the garbage limit is waiting, the oldest
  resting leases become STALE and hold nothing back any more; `wake` tells their cursors. A pinned
  lease never becomes stale: a thread that reads for long should `leave` and `enter` now and then.
- Leases are in a list that only grows, with its trie; a free lease is reused. All changes are a
  compare-and-swap on one word: possible from any thread, without the GIL.
- The writer's own reads inside one call need no lease: nothing is recycled during the call.

Retired items are in a ring, oldest first: a cell's offset, or ~slot of a content.
"""

from libc.stdint cimport int32_t, uint32_t, uint64_t


cdef enum:
    LEASE_FREE = 0
    LEASE_PINNED = 1
    LEASE_STALE = 2
    LEASE_FLAGS = 3

cdef struct Lease:
    uint64_t state
    Lease* next

cdef struct Retired:
    int32_t what                # offset of a cell, or ~slot
    uint32_t epoch              # low half of the epoch

cdef struct Epochs:
    uint64_t now
    Lease* leases
    Retired* ring
    uint32_t first              # position of the oldest item in the ring
    uint32_t count
    uint32_t capacity           # power of two, or 0
    uint32_t look_at            # look at the leases when so many items wait
    uint32_t garbage_limit      # so many items may wait for resting leases


cdef Lease* enter(Epochs* epochs) noexcept nogil        # pinned; NULL: out of memory


cdef inline void leave(Lease* lease) noexcept nogil:
    """End a reader, whether pinned, resting or stale; its last step."""
    release_u64(&lease.state, LEASE_FREE)


cdef inline void rest(Lease* lease) noexcept nogil:
    """Let a reader rest between two steps: its lease may become stale from now on."""
    release_u64(&lease.state, lease.state & ~(<uint64_t> LEASE_FLAGS))


cdef inline bint wake(Lease* lease) noexcept nogil:
    """Pin a resting lease again; return false if it is stale: then only `leave` is allowed."""
    cdef uint64_t state = acquire_u64(&lease.state)
    if state & LEASE_STALE:
        return False
    return swap_if_u64(&lease.state, state, state | LEASE_PINNED)


cdef inline bint is_stale(const Lease* lease) noexcept nogil:
    return acquire_u64(&lease.state) & LEASE_STALE != 0


# The writer's side. `reserve_retired` returns 0, or -1: out of memory, with nothing changed.

cdef int reserve_retired(Epochs* epochs, uint32_t count) noexcept nogil
cdef void release_ring(Epochs* epochs) noexcept nogil       # frees a ring that is large and empty
cdef uint32_t oldest_epoch_in_use(Epochs* epochs) noexcept nogil    # begins the next epoch first
cdef void make_stale(Epochs* epochs, uint32_t before) noexcept nogil
cdef void open_epochs(Epochs* epochs, uint32_t garbage_limit) noexcept nogil
cdef void close_epochs(Epochs* epochs) noexcept nogil


cdef inline void retire(Epochs* epochs, int32_t what) noexcept nogil:
    """Retire an item that was just detached; readers may still see it.

    `reserve_retired` must have made room.
    """
    cdef Retired* place = &epochs.ring[(epochs.first + epochs.count) & (epochs.capacity - 1)]
    assert epochs.count < epochs.capacity
    place.what = what
    place.epoch = <uint32_t> epochs.now
    epochs.count += 1
