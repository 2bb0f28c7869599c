"""Declarations of outbound.pyx."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t


cdef extern from "sys/uio.h" nogil:
    cdef struct iovec:
        void* iov_base
        size_t iov_len


cdef extern from *:
    """
    /* Most pieces of a frame's head are a few bytes: two overlapping words beat a call. */
    static inline char *put_short(char *to, const char *from, size_t n) {
        if (n <= 16) {
            if (n >= 8) {
                unsigned long long a, b;
                memcpy(&a, from, 8);
                memcpy(&b, from + n - 8, 8);
                memcpy(to, &a, 8);
                memcpy(to + n - 8, &b, 8);
            } else if (n >= 4) {
                unsigned int a, b;
                memcpy(&a, from, 4);
                memcpy(&b, from + n - 4, 4);
                memcpy(to, &a, 4);
                memcpy(to + n - 4, &b, 4);
            } else if (n) {
                to[0] = from[0];
                to[n / 2] = from[n / 2];
                to[n - 1] = from[n - 1];
            }
        } else {
            memcpy(to, from, n);
        }
        return to + n;
    }
    """
    char* put_short(char* to, const char* from_, size_t n) noexcept nogil

cdef enum:
    CHUNK_CLASSES = 3
    PROMOTIONS_MAX = 128
    BY_REFERENCE_BYTES = 8 * 1024   # data and its CRLF above this size are not copied into chunks


cdef struct Segment:
    const char* data
    Py_ssize_t size
    char* chunk                # the chunk to free once these bytes, its last, are sent; or NULL
    PyObject* owner            # the bytes object that `data` points into; NULL: none
    bint borrowed              # `data` points into the read buffer: valid until the read ends
    bint counted               # the pool's `pending_bytes` includes `owner`


cdef struct Outbound:
    char* chunk                # the chunk being filled; NULL: none
    char* run                  # the bytes from here to `position` are in no segment yet
    char* position             # end of the appended bytes
    char* limit                # end of the writable room: the chunk's end or, for a check, earlier
    Segment* segments          # the pending bytes before the run, oldest first
    int first                  # index of the oldest segment
    int count                  # segments from `first` on
    int capacity
    int fresh                  # segments with `owner` or `borrowed` that are not `counted`
    int chunk_class            # size class of the chunk that this connection used last
    int64_t queued             # bytes in segments


cdef class ChunkPool:
    cdef char* free_chunks[CHUNK_CLASSES]
    cdef int free_counts[CHUNK_CLASSES]
    # Payloads that were copied out of the read buffer in this read: all recipients share one copy.
    cdef const char* promoted_from[PROMOTIONS_MAX]
    cdef PyObject* promoted[PROMOTIONS_MAX]
    cdef int promoted_count
    cdef int64_t pending_bytes           # bytes of chunks in use and of large unsent payloads
    cdef int64_t pending_bytes_max       # above this, connections are closed as slow consumers
    cdef dict payloads                   # address of a large unsent payload -> its segments

    cdef char* take(self, int chunk_class, Py_ssize_t need) except NULL
    cdef void give(self, char* chunk) noexcept
    cdef object promote(self, const char* data, Py_ssize_t size)
    cdef void forget_promoted(self) noexcept
    cdef int count_payload(self, PyObject* owner) except -1
    cdef int uncount_payload(self, PyObject* owner) except -1


cdef int64_t out_pending(Outbound* out) noexcept
cdef int out_roll(Outbound* out, ChunkPool pool, Py_ssize_t need) except -1
cdef int out_push(
    Outbound* out, ChunkPool pool, const char* data, Py_ssize_t size, PyObject* owner
) except -1
cdef int out_gather(Outbound* out, iovec* vector, int most) noexcept
cdef void out_sent(Outbound* out, ChunkPool pool, Py_ssize_t size) noexcept
cdef int out_keep(Outbound* out, ChunkPool pool) except -1
cdef void out_clear(Outbound* out, ChunkPool pool) noexcept
cdef bytes out_take(Outbound* out, ChunkPool pool, Py_ssize_t most)
