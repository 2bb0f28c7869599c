"""The steps of a change, from the bottom up: attach or detach a child, keep a node's content.

Each function returns the changed node, without content. If the change was made in place, that is
the same pointer, and readers see the change at once. Otherwise it is a copy's pointer, which
readers can reach only when the parent, changed in turn, links to it.
"""

from libc.stdint cimport uint32_t


cdef inline Pointer attach_child(
    TrieMemory* memory, Pointer node, unsigned char transition, Pointer child
) noexcept nogil:
    """Add a child, or replace the child of that transition.

    The child that is attached to NONE or inside a chain must have been made by this same change.
    """
    cdef uint32_t kind = kind_of(node)
    if kind == SPLIT:
        split_put(memory, node, transition, child)
        return node
    if kind == SPARSE:
        return attach_to_sparse(memory, node, transition, child)
    if node == NONE:
        return chain_before(memory, transition, child)
    return attach_to_chain(memory, node, transition, child)


cdef inline Pointer attach_to_chain(
    TrieMemory* memory, Pointer node, unsigned char transition, Pointer child
) noexcept nogil:
    cdef unsigned char existing = at(&memory.cells, node)[0]
    cdef Pointer sparse
    if existing == transition:
        if kind_of(node) != CHAIN_LAST:
            return chain_before(memory, transition, child)
        release_i32(in_cell(&memory.cells, node, CHAIN_END), child)
        return node
    sparse = new_sparse_of_two(
        memory, existing, chain_child(&memory.cells, node), transition, child
    )
    if kind_of(node) == CHAIN_LAST:
        retire_cell(memory, node)
    return sparse


cdef inline Pointer attach_to_sparse(
    TrieMemory* memory, Pointer node, unsigned char transition, Pointer child
) noexcept nogil:
    cdef Pointer existing
    cdef int index = sparse_index(&memory.cells, node, transition, &existing)
    if index >= 0:
        release_i32(in_cell(&memory.cells, node, 4 * index), child)
        return node
    if sparse_add(memory, node, transition, child):
        return node
    node = split_of_sparse(memory, node)
    split_put(memory, node, transition, child)
    return node


cdef inline Pointer node_of(TrieMemory* memory, const Children* children) noexcept nogil:
    """Return a new node for the one to six remaining children, which are not new."""
    if children.count == 1:
        return joined_chain(memory, children.transitions[0], children.pointers[0])
    return new_sparse(memory, children)


cdef inline Pointer detach_child(
    TrieMemory* memory, Pointer node, unsigned char transition
) noexcept nogil:
    """Remove the child of a transition; return NONE if it was the only one."""
    cdef uint32_t kind = kind_of(node)
    cdef Children children, others
    cdef uint32_t i
    if kind == SPLIT:
        split_remove(memory, node, transition)
        children = split_children(memory, node)
        if children.count > SPARSE_CHILDREN_MAX:
            return node
        retire_split(memory, node)
        return node_of(memory, &children)
    if kind == SPARSE:
        children = sparse_children(memory, node)
        others.count = 0
        for i in range(children.count):
            if children.transitions[i] != transition:
                add_to(&others, children.transitions[i], children.pointers[i])
        retire_cell(memory, node)
        return node_of(memory, &others)
    if kind == CHAIN_LAST:
        retire_cell(memory, node)
    return NONE
