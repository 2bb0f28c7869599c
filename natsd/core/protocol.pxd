"""Declarations of protocol.pyx."""


cdef class Endpoint(Pollable)


cdef class Protocol:
    # Stop after the current frame. A handler or a violation sets it during a parse.
    cdef bint suspended

    # Return where the next bytes must be put, and set `room` to their number; NULL: anywhere.
    cdef char* space(self, Py_ssize_t* room) noexcept
    cdef int filled(self, Py_ssize_t size) except -1      # so many bytes were put into `space`
    # Handle the bytes at `buffer`, behind which a NUL is readable; return how many were used. The
    # rest comes again, before the bytes that follow it.
    cdef Py_ssize_t take(self, const char* buffer, Py_ssize_t size) except -1
    cdef void suspend(self, bint suspended) noexcept
    cdef void drop(self) noexcept                         # release what is kept: it has ended


cdef class Framing(Protocol):
    cdef Protocol inner
    cdef Reactor reactor        # that of the endpoint; None before `Endpoint.frame`
    cdef bytearray plain        # decoded bytes that `inner` has not used yet, and a NUL
    cdef Outbound sealed        # encoded bytes that the socket has not taken yet

    cdef int decode_into(self, const char* buffer, Py_ssize_t size, Py_ssize_t* used) except -1
    cdef int seal(self, Outbound* out, ChunkPool pool) except -1
    cdef int push_sealed(self, bytes data, ChunkPool pool) except -1
    cdef int finish(self, ChunkPool pool) except -1


cdef class Preface(Protocol):
    cdef Endpoint endpoint
    cdef Protocol inner         # the protocol, which takes over after the preface


cdef Protocol deaf              # uses up all bytes: the protocol of an endpoint that has ended
