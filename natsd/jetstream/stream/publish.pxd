"""The publish path of one stream, for compiled callers."""

from libc.stdint cimport int64_t, uint64_t

from natsd.core.routing cimport SubjectTransform
from natsd.jetstream.stream.checks cimport (
    AckQueue, Admission, Answer, AnswerKind, StreamCounters, Entry, MessageIds, Preconditions,
    PublishHeaders, Rollups, Scheduled,
)
from natsd.jetstream.stream.state cimport Actor, StreamReaders
from natsd.store.log.message_log cimport MessageLog


cdef class Ingest(Actor):
    cdef StreamReaders stream
    cdef MessageLog log
    cdef Usage usage
    cdef readonly int64_t counted_bytes     # bytes of the log that `usage` counts
    cdef int64_t copies                 # how often the account's limit counts each byte

    # Settings
    cdef readonly object settings       # IngestSettings
    cdef bint is_memory
    cdef bint no_ack
    cdef bint is_sealed
    cdef int64_t max_msg_size           # -1: no limit
    cdef int64_t staged_bytes_max       # bytes of uncommitted batches
    cdef Preconditions preconditions
    cdef readonly StreamCounters counters     # None: the stream has no counters
    cdef SubjectTransform transform     # None: subjects stay as they are
    cdef Republisher republisher        # None: nothing is republished
    cdef bytes prefix                   # the beginning of every PubAck
    # callback(expires_ns) for each message with a lifetime; or None
    cdef public object expiring
    # callback(headers) for each message that a follower applies, if it has sources; or None
    cdef public object noting
    cdef public object failing          # callback(error) for each failed commit; or None
    cdef readonly Refusals refusals
    cdef public object trace_publish    # `trace_publish` of traced_publish.pyx
    cdef public Admission atomic_batches    # None: the stream takes no such batches
    cdef public Admission fast_batches
    cdef readonly bint is_paused        # publishes are ignored: the stream is not ready or closing

    # State
    cdef readonly MessageIds message_ids
    cdef Rollups rollups
    cdef readonly Scheduled scheduled
    cdef WriteBackpressure backpressure
    cdef AckQueue acks                  # answers, in the order of their messages
    cdef AckQueue busy                  # replies that are answered 429 at the end of the turn
    cdef char* text                     # the prefix of a PubAck, and room for the rest
    cdef Py_ssize_t tail_room           # bytes of that room
    cdef char* stripped                 # headers without those that are not stored
    cdef Py_ssize_t stripped_room
    cdef bint is_rolling                # the answer to the entry just applied has to wait
    cdef bytes refused                  # the last answer that was no PubAck, for traces

    # Apply the entry; with several replicas, propose it to the committer too. Raises StoreError.
    cdef int propose(self, Entry* entry) except -1
    # Change the state: the log, and the message ids. Reads no clock and checks nothing.
    cdef int apply(self, Entry* entry) except -1
    # What follows from an applied entry on the leader: rollups, timers, republishing.
    cdef int follow_up(self, Entry* entry, uint64_t previous) except -1

    # Take a publish of a client or of the server itself. `reply_len` 0: no answer is wanted.
    cdef int take(
        self, const char* subject, Py_ssize_t subject_len, const char* headers,
        Py_ssize_t headers_len, const char* data, Py_ssize_t data_len, const char* reply,
        Py_ssize_t reply_len,
    ) except -1
    cdef int fill(
        self, Entry* entry, PublishHeaders* found, const char* subject, Py_ssize_t subject_len,
        const char* headers, Py_ssize_t headers_len, const char* data, Py_ssize_t data_len,
    ) except -1
    cdef int admit(
        self, Entry* entry, PublishHeaders* headers, const char* reply, Py_ssize_t reply_len
    ) except -1
    cdef bint take_level(self, Entry* entry, PublishHeaders* headers) except -1
    cdef int admit_batched(
        self, Admission batches, object disabled, Entry* entry, PublishHeaders* headers,
        const char* reply, Py_ssize_t reply_len,
    ) except -1
    cdef bytes check(self, Entry* entry, PublishHeaders* headers, uint64_t* original)
    cdef bytes check_counted(self, Entry* entry, PublishHeaders* headers, uint64_t* original)
    cdef bytes check_headers(self, Entry* entry, PublishHeaders* headers, uint64_t* original)
    cdef bytes check_batched(self, Entry* entry)
    cdef uint64_t find_id(self, Entry* entry) except? 0
    cdef bytes check_own(self, Entry* entry, PublishHeaders* headers)
    cdef bint is_too_large(self, Entry* entry) noexcept
    cdef bytes check_size(self, Entry* entry)
    cdef bytes check_server(self)
    cdef bytes check_account(self, uint64_t size)
    cdef bytes check_resources(self, Entry* entry, PublishHeaders* headers)
    cdef bytes check_room(self, Entry* entry, bint is_rollup)
    cdef bytes store_failed(self, str text)
    cdef uint64_t size_of(self, Entry* entry) noexcept
    cdef uint64_t previous_of(self, Entry* entry) noexcept
    cdef int count_bytes(self) except -1
    cdef int strip(self, Entry* entry) except -1
    cdef int answer(
        self, AnswerKind kind, uint64_t wait, uint64_t value, const char* reply,
        Py_ssize_t reply_len, bytes text,
    ) except -1
    # Send the PubAck of a batch of `count` messages once all up to `wait` is durable.
    cdef int answer_batch(
        self, uint64_t wait, uint64_t sequence, bytes batch_id, uint64_t count, const char* reply,
        Py_ssize_t reply_len,
    ) except -1
    # Call these when a batch begins to be appended to the log, and when all of it was.
    cdef int begin_together(self, uint64_t count, uint64_t size) except -1
    cdef int end_together(self) except -1
    # Call this before the stream itself appends: a large batch may be going into the log.
    cdef int finish_batch(self) except -1
    cdef int answer_busy(self, const char* reply, Py_ssize_t reply_len) except -1
    cdef int send_busy(self) except -1
    cdef bint send_acks(self) except -1
    cdef int send(self, Answer* answer) except -1
    cdef int reserve(self, Py_ssize_t tail) except -1
