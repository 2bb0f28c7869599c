"""Growth, removal and the random hash key of the tables drawn in name_table.pxd."""

import os

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free

cdef enum:
    SLOTS_MIN = 4           # slots of the smallest table, which holds two items


cdef void draw_hash_key():
    """Set `hash_key` to random bytes of the system."""
    cdef bytes drawn = os.urandom(16)
    hash_key.first = int.from_bytes(drawn[:8], "little")
    hash_key.second = int.from_bytes(drawn[8:], "little")


draw_hash_key()


cdef inline void place_item(
    Slot* slots, uint32_t mask, uint64_t hash, Named* item
) noexcept nogil:
    """Put an item into the first free slot of its probe sequence."""
    cdef uint64_t place = hash & mask
    while slots[place].item != NULL:
        place = (place + 1) & mask
    slots[place].hash = hash
    slots[place].item = item


cdef int resize(NameTable* table, uint32_t span) noexcept nogil:
    """Move all items to `span` new slots, a power of two; -1: out of memory, nothing changed.

    The hashes are read from the slots, not from the items of a large table: to read a million items
    took 60 ms, since each is a cache miss.
    """
    cdef uint32_t place
    cdef Slot* old = table.slots
    cdef Slot* slots = <Slot*> calloc(span, sizeof(Slot))
    if slots == NULL:
        return -1
    if table.mask == 0:
        place_item(slots, span - 1, (<Named*> old).hash, <Named*> old)
    else:
        for place in range(table.mask + 1):
            if old[place].item != NULL:
                place_item(slots, span - 1, old[place].hash, old[place].item)
        free(old)
    table.slots = slots
    table.mask = span - 1
    return 0


cdef int table_add(NameTable* table, Named* item) noexcept nogil:
    """Add an item whose name is not in the table; -1: out of memory, table unchanged."""
    if table.count == 0 and table.mask == 0:
        table.slots = <Slot*> item
        table.count = 1
        return 0
    if table.mask == 0:
        if resize(table, SLOTS_MIN) < 0:
            return -1
    elif (table.count + 1) * 3 > <uint64_t> (table.mask + 1) * 2:
        if resize(table, (table.mask + 1) * 2) < 0:
            return -1
    place_item(table.slots, table.mask, item.hash, item)
    table.count += 1
    return 0


cdef void close_gap(NameTable* table, uint64_t gap) noexcept nogil:
    """Shift items back into a freed slot, so that no probe sequence is interrupted by it."""
    cdef Slot* slots = table.slots
    cdef uint64_t mask = table.mask
    cdef uint64_t place = gap
    while True:
        place = (place + 1) & mask
        if slots[place].item == NULL:
            break
        if ((place - slots[place].hash) & mask) >= ((place - gap) & mask):
            slots[gap] = slots[place]
            gap = place
    slots[gap].item = NULL


cdef void table_remove(NameTable* table, Named* item) noexcept nogil:
    """Remove an item that is in the table; the caller still owns it."""
    cdef uint64_t place
    table.count -= 1
    if table.mask == 0:
        table.slots = NULL
        return
    place = item.hash & table.mask
    while table.slots[place].item != item:
        place = (place + 1) & table.mask
    close_gap(table, place)
    if table.count == 0:
        table_free(table)
    elif table.mask >= SLOTS_MIN and table.count * <uint64_t> 8 < table.mask:
        resize(table, (table.mask + 1) // 4)    # if memory runs out, the large table stays in use


cdef void table_free(NameTable* table) noexcept nogil:
    """Free the slots and empty the table; the items stay with their owner."""
    if table.mask:
        free(table.slots)
    table.slots = NULL
    table.count = 0
    table.mask = 0
