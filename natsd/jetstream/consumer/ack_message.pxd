"""What a client says about a delivered message: see ack_message.pyx."""

from libc.stdint cimport int64_t, uint64_t


cdef extern from *:
    """
    #define NATSD_NO_NUMBER (~(uint64_t)0)
    """
    uint64_t NO_NUMBER "NATSD_NO_NUMBER"

cdef enum:
    TOKENS_V2 = 11              # of the newer kind of subject, at least

cdef struct Token:
    const char* text
    Py_ssize_t length

cdef enum AckKind:
    ACK = 0
    NAK = 1
    PROGRESS = 2
    NEXT = 3
    TERM = 4
    OTHER = 5                   # nothing that we know

cdef struct AckMessage:
    const char* stream
    const char* consumer
    Py_ssize_t stream_len
    Py_ssize_t consumer_len
    uint64_t deliveries         # NO_NUMBER: not a number
    uint64_t sequence
    uint64_t consumer_sequence
    AckKind kind
    const char* argument        # what follows the kind
    Py_ssize_t argument_len

cdef struct Delivery:           # what the reply subject of a delivered message says
    const char* consumer
    Py_ssize_t consumer_len
    uint64_t deliveries
    uint64_t sequence
    uint64_t consumer_sequence
    int64_t time_ns
    uint64_t pending


# The tokens, of which `tokens` has room for TOKENS_V2; the place of the stream's name, 0: this is
# no acknowledgement's subject.
cdef int split_ack_subject(
    const char* subject, Py_ssize_t length, Token* tokens
) noexcept nogil
# False: not the reply subject of a delivered message, with all its numbers.
cdef bint parse_delivery(const char* reply, Py_ssize_t length, Delivery* out) noexcept nogil
# False: not the subject of an acknowledgement.
cdef bint parse_ack_subject(
    const char* subject, Py_ssize_t length, AckMessage* out
) noexcept nogil
cdef void parse_ack_body(const char* body, Py_ssize_t length, AckMessage* out) noexcept nogil
# The delay a NAK asks for. False: it says none, or what is none.
cdef bint parse_nak_delay(
    const char* argument, Py_ssize_t length, int64_t* delay_ns
) except -1
cdef bytes trimmed(const char* text, Py_ssize_t length)
