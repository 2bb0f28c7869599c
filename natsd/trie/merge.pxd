"""Merging a branch: states of all nodes from the root down to where the mutation's walk stands."""

from libc.stdint cimport int32_t

from natsd.trie.memory cimport TrieMemory
from natsd.trie.nodes cimport Pointer


cdef struct MergeState:             # of one node, as the document names them
    Pointer existing_pre_content    # the node as it was, as linked to
    Pointer existing_post_content   # the same without content: what its children are looked up in
    Pointer updated_post_content    # the node with what was merged into its children so far
    int32_t content                 # its content's index, existing or new; or NO_CONTENT
    unsigned char transition        # that led to it

cdef struct Merge:
    TrieMemory* memory
    MergeState* states              # of depth 0, 1, 2 …
    Py_ssize_t depth                # of the last one; -1: all are merged
    Py_ssize_t capacity


# 0, or NO_ROOM, NO_MEMORY (natsd.trie.mutation); then `merge_close`, which keeps what was merged.
cdef int merge_open(Merge* merge, TrieMemory* memory) noexcept nogil
cdef int merge_descend(Merge* merge, unsigned char transition) noexcept nogil
cdef int32_t merge_slot(Merge* merge, bint* created) noexcept nogil     # of this node's content
cdef void merge_ascend_to(Merge* merge, Py_ssize_t depth) noexcept nogil    # to -1 at the end
cdef void merge_close(Merge* merge) noexcept nogil
