"""AtomicBatches: messages that a publisher sends one by one and that are stored together or not.

    message ─▶ staged, answered with an empty message
    commit  ─▶ check: all of them, as if each followed the one before ─┬─ refused: nothing is stored
                                                                      └─ apply: one after another
               the last one is answered with a PubAck, when all of them are durable

Promise
- All or nothing: nothing is applied before everything was checked. The applied messages are one
  batch of the log, of which a crash leaves all or nothing, and readers see durable messages only.
- Memory is bounded: by the number of batches and of their messages, and in bytes by the buffer
  limit of the stream and by the limit for all batches of the server. A message beyond that is
  answered 429.
- A large batch of a file stream goes into the log in slices. Nothing is committed meanwhile, and
  publishes to the stream wait, in order; any other append first puts the whole batch into the log.
- A batch that fails is forgotten: after a gap, too many messages, or no message for the timeout.
  The `abandoned` callback is called for it in a later turn of the scheduler.

Source: ADR-50; nats-server's `processJetStreamAtomicBatchMsg` and
`checkMsgHeadersPreClusteredProposal`. The order of checks is that of nats-server 2.14.5, observed.
"""

from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp

from natsd.jetstream.stream.checks cimport (
    Admission, BAD_LIFETIME, BATCH_ID, Batch, StreamCounters, DELAY, EXPECTED_LAST_MESSAGE_ID,
    EXPECTED_LAST_SEQUENCE, EXPECTED_LAST_SUBJECT_SEQUENCE, EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT,
    Entry, HeaderValue, INCREMENT, InflightBatches, Lifetime, MESSAGE_ID, NO_LIFETIME,
    Preconditions, PublishHeaders, ROLLUP, ROLLUP_ALL, ROLLUP_SUBJECT, SCHEDULING_HEADERS, TEXT,
    TTL, find_header, find_publish_headers, header_given, header_number, rollup_of,
)
from natsd.jetstream.stream.publishing cimport Ingest
from natsd.jetstream.stream.state cimport INTEREST
from natsd.store.codec.records cimport RECORD_BYTES_MAX, SUBJECT_BYTES_MAX, record_size
from natsd.store.log.message_log cimport LogLimits, MessageLog, check_append

from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.stream.answers import refusal, store_error
from natsd.store.errors import (
    MaximumBytesExceeded, MaximumMessagesExceeded, MaximumMessagesPerSubjectExceeded, StoreError,
)

cdef enum:
    ID_BYTES_MAX = 64
    SLICE_BYTES = 1 << 20       # appended at once: about a millisecond, page faults included
    HELD_PER_SLICE = 256
    HELD_MAX = 100_000

cdef bytes SEQUENCE_HEADER = b"Nats-Batch-Sequence"
cdef bytes COMMIT_HEADER = b"Nats-Batch-Commit"
cdef bytes COMMITS = b"Nats-Batch-Commit: 1\r\n"

TOO_LARGE = "message too large"


cdef BatchCommit commit_of(Entry* entry) noexcept:
    cdef HeaderValue value
    if not find_header(
        entry.headers, entry.headers_len, COMMIT_HEADER, len(COMMIT_HEADER), &value
    ):
        return NO_COMMIT
    if value.length == 1 and value.at[0] == c'1':
        return COMMIT
    if value.length == 3 and memcmp(value.at, b"eob", 3) == 0:
        return COMMIT_BEFORE
    return BAD_COMMIT


cdef class SoFar:
    def __cinit__(self):
        self.message_ids = set()
        self.rewritten = {}
        self.subjects = {}


cdef class AtomicBatches(Admission):
    def __init__(self, Ingest ingest not None, InflightBatches inflight not None, abandoned):
        """Call `abandoned(id, reason)` for each batch that is given up, outside of `deliver`."""
        Admission.__init__(self, ingest.stream.scheduler, inflight)
        self.ingest = ingest
        self.abandoned = abandoned
        self.untold = []
        self.held = deque()

    def close(self) -> None:
        """Store the batch that is being stored and the held publishes; forget other batches."""
        self.finish()
        while self.held:
            self.release_some()
            self.finish()
        Admission.close(self)

    # Messages of a batch

    cdef int admit(
        self, Entry* entry, PublishHeaders* headers, const char* reply, Py_ssize_t reply_len
    ) except -1:
        cdef HeaderValue* id = &headers.values[<int> BATCH_ID]
        cdef HeaderValue sequence
        cdef uint64_t number = <uint64_t> -1
        if id.length > ID_BYTES_MAX:
            return self.answer(
                self.ingest.preconditions.refuse(ErrorId.JSAtomicPublishInvalidBatchIDErr), reply,
                reply_len,
            )
        if find_header(
            entry.headers, entry.headers_len, SEQUENCE_HEADER, len(SEQUENCE_HEADER), &sequence
        ):
            number = header_number(&sequence)
        if number == <uint64_t> -1:
            return self.answer(
                self.ingest.preconditions.refuse(ErrorId.JSAtomicPublishMissingSeqErr), reply,
                reply_len,
            )
        return self.take(
            id.at[:id.length], number, commit_of(entry), entry, headers, reply, reply_len
        )

    cdef int take(
        self, bytes id, uint64_t number, BatchCommit commit, Entry* entry, PublishHeaders* headers,
        const char* reply, Py_ssize_t reply_len,
    ) except -1:
        cdef AtomicBatch batch = self.batches.get(id)
        cdef uint64_t size = number - 1 if commit == COMMIT_BEFORE and number else number
        cdef bytes refused
        if batch is None:
            refused = self.refuse_to_begin(number, size)
            if refused is not None:
                return self.answer(refused, reply, reply_len)
            batch = self.begin(id)
        refused = self.check_message(batch, number, size, commit, entry, headers)
        if refused is not None:
            return self.answer(refused, reply, reply_len)
        if commit != COMMIT_BEFORE and not self.stage(batch, entry):
            return self.ingest.answer_busy(reply, reply_len)
        if commit == NO_COMMIT:
            return self.ingest.answer(TEXT, 0, 0, reply, reply_len, b"")
        self.end(batch)
        if commit == COMMIT_BEFORE:
            batch.add_header(COMMITS, len(COMMITS))
        return self.commit(batch, reply, reply_len)

    cdef bytes refuse_to_begin(self, uint64_t number, uint64_t size):
        """Return the refusal of a message of an unknown batch, or None if it may begin one."""
        if number == 1:
            if self.inflight.is_full(len(self.batches)):
                return self.ingest.preconditions.refuse(ErrorId.JSAtomicPublishTooManyInflight)
            return None
        if size > <uint64_t> self.inflight.msgs_max:
            return self.too_many()
        return self.ingest.preconditions.refuse(ErrorId.JSAtomicPublishIncompleteBatchErr)

    cdef bytes too_many(self):
        return refusal(
            self.ingest.settings.name,
            api_error(ErrorId.JSAtomicPublishTooLargeBatchErrF, size=self.inflight.msgs_max),
        )

    cdef bytes check_message(
        self, AtomicBatch batch, uint64_t number, uint64_t size, BatchCommit commit, Entry* entry,
        PublishHeaders* headers,
    ):
        """Return the refusal of a message that ends its batch before the commit, or None."""
        if commit == BAD_COMMIT:
            self.end(batch)
            return self.ingest.preconditions.refuse(ErrorId.JSAtomicPublishInvalidBatchCommitErr)
        if not self.ingest.take_level(entry, headers):
            self.abandon(batch, "unsupported")
            return self.ingest.preconditions.refuse(ErrorId.JSRequiredApiLevelErr)
        if number != batch.count + 1 or (number == 1 and commit == COMMIT_BEFORE):
            self.abandon(batch, "incomplete")
            return self.ingest.preconditions.refuse(ErrorId.JSAtomicPublishIncompleteBatchErr)
        if size > <uint64_t> self.inflight.msgs_max:
            self.abandon(batch, "large")
            return self.too_many()
        return None

    # Beginning and ending batches

    cdef AtomicBatch begin(self, bytes id):
        cdef AtomicBatch batch = AtomicBatch()
        batch.id = id
        self.add(batch)
        return batch

    cdef bint stage(self, AtomicBatch batch, Entry* entry) except -1:
        """Add a message. False: there is no room for it, and the batch is given up."""
        cdef int64_t before = <int64_t> batch.memory_bytes()
        batch.add(entry)
        self.touch(batch)
        self.staged_bytes += <int64_t> batch.memory_bytes() - before
        self.inflight.staged_bytes += <int64_t> batch.memory_bytes() - before
        if (
            self.staged_bytes <= self.ingest.staged_bytes_max
            and self.inflight.staged_bytes <= self.inflight.staged_bytes_max
        ):
            return True
        self.abandon(batch, "large")
        return False

    cdef int end(self, Batch batch) except -1:
        """Forget a batch and free its share of the staged bytes."""
        cdef int64_t held = <int64_t> (<AtomicBatch> batch).memory_bytes()
        self.staged_bytes -= held
        self.inflight.staged_bytes -= held
        return Admission.end(self, batch)

    cdef int give_up(self, Batch batch) except -1:
        return self.abandon(batch, "timeout")

    cdef int abandon(self, Batch batch, str reason) except -1:
        self.end(batch)
        self.untold.append((batch.id, reason))
        return self.scheduler.submit(self)

    cdef bint run(self, int64_t now_ns) except? -1:
        cdef list untold = self.untold
        self.untold = []
        for id, reason in untold:
            self.abandoned(id.decode("utf-8", "surrogateescape"), reason)
        if self.storing is not None:
            self.store_some(SLICE_BYTES)
        elif self.held:
            self.release_some()
        return self.holds

    cdef int answer(self, bytes refused, const char* reply, Py_ssize_t reply_len) except -1:
        return self.ingest.answer(
            TEXT, self.ingest.log.edges.last, 0, reply, reply_len, refused
        )

    # Commit

    cdef int commit(self, AtomicBatch batch, const char* reply, Py_ssize_t reply_len) except -1:
        """Check and store a batch that was ended, and answer its publisher."""
        cdef SoFar so_far = SoFar()
        cdef bytes refused
        try:
            refused = self.check(batch, so_far)
            if refused is None and so_far.bytes > SLICE_BYTES and self.ingest.log.is_undoable:
                return self.begin_storing(batch, so_far, reply, reply_len)
            if refused is None:
                self.apply(batch, so_far)
        except StoreError as error:
            refused = refusal(self.ingest.settings.name, store_error(error))
        if refused is not None:
            return self.answer(refused, reply, reply_len)
        return self.stored(batch, reply, reply_len)

    cdef int stored(self, AtomicBatch batch, const char* reply, Py_ssize_t reply_len) except -1:
        cdef uint64_t last = self.ingest.log.edges.last
        self.ingest.answer_batch(last, last, batch.id, batch.count, reply, reply_len)
        if reply_len and not self.ingest.no_ack:
            self.ingest.rollups.hold_answer(last)
        return 0

    cdef bytes check(self, AtomicBatch batch, SoFar so_far):
        """Return the answer to a batch that is refused, else None. Raises StoreError."""
        cdef StreamCounters counters = self.ingest.counters
        if counters is None:
            return self.check_all(batch, so_far)
        counters.begin_batch()
        try:
            return self.check_all(batch, so_far)
        finally:
            counters.end_batch()

    cdef bytes check_all(self, AtomicBatch batch, SoFar so_far):
        cdef PublishHeaders headers
        cdef Entry entry
        cdef bytes refused
        cdef uint64_t number
        for number in range(1, batch.count + 1):
            self.load(batch, number, &entry, &headers)
            refused = self.check_one(&entry, &headers, so_far)
            if refused is not None:
                return refused
        return self.ingest.check_account(
            so_far.bytes - (batch.count - 1) * self.ingest.log.limit.uncounted_bytes
        )

    cdef int load(
        self, AtomicBatch batch, uint64_t number, Entry* entry, PublishHeaders* headers
    ) except -1:
        """Fill `entry` with a staged message, its subject as it is stored."""
        batch.get(number, entry)
        entry.scheduling = 0
        find_publish_headers(entry.headers, entry.headers_len, headers)
        if self.ingest.transform is not None:
            self.ingest.transform.apply(
                entry.subject, entry.subject_len, &entry.subject, &entry.subject_len
            )
        return 0

    cdef bytes check_one(self, Entry* entry, PublishHeaders* headers, SoFar so_far):
        cdef bytes subject = entry.subject[:entry.subject_len]
        cdef bytes refused
        cdef uint64_t size = self.ingest.size_of(entry)
        if header_given(headers, EXPECTED_LAST_MESSAGE_ID):
            return self.unsupported("Nats-Expected-Last-Msg-Id")
        if entry.subject_len > SUBJECT_BYTES_MAX or size > RECORD_BYTES_MAX:
            return self.ingest.store_failed(TOO_LARGE)
        refused = self.ingest.check_size(entry)
        if refused is None:
            refused = self.check_headers(entry, headers, so_far)
        if refused is None:
            refused = self.check_sequences(entry, headers, subject, so_far)
        if refused is None and headers.found & SCHEDULING_HEADERS:
            refused = self.check_scheduling(entry, headers, so_far)
        if refused is None and header_given(headers, ROLLUP):
            refused = self.check_rollup(subject, headers, so_far)
        if refused is not None:
            return refused
        size = self.ingest.size_of(entry)
        if header_given(headers, TTL) and self.ingest.preconditions.allows_lifetimes:
            size = record_size(entry.subject_len, entry.headers_len, entry.data_len, True)
        check_append(self.ingest.log, size, <uint64_t> (entry.headers_len + entry.data_len))
        so_far.count += 1
        so_far.bytes += size
        so_far.subjects[subject] = so_far.subjects.get(subject, 0) + 1
        if self.ingest.log.limit.discard_new:
            return self.check_room(subject, header_given(headers, ROLLUP), so_far)
        return None

    cdef bytes unsupported(self, str header):
        error = api_error(ErrorId.JSAtomicPublishUnsupportedHeaderBatchErr, header=header)
        return refusal(self.ingest.settings.name, error)

    cdef bytes check_headers(self, Entry* entry, PublishHeaders* headers, SoFar so_far):
        """Check the headers that concern this message alone, and that it is no duplicate."""
        cdef Preconditions preconditions = self.ingest.preconditions
        cdef bytes refused, id
        cdef Lifetime lifetime
        if self.ingest.counters is not None:
            refused = self.ingest.counters.check(entry, headers)
        elif header_given(headers, INCREMENT):
            refused = preconditions.check_increment(headers)
        else:
            refused = preconditions.check_stream(headers)
        if refused is not None:
            return refused
        if header_given(headers, TTL):
            lifetime = preconditions.lifetime_of(headers)
            if lifetime != NO_LIFETIME and not preconditions.allows_lifetimes:
                return preconditions.refuse(ErrorId.JSMessageTTLDisabledErr)
            if lifetime == BAD_LIFETIME:
                return preconditions.refuse(ErrorId.JSMessageTTLInvalidErr)
        if header_given(headers, MESSAGE_ID):
            self.note_id(entry, headers)
            id = entry.message_id[:entry.message_id_len]
            entry.time_ns = self.ingest.stream.scheduler.now()
            if id in so_far.message_ids or self.ingest.find_id(entry):
                return preconditions.refuse(ErrorId.JSAtomicPublishContainsDuplicateMessageErr)
            so_far.message_ids.add(id)
        return None if self.ingest.counters is None else self.count(entry, headers, so_far)

    cdef bytes count(self, Entry* entry, PublishHeaders* headers, SoFar so_far):
        """Turn an increment into the total after the part of the batch that was checked."""
        cdef bytes refused = self.ingest.counters.count(entry, headers)
        return self.rewrite(entry, so_far) if refused is None else refused

    cdef bytes check_scheduling(self, Entry* entry, PublishHeaders* headers, SoFar so_far):
        """Check a schedule. A delayed message is stored elsewhere, so no batch may contain one."""
        cdef bytes refused
        if header_given(headers, DELAY):
            return self.unsupported("Nats-Delay")
        entry.time_ns = self.ingest.stream.scheduler.now()
        refused = self.ingest.scheduled.check(entry, headers)
        return self.rewrite(entry, so_far) if refused is None else refused

    cdef bytes rewrite(self, Entry* entry, SoFar so_far):
        """Note that the entry as it is now, not the sent message, is to be stored."""
        so_far.rewritten[so_far.count + 1] = (
            entry.headers[:entry.headers_len], entry.data[:entry.data_len], entry.scheduling,
        )
        return self.ingest.check_size(entry)

    cdef int note_id(self, Entry* entry, PublishHeaders* headers) except -1:
        entry.message_id = headers.values[<int> MESSAGE_ID].at
        entry.message_id_len = headers.values[<int> MESSAGE_ID].length
        return 0

    cdef bytes check_sequences(
        self, Entry* entry, PublishHeaders* headers, bytes subject, SoFar so_far
    ):
        """Check expected sequences against the stream as it is before the batch."""
        cdef Preconditions preconditions = self.ingest.preconditions
        cdef HeaderValue* other = &headers.values[<int> EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT]
        cdef uint64_t last = self.ingest.log.edges.last + so_far.count
        if header_given(headers, EXPECTED_LAST_SEQUENCE):
            if header_number(&headers.values[<int> EXPECTED_LAST_SEQUENCE]) != last:
                return preconditions.wrong_sequence(last)
            if so_far.count:
                return preconditions.refuse(ErrorId.JSStreamWrongLastSequenceConstantErr)
        if not header_given(headers, EXPECTED_LAST_SUBJECT_SEQUENCE):
            if header_given(headers, EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT):
                return preconditions.refuse(ErrorId.JSStreamExpectedLastSeqPerSubjectInvalid)
            return None
        if header_given(headers, EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT):
            subject = other.at[:other.length]
        if subject in so_far.subjects:
            return preconditions.refuse(ErrorId.JSStreamWrongLastSequenceConstantErr)
        return preconditions.check_subject_sequence(headers, entry.subject, entry.subject_len)

    cdef bytes check_rollup(self, bytes subject, PublishHeaders* headers, SoFar so_far):
        """Check a rollup: it may replace messages before the batch, but none of the batch."""
        cdef Preconditions preconditions = self.ingest.preconditions
        cdef bytes refused = preconditions.check_rollup(headers)
        if refused is not None:
            return refused
        if rollup_of(headers) == ROLLUP_ALL and so_far.count:
            return preconditions.rollup_failed("batch rollup all invalid")
        if rollup_of(headers) == ROLLUP_SUBJECT and subject in so_far.subjects:
            return preconditions.rollup_failed("batch rollup sub invalid")
        return None

    cdef bytes check_room(self, bytes subject, bint is_rollup, SoFar so_far):
        """Check the limits of discard new against the stream and the checked part of the batch."""
        cdef MessageLog log = self.ingest.log
        cdef LogLimits* limit = &log.limit
        cdef uint64_t bytes_more = so_far.bytes - so_far.count * limit.uncounted_bytes
        cdef int64_t slot
        cdef uint64_t count = so_far.subjects[subject]
        if 0 < limit.max_msgs < log.msgs + so_far.count:
            return self.ingest.store_failed(MaximumMessagesExceeded.text)
        if 0 < limit.max_bytes < log.counted_bytes() + bytes_more:
            return self.ingest.store_failed(MaximumBytesExceeded.text)
        if limit.discard_new_per_subject and limit.max_msgs_per_subject and not is_rollup:
            slot = log.subjects.find(subject, len(subject))
            if slot >= 0:
                count += log.subjects.record(slot).count
            if count > limit.max_msgs_per_subject:
                return self.ingest.store_failed(MaximumMessagesPerSubjectExceeded.text)
        return None

    cdef int apply(self, AtomicBatch batch, SoFar so_far) except -1:
        """Append all messages of a batch; nothing can be refused any more."""
        self.ingest.begin_together(so_far.count, so_far.bytes)
        try:
            self.apply_some(
                batch, so_far, 0, self.ingest.stream.scheduler.now(), <uint64_t> -1
            )
        finally:
            self.ingest.end_together()
        return 0

    cdef uint64_t apply_some(
        self, AtomicBatch batch, SoFar so_far, uint64_t done, int64_t now_ns, uint64_t bytes_max
    ) except? 0:
        """Append at least one message behind the first `done`, and about `bytes_max` bytes at most.

        Returns the number of messages of the batch that are applied now.
        """
        cdef Ingest ingest = self.ingest
        cdef PublishHeaders headers
        cdef Entry entry
        cdef tuple rewritten
        cdef uint64_t size = 0
        while done < batch.count and size < bytes_max:
            done += 1
            self.load(batch, done, &entry, &headers)
            entry.time_ns = now_ns
            entry.sequence = ingest.log.edges.last + 1
            entry.message_id_len = 0
            if header_given(&headers, MESSAGE_ID):
                self.note_id(&entry, &headers)
            rewritten = so_far.rewritten.get(done) if so_far.rewritten else None
            if rewritten is not None:
                entry.headers = PyBytes_AS_STRING(rewritten[0])
                entry.headers_len = PyBytes_GET_SIZE(rewritten[0])
                entry.data = PyBytes_AS_STRING(rewritten[1])
                entry.data_len = PyBytes_GET_SIZE(rewritten[1])
                entry.scheduling = rewritten[2]
                find_publish_headers(entry.headers, entry.headers_len, &headers)
            ingest.preconditions.expire(&entry, &headers)
            entry.rollup = rollup_of(&headers)
            entry.is_skipped = (
                ingest.stream.retention == INTEREST
                and not ingest.stream.is_wanted(entry.subject, entry.subject_len)
            )
            size += ingest.size_of(&entry)
            ingest.propose(&entry)
        return done

    # Storing a large batch in slices

    cdef int begin_storing(
        self, AtomicBatch batch, SoFar so_far, const char* reply, Py_ssize_t reply_len
    ) except -1:
        cdef Storing storing = Storing()
        storing.batch = batch
        storing.so_far = so_far
        storing.reply = reply[:reply_len] if reply_len else b""
        storing.now_ns = self.ingest.stream.scheduler.now()
        self.ingest.begin_together(so_far.count, so_far.bytes)
        storing.block = self.ingest.log.blocks.active
        self.storing = storing
        self.holds = True
        return self.ingest.stream.scheduler.submit(self)

    cdef int store_some(self, uint64_t bytes_max) except -1:
        cdef Storing storing = self.storing
        cdef MessageLog log = self.ingest.log
        if log.blocks.active is not storing.block:      # the stream was purged meanwhile
            log.is_together = False
            storing.block.message_flags = 0
            log.begin_together(storing.so_far.count - storing.done, storing.so_far.bytes)
            storing.block = log.blocks.active
        try:
            storing.done = self.apply_some(
                storing.batch, storing.so_far, storing.done, storing.now_ns, bytes_max
            )
        except BaseException:       # otherwise nothing would ever be committed again
            self.storing = None
            self.holds = len(self.held) > 0
            self.ingest.end_together()
            raise
        storing.batch.give_back(storing.done)
        if storing.done == storing.batch.count:
            self.storing = None
            self.holds = len(self.held) > 0
            self.ingest.end_together()
            self.stored(storing.batch, PyBytes_AS_STRING(storing.reply), len(storing.reply))
            self.ingest.stream.scheduler.submit(self.ingest)
        return 0

    cdef int finish(self) except -1:
        while self.storing is not None:
            self.store_some(<uint64_t> -1)
        return 0

    cdef int forget_above(self, uint64_t durable) except -1:
        """End the batch that is being stored: its messages were rolled back with all unsynced ones.
        """
        cdef Storing storing = self.storing
        if storing is None:
            return 0
        self.storing = None
        self.ingest.log.is_together = False
        storing.block.message_flags = 0
        return self.answer(
            refusal(self.ingest.settings.name, store_error(self.ingest.log.refusal())),
            PyBytes_AS_STRING(storing.reply), len(storing.reply),
        )

    cdef bint hold(
        self, const char* subject, Py_ssize_t subject_len, const char* headers,
        Py_ssize_t headers_len, const char* data, Py_ssize_t data_len, const char* reply,
        Py_ssize_t reply_len,
    ) except -1:
        cdef int64_t size = subject_len + headers_len + data_len + reply_len
        if self.held_bytes + size > self.ingest.staged_bytes_max or len(self.held) >= HELD_MAX:
            return False
        self.held_bytes += size
        self.held.append((
            subject[:subject_len], headers[:headers_len] if headers_len else b"",
            data[:data_len] if data_len else b"", reply[:reply_len] if reply_len else b"", size,
        ))
        return True

    cdef int release_some(self) except -1:
        """Publish some held messages, up to the next large batch."""
        cdef int64_t size, until = self.held_bytes - SLICE_BYTES
        cdef int left = HELD_PER_SLICE
        cdef bytes subject, headers, data, reply
        self.holds = False
        if self.ingest.is_paused:  # the stream is closing; held publishes were not acknowledged
            self.held.clear()
            return 0
        try:
            while self.held and not self.holds and left and self.held_bytes > until:
                subject, headers, data, reply, size = self.held.popleft()
                self.held_bytes -= size
                left -= 1
                self.ingest.take(
                    PyBytes_AS_STRING(subject), len(subject), PyBytes_AS_STRING(headers),
                    len(headers), PyBytes_AS_STRING(data), len(data), PyBytes_AS_STRING(reply),
                    len(reply),
                )
        finally:
            self.holds = self.holds or len(self.held) > 0
        return 0
