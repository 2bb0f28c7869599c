"""Preconditions: the demands of a publisher's headers, checked against everything appended so far.

The order of the checks is part of the contract: a publish that breaks several rules is refused for
the first one.

    check       Nats-Incr · Expected-Stream · TTL · Expected-Last-Subject-Sequence (-Subject)
                · Expected-Last-Sequence
    (the caller checks schedules, natsd/jetstream/schedules/rules.py, and for a duplicate here)
    check_late  Expected-Last-Msg-Id · Rollup
    (the caller checks sizes, resources and interest here)
    check_lifetime   an invalid Nats-TTL

Promise
- Messages that are not durable yet count: decisions are made against the appended state.
- A stream without counters or message TTLs refuses publishes that ask for them. (A stream with
  counters checks increments before all this: counters.pyx.)
- Where the last message of a subject is only known to be in a block that is not in memory, the
  publish is refused as `temporarily unavailable` (10163) and the block is fetched: sent again, it
  is decided. That can only happen when the subject's last message was deleted individually.

Source: nats-server's `processJetStreamMsg`; the order of its checks, observed.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp

from natsd.core.routing cimport subject_is_literal, subject_is_valid
from natsd.jetstream.stream.state cimport StreamReaders
from natsd.store.log.message_log cimport (
    DONE, GONE, MessageLog, NEEDS_BLOCK, Outcome, exact_last,
)

from natsd.core.quoting import quoted
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.stream.answers import refusal
from natsd.jetstream.stream.lifetimes import (
    NEVER, InvalidLifetime, parse_lifetime, with_lifetime,
)
from natsd.store.block.cold_block import ColdBlock
from natsd.store.errors import StoreError
from natsd.store.log.message_log import LastMatch

cdef enum:
    SEARCH_STEPS_MAX = 4        # steps of about a millisecond each, for a pattern
    SEARCH_STEP = 400_000


SECOND_NS = 1_000_000_000
LATEST_NS = 2**63 - 1


cdef inline bytes text_of(HeaderValue* value):
    return value.at[:value.length]


cdef inline bint equals(HeaderValue* value, const char* text, Py_ssize_t length) noexcept:
    return value.length == length and memcmp(value.at, text, length) == 0


cdef inline str shown(bytes text):
    return text.decode("utf-8", "surrogateescape")


cdef bint is_integer(bytes text):
    """Tell whether the text is an optional sign and digits, of any length."""
    digits = text[1:] if text[:1] in (b"+", b"-") else text
    return digits.isdigit()


cdef class Preconditions:
    def __init__(
        self, StreamReaders stream not None, bint allows_rollup, bint allows_lifetimes=False,
        int64_t lifetime_s_min=0, bint counts=False,
    ):
        self.stream = stream
        self.name = stream.name.encode("utf-8", "surrogateescape")
        self.allows_rollup = allows_rollup
        self.allows_lifetimes = allows_lifetimes
        self.lifetime_s_min = lifetime_s_min
        self.counts = counts
        self.refusals = {}

    cdef bytes refuse(self, error_id):
        answer = self.refusals.get(error_id)
        if answer is None:
            answer = refusal(self.stream.name, api_error(error_id))
            self.refusals[error_id] = answer
        return answer

    cdef bytes check(
        self, PublishHeaders* headers, const char* subject, Py_ssize_t subject_len
    ):
        cdef HeaderValue* value
        cdef bytes answer = None
        if header_given(headers, INCREMENT) and not self.counts:
            return self.check_increment(headers)
        answer = self.check_stream(headers)
        if answer is not None:
            return answer
        if header_given(headers, TTL) and not self.allows_lifetimes:
            if self.lifetime_of(headers) == LIFETIME:
                return self.refuse(ErrorId.JSMessageTTLDisabledErr)
        if header_given(headers, EXPECTED_LAST_SUBJECT_SEQUENCE):
            answer = self.check_subject_sequence(headers, subject, subject_len)
        elif header_given(headers, EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT):
            return self.refuse(ErrorId.JSStreamExpectedLastSeqPerSubjectInvalid)
        if answer is not None:
            return answer
        if header_given(headers, EXPECTED_LAST_SEQUENCE):
            value = &headers.values[<int> EXPECTED_LAST_SEQUENCE]
            if header_number(value) != self.stream.log.edges.last:
                return self.wrong_sequence(self.stream.log.edges.last)
        return None

    cdef bytes check_stream(self, PublishHeaders* headers):
        if header_given(headers, EXPECTED_STREAM):
            if not equals(&headers.values[<int> EXPECTED_STREAM], self.name, len(self.name)):
                return self.refuse(ErrorId.JSStreamNotMatchErr)
        return None

    cdef bytes check_increment(self, PublishHeaders* headers):
        """Refuse a counter's increment: this stream has no counters."""
        if is_integer(text_of(&headers.values[<int> INCREMENT])):
            return self.refuse(ErrorId.JSMessageIncrDisabledErr)
        return self.refuse(ErrorId.JSMessageIncrInvalidErr)

    cdef Lifetime lifetime_of(self, PublishHeaders* headers) except? BAD_LIFETIME:
        try:
            seconds = parse_lifetime(text_of(&headers.values[<int> TTL]))
        except InvalidLifetime:
            return BAD_LIFETIME
        return LIFETIME if seconds else NO_LIFETIME

    cdef bytes check_lifetime(self, PublishHeaders* headers):
        if header_given(headers, TTL) and self.lifetime_of(headers) == BAD_LIFETIME:
            return self.refuse(ErrorId.JSMessageTTLInvalidErr)
        return None

    cdef int expire(self, Entry* entry, PublishHeaders* headers) except -1:
        entry.expires_ns = 0
        if not header_given(headers, TTL) or not self.allows_lifetimes:
            return 0
        seconds = parse_lifetime(text_of(&headers.values[<int> TTL]))
        if seconds == NEVER:
            entry.expires_ns = -1
            return 0
        if 0 < seconds < self.lifetime_s_min:
            seconds = self.lifetime_s_min
            self.raised = with_lifetime(entry.headers[:entry.headers_len], seconds)
            entry.headers = PyBytes_AS_STRING(self.raised)
            entry.headers_len = PyBytes_GET_SIZE(self.raised)
        entry.expires_ns = min(entry.time_ns + seconds * SECOND_NS, LATEST_NS)
        return 0

    cdef bytes check_late(self, PublishHeaders* headers, const char* last_id, size_t last_id_len):
        cdef bytes last
        if header_given(headers, EXPECTED_LAST_MESSAGE_ID):
            if not equals(&headers.values[<int> EXPECTED_LAST_MESSAGE_ID], last_id, last_id_len):
                last = last_id[:last_id_len]
                return refusal(
                    self.stream.name,
                    api_error(ErrorId.JSStreamWrongLastMsgIDErrF, id=shown(last)),
                )
        return self.check_rollup(headers) if header_given(headers, ROLLUP) else None

    cdef bytes check_rollup(self, PublishHeaders* headers):
        cdef bytes rollup
        if not self.allows_rollup:
            return self.rollup_failed("rollup not permitted")
        rollup = text_of(&headers.values[<int> ROLLUP]).lower()
        if rollup not in (b"sub", b"all"):
            return self.rollup_failed(f"rollup value invalid: {quoted(shown(rollup))}")
        return None

    cdef bytes rollup_failed(self, str text):
        return refusal(self.stream.name, api_error(ErrorId.JSStreamRollupFailedF, err=text))

    # Sequences of subjects

    cdef bytes check_subject_sequence(
        self, PublishHeaders* headers, const char* subject, Py_ssize_t subject_len
    ):
        cdef uint64_t wanted = header_number(
            &headers.values[<int> EXPECTED_LAST_SUBJECT_SEQUENCE]
        )
        cdef uint64_t last = 0
        cdef int outcome
        if header_given(headers, EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT):
            subject = headers.values[<int> EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT].at
            subject_len = headers.values[<int> EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT].length
        outcome = self.last_of(subject, subject_len, &last)
        if outcome == NEEDS_BLOCK:
            return self.refuse(ErrorId.JSStreamExpectedLastSeqPerSubjectNotReady)
        if last != wanted:
            return self.wrong_sequence(last)
        return None

    cdef bytes wrong_sequence(self, uint64_t sequence):
        error = api_error(ErrorId.JSStreamWrongLastSequenceErrF, seq=sequence)
        return refusal(self.stream.name, error)

    cdef int last_of(self, const char* subject, Py_ssize_t length, uint64_t* found) except -2:
        cdef MessageLog log = self.stream.log
        cdef int64_t slot
        cdef Outcome outcome
        found[0] = 0
        if not subject_is_literal(subject, length):
            return self.last_of_pattern(subject[:length], found)
        slot = log.subjects.find(subject, length)
        if slot < 0 or log.subjects.record(slot).count == 0:
            return GONE
        outcome = exact_last(log, slot, found)
        if outcome == NEEDS_BLOCK:
            self.fetch(log.wanted)
        elif outcome == GONE:
            found[0] = 0
        return outcome

    cdef int last_of_pattern(self, bytes pattern, uint64_t* found) except -2:
        if not subject_is_valid(pattern, len(pattern)):
            return GONE
        operation = LastMatch(self.stream.log, self.stream.store.filter_of(shown(pattern)))
        try:
            for _ in range(SEARCH_STEPS_MAX):
                if operation.step(SEARCH_STEP):
                    found[0] = operation.result
                    return DONE if found[0] else GONE
        except ColdBlock as cold:
            self.fetch(cold.block)
        return NEEDS_BLOCK

    cdef int fetch(self, block) except -1:
        """Fetch a block, so that the check succeeds when the message is sent again."""
        if self.fetching is None:
            self.fetching = self.stream.scheduler.reactor.loop.create_task(self._fetch(block))
        return 0

    async def _fetch(self, block) -> None:
        try:
            await self.stream.store.fetch(block)
        except (StoreError, OSError):
            pass        # the next try reports the error
        finally:
            self.fetching = None
