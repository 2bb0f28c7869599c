"""What a message's headers become in a stream that it is copied to."""

from libc.stdint cimport uint64_t


# Copies a header block without what only its first stream heeds, and without the empty line at its
# end; `out` has room for all of it. The length, no more than that of the first line if no header is
# left. `is_source`: without what it says of its source too.
cdef Py_ssize_t carry_headers(
    const char* block, Py_ssize_t length, bint is_source, char* out
) noexcept nogil
