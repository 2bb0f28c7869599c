"""Ingest: publishes to a stream's subjects become messages, and publishers are answered.

    deliver ─▶ check ─▶ propose ─▶ apply ─▶ log                        inside the publisher's turn
                 │                   └─▶ answer, waiting for its sequence to be durable
                 └─▶ refusal, waiting for what it was checked against
    run: what became durable ─▶ answers, in the order of the messages   at the end of a turn

Promise
- No Python object is made for a message: its demands are found in one pass over its headers, its
  record is written once, and its PubAck is a prefix and a number.
- Everything is decided against the messages appended so far, durable or not; no answer is sent
  before the messages it rests on are durable. When a commit fails, the publishers are answered with
  the error, and the message ids are forgotten.
- A message is stored under the next sequence with the time that `check` read: `apply` reads no
  clock and checks nothing, so that replicas do the same. With several replicas, each applied
  message is a command (commands/commands.py) for the stream's committer.
- Memory is bounded: messages that wait to be durable by the limits of WriteBackpressure, ids by
  the window, answers by ANSWER_BYTES_MAX. Beyond these limits publishers first wait, then they
  are answered 429, then they are not answered.
- Headers that are no valid header block are treated and stored as if there were none
  (sendable.pxd).
- MessageIds knows the message ids, Rollups removes what a rollup replaces, Scheduled handles what
  is published later. A feature that allows or refuses a publish is called in `check`; the
  consequences of a stored message begin in `apply`. Each feature has a file of its own, and costs
  streams that do not use it one branch.

Source: nats-server's `processJetStreamMsg`; docs/store.md.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from natsd.core.decimal cimport DECIMAL_BYTES_MAX, put_decimal
from natsd.core.network cimport TracedMessage
from natsd.core.routing cimport MatchResult, Message, SubjectTransform, Subscription, wire_bytes
from natsd.jetstream.stream.checks cimport (
    AckQueue, Admission, Answer, AnswerKind, BATCH_ID, DUPLICATE, ENDS_SCHEDULE, Entry,
    HeaderValue, IS_DELAYED, MESSAGE_ID, MessageIds, NO_ROLLUP, Preconditions, PublishHeaders,
    REQUEST_INFO, ROLLUP, Rollups, SCHEDULER, SCHEDULE_NEXT, SCHEDULING_HEADERS, STORED,
    STORED_TEXT, STORED_WITH, Scheduled, StreamCounters, TEXT, cut_header, find_header,
    find_publish_headers, has_status, header_given, rollup_of, strip_headers,
)
from natsd.jetstream.stream.state cimport Actor, INTEREST, StreamReaders
from natsd.store.block.sendable cimport sendable_headers
from natsd.store.codec.records cimport RECORD_BYTES_MAX, SUBJECT_BYTES_MAX, record_size
from natsd.store.log.message_log cimport refuse_over_limit
from natsd.store.log.subjects cimport is_exact

from natsd.jetstream.commands.commands import Skip
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.headers import REQUIRED_API_LEVEL, demands_too_much
from natsd.jetstream.schedules.last_message import LastMessages
from natsd.jetstream.schedules.rules import ScheduleRules
from natsd.jetstream.stream.answers import (
    BUSY_HEADERS, OwnMessageRefused, ack_prefix, batch_tail, refusal, store_error,
)
from natsd.store.block.cold_block import ColdBlock
from natsd.store.errors import LimitExceeded, StoreError

cdef enum:
    HEADERS_MAX = 65_535
    ACKS_PER_SLICE = 512
    BUSY_BYTES_MAX = 1 << 20    # bytes of replies answered 429 at the end of this turn
    TAIL_BYTES = 512            # room behind a PubAck's prefix: a sequence, and what a batch adds

cdef bytes LEVEL_HEADER = REQUIRED_API_LEVEL.encode()

TOO_LARGE = "message too large"
DUPLICATE_REFUSED = b'{"duplicate":true}'


cdef class Ingest(Actor):
    def __init__(self, StreamReaders stream not None, settings not None, Usage usage not None):
        """Count everything in the log as used from now on, until `release_usage`."""
        self.stream = stream
        self.log = stream.log
        self.usage = usage
        self.acks = AckQueue()
        self.refusals = Refusals(self.acks, stream.scheduler, self)
        self.busy = AckQueue()
        self.message_ids = MessageIds(stream)
        self.rollups = Rollups(stream, self.acks, self)
        self.scheduled = Scheduled(self.log, self.rollups)
        self.configure(settings)
        stream.ingest = self
        stream.commit_failed = self.commit_failed
        self.count_bytes()

    def __dealloc__(self):
        free(self.text)
        free(self.stripped)

    def configure(self, settings not None) -> None:
        """Apply an IngestSettings. Raises InvalidMapping."""
        cdef StreamReaders stream = self.stream
        cdef SubjectTransform transform = None
        self.finish_batch()
        cdef Republisher republisher = None
        if settings.subject_transform is not None:
            mapping = settings.subject_transform
            transform = SubjectTransform(mapping.source, mapping.destination)
        if settings.republish is not None:
            republisher = self.republisher
            if republisher is None or republisher.settings != settings.republish:
                republisher = Republisher(stream, settings.republish)
        self.prefix = ack_prefix(settings.name, settings.domain)
        self.reserve(TAIL_BYTES)
        self.settings = settings
        self.copies = self.usage.counted_copies(settings.copies)
        self.transform = transform
        self.republisher = republisher
        stream.republisher = republisher
        self.preconditions = Preconditions(
            stream, settings.allows_rollup, settings.allows_lifetimes, settings.lifetime_s_min,
            settings.counts,
        )
        if settings.counts and self.counters is None:
            self.counters = StreamCounters(stream, self.publish_internal)
        self.is_memory = settings.is_memory
        self.no_ack = settings.no_ack
        self.is_sealed = settings.sealed
        self.max_msg_size = settings.max_msg_size
        self.staged_bytes_max = settings.buffered_bytes_max
        rules = ScheduleRules(
            settings.captures, LastMessages(stream.store), settings.allows_schedules,
            settings.allows_lifetimes,
        )
        self.scheduled.configure(rules, self.preconditions)
        self.message_ids.set_window(settings.duplicate_window_ns)
        self.backpressure = WriteBackpressure(
            stream.scheduler.reactor, settings.buffered_msgs_max, settings.buffered_bytes_max,
            self.log.edges.last, self.acks, republisher,
        )

    cdef int reserve(self, Py_ssize_t tail) except -1:
        """Have the prefix of a PubAck in `text`, with `tail` bytes of room behind it."""
        cdef Py_ssize_t head = PyBytes_GET_SIZE(self.prefix)
        cdef char* text = <char*> realloc(self.text, head + tail)
        if text == NULL:
            raise MemoryError()
        self.text = text
        self.tail_room = tail
        memcpy(text, PyBytes_AS_STRING(self.prefix), head)
        return 0

    def pause(self) -> None:
        """Take nothing from now on: the stream ends."""
        self.is_paused = True
        self.stream.allow_removals(False)
        if self.counters is not None:
            self.counters.close()

    def resume(self) -> None:
        """Take publishes: all of the stream is there, its readers too."""
        self.is_paused = False
        self.message_ids.watch_window(self.stream.scheduler.now())
        self.stream.allow_removals(True)

    def close(self) -> None:
        """Stop taking and answering publishes: the stream goes away."""
        self.is_paused = True
        self.stream.ingest = None
        self.stream.republisher = None
        self.stream.commit_failed = None
        self.acks = AckQueue()
        self.busy = AckQueue()
        self.backpressure.acks = self.acks
        self.message_ids.close()
        self.rollups.close()
        for batches in (self.atomic_batches, self.fast_batches):
            if batches is not None:
                batches.close()
        self.atomic_batches = self.fast_batches = None
        if self.republisher is not None:
            self.republisher.close()

    # Taking a publish

    cdef int deliver(self, Subscription sub, Message* message) except -1:
        cdef Py_ssize_t head = message.header_len
        if sub.closed or self.is_paused:
            return 0
        sub.delivered += 1
        self.take(
            message.subject, message.subject_len, message.data, head, message.data + head,
            message.data_len - head, message.reply,
            0 if message.reply == NULL else message.reply_len,
        )
        return 1

    def deliver_traced(self, Subscription sub not None, TracedMessage traced not None) -> bool:
        """Deliver a traced publish; with trace-only it is checked and not stored."""
        if sub.closed or self.is_paused:
            return False
        sub.delivered += 1
        self.trace_publish(self, traced)
        return True

    def publish_internal(
        self, subject not None, bytes headers not None, bytes data not None, bytes reply=None
    ) -> None:
        """Publish a message of the server itself, which is checked and answered as any other."""
        cdef bytes name = wire_bytes(subject)
        self.take(
            PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), PyBytes_AS_STRING(headers),
            PyBytes_GET_SIZE(headers), PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data),
            NULL if reply is None else PyBytes_AS_STRING(reply),
            0 if reply is None else PyBytes_GET_SIZE(reply),
        )

    cdef int take(
        self, const char* subject, Py_ssize_t subject_len, const char* headers,
        Py_ssize_t headers_len, const char* data, Py_ssize_t data_len, const char* reply,
        Py_ssize_t reply_len,
    ) except -1:
        cdef PublishHeaders found
        cdef Entry entry
        cdef Pressure pressure = self.backpressure.pressure()
        self.stream.scheduler.submit(self)
        if pressure != ROOM:
            self.stream.scheduler.reactor.congested = self.backpressure
            if pressure == FULL:
                return self.answer_busy(reply, reply_len)
        if self.atomic_batches is not None and self.atomic_batches.holds:
            if self.atomic_batches.hold(
                subject, subject_len, headers, headers_len, data, data_len, reply, reply_len
            ):
                return 0
            return self.answer_busy(reply, reply_len)
        if self.counters is not None:
            if self.counters.must_wait(self.transform, subject, subject_len):
                if self.counters.hold(
                    subject, subject_len, headers, headers_len, data, data_len, reply, reply_len
                ):
                    return 0
                return self.answer_busy(reply, reply_len)
        self.fill(&entry, &found, subject, subject_len, headers, headers_len, data, data_len)
        if self.message_ids.is_recollecting and header_given(&found, MESSAGE_ID):
            return self.answer_busy(reply, reply_len)
        return self.admit(&entry, &found, reply, reply_len)

    cdef int fill(
        self, Entry* entry, PublishHeaders* found, const char* subject, Py_ssize_t subject_len,
        const char* headers, Py_ssize_t headers_len, const char* data, Py_ssize_t data_len,
    ) except -1:
        """Fill `entry` with an unchecked publish, and `found` with the headers it heeds."""
        entry.subject = subject
        entry.subject_len = subject_len
        headers_len = sendable_headers(headers, headers_len)
        entry.headers = headers
        entry.headers_len = headers_len
        entry.data = data
        entry.data_len = data_len
        entry.message_id_len = 0
        entry.expires_ns = 0
        entry.rollup = NO_ROLLUP
        entry.scheduling = 0
        entry.is_skipped = False
        found.found = 0
        if headers_len:
            find_publish_headers(headers, headers_len, found)
            if has_status(headers, headers_len) or found.found >> <int> REQUEST_INFO & 1:
                self.strip(entry)
                find_publish_headers(entry.headers, entry.headers_len, found)
        return 0

    cdef int strip(self, Entry* entry) except -1:
        """Remove the headers that are not stored."""
        cdef char* room
        if entry.headers_len > self.stripped_room:
            room = <char*> realloc(self.stripped, entry.headers_len)
            if room == NULL:
                raise MemoryError()
            self.stripped = room
            self.stripped_room = entry.headers_len
        entry.headers_len = strip_headers(entry.headers, entry.headers_len, self.stripped)
        entry.headers = self.stripped
        return 0

    cdef int admit(
        self, Entry* entry, PublishHeaders* headers, const char* reply, Py_ssize_t reply_len
    ) except -1:
        """Check, propose, and answer; a message of a batch goes to its batches."""
        cdef uint64_t original = 0
        cdef uint64_t wait = self.log.edges.last
        cdef bytes refused
        if is_fast_reply(reply, reply_len):
            return self.admit_batched(
                self.fast_batches, ErrorId.JSBatchPublishDisabledErr, entry, headers, reply,
                reply_len,
            )
        if header_given(headers, BATCH_ID):
            return self.admit_batched(
                self.atomic_batches, ErrorId.JSAtomicPublishDisabledErr, entry, headers, reply,
                reply_len,
            )
        refused = self.check(entry, headers, &original)
        if original:
            self.refused = DUPLICATE_REFUSED
            return self.answer(DUPLICATE, original, original, reply, reply_len, None)
        if refused is None:
            try:
                self.propose(entry)
                if self.counters is not None:
                    return self.answer(
                        STORED_WITH, entry.sequence, entry.sequence, reply, reply_len,
                        self.counters.tail(),
                    )
                return self.answer(
                    STORED, entry.sequence, entry.sequence, reply, reply_len, None
                )
            except StoreError as error:
                refused = refusal(self.settings.name, store_error(error))
        return self.answer(TEXT, wait, 0, reply, reply_len, refused)

    cdef int admit_batched(
        self, Admission batches, object disabled, Entry* entry, PublishHeaders* headers,
        const char* reply, Py_ssize_t reply_len,
    ) except -1:
        cdef bytes refused = self.check_batched(entry)
        if refused is None and batches is None:
            refused = self.preconditions.refuse(disabled)
        if refused is None:
            return batches.admit(entry, headers, reply, reply_len)
        return self.answer(TEXT, self.log.edges.last, 0, reply, reply_len, refused)

    cdef bint take_level(self, Entry* entry, PublishHeaders* headers) except -1:
        """Check the API level that a batch message demands, and remove that header.

        False: the level is higher than that of this server.
        """
        cdef HeaderValue level
        if not find_header(
            entry.headers, entry.headers_len, LEVEL_HEADER, len(LEVEL_HEADER), &level
        ) or level.length == 0:
            return True
        if demands_too_much(entry.headers[:entry.headers_len]):
            return False
        if entry.headers != self.stripped:
            self.strip(entry)
        find_header(entry.headers, entry.headers_len, LEVEL_HEADER, len(LEVEL_HEADER), &level)
        entry.headers_len = cut_header(self.stripped, entry.headers_len, &level)
        find_publish_headers(entry.headers, entry.headers_len, headers)
        return True

    # Check

    cdef bytes check(self, Entry* entry, PublishHeaders* headers, uint64_t* original):
        """Return the refusal of a publish, else None.

        Without a refusal the entry is complete, or `original` is the sequence of the message that
        it duplicates.
        """
        cdef bytes refused
        cdef uint64_t size
        if self.transform is not None:
            self.transform.apply(
                entry.subject, entry.subject_len, &entry.subject, &entry.subject_len
            )
        if entry.subject_len > SUBJECT_BYTES_MAX or self.size_of(entry) > RECORD_BYTES_MAX:
            return self.store_failed(TOO_LARGE)
        if self.is_sealed:
            return self.preconditions.refuse(ErrorId.JSStreamSealedErr)
        entry.time_ns = self.stream.scheduler.now()
        entry.sequence = self.log.edges.last + 1
        if self.counters is not None:
            return self.check_counted(entry, headers, original)
        if headers.found:
            refused = self.check_headers(entry, headers, original)
            if refused is not None or original[0]:
                return refused
        refused = self.check_size(entry)
        if refused is not None:
            return refused
        refused = self.check_resources(entry, headers)
        if refused is None and entry.scheduling & IS_DELAYED:
            size = self.size_of(entry)
            refused = self.scheduled.check_delayed(entry, size, self.max_msg_size)
            return self.check_account(size) if refused is None else refused
        return refused

    cdef bytes check_counted(
        self, Entry* entry, PublishHeaders* headers, uint64_t* original
    ):
        """Check an increment, as `check` does other messages."""
        cdef bytes refused = self.counters.check(entry, headers)
        if refused is None and headers.found:
            refused = self.check_headers(entry, headers, original)
        if refused is not None or original[0]:
            return refused
        refused = self.counters.count(entry, headers)
        if refused is None:
            refused = self.check_size(entry)
        return self.check_resources(entry, headers) if refused is None else refused

    cdef bytes check_headers(self, Entry* entry, PublishHeaders* headers, uint64_t* original):
        cdef bytes refused = self.preconditions.check(headers, entry.subject, entry.subject_len)
        if refused is not None:
            return refused
        if headers.found & SCHEDULING_HEADERS:
            refused = self.scheduled.check(entry, headers)
            if refused is not None:
                return refused
        if header_given(headers, MESSAGE_ID):
            entry.message_id = headers.values[<int> MESSAGE_ID].at
            entry.message_id_len = headers.values[<int> MESSAGE_ID].length
            original[0] = self.find_id(entry)
            if original[0]:
                return None
        refused = self.preconditions.check_late(
            headers, self.message_ids.last_id, self.message_ids.last_id_len
        )
        if refused is None:
            entry.rollup = rollup_of(headers)
        return refused

    cdef uint64_t find_id(self, Entry* entry) except? 0:
        """Return the sequence of the message with the entry's id, also a delayed one; 0: none."""
        cdef uint64_t original = self.message_ids.find(entry)
        if original == 0:
            original = self.scheduled.find_id(entry, self.message_ids.window_ns)
        return original

    cdef bytes check_batched(self, Entry* entry):
        """Check what every message of a batch must keep to, before its batch is looked up."""
        cdef bytes refused
        if self.is_sealed:
            return self.preconditions.refuse(ErrorId.JSStreamSealedErr)
        refused = self.check_server()
        if refused is None:
            refused = self.check_account(self.size_of(entry))
        if refused is None and self.is_too_large(entry):
            refused = self.preconditions.refuse(ErrorId.JSStreamMessageExceedsMaximumErr)
        return refused

    cdef bint is_too_large(self, Entry* entry) noexcept:
        return 0 <= self.max_msg_size < entry.headers_len + entry.data_len

    cdef bytes check_size(self, Entry* entry):
        if self.is_too_large(entry):
            return self.preconditions.refuse(ErrorId.JSStreamMessageExceedsMaximumErr)
        if entry.headers_len > HEADERS_MAX:
            return self.preconditions.refuse(ErrorId.JSStreamHeaderExceedsMaximumErr)
        return None

    cdef bytes check_server(self):
        cdef Usage server = self.usage.server
        if server is not None and server.exceeds(self.is_memory, 0):
            self.count_bytes()      # messages may have been removed in this turn
            if server.exceeds(self.is_memory, 0):
                return self.preconditions.refuse(ErrorId.JSInsufficientResourcesErr)
        return None

    cdef bytes check_account(self, uint64_t size):
        """Check that the account has room for a record of `size` bytes on every replica."""
        cdef int64_t counted = self.copies * <int64_t> (size - self.log.limit.uncounted_bytes)
        if self.usage.exceeds(self.is_memory, counted):
            self.count_bytes()
            if self.usage.exceeds(self.is_memory, counted):
                return self.preconditions.refuse(self.usage.refusal)
        return None

    cdef bytes check_resources(self, Entry* entry, PublishHeaders* headers):
        """Check the rules for messages that would be stored, or mark the entry as skipped."""
        cdef bytes refused = self.check_server()
        if refused is not None:
            return refused
        if self.stream.retention == INTEREST:
            if not self.stream.is_wanted(entry.subject, entry.subject_len):
                entry.is_skipped = True
                return None
        refused = self.check_account(self.size_of(entry))
        if refused is None and headers.found:
            refused = self.preconditions.check_lifetime(headers)
            if refused is None:
                self.preconditions.expire(entry, headers)
        if refused is None and self.log.limit.discard_new:
            refused = self.check_room(entry, header_given(headers, ROLLUP))
        return refused

    cdef bytes check_room(self, Entry* entry, bint is_rollup):
        """Check the limits of discard new. A rollup makes room on its subject itself."""
        cdef bint per_subject = self.log.limit.discard_new_per_subject
        if is_rollup:
            self.log.limit.discard_new_per_subject = False
        try:
            refuse_over_limit(
                self.log, self.log.subjects.find(entry.subject, entry.subject_len),
                self.size_of(entry),
            )
        except LimitExceeded as error:
            return self.store_failed(error.text)
        except ColdBlock as cold:
            self.preconditions.fetch(cold.block)
            return self.preconditions.refuse(ErrorId.JSClusterNotAvailErr)
        finally:
            self.log.limit.discard_new_per_subject = per_subject
        return None

    cdef bytes store_failed(self, str text):
        return refusal(self.settings.name, api_error(ErrorId.JSStreamStoreFailedF, err=text))

    cdef uint64_t size_of(self, Entry* entry) noexcept:
        return record_size(entry.subject_len, entry.headers_len, entry.data_len, False)

    # Propose and apply

    cdef int propose(self, Entry* entry) except -1:
        cdef uint64_t previous = 0
        if self.stream.proposer is not None:
            self.stream.proposer.begin_publish()
        if self.republisher is not None:
            previous = self.previous_of(entry)
        self.apply(entry)
        self.follow_up(entry, previous)
        if self.stream.proposer is not None:
            self.stream.proposer.end_publish(
                publish_command(entry, self.stream.proposer.take_removed())
            )
        return self.count_bytes()

    cdef int apply(self, Entry* entry) except -1:
        assert entry.sequence == self.log.edges.last + 1
        self.is_rolling = False
        if entry.scheduling & IS_DELAYED:
            self.is_rolling = self.scheduled.delay(entry)
        elif entry.is_skipped:
            self.log.edges.last_time_ns = entry.time_ns
            self.log.skip_raw(1)
        else:
            self.log.append_raw(
                entry.subject, <uint32_t> entry.subject_len, entry.headers,
                <uint32_t> entry.headers_len, entry.data, <uint32_t> entry.data_len,
                entry.time_ns, entry.sequence, entry.expires_ns, False,
            )
        return self.message_ids.remember(entry)

    cdef int follow_up(self, Entry* entry, uint64_t previous) except -1:
        if self.republisher is not None and not entry.is_skipped:
            self.republisher.note(entry.subject, entry.subject_len, entry.sequence, previous)
        if self.log.is_undoable:
            self.backpressure.note(entry.sequence, self.size_of(entry))
        if entry.message_id_len:
            self.message_ids.watch(entry.time_ns)
        if entry.rollup != NO_ROLLUP:
            self.is_rolling = self.rollups.roll_up(entry)
        if entry.expires_ns > 0 and self.expiring is not None:
            self.expiring(entry.expires_ns)
        if entry.scheduling and self.scheduled.note(entry):
            self.is_rolling = True
        return 0

    def skip(self, uint64_t count) -> None:
        """Use up `count` sequences without messages. Raises StoreError."""
        self.log.skip_raw(count)
        if self.log.is_undoable:
            self.backpressure.note(self.log.edges.last, 0)
        if self.stream.proposer is not None:
            self.stream.proposer.propose(Skip(self.log.edges.last))

    cdef int begin_together(self, uint64_t count, uint64_t size) except -1:
        if self.stream.proposer is not None:
            self.stream.proposer.begin_batch()
        return self.log.begin_together(count, size)

    cdef int end_together(self) except -1:
        self.log.end_together()
        if self.stream.proposer is not None:
            self.stream.proposer.end_batch()
        return 0

    def store_own(
        self, bytes subject not None, bytes headers not None, bytes data not None, *,
        bint is_mapped=False,
    ) -> int:
        """Store a message of the server's own making.

        The limits of the stream hold, but the demands of its headers were settled before.
        `is_mapped`: the subject is already a result of the stream's subject transform. Returns the
        sequence of the message; 0: nothing is taken now. Raises OwnMessageRefused, StoreError.
        """
        cdef Entry entry
        cdef PublishHeaders found
        cdef bytes refused
        if self.is_paused or self.is_sealed or self.backpressure.pressure() == FULL:
            return 0
        self.finish_batch()
        self.stream.scheduler.submit(self)
        memset(&entry, 0, sizeof(Entry))
        entry.subject, entry.subject_len = subject, len(subject)
        entry.headers, entry.headers_len = headers, len(headers)
        entry.data, entry.data_len = data, len(data)
        if self.transform is not None and not is_mapped:
            self.transform.apply(
                entry.subject, entry.subject_len, &entry.subject, &entry.subject_len
            )
        entry.time_ns = self.stream.scheduler.now()
        entry.sequence = self.log.edges.last + 1
        find_publish_headers(headers, len(headers), &found)
        refused = self.check_own(&entry, &found)
        if refused is not None:
            raise OwnMessageRefused(refused)
        self.propose(&entry)
        self.scheduled.await_product()
        return entry.sequence

    cdef bytes check_own(self, Entry* entry, PublishHeaders* headers):
        cdef bytes refused = self.check_size(entry)
        if refused is not None:
            return refused
        entry.rollup = rollup_of(headers)
        if header_given(headers, SCHEDULE_NEXT) and header_given(headers, SCHEDULER):
            if headers.values[<int> SCHEDULE_NEXT].at[0] == c'p':       # `purge`; else it is a time
                entry.scheduling = ENDS_SCHEDULE
        if header_given(headers, MESSAGE_ID):
            entry.message_id = headers.values[<int> MESSAGE_ID].at
            entry.message_id_len = headers.values[<int> MESSAGE_ID].length
            if self.message_ids.find(entry):
                entry.message_id_len = 0        # the id is known from the original publish
        return self.check_resources(entry, headers)

    cdef int finish_batch(self) except -1:
        if self.atomic_batches is not None:
            self.atomic_batches.finish()
        return 0

    cdef uint64_t previous_of(self, Entry* entry) noexcept:
        """Return the last sequence of the subject; 0: none, or not known exactly."""
        cdef int64_t slot = self.log.subjects.find(entry.subject, entry.subject_len)
        if slot < 0 or self.log.subjects.record(slot).count == 0:
            return 0
        if not is_exact(self.log.subjects.record(slot).last):
            return 0
        return self.log.subjects.record(slot).last

    cdef int count_bytes(self) except -1:
        """Tell the account by how many bytes the log grew or shrank."""
        cdef int64_t change = <int64_t> self.log.counted_bytes() - self.counted_bytes
        if change:
            self.counted_bytes += change
            self.usage.add(self.is_memory, change)
        return 0

    def count_usage(self) -> None:
        """Count the used bytes again, after removals."""
        self.count_bytes()

    def release_usage(self) -> None:
        """Count nothing as used any more."""
        self.usage.add(self.is_memory, -self.counted_bytes)
        self.counted_bytes = 0

    def count_in(self, Usage usage not None) -> None:
        """Count the used bytes in `usage` from now on, and keep to its limits."""
        self.release_usage()
        self.usage = usage
        self.copies = usage.counted_copies(self.settings.copies)
        self.count_bytes()

    cdef int answer(
        self, AnswerKind kind, uint64_t wait, uint64_t value, const char* reply,
        Py_ssize_t reply_len, bytes text,
    ) except -1:
        if kind == TEXT:
            self.refused = text
        if reply_len == 0 or self.no_ack:
            return 0
        if text is None:
            self.acks.push(kind, wait, value, reply, reply_len, NULL, 0)
        else:
            self.acks.push(
                kind, wait, value, reply, reply_len, PyBytes_AS_STRING(text), len(text)
            )
        if kind == STORED and self.is_rolling:
            self.acks.hold_last()
        return 0

    cdef int answer_batch(
        self, uint64_t wait, uint64_t sequence, bytes batch_id, uint64_t count, const char* reply,
        Py_ssize_t reply_len,
    ) except -1:
        return self.answer(
            STORED_WITH, wait, sequence, reply, reply_len, batch_tail(batch_id, count)
        )

    cdef int answer_busy(self, const char* reply, Py_ssize_t reply_len) except -1:
        """Refuse a publish with 429, or without an answer if too many such answers wait."""
        self.refused = self.preconditions.refuse(ErrorId.JSStreamTooManyRequests)
        if reply_len and not self.no_ack and self.busy.size() < BUSY_BYTES_MAX:
            self.busy.push(TEXT, 0, 0, reply, reply_len, NULL, 0)
        return 0

    cdef bint run(self, int64_t now_ns) except? -1:
        cdef bint is_more
        if not self.log.is_undoable:
            self.stream.advance(self.log.edges.last)
        self.count_bytes()
        self.send_busy()
        is_more = self.send_acks()
        self.backpressure.settle(self.stream.settled())
        self.scheduled.settle(self.stream.visible)
        return is_more

    cdef bint send_acks(self) except -1:
        """Send the answers that wait for nothing any more. True: more of them are left."""
        cdef Answer answer
        cdef int left = ACKS_PER_SLICE
        cdef uint64_t durable = max(self.stream.visible, self.stream.acknowledged)
        while self.acks.peek(&answer) and answer.wait <= durable and not answer.is_held:
            if left == 0:
                return True
            if not self.refusals.may_send(&answer):
                return False
            left -= 1
            try:
                self.send(&answer)
            finally:
                self.acks.pop()
        return False

    cdef int send(self, Answer* answer) except -1:
        cdef MatchResult to = self.stream.publisher.resolve(answer.reply, answer.reply_len)
        cdef char* end
        if answer.kind == TEXT or answer.kind == STORED_TEXT:
            self.stream.publisher.send(
                to, answer.reply, answer.reply_len, NULL, 0, NULL, 0, answer.text, answer.text_len
            )
            return 0
        if answer.kind == STORED_WITH and answer.text_len + DECIMAL_BYTES_MAX >= self.tail_room:
            self.reserve(answer.text_len + DECIMAL_BYTES_MAX + 1)
        end = put_decimal(self.text + PyBytes_GET_SIZE(self.prefix), answer.value)
        if answer.kind == DUPLICATE:
            memcpy(end, b",\"duplicate\": true", 18)
            end += 18
        elif answer.kind == STORED_WITH:
            memcpy(end, answer.text, answer.text_len)
            end += answer.text_len
        end[0] = c'}'
        self.stream.publisher.send(
            to, answer.reply, answer.reply_len, NULL, 0, NULL, 0, self.text, end + 1 - self.text
        )
        return 0

    cdef int send_busy(self) except -1:
        cdef Answer answer
        cdef bytes text
        if self.busy.count == 0:
            return 0
        text = self.preconditions.refuse(ErrorId.JSStreamTooManyRequests)
        while self.busy.peek(&answer):
            try:
                self.stream.publisher.send(
                    self.stream.publisher.resolve(answer.reply, answer.reply_len), answer.reply,
                    answer.reply_len, NULL, 0, PyBytes_AS_STRING(BUSY_HEADERS),
                    len(BUSY_HEADERS), PyBytes_AS_STRING(text), len(text),
                )
            finally:
                self.busy.pop()
        return 0

    def commit_failed(self, error) -> None:
        """Answer the publishers of rolled back messages with the error, and forget their ids."""
        cdef bytes text = refusal(self.settings.name, store_error(error))
        cdef uint64_t durable = self.log.edges.last
        cdef uint64_t kept = max(durable, self.stream.stored_again, self.stream.visible)
        self.refusals.drop()
        self.acks.fail_above(kept, PyBytes_AS_STRING(text), len(text))
        self.refusals.confirm_all()
        self.message_ids.forget_above(durable)
        if self.republisher is not None:
            self.republisher.forget_above(durable)
        self.backpressure.roll_back(durable)
        if self.fast_batches is not None:
            self.fast_batches.forget_above(durable)
        if self.atomic_batches is not None:
            self.atomic_batches.forget_above(durable)
        self.scheduled.roll_back(durable)
        self.stream.scheduler.submit(self)
        if self.failing is not None:
            self.failing(error)

    def release_answer(self, uint64_t sequence) -> None:
        """Send the held answer of a message: it is true now."""
        self.acks.release(sequence)
        self.stream.scheduler.submit(self)

    def fail_answer(self, uint64_t sequence, error) -> None:
        """Answer the publisher of a held message with the error: the message was not kept."""
        cdef bytes text = refusal(self.settings.name, store_error(error))
        cdef set batches = self.acks.fail_held(sequence, PyBytes_AS_STRING(text), len(text))
        if self.fast_batches is not None:
            self.fast_batches.forget(batches)
        self.stream.scheduler.submit(self)

    @property
    def num_unanswered(self) -> int:
        """Number of answers that wait."""
        return self.acks.count
