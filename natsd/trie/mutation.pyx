"""Insertion and removal of one key: walk down along the key, then change nodes upwards.

    path     root ── t ── r ── a ─┬─ c ── t …        the nodes at depths 0, 1, 2, as linked to
                                  └─ v ── e …        the new branch, built from the leaf up

The way up ends at the first node that can be changed in place, at the root at the latest: that
store attaches everything below it at once, and nothing above changes. Cells that the change makes
unreachable are retired on the way, before they are detached; both happen in one call, and nothing
is recycled in between.

After an insertion, Chains are as long as possible except where content or a fork divides them. A
removal joins the remaining Chains, so that a trie does not degrade as keys are added and removed.

Source: Cassandra's InMemoryTrie design (putRecursive), made iterative; that design has no removal.
"""

from libc.stdint cimport int32_t, uint32_t
from libc.string cimport memcpy


cdef enum:
    INSERT_CELLS = 14           # besides its Chains: a full Sparse becomes a Split of 12
    REMOVE_CELLS = 8
    RETIRED_MAX = SPLIT_CELLS_MAX + 11


cdef Py_ssize_t walk_down(
    TrieMemory* memory, const unsigned char* key, Py_ssize_t length
) noexcept nogil:
    """Fill `path` as far as the trie has the key; return the depth of the last node."""
    cdef Pointer node = memory.root
    cdef Py_ssize_t depth = 0
    cdef unsigned char* transitions
    cdef uint32_t i, run
    memory.path[0] = node
    while depth < length:
        node = without_content(&memory.cells, node)
        if is_chain(node):
            transitions = at(&memory.cells, node)
            run = <uint32_t> min(<Py_ssize_t> chain_length(node), length - depth)
            i = 0
            while i < run and transitions[i] == key[depth]:
                i += 1
                depth += 1
                memory.path[depth] = node + <Pointer> i
            if i < chain_length(node):
                return depth
            node = chain_target(&memory.cells, node)
        else:
            node = node_child(&memory.cells, node, key[depth])
            if node == NONE:
                return depth
            depth += 1
        memory.path[depth] = node
    return depth


cdef int32_t insert_key(
    TrieMemory* memory, const unsigned char* key, Py_ssize_t length,
    const unsigned char* initial, bint* created,
) noexcept nogil:
    cdef Py_ssize_t depth
    cdef int32_t slot
    cdef int reason
    created[0] = False
    if prepare_path(memory, length + 1) < 0:
        return NO_MEMORY
    depth = walk_down(memory, key, length)
    if depth == length:
        slot = content_of(&memory.cells, memory.path[depth])
        if slot != NO_CONTENT:
            return slot
    reason = prepare(
        memory, <uint32_t> ((length - depth) // CHAIN_END + INSERT_CELLS), SPARE_CELLS, RETIRED_MAX
    )
    if reason < 0:
        return reason
    slot = take_slot(&memory.contents)
    if initial != NULL:
        memcpy(slot_address(&memory.contents, slot), initial, memory.contents.width)
    attach_branch(memory, key, length, depth, slot)
    created[0] = True
    return slot


cdef void attach_branch(
    TrieMemory* memory, const unsigned char* key, Py_ssize_t length, Py_ssize_t depth, int32_t slot
) noexcept nogil:
    """Attach content for a key whose path exists down to `depth`."""
    cdef Pointer node = memory.path[depth]
    cdef Pointer old, new
    if depth < length:
        depth += 1
        node = chain_of(memory, key + depth, length - depth, ~slot)
    else:
        node = ~slot if node == NONE else new_prefix(memory, slot, node, False)
    while depth > 0:
        depth -= 1
        old = without_content(&memory.cells, memory.path[depth])
        new = attach_child(memory, old, key[depth], node)
        if new == old:
            return
        node = keep_content(memory, memory.path[depth], old, new)
        if node == memory.path[depth]:
            return
    set_root(memory, node)


cdef int32_t remove_key(
    TrieMemory* memory, const unsigned char* key, Py_ssize_t length
) noexcept nogil:
    cdef int32_t slot
    cdef int reason
    if prepare_path(memory, length + 1) < 0:
        return NO_MEMORY
    if walk_down(memory, key, length) < length:
        return NOT_THERE
    slot = content_of(&memory.cells, memory.path[length])
    if slot == NO_CONTENT:
        return NOT_THERE
    reason = prepare(memory, REMOVE_CELLS, 0, RETIRED_MAX)
    if reason < 0:
        return reason
    detach_branch(memory, key, length)
    retire_slot(memory, slot)
    return slot


cdef void detach_branch(
    TrieMemory* memory, const unsigned char* key, Py_ssize_t length
) noexcept nogil:
    """Detach the content at the end of the path, and the nodes that then lead nowhere."""
    cdef Py_ssize_t depth = length
    cdef Pointer node = memory.path[depth]
    cdef Pointer old, new
    cdef bint fresh = False
    if is_prefix(node) and not is_embedded(&memory.cells, node):
        retire_cell(memory, node)
    node = without_content(&memory.cells, node)
    while depth > 0:
        depth -= 1
        old = without_content(&memory.cells, memory.path[depth])
        if node == NONE:
            new = detach_child(memory, old, key[depth])
        elif can_join(memory, depth, old, node):
            new = join(memory, old, key[depth], node, fresh)
        else:
            new = attach_child(memory, old, key[depth], node)
        if new == old:
            return
        node = keep_content(memory, memory.path[depth], old, new)
        if node == memory.path[depth]:
            return
        fresh = True
    set_root(memory, node)


cdef bint can_join(
    TrieMemory* memory, Py_ssize_t depth, Pointer last, Pointer child
) noexcept nogil:
    """Return whether the Chain that ends at `last` and its child Chain fit into one cell."""
    cdef uint32_t run = 1
    if not is_chain(last) or kind_of(last) != CHAIN_LAST or not is_chain(child):
        return False
    while run <= depth and memory.path[depth - run] == last - <Pointer> run:
        run += 1
    return run + chain_length(child) <= CHAIN_END


cdef Pointer join(
    TrieMemory* memory, Pointer last, unsigned char transition, Pointer child, bint fresh
) noexcept nogil:
    """Prepend a Chain's last transition to its child Chain, which moves unless it is new."""
    if not fresh:
        child = copied_chain(memory, child)
    retire_cell(memory, last)
    return chain_before(memory, transition, child)
