"""Merging of a branch: the states of all nodes from the root to the position of the walk."""

from libc.stdint cimport int32_t


cdef struct MergeState:             # state of one node
    Pointer existing_pre_content    # the node before the merge, as linked to
    Pointer existing_post_content   # the same without content: its children are looked up here
    Pointer updated_post_content    # the node with the children merged so far
    int32_t content                 # index of its content, existing or new; or NO_CONTENT
    unsigned char transition        # transition that led to the node

cdef struct Merge:
    TrieMemory* memory
    MergeState* states              # of depth 0, 1, 2 …
    Py_ssize_t depth                # of the last state; -1: all are merged
    Py_ssize_t capacity


# Return 0, or NO_ROOM, NO_MEMORY (natsd.trie.in_memory); then call `merge_close`, which keeps all
# that was merged.
cdef int merge_open(Merge* merge, TrieMemory* memory) noexcept nogil
cdef int merge_descend(Merge* merge, unsigned char transition) noexcept nogil
cdef int32_t merge_slot(Merge* merge, bint* created) noexcept nogil     # of this node's content
cdef void merge_ascend_to(Merge* merge, Py_ssize_t depth) noexcept nogil    # -1: the end
cdef void merge_close(Merge* merge) noexcept nogil
