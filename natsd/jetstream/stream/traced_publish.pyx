"""A traced publish: what the stream does with it, or would do, is recorded.

    delivered     it is stored with `Nats-Trace-Dest: trace disabled`, so that it is not traced
                  again on its way to consumers, mirrors and sources
    trace-only    it is checked as any other, and answered where it is refused; it is neither
                  stored nor counted, and no batch takes it

The trace says what the stream decided when the message came. The PubAck says that it is on disk.

Source: ADR-41.
"""

from libc.stdint cimport uint64_t

from natsd.core.network cimport TracedMessage
from natsd.core.routing cimport Message
from natsd.jetstream.stream.checks cimport (
    BATCH_ID, DUPLICATE, EXPECTED_LAST_SUBJECT_SEQUENCE, Entry, MESSAGE_ID, PublishHeaders, TEXT,
    header_given,
)
from natsd.jetstream.stream.publishing cimport Ingest, is_fast_reply
from natsd.jetstream.stream.state cimport INTEREST

from natsd.accounts.message_trace import with_trace_disabled
from natsd.jetstream.errors import ErrorId
from natsd.jetstream.stream.publishing import DUPLICATE_REFUSED
from natsd.jetstream.stream.trace_errors import trace_error


def trace_publish(Ingest ingest not None, TracedMessage traced not None) -> None:
    """Take a traced message, or record what would become of it."""
    cdef const Message* message = traced.message
    cdef bytes headers = message.data[:message.header_len]
    cdef PublishHeaders found
    cdef Entry entry
    cdef bytes refused
    cdef bint lacks_sequence = False
    if traced.trace.is_only:
        refused = foretell(ingest, message, &entry, &found)
    else:
        headers = with_trace_disabled(headers)
        refused = store(ingest, message, headers, &entry, &found)
    if refused and header_given(&found, EXPECTED_LAST_SUBJECT_SEQUENCE):
        lacks_sequence = ingest.preconditions.check_subject_sequence(
            &found, entry.subject, entry.subject_len
        ) is not None
    error, is_placed = trace_error(refused, headers, lacks_sequence)
    traced.trace.stream(
        ingest.settings.name, entry.subject[:entry.subject_len] if is_placed else None,
        is_unwanted=entry.is_skipped and not error, error=error,
    )


cdef bytes store(
    Ingest ingest, const Message* message, bytes headers, Entry* entry, PublishHeaders* found
):
    """Take the message; return why it is not stored, or None. The entry is filled either way."""
    cdef const char* data = message.data + message.header_len
    cdef Py_ssize_t data_len = message.data_len - message.header_len
    ingest.refused = None
    ingest.take(
        message.subject, message.subject_len, headers, len(headers), data, data_len,
        message.reply, 0 if message.reply == NULL else message.reply_len,
    )
    ingest.fill(
        entry, found, message.subject, message.subject_len, headers, len(headers), data, data_len
    )
    if ingest.transform is not None:
        ingest.transform.apply(
            entry.subject, entry.subject_len, &entry.subject, &entry.subject_len
        )
    if ingest.stream.retention == INTEREST:
        entry.is_skipped = not ingest.stream.is_wanted(entry.subject, entry.subject_len)
    return ingest.refused


cdef bytes foretell(
    Ingest ingest, const Message* message, Entry* entry, PublishHeaders* found
):
    """Return why the message would be refused, which its publisher is told too; or None."""
    cdef Py_ssize_t reply_len = 0 if message.reply == NULL else message.reply_len
    cdef uint64_t original = 0
    cdef bytes refused
    ingest.fill(
        entry, found, message.subject, message.subject_len, message.data, message.header_len,
        message.data + message.header_len, message.data_len - message.header_len,
    )
    if ingest.message_ids.is_recollecting and header_given(found, MESSAGE_ID):
        refused = ingest.preconditions.refuse(ErrorId.JSStreamTooManyRequests)
    elif ingest.counters is not None and ingest.counters.must_wait(
        ingest.transform, message.subject, message.subject_len
    ):
        refused = ingest.preconditions.refuse(ErrorId.JSStreamTooManyRequests)
    elif is_fast_reply(message.reply, reply_len):
        refused = ingest.check_batched(entry)
        if refused is None and ingest.fast_batches is None:
            refused = ingest.preconditions.refuse(ErrorId.JSBatchPublishDisabledErr)
    elif header_given(found, BATCH_ID):
        refused = ingest.check_batched(entry)
        if refused is None and ingest.atomic_batches is None:
            refused = ingest.preconditions.refuse(ErrorId.JSAtomicPublishDisabledErr)
    else:
        refused = ingest.check(entry, found, &original)
    ingest.stream.scheduler.submit(ingest)
    if original:
        ingest.answer(DUPLICATE, original, original, message.reply, reply_len, None)
        return DUPLICATE_REFUSED
    if refused is not None:
        ingest.answer(TEXT, ingest.log.edges.last, 0, message.reply, reply_len, refused)
    return refused
