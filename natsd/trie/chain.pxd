"""Writing of Chain nodes: up to 28 transitions in a cell, one after another, then a child pointer.

    0139 ─┐     013A ─┐  013B ─┐
          ▼           ▼        ▼
    [ … unused … ][ C ][ H ][ A ][ FF FF FF FF ]      C, then H, then A, then the leaf of content 0
     00            19   1A   1B   1C

- Only the last transition's child can be changed in place. A transition is written in front of a
  Chain into its cell only if this same change made the cell: readers may use older bytes.
- All reachable transitions of a cell form one tail of it, with a link from one place. When that
  tail's child pointer has been copied elsewhere, the cell is obsolete.
- No Chain of 28 transitions stands in cell 0: its pointer would be NONE.
"""

from libc.stdint cimport uint32_t
from libc.string cimport memcpy


cdef inline uint32_t room_before(Pointer chain) noexcept nogil:
    """Return how many more transitions fit into the cell in front of a Chain."""
    return min(kind_of(chain), <uint32_t> chain - 1)


cdef inline Pointer open_chain(TrieMemory* memory, Pointer child) noexcept nogil:
    """Return a new cell with a child pointer and no transition; transitions go in front of it."""
    cdef uint32_t cell = take_cell(&memory.cells)
    (<Pointer*> (cell_address(&memory.cells, cell) + CHAIN_END))[0] = child
    return <Pointer> (cell + CHAIN_END)


cdef inline Pointer new_chain(
    TrieMemory* memory, unsigned char transition, Pointer child
) noexcept nogil:
    cdef Pointer chain = open_chain(memory, child) - 1
    at(&memory.cells, chain)[0] = transition
    return chain


cdef inline Pointer chain_before(
    TrieMemory* memory, unsigned char transition, Pointer fresh
) noexcept nogil:
    """Prepend a transition to a node that this same change made; in its cell if it is a Chain."""
    if not is_chain(fresh) or room_before(fresh) == 0:
        return new_chain(memory, transition, fresh)
    at(&memory.cells, fresh)[-1] = transition
    return fresh - 1


cdef inline Pointer chain_of(
    TrieMemory* memory, const unsigned char* transitions, Py_ssize_t length, Pointer child
) noexcept nogil:
    """Prepend all these transitions to a child, in new cells of which the last ones are full."""
    cdef Pointer chain = child
    cdef Py_ssize_t count
    while length > 0:
        chain = open_chain(memory, chain)
        count = min(length, <Py_ssize_t> room_before(chain))
        length -= count
        chain -= <Pointer> count
        memcpy(at(&memory.cells, chain), transitions + length, count)
    return chain


cdef inline Pointer copied_chain(TrieMemory* memory, Pointer chain) noexcept nogil:
    """Copy a Chain to a new cell and retire its old cell."""
    cdef uint32_t length = chain_length(chain)
    cdef Pointer copy = open_chain(memory, chain_target(&memory.cells, chain)) - <Pointer> length
    memcpy(at(&memory.cells, copy), at(&memory.cells, chain), length)
    retire_cell(memory, chain)
    return copy


cdef inline Pointer joined_chain(
    TrieMemory* memory, unsigned char transition, Pointer child
) noexcept nogil:
    """Prepend a transition to an existing child; if that is a Chain, both get one new cell."""
    if is_chain(child) and chain_length(child) < CHAIN_END:
        return chain_before(memory, transition, copied_chain(memory, child))
    return new_chain(memory, transition, child)
