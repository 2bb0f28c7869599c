"""FastBatches: messages that are stored as they come, and answered once for several messages.

    message ─▶ in its turn? ─┬─ checked and stored as any other ─▶ every `flow` messages: "ack"
                             ├─ a gap, which is allowed ─▶ "gap", and as above
                             └─ a gap, which is not ─▶ "gap", and the batch ends: PubAck
    commit  ─▶ PubAck of what was stored
    ping    ─▶ "ack" of what is there; a gap is told and treated as above

Promise
- A flow message or a PubAck is sent when every message it covers is durable, in the order of the
  stored messages. When a commit of the store fails, the publisher is sent the error and its batch
  ends; so it is when only the store of delayed messages fails.
- A single publisher gets flow messages as rarely as it allows, up to every FLOW_MAX messages;
  several publishers share that number, and begin slowly.
- No Python object is made for a message that follows one of the same batch.
- A batch without a message for the timeout is forgotten; its stored messages stay.

Source: ADR-50; nats-server's `processJetStreamFastBatchMsg` and `getFastBatch`. The order of
answers is that of nats-server 2.14.5, observed.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from natsd.core.decimal cimport put_decimal
from natsd.jetstream.stream.checks cimport (
    Admission, Batch, Entry, InflightBatches, PublishHeaders, STORED_TEXT, STORED_WITH, TEXT,
)
from natsd.jetstream.stream.publishing cimport (
    FAST_COMMIT, FAST_COMMIT_BEFORE, FAST_PING, FastReply, Ingest, parse_fast_reply,
)

from natsd.jetstream.errors import ErrorId
from natsd.jetstream.stream.answers import (
    duplicate_tail, flow_error, flow_gap, refusal, store_error,
)
from natsd.store.errors import StoreError

cdef enum:
    FAST_ID_BYTES_MAX = 64
    FLOW_MAX = 500              # shared by all batches of a stream
    FLOW_BYTES = 96             # room for one flow message


cdef class FastBatch(Batch):
    """An open fast batch; fast_batches.pxd lists its fields."""


cdef class FastBatches(Admission):
    def __init__(self, Ingest ingest not None, InflightBatches inflight not None):
        Admission.__init__(self, ingest.stream.scheduler, inflight)
        self.ingest = ingest

    # Messages of a batch

    cdef int admit(
        self, Entry* entry, PublishHeaders* headers, const char* reply, Py_ssize_t reply_len
    ) except -1:
        cdef FastReply said
        cdef FastBatch batch
        cdef bytes refused = None
        if not parse_fast_reply(reply, reply_len, &said):
            refused = self.ingest.preconditions.refuse(ErrorId.JSBatchPublishInvalidPatternErr)
            return self.refuse(refused, reply, reply_len)
        batch = self.find(&said)
        if batch is None:
            refused = self.refuse_to_begin(&said)
            if refused is not None:
                return self.refuse(refused, reply, reply_len)
            batch = self.begin(&said)
        if entry.headers_len and not self.ingest.take_level(entry, headers):
            self.end(batch)
            refused = self.ingest.preconditions.refuse(ErrorId.JSRequiredApiLevelErr)
            return self.refuse(refused, reply, reply_len)
        self.touch(batch)
        if said.operation == FAST_PING:
            return self.ping(batch, said.sequence, reply, reply_len)
        if not self.follows(batch, said.sequence, reply, reply_len):
            return 0
        if said.operation == FAST_COMMIT_BEFORE:
            batch.last -= 1
            return self.commit(batch, reply, reply_len)
        if said.sequence == 1 and said.operation != FAST_COMMIT:
            self.send_flow(batch, 0, 0, reply, reply_len)
        return self.store(batch, &said, entry, headers, reply, reply_len)

    cdef int ping(
        self, FastBatch batch, uint64_t sequence, const char* reply, Py_ssize_t reply_len
    ) except -1:
        if sequence > batch.last:
            self.refuse(flow_gap(batch.last + 1, sequence + 1), reply, reply_len)
            if not batch.gaps_allowed:
                return self.commit(batch, reply, reply_len)
            batch.last = batch.taken = sequence
            if self.tell_flow(batch, reply, reply_len):
                return 0
        return self.send_flow(batch, batch.wait, batch.told, reply, reply_len)

    cdef bint follows(
        self, FastBatch batch, uint64_t sequence, const char* reply, Py_ssize_t reply_len
    ) except -1:
        if sequence == batch.last + 1:
            batch.last = sequence
            return True
        if sequence > batch.last:
            self.refuse(flow_gap(batch.last + 1, sequence), reply, reply_len)
            if batch.gaps_allowed:
                batch.last = sequence
                return True
        self.commit(batch, reply, reply_len)
        return False

    cdef int store(
        self, FastBatch batch, FastReply* said, Entry* entry, PublishHeaders* headers,
        const char* reply, Py_ssize_t reply_len,
    ) except -1:
        cdef uint64_t original = 0
        cdef bytes refused = self.ingest.check(entry, headers, &original)
        if original:
            return self.duplicate(batch, said, original, reply, reply_len)
        if refused is None:
            try:
                self.ingest.propose(entry)
            except StoreError as error:
                refused = refusal(self.ingest.settings.name, store_error(error))
        if refused is not None:
            return self.refused(batch, said, refused, reply, reply_len)
        batch.stored = batch.wait = entry.sequence
        batch.taken = batch.last
        if said.operation == FAST_COMMIT:
            self.commit(batch, reply, reply_len)
        elif not self.tell_flow(batch, reply, reply_len) and self.ingest.is_rolling:
            self.send_flow(batch, batch.wait, batch.taken, reply, reply_len)
        if self.ingest.is_rolling and not self.ingest.no_ack:
            self.ingest.acks.hold_last()    # later answers wait behind this one
        return 0

    cdef int duplicate(
        self, FastBatch batch, FastReply* said, uint64_t original, const char* reply,
        Py_ssize_t reply_len,
    ) except -1:
        """Note a duplicate; it is answered only if it is the whole batch."""
        batch.taken = said.sequence
        batch.wait = max(batch.wait, original)
        self.tell_flow(batch, reply, reply_len)
        if said.operation != FAST_COMMIT or batch.last > 1 or batch.gaps_allowed:
            if self.ingest.scheduled.is_unsaved(original):      # the original may still be lost
                self.send_flow(batch, original, batch.told, reply, reply_len)
            return self.commit(batch, reply, reply_len) if said.operation == FAST_COMMIT else 0
        self.end(batch)
        self.ingest.answer(
            STORED_WITH, original, original, reply, reply_len,
            duplicate_tail(batch.id, said.sequence),
        )
        return self.answered(batch)

    cdef int refused(
        self, FastBatch batch, FastReply* said, bytes refused, const char* reply,
        Py_ssize_t reply_len,
    ) except -1:
        if batch.last == 1 and not batch.gaps_allowed:
            self.end(batch)
            return self.refuse(refused, reply, reply_len)
        self.refuse(flow_error(refused, said.sequence), reply, reply_len)
        if batch.gaps_allowed and said.operation != FAST_COMMIT:
            return 0
        batch.last -= 1
        return self.commit(batch, reply, reply_len)

    cdef int commit(self, FastBatch batch, const char* reply, Py_ssize_t reply_len) except -1:
        """End the batch; its stored messages stay."""
        self.end(batch)
        self.ingest.answer_batch(
            batch.wait, batch.stored, batch.id, batch.last, reply, reply_len
        )
        return self.answered(batch)

    cdef int answered(self, FastBatch batch) noexcept:
        if not self.ingest.no_ack:
            self.ingest.acks.mark_last(batch.number)
        return 0

    cdef int refuse(self, bytes refused, const char* reply, Py_ssize_t reply_len) except -1:
        return self.ingest.answer(
            TEXT, self.ingest.log.edges.last, 0, reply, reply_len, refused
        )

    # Flow messages

    cdef bint tell_flow(
        self, FastBatch batch, const char* reply, Py_ssize_t reply_len
    ) except -1:
        cdef uint32_t most
        if batch.taken < batch.told + batch.flow:
            return False
        batch.told += (batch.taken - batch.told) // batch.flow * batch.flow
        most = max(<uint32_t> 1, FLOW_MAX // <uint32_t> len(self.batches))
        most = min(most, batch.flow_max)
        if batch.flow < most:
            batch.flow = min(2 * batch.flow, most)
        else:
            batch.flow = max(batch.flow // 2, most)
        self.send_flow(batch, batch.wait, batch.told, reply, reply_len)
        return True

    cdef int send_flow(
        self, FastBatch batch, uint64_t wait, uint64_t sequence, const char* reply,
        Py_ssize_t reply_len,
    ) except -1:
        cdef char[FLOW_BYTES] text
        cdef char* end = text
        if self.ingest.no_ack:
            return 0
        memcpy(end, b'{"type":"ack","seq":', 20)
        end = put_decimal(end + 20, sequence)
        memcpy(end, b',"msgs":', 8)
        end = put_decimal(end + 8, batch.flow)
        end[0] = c'}'
        self.ingest.acks.push(STORED_TEXT, wait, wait, reply, reply_len, text, end + 1 - text)
        return self.answered(batch)

    # Beginning and ending batches

    cdef FastBatch find(self, FastReply* said):
        cdef FastBatch recent = self.recent
        if (
            recent is None or PyBytes_GET_SIZE(recent.id) != said.id_len
            or memcmp(PyBytes_AS_STRING(recent.id), said.id, said.id_len) != 0
        ):
            recent = self.batches.get(said.id[:said.id_len])
            if recent is not None:
                self.recent = recent
        return recent

    cdef bytes refuse_to_begin(self, FastReply* said):
        if said.id_len > FAST_ID_BYTES_MAX:
            return self.ingest.preconditions.refuse(ErrorId.JSBatchPublishInvalidBatchIDErr)
        if said.sequence != 1:
            return self.ingest.preconditions.refuse(ErrorId.JSBatchPublishUnknownBatchIDErr)
        if self.inflight.is_full(len(self.batches)):
            return self.ingest.preconditions.refuse(ErrorId.JSBatchPublishTooManyInflight)
        return None

    cdef FastBatch begin(self, FastReply* said):
        cdef FastBatch batch = FastBatch()
        batch.id = said.id[:said.id_len]
        self.begun = max(<uint32_t> 1, self.begun + 1)
        batch.number = self.begun
        batch.gaps_allowed = said.gaps_allowed
        batch.flow_max = said.flow
        batch.flow = 1 if self.batches else min(<uint32_t> FLOW_MAX, said.flow)
        self.add(batch)
        self.recent = batch
        return batch

    cdef int end(self, Batch batch) except -1:
        self.recent = None
        return Admission.end(self, batch)

    cdef int forget_above(self, uint64_t durable) except -1:
        """End the batches that lost messages to a failed commit."""
        cdef FastBatch batch
        for batch in list(self.batches.values()):
            if batch.wait > durable:
                self.end(batch)
        return 0

    cdef int forget(self, set numbers) except -1:
        cdef FastBatch batch
        for batch in list(self.batches.values()):
            if batch.number in numbers:
                self.end(batch)
        return 0
