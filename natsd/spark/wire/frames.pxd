"""Frames of the client protocol, parsed in place in the receive buffer."""

from libc.stdint cimport uint64_t


cdef enum:
    GO_ON = 0                   # the parser continues with the next frame
    STOP = 1                    # the parser returns to Python; it continues at the next call
    MEMORIZED_BYTES_MAX = 256  # maximum bytes of a memorized first line


cdef enum:
    RECEIVE_BYTES_MIN = 1 << 16  # room for the bytes of one `recv`

cdef enum ScanResult:           # what `scan` found
    NOTHING                     # no whole frame
    CONTROL                     # a line: `line_len` bytes that end at `head`
    MESSAGE                     # a message in `frame` that no FrameHandler takes
    STOPPED                     # a message whose FrameHandler returned STOP


cdef struct MessageFrame:       # pointers into the receive buffer, valid until `take` returns
    uint64_t sid
    const char* subject
    size_t subject_len
    const char* reply
    size_t reply_len
    const char* headers         # header block, from NATS/1.0 to its empty line
    size_t headers_len
    const char* data
    size_t data_len


cdef class FrameHandler:
    """Handler that takes all messages of one subscription, in compiled code."""

    cdef int take(self, const MessageFrame* frame) except -1 nogil     # returns GO_ON or STOP


cdef class FrameParser:
    cdef char* at
    cdef size_t room_bytes
    cdef size_t head            # end of the parsed bytes
    cdef size_t tail            # end of the received bytes
    cdef size_t frame_bytes_max
    cdef MessageFrame frame     # last parsed message
    cdef size_t line_len        # bytes of the last control line, with its line end
    cdef char[MEMORIZED_BYTES_MAX] memorized_line  # start of the last HMSG line without reply
    cdef size_t memorized_len   # bytes of `memorized_line`; 0: none is memorized
    cdef size_t memorized_subject_at
    cdef dict handlers
    cdef uint64_t[16] sids      # subscription ids of the frame handlers, packed
    cdef void* handler_pointers[16]
    cdef int attached
    cdef readonly uint64_t frames

    cdef int make_room(self, size_t wanted) except -1
    cdef int scan(self) except -1 nogil
    cdef int read_message(self, const char* line, size_t length) except -1 nogil
    cdef int read_line(
        self, const char* line, size_t length, uint64_t* headers_len, uint64_t* total
    ) except -1 nogil
    cdef bint read_memorized_line(
        self, const char* line, size_t length, uint64_t* headers_len, uint64_t* total
    ) noexcept nogil
    cdef void* handler_of(self, uint64_t sid) noexcept nogil
