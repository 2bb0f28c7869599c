"""The headers of a publish that a stream heeds, found in one pass."""

from libc.stdint cimport uint32_t, uint64_t


cdef enum HeaderName:           # an index into PublishHeaders.values
    MESSAGE_ID = 0
    EXPECTED_STREAM
    EXPECTED_LAST_SEQUENCE
    EXPECTED_LAST_MESSAGE_ID
    EXPECTED_LAST_SUBJECT_SEQUENCE
    EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT
    ROLLUP
    TTL
    INCREMENT
    SCHEDULE
    SCHEDULE_TIME_ZONE
    SCHEDULE_NEXT
    SCHEDULER
    BATCH_ID
    REQUEST_INFO
    DELAY
    DELAYED
    HEADER_NAMES

cdef enum:
    SCHEDULING_HEADERS = (      # bits of `PublishHeaders.found`
        1 << <int> SCHEDULE | 1 << <int> SCHEDULE_TIME_ZONE | 1 << <int> SCHEDULE_NEXT
        | 1 << <int> SCHEDULER | 1 << <int> DELAY
    )

cdef struct LineStart:
    const char* text
    Py_ssize_t length

cdef struct HeaderValue:
    const char* at
    Py_ssize_t length

cdef struct PublishHeaders:
    uint32_t found              # bit of each name that is there, also with an empty value
    HeaderValue values[HEADER_NAMES]


# Fill `out`; its values point into the block. The first header of a name counts.
cdef void find_publish_headers(
    const char* block, Py_ssize_t length, PublishHeaders* out
) noexcept nogil

cdef inline bint header_given(PublishHeaders* headers, HeaderName name) noexcept nogil:
    """Tell whether the header is there with a value that is not empty."""
    return headers.found >> <int> name & 1 and headers.values[<int> name].length > 0

cdef inline Rollup rollup_of(PublishHeaders* headers) noexcept nogil:
    """Return the kind of rollup; the value was checked to be `sub` or `all`, in any case."""
    if not header_given(headers, ROLLUP):
        return NO_ROLLUP
    return ROLLUP_SUBJECT if headers.values[<int> ROLLUP].at[0] | 0x20 == c's' else ROLLUP_ALL

# Read a decimal number; any other text is 2^64 - 1, as on nats-server.
cdef uint64_t header_number(HeaderValue* value) noexcept nogil

# Find the first header of any name. False: it is not there; `out` is empty then.
cdef bint find_header(
    const char* block, Py_ssize_t length, const char* name, Py_ssize_t name_len, HeaderValue* out
) noexcept nogil

# Remove the line with that value from the block; return the new length.
cdef Py_ssize_t cut_header(char* block, Py_ssize_t length, HeaderValue* value) noexcept nogil

# Write the block as it is stored, without its status and Nats-Request-Info, into `out`, which has
# room for the whole block. Return the length, 0 if no header is left.
cdef Py_ssize_t strip_headers(const char* block, Py_ssize_t length, char* out) noexcept nogil
cdef bint has_status(const char* block, Py_ssize_t length) noexcept nogil

# Return the position behind the line at `at`; `end` if no CRLF follows.
cdef const char* behind_line(const char* at, const char* end) noexcept nogil

# Copy lines, except those that begin with one of the texts; return the end of the copy.
cdef char* copy_lines(
    const char* line, const char* end, const LineStart* left, int left_count, char* to
) noexcept nogil
