"""MessageBatch collects rows and returns column buffers (message_batch.pyx has the layout)."""

from libc.stdint cimport int32_t, int64_t, uint64_t

cdef enum:                      # same values as columns.Columns
    STREAM = 1
    SEQ = 2
    SUBJECT = 4
    TIME = 8
    TIME_NS = 16
    HEADERS = 32
    DATA = 64


cdef struct ByteBuffer:            # growable byte buffer
    char* at  # start of the memory, or NULL
    size_t used  # bytes written
    size_t room  # bytes allocated


cdef struct HeaderLine:         # one line of a header block; its pointers lead into that block
    const char* key
    size_t key_len
    const char* value
    size_t value_len
    int32_t order  # position in the block: 0 is the first line
    bint is_taken  # already copied to the columns


cdef class ColumnBuffer:
    """Owned bytes of a column, exposed by the buffer protocol."""

    cdef char* at
    cdef Py_ssize_t size


cdef class MessageBatch:
    cdef readonly tuple names
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t max_rows
    cdef readonly Py_ssize_t max_bytes
    cdef readonly Py_ssize_t headerless     # rows without headers; their headers are null
    cdef int wanted                         # chosen columns: the flags above
    cdef bytes stream_name
    cdef const char* stream_at
    cdef size_t stream_len
    cdef Py_ssize_t entries                 # keys in the header maps of all rows
    cdef Py_ssize_t values                  # values in the lists of all keys
    cdef ByteBuffer stream_offsets, stream_text
    cdef ByteBuffer sequences
    cdef ByteBuffer subject_offsets, subject_text
    cdef ByteBuffer times
    cdef ByteBuffer times_ns
    cdef ByteBuffer header_validity, header_offsets, key_offsets, key_text
    cdef ByteBuffer value_lists, value_offsets, value_text
    cdef ByteBuffer data_offsets, data_bytes
    cdef HeaderLine* lines  # lines of the row's header block
    cdef size_t lines_room

    # Append one row. `stream` NULL: the batch's own stream name. `headers` is a header block as on
    # the wire, with or without its final empty line; its first line is skipped. 0 bytes: no
    # headers.
    cdef int append(
        self, const char* stream, size_t stream_len, const char* subject, size_t subject_len,
        uint64_t sequence, int64_t time_ns, const char* headers, size_t headers_len,
        const char* data, size_t data_len,
    ) except -1 nogil

    cdef inline size_t used_bytes(self) noexcept nogil:
        return (
            self.stream_offsets.used + self.stream_text.used + self.sequences.used
            + self.subject_offsets.used + self.subject_text.used + self.times.used
            + self.times_ns.used + self.header_validity.used + self.header_offsets.used
            + self.key_offsets.used + self.key_text.used + self.value_lists.used
            + self.value_offsets.used + self.value_text.used
            + self.data_offsets.used + self.data_bytes.used
        )

    cdef inline bint full(self) noexcept nogil:
        return self.rows >= self.max_rows or self.used_bytes() >= <size_t> self.max_bytes

    cdef int begin(self) except -1 nogil
    cdef int add_headers(self, const char* headers, size_t length) except -1 nogil
    cdef Py_ssize_t read_lines(self, const char* headers, size_t length) except -1 nogil
    cdef int add_entry(self, Py_ssize_t first, Py_ssize_t count, bint is_sorted) except -1 nogil
