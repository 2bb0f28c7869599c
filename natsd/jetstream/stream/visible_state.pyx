"""The state of a stream without the messages that are not durable yet.

It is the state of the log less the messages behind the last visible one. These are in memory, and
their number is bounded by what may wait to be durable. A subject is counted if its first message is
visible.

Source: docs/store.md (info shows durable messages only).
"""

from dataclasses import replace

from libc.stdint cimport uint32_t, uint64_t

from natsd.store.block.blocks cimport FOUND, MsgBlock
from natsd.store.codec.records cimport RecordView
from natsd.store.log.message_log cimport MessageLog
from natsd.store.log.subjects cimport sequence_in
from natsd.store.sequence_set cimport SequenceSet


def visible_state(MessageLog log not None, uint64_t visible, *, bint with_deleted=False):
    """Return Store.state as if the log ended at `visible`."""
    cdef uint64_t last = log.edges.last
    cdef uint64_t first = log.edges.first
    cdef uint64_t sequence = visible + 1
    cdef uint64_t hidden = 0, hidden_bytes = 0
    cdef set new_slots = set()
    cdef MsgBlock block
    cdef uint32_t slot
    state = log.state(with_deleted=with_deleted)
    if last <= visible:
        return state
    while log.next_live(sequence, &sequence):
        block = log.blocks.holding(sequence)
        hidden += 1
        hidden_bytes += block.size_of(sequence) - log.limit.uncounted_bytes
        slot = block.slot_of(sequence)
        if sequence_in(log.subjects.record(slot).first) > visible:
            new_slots.add(slot)
        sequence += 1
    return replace(
        state,
        msgs=state.msgs - hidden,
        bytes=state.bytes - hidden_bytes,
        first_sequence=min(first, visible + 1) if visible else 0,
        first_time_ns=state.first_time_ns if first <= visible and state.msgs > hidden else 0,
        last_sequence=visible,
        last_time_ns=time_of_last(log, visible, state.last_time_ns) if visible else 0,
        num_subjects=state.num_subjects - len(new_slots),
        num_deleted=max(0, <long long> (visible + 1 - first) - <long long> (state.msgs - hidden)),
        deleted=None if state.deleted is None else cut(state.deleted, visible, last),
    )


cdef time_of_last(MessageLog log, uint64_t visible, time_ns):
    """Return the time of the last visible message, or `time_ns` if it is not in memory."""
    cdef RecordView view
    cdef uint64_t sequence
    if log.live_before(visible, &sequence) and sequence >= log.edges.first:
        if log.blocks.holding(sequence).view(sequence, &view) == FOUND:
            return view.time_ns
    return time_ns


cdef SequenceSet cut(SequenceSet deleted, uint64_t visible, uint64_t last):
    deleted.discard_run(visible + 1, last)
    return deleted
