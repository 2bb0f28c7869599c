"""Readers' leases, and the writer's look at them."""

from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset


cdef enum:
    RING_MIN = 16
    RING_KEPT_MAX = 1024


cdef void open_epochs(Epochs* epochs, uint32_t garbage_limit) noexcept nogil:
    memset(epochs, 0, sizeof(Epochs))
    epochs.now = 1
    epochs.look_at = 1
    epochs.garbage_limit = garbage_limit


cdef void close_epochs(Epochs* epochs) noexcept nogil:
    cdef Lease* lease = epochs.leases
    cdef Lease* next
    while lease != NULL:
        next = lease.next
        free(lease)
        lease = next
    epochs.leases = NULL
    free(epochs.ring)
    epochs.ring = NULL


# Readers

cdef Lease* enter(Epochs* epochs) noexcept nogil:
    cdef uint64_t state = acquire_u64(&epochs.now) << 2 | LEASE_PINNED
    cdef Lease* lease = <Lease*> acquire_pointer(&epochs.leases)
    while lease != NULL:
        if acquire_u64(&lease.state) == LEASE_FREE and swap_if_u64(&lease.state, LEASE_FREE, state):
            fence_after_swap()
            return lease
        lease = lease.next
    lease = <Lease*> malloc(sizeof(Lease))
    if lease == NULL:
        return NULL
    lease.state = state
    while True:
        lease.next = <Lease*> acquire_pointer(&epochs.leases)
        if swap_if_pointer(&epochs.leases, lease.next, lease):
            fence_after_swap()
            return lease


# The writer

cdef int reserve_retired(Epochs* epochs, uint32_t count) noexcept nogil:
    """Make room in the ring for `count` more items; return 0, or -1: out of memory."""
    cdef uint32_t capacity = epochs.capacity if epochs.capacity else RING_MIN
    cdef uint32_t i
    cdef Retired* ring
    if epochs.capacity - epochs.count >= count:
        return 0
    while capacity - epochs.count < count:
        capacity *= 2
    ring = <Retired*> malloc(capacity * sizeof(Retired))
    if ring == NULL:
        return -1
    for i in range(epochs.count):
        ring[i] = epochs.ring[(epochs.first + i) & (epochs.capacity - 1)]
    free(epochs.ring)
    epochs.ring = ring
    epochs.first = 0
    epochs.capacity = capacity
    return 0


cdef void release_ring(Epochs* epochs) noexcept nogil:
    """Free a ring that is empty but was made large by a large merge or a long reader."""
    if epochs.count == 0 and epochs.capacity > RING_KEPT_MAX:
        free(epochs.ring)
        epochs.ring = NULL
        epochs.first = epochs.capacity = 0


cdef uint32_t oldest_epoch_in_use(Epochs* epochs) noexcept nogil:
    """Begin a new epoch; return the oldest that a reader is in, or else the new one."""
    cdef uint64_t oldest = epochs.now + 1
    cdef uint64_t state
    cdef Lease* lease
    release_u64(&epochs.now, oldest)
    full_fence()        # cells detached before are unreachable for every reader not found below
    lease = <Lease*> acquire_pointer(&epochs.leases)
    while lease != NULL:
        state = acquire_u64(&lease.state)
        if state != LEASE_FREE and state & LEASE_STALE == 0:
            oldest = min(oldest, state >> 2)
        lease = lease.next
    return <uint32_t> oldest


cdef void make_stale(Epochs* epochs, uint32_t before) noexcept nogil:
    """Make the resting leases of epochs before `before` stale: they hold nothing back any more."""
    cdef Lease* lease = <Lease*> acquire_pointer(&epochs.leases)
    cdef uint64_t state
    while lease != NULL:
        state = acquire_u64(&lease.state)
        if state != LEASE_FREE and state & LEASE_FLAGS == 0:
            if <int32_t> (<uint32_t> (state >> 2) - before) < 0:
                swap_if_u64(&lease.state, state, state | LEASE_STALE)
        lease = lease.next
