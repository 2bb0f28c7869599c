"""Acknowledgements as clients send them; see ack_message.pyx."""

from libc.stdint cimport int64_t, uint64_t


cdef extern from *:
    """
    #define NATSD_NO_NUMBER (~(uint64_t)0)
    """
    uint64_t NO_NUMBER "NATSD_NO_NUMBER"

cdef enum:
    TOKENS_V2 = 11              # fewest tokens of a subject of version 2

cdef struct Token:
    const char* text
    Py_ssize_t length

cdef enum AckKind:
    ACK = 0
    NAK = 1
    PROGRESS = 2
    NEXT = 3
    TERM = 4
    OTHER = 5                   # an unknown kind

cdef struct AckMessage:
    const char* stream
    const char* consumer
    Py_ssize_t stream_len
    Py_ssize_t consumer_len
    uint64_t deliveries         # NO_NUMBER: the token is not a number
    uint64_t sequence
    uint64_t consumer_sequence
    AckKind kind
    const char* argument        # the text behind the kind
    Py_ssize_t argument_len

cdef struct Delivery:           # the content of a delivered message's reply subject
    const char* consumer
    Py_ssize_t consumer_len
    uint64_t deliveries
    uint64_t sequence
    uint64_t consumer_sequence
    int64_t time_ns
    uint64_t pending


# Split an acknowledgement's subject; `tokens` has room for TOKENS_V2. Return the index of the
# stream's name; 0: the subject is of another kind.
cdef int split_ack_subject(
    const char* subject, Py_ssize_t length, Token* tokens
) noexcept nogil
# Parse the reply subject of a delivered message. False: it is of another kind, or a number is
# wrong.
cdef bint parse_delivery(const char* reply, Py_ssize_t length, Delivery* out) noexcept nogil
# Parse the subject of an acknowledgement. False: it is of another kind.
cdef bint parse_ack_subject(
    const char* subject, Py_ssize_t length, AckMessage* out
) noexcept nogil
cdef void parse_ack_body(const char* body, Py_ssize_t length, AckMessage* out) noexcept nogil
# Read the delay of a NAK. False: it has none, or none that can be read.
cdef bint parse_nak_delay(
    const char* argument, Py_ssize_t length, int64_t* delay_ns
) except -1
cdef bytes trimmed(const char* text, Py_ssize_t length)
