"""Merging of a branch into a trie, node by node along a walk over the branch.

    mutation        trie before                     states while the walk stands on `truck`'s u
    t─r─a─v─e       t─r─┬─a─c─t─o─r  0x018          depth 2, tr:  existing 0x07E, updated 0x07E
      └─u─c─k           ├─e─e                       depth 3, tru: existing NONE,  updated NONE
                        └─i─e                       (tra was merged and left: attached in 0x07E)

- On the way down, a child is looked up in the node as it was before the merge: merging into a
  sibling does not affect it, and a node that was copied meanwhile still has its old children.
- On the way up, the changed node is attached to its parent as changed so far: in place, so that
  readers see it at once, or in a copy, which a later step attaches.
- Content is found on the way down and attached on the way up, when it is known whether the node has
  children.
- Room for all that the way up can need is reserved before each step down, so a refusal stops the
  merge between two nodes: nodes merged before stay, the rest is unchanged.
- Nothing is recycled before the merge has ended: it looks up children in obsolete nodes too.

Source: Cassandra's InMemoryTrie design (apply, prefix nodes).
"""

from libc.stdint cimport int32_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset


cdef enum:
    STATES_MIN = 64
    ASCENT_CELLS = 14           # a full Sparse becomes a Split of 12 cells, plus a Prefix
    ASCENT_RETIRED = 4


cdef int merge_open(Merge* merge, TrieMemory* memory) noexcept nogil:
    memset(merge, 0, sizeof(Merge))
    merge.memory = memory
    merge.depth = -1
    return push_state(merge, memory.root, 0)


cdef int push_state(Merge* merge, Pointer node, unsigned char transition) noexcept nogil:
    cdef uint32_t steps = <uint32_t> merge.depth + 2    # number of steps of the way up
    cdef MergeState* state
    cdef int reason
    if grow_states(merge) < 0:
        return NO_MEMORY
    reason = prepare(merge.memory, steps * ASCENT_CELLS, SPARE_CELLS, steps * ASCENT_RETIRED)
    if reason < 0:
        return reason
    merge.depth += 1
    state = &merge.states[merge.depth]
    state.existing_pre_content = node
    state.existing_post_content = without_content(&merge.memory.cells, node)
    state.updated_post_content = state.existing_post_content
    state.content = content_of(&merge.memory.cells, node)
    state.transition = transition
    return 0


cdef int grow_states(Merge* merge) noexcept nogil:
    cdef Py_ssize_t capacity = merge.capacity * 2 if merge.capacity else STATES_MIN
    cdef MergeState* states
    if merge.depth + 1 < merge.capacity:
        return 0
    states = <MergeState*> realloc(merge.states, capacity * sizeof(MergeState))
    if states == NULL:
        return -1
    merge.states = states
    merge.capacity = capacity
    return 0


cdef int merge_descend(Merge* merge, unsigned char transition) noexcept nogil:
    """Go down to a child of this node, which need not exist; return 0, NO_ROOM or NO_MEMORY."""
    cdef Pointer parent = merge.states[merge.depth].existing_post_content
    return push_state(
        merge, node_child(&merge.memory.cells, parent, transition), transition
    )


cdef int32_t merge_slot(Merge* merge, bint* created) noexcept nogil:
    cdef MergeState* state = &merge.states[merge.depth]
    cdef int reason
    created[0] = state.content == NO_CONTENT
    if created[0]:
        reason = prepare(merge.memory, 0, 0, 0)
        if reason < 0:
            return reason
        state.content = take_slot(&merge.memory.contents)
    return state.content


cdef void merge_ascend_to(Merge* merge, Py_ssize_t depth) noexcept nogil:
    cdef Pointer node
    cdef MergeState* state
    while merge.depth > depth:
        state = &merge.states[merge.depth]
        merge.depth -= 1
        node = with_its_content(merge.memory, state)
        if node == state.existing_pre_content:
            continue
        if merge.depth < 0:
            set_root(merge.memory, node)
            return
        merge.states[merge.depth].updated_post_content = attach_child(
            merge.memory, merge.states[merge.depth].updated_post_content, state.transition, node
        )


cdef inline Pointer with_its_content(TrieMemory* memory, const MergeState* state) noexcept nogil:
    """Return the updated node with its content, to which the parent must link."""
    cdef bint changed = state.updated_post_content != state.existing_post_content
    if state.content == content_of(&memory.cells, state.existing_pre_content):
        if not changed:
            return state.existing_pre_content
        return keep_content(
            memory, state.existing_pre_content,
            state.existing_post_content, state.updated_post_content,
        )
    if state.updated_post_content == NONE:
        return ~state.content
    return new_prefix(memory, state.content, state.updated_post_content, changed)


cdef void merge_close(Merge* merge) noexcept nogil:
    """Attach everything that is not attached yet, and free the states."""
    merge_ascend_to(merge, -1)
    free(merge.states)
    merge.states = NULL
    merge.capacity = 0
