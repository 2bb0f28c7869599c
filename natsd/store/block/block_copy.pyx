"""Copying of live messages between blocks: for compaction in memory, cutting and snapshots."""

from libc.stdint cimport uint16_t, uint64_t

from natsd.store.codec.records cimport RecordView

from natsd.store.errors import StoreError


cpdef uint64_t copy_messages(
    MsgBlock source, MsgBlock into, uint64_t first, uint64_t last, uint64_t bytes_max
) except 0:
    cdef RecordView view
    cdef uint64_t sequence
    if not source.has_arrays:
        raise StoreError(f"block {source.block_id} is not in memory")
    sequence = source.next_live(first)
    while sequence and sequence <= last:
        if into.size >= bytes_max:
            return sequence
        if source.view(sequence, &view) != FOUND:
            raise StoreError(f"block {source.block_id} is not in memory")
        into.append(
            sequence, view.time_ns, view.expires_ns, view.subject, <uint16_t> view.subject_len,
            view.headers, view.headers_len, view.data, view.data_len, source.slot_of(sequence),
        )
        sequence = source.next_live(sequence + 1)
    return last + 1
