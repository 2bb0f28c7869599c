"""RowBatch, FoundIds and SendWindow, the compiled part of the sink (publishing.pyx)."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from natsd.spark.wire.frames cimport FrameHandler, MessageFrame


cdef struct TextSlice:
    const char* data
    Py_ssize_t size


cdef struct Strings:            # Arrow column of strings or bytes
    const int32_t* offsets
    const char* data
    const uint8_t* validity     # NULL: no value is null
    int64_t first               # first bit of this column in `validity`


cdef struct Maps:               # Arrow column of headers
    const int32_t* offsets      # index of a row's first name
    const uint8_t* validity
    int64_t first
    Strings names
    const int32_t* lists        # index of a name's first value; NULL: each name has one
    const uint8_t* lists_validity
    int64_t lists_first
    Strings values


cdef class RowBatch:
    cdef readonly int64_t count
    cdef list _held  # buffers that the pointers below need alive
    cdef Strings _subjects
    cdef Strings _data
    cdef Strings _ids
    cdef Maps _headers
    cdef bint _has_ids
    cdef bint _has_headers

    cdef TextSlice id_of(self, int64_t row) noexcept nogil
    cdef uint64_t _row_digest(self, int64_t row, uint64_t digest) noexcept nogil
    cdef int64_t _user_headers(self, int64_t row, char* to) noexcept nogil
    cdef int _problem(self, int64_t row, int64_t max_payload) noexcept nogil
    cdef int _headers_problem(self, int64_t row) noexcept nogil


cdef class FoundIds:
    cdef uint64_t* _slots       # pairs of hashes; two zeros are an empty slot
    cdef uint64_t _mask
    cdef readonly int64_t count
    cdef readonly int64_t highest_row
    cdef public int64_t stored_below        # rows below this number count as found

    cdef int _add(self, const char* text, Py_ssize_t size) except -1 nogil
    cdef bint has(self, const char* text, Py_ssize_t size) noexcept nogil
    cdef int _grow(self) except -1 nogil


cdef class SendWindow(FrameHandler):
    cdef readonly int64_t first             # lowest row that is not done
    cdef readonly int64_t next              # lowest row that `fill` has not handled
    cdef readonly int64_t in_flight  # rows that were sent and not answered yet
    cdef readonly int64_t in_flight_bytes  # bytes of their frames
    cdef readonly int64_t sent  # frames written, repetitions included
    cdef readonly int64_t found  # rows that an earlier attempt had stored
    cdef readonly int64_t refused           # current number of refused rows from `first` to `next`
    cdef readonly int64_t duplicates  # acknowledged rows that the stream had stored before
    cdef readonly int64_t acknowledged  # rows acknowledged to this window
    cdef public int64_t wake_below          # `take` returns STOP when fewer rows are in flight
    cdef readonly list refusals             # (row, headers, data) of each since `take_refusals`
    cdef list _targets  # names of the streams, as acknowledgements quote them
    cdef uint64_t[256] _last                # highest sequence of rows below `first`, by target
    cdef bytes _id_prefix_held
    cdef bytes _inbox_held
    cdef TextSlice _id_prefix
    cdef TextSlice _inbox
    cdef TextSlice _target                       # stream of the last acknowledgement
    cdef uint8_t _target_index  # its index in `_targets`
    cdef int64_t _max_rows
    cdef int64_t _max_bytes
    cdef int64_t _mask  # number of slots - 1; row n has slot n & _mask
    cdef uint8_t* _states  # UNSENT, IN_FLIGHT, DONE or REFUSED, by slot
    cdef uint8_t* _row_targets  # index of the row's stream, or NEVER, by slot
    cdef uint32_t* _sizes  # bytes of the row's frame, by slot
    cdef uint64_t* _sequences  # sequence of the stored row, by slot
    cdef char* _out  # frames that wait to be sent
    cdef Py_ssize_t _out_end
    cdef Py_ssize_t _out_capacity

    cdef int take(self, const MessageFrame* frame) except -1 nogil
    cdef int _put(self, RowBatch rows, int64_t index, int64_t row) except -1 nogil
    cdef int _reserve(self, Py_ssize_t size) except -1 nogil
    cdef void _done(self, int64_t row, uint8_t target, uint64_t sequence) noexcept nogil
    cdef void _advance(self) noexcept nogil
    cdef bint _ack(self, int64_t row, const char* data, Py_ssize_t size) noexcept nogil
    cdef bint _is_target(self, const char* name, const char* end) noexcept nogil
    cdef bint _has_room(self) noexcept nogil
    cdef bint _was_found(
        self, RowBatch rows, int64_t index, int64_t row, FoundIds found
    ) noexcept nogil
