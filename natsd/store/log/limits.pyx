"""The limits of a log: which messages it refuses, and which it removes for new ones.

Promise
- A message that "discard new" refuses, or that is too large, changes nothing.
- An append removes up to REMOVALS_MAX messages that a limit does not allow any more. The rest, and
  removals that need a block which is not in memory, wait (`is_behind`) until `settle_limits`.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from natsd.store.codec.records cimport RECORD_BYTES_MAX
from natsd.store.log.subjects cimport sequence_in

from natsd.store.block.cold_block import ColdBlock
from natsd.store.errors import (
    MaximumBytesExceeded, MaximumMessageSizeExceeded, MaximumMessagesExceeded,
    MaximumMessagesPerSubjectExceeded,
)

cdef enum:
    REMOVALS_MAX = 64           # messages that one append may remove
    CROWDED_MAX = 65_536        # subjects that are remembered as waiting for a block


cdef int check_append(MessageLog log, uint64_t size, uint64_t payload) except -1:
    """Raise if a message exceeds what the log accepts, whatever the discard policy is.

    `size` is the record's, `payload` that of headers and data, both in bytes.
    """
    if log.refusal is not None:
        raise log.refusal()
    if size > RECORD_BYTES_MAX or 0 < log.limit.max_msg_size < payload:
        raise MaximumMessageSizeExceeded()
    if 0 < log.limit.max_bytes < size - log.limit.uncounted_bytes:
        raise MaximumBytesExceeded()
    return 0


cdef int refuse_over_limit(MessageLog log, int64_t slot, uint64_t size) except -1:
    """Raise if a "discard new" limit refuses a message with that subject.

    If the subject is at its own limit, the message replaces the subject's first message.
    """
    cdef LogLimits* limit = &log.limit
    cdef bint is_full = (
        slot >= 0 and limit.max_msgs_per_subject > 0
        and log.subjects.record(slot).count >= limit.max_msgs_per_subject
    )
    if is_full and limit.discard_new_per_subject:
        raise MaximumMessagesPerSubjectExceeded()
    if 0 < limit.max_msgs <= log.msgs and not is_full:
        raise MaximumMessagesExceeded()
    if 0 < limit.max_bytes < log.counted_bytes() + size - limit.uncounted_bytes:
        if not is_full:
            raise MaximumBytesExceeded()
        check_room(log, slot, size)
    return 0


cdef int check_room(MessageLog log, int64_t slot, uint64_t size) except -1:
    """Raise MaximumBytesExceeded unless removing the subject's first message makes room."""
    cdef uint64_t first = 0
    if exact_first(log, slot, &first) != DONE:
        raise ColdBlock(log.wanted)
    if not log.blocks.holding(first).has_arrays:
        raise ColdBlock(log.blocks.holding(first))
    size -= log.blocks.holding(first).size_of(first)
    if log.counted_bytes() + size > log.limit.max_bytes:
        raise MaximumBytesExceeded()
    return 0


cdef int enforce_limits(MessageLog log, uint64_t removals_max) except -1:
    """Remove messages from the front while a limit is exceeded; update `is_behind`."""
    while removals_max > 0 and log.is_over():
        if log.remove(log.edges.first, False) != DONE:
            break
        removals_max -= 1
    log.is_behind = log.is_over() or len(log.over_limit) > 0
    return 0


cdef Outcome thin_subject(MessageLog log, int64_t slot) except? NEEDS_BLOCK:
    """Remove a subject's first messages while it has too many, or remember that it has."""
    cdef uint64_t first = 0
    cdef uint64_t count
    cdef uint32_t removals = 0
    cdef Outcome outcome = DONE
    while log.subjects.record(slot).count > log.limit.max_msgs_per_subject:
        outcome = NEEDS_BLOCK
        if removals < REMOVALS_MAX:
            outcome = exact_first(log, slot, &first)
        if outcome == GONE:
            first = sequence_in(log.subjects.record(slot).first)
        count = log.subjects.record(slot).count
        if outcome == DONE:
            outcome = log.remove(first, False)
        if outcome != NEEDS_BLOCK and log.subjects.record(slot).count == count:
            log.subjects.unnote(slot, first)       # counted, but lost: see `remove_lost`
            outcome = DONE
        if outcome != DONE:
            return defer_subject(log, slot)
        removals += 1
    return DONE


cdef Outcome defer_subject(MessageLog log, int64_t slot) except? NEEDS_BLOCK:
    """Remember that the subject has too many messages.

    Beyond CROWDED_MAX such subjects, all subjects must be checked.
    """
    if len(log.over_limit) < CROWDED_MAX:
        log.over_limit[slot] = log.subjects.record(slot).birth
    else:
        log.is_overcrowded = True
    log.is_behind = True
    return NEEDS_BLOCK


def settle_limits(MessageLog log not None, uint64_t removals_max):
    """Do up to `removals_max` deferred removals and removals for limits.

    Returns whether nothing is left to do. Raises ColdBlock if the next removal needs a block.
    """
    cdef int64_t slot
    log.wanted = None
    for slot in list(log.over_limit)[:removals_max]:
        birth = log.over_limit.pop(slot)
        if log.subjects.record(slot).birth == birth and log.limit.max_msgs_per_subject:
            thin_subject(log, slot)
    if not log.limit.max_msgs_per_subject:
        log.over_limit.clear()
    enforce_limits(log, removals_max)
    if log.is_behind and log.wanted is not None:
        raise ColdBlock(log.wanted)
    return not log.is_behind
