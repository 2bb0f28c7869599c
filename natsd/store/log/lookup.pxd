"""Lookups in a log, for compiled callers."""

from libc.stdint cimport int64_t, uint64_t

from natsd.store.log.subjects cimport Filter


# Set `found` to the first or the last message of a subject that has messages.
cdef Outcome exact_first(MessageLog log, int64_t slot, uint64_t* found) except? NEEDS_BLOCK
cdef Outcome exact_last(MessageLog log, int64_t slot, uint64_t* found) except? NEEDS_BLOCK

# Find the first live message in sequence..upto that the filter matches. DONE: found; GONE: there is
# none; PENDING: continue at `resume_at`; NEEDS_BLOCK: the same, once `wanted` is loaded.
cdef Outcome next_match(
    MessageLog log, Filter wanted, uint64_t sequence, uint64_t upto, uint64_t* found
) except? NEEDS_BLOCK
