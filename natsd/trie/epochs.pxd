"""When what a write made obsolete may be used again: epochs, and leases of the readers.

    lease.state   0                        nobody's
                  epoch << 2 | PINNED      its reader is reading at this moment: waited for
                  epoch << 2               rests between two steps of a cursor
                  epoch << 2 | STALE       rested too long; what it stood on may be gone

- A reader enters with the epoch it sees, before it loads the root. The writer detaches first, then
  retires with its epoch; now and then it begins the next epoch and looks at all leases: what was
  retired in an epoch before the oldest lease's is recycled, for that reader came when it was
  already unreachable. Nobody ever waits for anybody.
- A cursor's lease rests between its steps. When more than the garbage limit waits, the oldest
  resting leases become STALE and hold nothing back; `wake` tells their cursors. A pinned one never
  does: a thread that reads on and on should `leave` and `enter` from time to time.
- Leases are found in a list that only grows, with its trie; a lease that was left is used again.
  All is done by compare-and-swap on one word: from any thread, without the GIL.
- The writer's own reads inside one call need no lease: nothing is recycled under them.

What is retired stands in a ring, oldest first: a cell's offset, or ~slot of a content.
"""

from libc.stdint cimport int32_t, uint32_t, uint64_t

from natsd.trie.atomics cimport acquire_u64, release_u64, swap_if_u64


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
    uint32_t epoch              # its low half

cdef struct Epochs:
    uint64_t now
    Lease* leases
    Retired* ring
    uint32_t first              # position of the oldest in the ring
    uint32_t count
    uint32_t capacity           # power of two, or 0
    uint32_t look_at            # look at the leases when so many wait
    uint32_t garbage_limit      # so many may wait for resting leases


cdef Lease* enter(Epochs* epochs) noexcept nogil        # pinned; NULL: out of memory


cdef inline void leave(Lease* lease) noexcept nogil:
    """The last step of a reader, pinned, resting or stale."""
    release_u64(&lease.state, LEASE_FREE)


cdef inline void rest(Lease* lease) noexcept nogil:
    """Between two steps: may become stale from now on."""
    release_u64(&lease.state, lease.state & ~(<uint64_t> LEASE_FLAGS))


cdef inline bint wake(Lease* lease) noexcept nogil:
    """Before the next step: pinned again, or False: stale, nothing may be read but by `leave`."""
    cdef uint64_t state = acquire_u64(&lease.state)
    if state & LEASE_STALE:
        return False
    return swap_if_u64(&lease.state, state, state | LEASE_PINNED)


cdef inline bint is_stale(const Lease* lease) noexcept nogil:
    return acquire_u64(&lease.state) & LEASE_STALE != 0


# The writer's side. Each says 0, or -1: out of memory, before anything is changed.

cdef int reserve_retired(Epochs* epochs, uint32_t count) noexcept nogil
cdef void release_ring(Epochs* epochs) noexcept nogil       # if it is large and empty
cdef uint32_t oldest_epoch_in_use(Epochs* epochs) noexcept nogil    # begins the next one first
cdef void make_stale(Epochs* epochs, uint32_t before) noexcept nogil
cdef void open_epochs(Epochs* epochs, uint32_t garbage_limit) noexcept nogil
cdef void close_epochs(Epochs* epochs) noexcept nogil


cdef inline void retire(Epochs* epochs, int32_t what) noexcept nogil:
    """Detached just now: what a reader may still be looking at. `reserve_retired` made room."""
    cdef Retired* place = &epochs.ring[(epochs.first + epochs.count) & (epochs.capacity - 1)]
    assert epochs.count < epochs.capacity
    place.what = what
    place.epoch = <uint32_t> epochs.now
    epochs.count += 1
