"""Opening and closing of a trie's parts; preparing a write; recycling after one."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int32_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset


cdef enum:
    WRITE_PATH_MIN = 64
    LOOK_STEP_MAX = 64          # at most so many items wait until the leases are looked at again


cdef void open_memory(
    TrieMemory* memory, uint32_t cell_bytes_max, uint32_t record_bytes, uint32_t garbage_limit
) noexcept nogil:
    memset(memory, 0, sizeof(TrieMemory))
    open_cells(&memory.cells, cell_bytes_max)
    open_contents(&memory.contents, record_bytes)
    open_epochs(&memory.epochs, garbage_limit)


cdef void close_memory(TrieMemory* memory) noexcept nogil:
    """Free all parts of a trie; there are no readers any more."""
    close_epochs(&memory.epochs)
    close_contents(&memory.contents)
    close_cells(&memory.cells)
    free(memory.path)
    memory.path = NULL


cdef int prepare(
    TrieMemory* memory, uint32_t cells, uint32_t spare, uint32_t retired
) noexcept nogil:
    cdef int reason = reserve_cells(&memory.cells, cells, spare)
    if reason < 0:
        return reason
    if reserve_retired(&memory.epochs, retired) < 0:
        return -2
    return reserve_slot(&memory.contents)


cdef int prepare_path(TrieMemory* memory, Py_ssize_t depths) noexcept nogil:
    cdef Py_ssize_t capacity = memory.path_capacity if memory.path_capacity else WRITE_PATH_MIN
    cdef Pointer* path
    if memory.path_capacity >= depths:
        return 0
    while capacity < depths:
        capacity *= 2
    path = <Pointer*> realloc(memory.path, capacity * sizeof(Pointer))
    if path == NULL:
        return -2
    memory.path = path
    memory.path_capacity = capacity
    return 0


# Recycling

cdef void recycle(TrieMemory* memory) noexcept nogil:
    """Recycle all that no reader can see.

    Above the garbage limit, resting cursors become stale, so that more can be recycled.
    """
    cdef uint32_t keep = memory.epochs.garbage_limit // 2
    cdef uint32_t place
    recycle_before(memory, oldest_epoch_in_use(&memory.epochs))
    if memory.epochs.count > memory.epochs.garbage_limit:
        place = memory.epochs.first + memory.epochs.count - keep - 1
        make_stale(
            &memory.epochs, memory.epochs.ring[place & (memory.epochs.capacity - 1)].epoch + 1
        )
        recycle_before(memory, oldest_epoch_in_use(&memory.epochs))
    release_ring(&memory.epochs)
    memory.epochs.look_at = memory.epochs.count + look_step(memory)


cdef inline uint32_t look_step(TrieMemory* memory) noexcept nogil:
    """Return how many more items may be retired before the leases are looked at again.

    Objects are released at once; cells of a small trie soon, so that it stays small.
    """
    if memory.contents.holds_objects:
        return 1
    return <uint32_t> min(8 + cells_in_use(&memory.cells) // 8, LOOK_STEP_MAX)


cdef void recycle_before(TrieMemory* memory, uint32_t epoch) noexcept nogil:
    cdef Retired oldest
    while memory.epochs.count:
        oldest = memory.epochs.ring[memory.epochs.first]
        if <int32_t> (oldest.epoch - epoch) >= 0:
            return
        memory.epochs.first = (memory.epochs.first + 1) & (memory.epochs.capacity - 1)
        memory.epochs.count -= 1
        if oldest.what >= 0:
            give_cell(&memory.cells, <uint32_t> oldest.what)
        elif memory.contents.holds_objects:
            with gil:
                release_object_slot(memory, <uint32_t> ~oldest.what)
        else:
            give_slot(&memory.contents, <uint32_t> ~oldest.what)


cdef int release_object_slot(TrieMemory* memory, uint32_t slot) noexcept:
    """Recycle a slot and release its object.

    The release comes last: the object's destructor may run, and write to this same trie.
    """
    cdef PyObject* content = (<PyObject**> slot_address(&memory.contents, slot))[0]
    (<PyObject**> slot_address(&memory.contents, slot))[0] = NULL
    give_slot(&memory.contents, slot)
    Py_XDECREF(content)
    return 0
