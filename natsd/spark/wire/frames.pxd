"""Frames of the client protocol as they lie in the receive buffer."""

from libc.stdint cimport uint64_t


cdef enum:
    GO_ON = 0                   # to the next frame
    STOP = 1                    # so that Python has a look, then go on behind this frame
    USUAL_MAX = 256


cdef struct Frame:              # points into the receive buffer: gone when `take` returns
    uint64_t sid
    const char* subject
    size_t subject_len
    const char* reply
    size_t reply_len
    const char* headers         # the block, from NATS/1.0 to its empty line
    size_t headers_len
    const char* data
    size_t data_len


cdef class Intake:
    """Takes all messages of one subscription, in compiled code."""

    cdef int take(self, const Frame* frame) except -1 nogil     # GO_ON or STOP


cdef class FrameParser:
    cdef char* at
    cdef size_t room_bytes
    cdef size_t head            # what is parsed ends here
    cdef size_t tail            # what was received ends here
    cdef size_t frame_bytes_max
    cdef Frame frame            # the last one
    cdef size_t line_len        # of the last control line, without its end
    cdef char[USUAL_MAX] usual  # how the last first line began, up to its lengths
    cdef size_t usual_len       # 0: it is none of those that come again and again
    cdef size_t usual_subject_at
    cdef dict intakes
    cdef uint64_t[16] sids      # of the intakes, packed
    cdef void* sinks[16]
    cdef int attached
    cdef readonly uint64_t frames

    cdef int make_room(self, size_t wanted) except -1
    cdef int scan(self) except -1 nogil
    cdef int read_message(self, const char* line, size_t length) except -1 nogil
    cdef int read_line(
        self, const char* line, size_t length, uint64_t* headers_len, uint64_t* total
    ) except -1 nogil
    cdef bint read_usual(
        self, const char* line, size_t length, uint64_t* headers_len, uint64_t* total
    ) noexcept nogil
    cdef void* sink_of(self, uint64_t sid) noexcept nogil
