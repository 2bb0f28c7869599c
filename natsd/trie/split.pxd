"""Writing of Split nodes: a mini trie of a transition's bits: two, then three, then three.

    head [ prefix? | 00 | 01 | 10 | 11 ] ──▶ mid [ 000 … 111 ] ──▶ end [ 000 … 111 ] ──▶ child
           00        10   14   18   1C

- A child is stored in its end cell's slot, in place. A missing end or mid cell is created with the
  child in it, and linked with release at the one slot that readers have to pass.
- A child is removed in place by storing NONE; an end or mid cell that is then empty is unlinked and
  retired. With six children left the node becomes a Sparse again, and its cells are retired.
- `Children` holds at most seven: enough to tell whether six are left.
"""

from libc.stdint cimport uint32_t


cdef enum:
    SPLIT_CELLS_MAX = 37


cdef inline Pointer new_split_cell(TrieMemory* memory) noexcept nogil:
    return <Pointer> (take_clear_neighbour(&memory.cells) | SPLIT)


cdef inline Pointer new_end(
    TrieMemory* memory, unsigned char transition, Pointer child
) noexcept nogil:
    cdef Pointer end = new_split_cell(memory)
    (<Pointer*> split_end_slot(&memory.cells, end, transition))[0] = child
    return end


cdef inline void split_put(
    TrieMemory* memory, Pointer split, unsigned char transition, Pointer child
) noexcept nogil:
    """Add a child or replace one, in place."""
    cdef unsigned char* head_slot = split_head_slot(&memory.cells, split, transition)
    cdef unsigned char* mid_slot
    cdef Pointer mid = (<Pointer*> head_slot)[0]
    cdef Pointer end
    if mid == NONE:
        mid = new_split_cell(memory)
        end = new_end(memory, transition, child)
        (<Pointer*> split_mid_slot(&memory.cells, mid, transition))[0] = end
        release_i32(head_slot, mid)
        return
    mid_slot = split_mid_slot(&memory.cells, mid, transition)
    end = (<Pointer*> mid_slot)[0]
    if end == NONE:
        release_i32(mid_slot, new_end(memory, transition, child))
        return
    release_i32(split_end_slot(&memory.cells, end, transition), child)


cdef inline Pointer split_of_sparse(TrieMemory* memory, Pointer sparse) noexcept nogil:
    """Return a new Split with the children of a Sparse, which is retired."""
    cdef Children children = sparse_children(memory, sparse)
    cdef Pointer split = new_split_cell(memory)
    cdef uint32_t i
    for i in range(children.count):
        split_put(memory, split, children.transitions[i], children.pointers[i])
    retire_cell(memory, sparse)
    return split


cdef inline bint is_empty(TrieMemory* memory, Pointer inner) noexcept nogil:
    """Return whether a mid or end cell has no pointer left."""
    cdef Pointer* slots = <Pointer*> in_cell(&memory.cells, inner, 0)
    return (
        slots[0] | slots[1] | slots[2] | slots[3] | slots[4] | slots[5] | slots[6] | slots[7]
    ) == NONE


cdef inline void split_remove(
    TrieMemory* memory, Pointer split, unsigned char transition
) noexcept nogil:
    """Remove an existing child, and the cells that served only this child."""
    cdef unsigned char* head_slot = split_head_slot(&memory.cells, split, transition)
    cdef Pointer mid = (<Pointer*> head_slot)[0]
    cdef unsigned char* mid_slot = split_mid_slot(&memory.cells, mid, transition)
    cdef Pointer end = (<Pointer*> mid_slot)[0]
    release_i32(split_end_slot(&memory.cells, end, transition), NONE)
    if not is_empty(memory, end):
        return
    release_i32(mid_slot, NONE)
    retire_cell(memory, end)
    if is_empty(memory, mid):
        release_i32(head_slot, NONE)
        retire_cell(memory, mid)


cdef inline void collect_end(
    TrieMemory* memory, Pointer end, uint32_t leading, Children* children
) noexcept nogil:
    cdef Pointer* slots = <Pointer*> in_cell(&memory.cells, end, 0)
    cdef uint32_t i
    for i in range(8):
        if slots[i] != NONE and children.count <= SPARSE_CHILDREN_MAX:
            add_to(children, <unsigned char> (leading << 3 | i), slots[i])


cdef inline Children split_children(TrieMemory* memory, Pointer split) noexcept nogil:
    """Return the first seven children."""
    cdef Pointer* heads = <Pointer*> in_cell(&memory.cells, split, SPLIT_HEAD)
    cdef Pointer* mids
    cdef Children children
    cdef uint32_t i, j
    children.count = 0
    for i in range(4):
        if heads[i] == NONE:
            continue
        mids = <Pointer*> in_cell(&memory.cells, heads[i], 0)
        for j in range(8):
            if mids[j] != NONE:
                collect_end(memory, mids[j], i << 3 | j, &children)
                if children.count > SPARSE_CHILDREN_MAX:
                    return children
    return children


cdef inline void retire_split(TrieMemory* memory, Pointer split) noexcept nogil:
    """Retire all cells of a Split."""
    cdef Pointer* heads = <Pointer*> in_cell(&memory.cells, split, SPLIT_HEAD)
    cdef Pointer* mids
    cdef uint32_t i, j
    for i in range(4):
        if heads[i] == NONE:
            continue
        mids = <Pointer*> in_cell(&memory.cells, heads[i], 0)
        for j in range(8):
            if mids[j] != NONE:
                retire_cell(memory, mids[j])
        retire_cell(memory, heads[i])
    retire_cell(memory, split)
