"""Direct get of the last message of a subject; see direct.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.core.routing cimport MatchResult


cdef struct Request:            # a queued request; its bytes follow it
    uint32_t key_len            # 0: the body names the message
    uint32_t reply_len
    uint32_t headers_len
    uint32_t body_len


cdef class DirectGet(Actor):
    cdef StreamReaders stream
    cdef object ask             # callable(key, reply, headers, body) for all other requests
    cdef DirectAnswer answer
    cdef char* waiting          # queued requests, from `head` to `tail`
    cdef size_t head
    cdef size_t tail
    cdef size_t capacity
    cdef readonly uint64_t dropped

    cdef char* make_room(self, size_t need) except? NULL
    cdef int serve(self, const Request* request, const char* key) except -1
    cdef bint answer_last(
        self, const char* key, uint32_t key_len, const char* reply, uint32_t reply_len
    ) except -1
    cdef int send_not_found(self, const char* reply, uint32_t reply_len) except -1
    cdef MatchResult inbox(self, const char* reply, uint32_t reply_len)
