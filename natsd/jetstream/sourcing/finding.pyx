"""Search of a log for messages with headers of schedules, their products, or delayed messages."""

from libc.stdint cimport uint32_t, uint64_t

from natsd.jetstream.stream.checks cimport (
    DELAYED, PublishHeaders, SCHEDULE, SCHEDULER, find_publish_headers,
)
from natsd.store.block.blocks cimport COLD, FOUND, Found
from natsd.store.codec.records cimport RecordView
from natsd.store.log.message_log cimport MessageLog

from natsd.store.block.cold_block import ColdBlock


cdef enum:
    LOOKED_AT_PER_SLICE = 4096
    FOUND_COST = 24       # looks one find counts as: its use takes 10 us of Python


OF_SCHEDULES = 1 << <int> SCHEDULE | 1 << <int> SCHEDULER
OF_DELAYS = 1 << <int> DELAYED


def find_messages(
    MessageLog log not None, uint64_t sequence, uint64_t upto, uint32_t wanted,
    list found not None,
) -> tuple:
    """Search one slice of a log for messages with one of the `wanted` headers.

    The slice starts at `sequence` and ends at `upto` at the latest. Found messages are appended to
    `found` as (sequence, subject, headers, time_ns). Return the sequence to go on with, and how
    many messages the slice had.

    Raises ColdBlock if the first message needs a block that is not in memory.
    """
    cdef PublishHeaders headers
    cdef RecordView view
    cdef Found seen
    cdef uint64_t first = sequence
    cdef uint64_t count = 0
    cdef int left = LOOKED_AT_PER_SLICE
    while left > 0 and log.next_live(sequence, &sequence) and sequence <= upto:
        seen = log.blocks.holding(sequence).view(sequence, &view)
        if seen == COLD:
            if count == 0:
                raise ColdBlock(log.blocks.holding(sequence))
            return sequence, count
        left -= 1
        count += 1
        if seen == FOUND and view.headers_len:
            find_publish_headers(view.headers, view.headers_len, &headers)
            if headers.found & wanted:
                found.append((
                    sequence, view.subject[:view.subject_len], view.headers[:view.headers_len],
                    view.time_ns,
                ))
                left -= FOUND_COST
        sequence += 1
    return (max(upto + 1, first) if left > 0 else sequence), count
