"""Headers of a message that is copied to another stream."""

from libc.stdint cimport uint64_t


# Copies a header block without the headers that only the first stream evaluates, and without the
# empty line at its end; `out` has room for `length` bytes. Returns the length; if no header is
# left, it is at most that of the first line. `is_source`: omits the header that names the source
# too.
cdef Py_ssize_t carry_headers(
    const char* block, Py_ssize_t length, bint is_source, char* out
) noexcept nogil
