"""The compiled part of snapshots: messages of a log into a block, and of a block into a log."""

from libc.stdint cimport uint64_t

from natsd.store.block cimport FOUND, MsgBlock
from natsd.store.block_copy cimport copy_messages
from natsd.store.log cimport MessageLog
from natsd.store.record cimport RecordView
from natsd.store.scan cimport Scan

from natsd.store.errors import DamagedEncoding, SequenceMismatch


def copy_into(
    MessageLog log not None, MsgBlock into not None, uint64_t first, uint64_t last,
    uint64_t bytes_max,
) -> int:
    """Copy messages until `into` has `bytes_max`; where to go on, above `last` at the end. Raises
    ColdBlock, having copied what came before: `into.last_sequence` tells."""
    cdef MsgBlock block
    cdef uint64_t sequence = first
    while log.next_live(sequence, &sequence) and sequence <= last:
        block = log.blocks.holding(sequence)
        sequence = copy_messages(
            block, into, sequence, min(last, block.last_sequence), bytes_max
        )
        if into.size >= bytes_max:
            return sequence
    return last + 1


def append_image(MessageLog log not None, bytes image not None) -> int:
    """Append what a snapshot's block holds; how many messages that were."""
    cdef Scan scan = Scan(image)
    cdef MsgBlock block
    cdef RecordView view
    cdef uint64_t sequence, count = 0
    if not scan.readable or scan.damage or not scan.closed:
        raise DamagedEncoding("a block of the snapshot does not verify")
    block = MsgBlock.from_scan(scan, 0x7fffffff)
    sequence = block.next_live(0)
    while sequence:
        if block.view(sequence, &view) != FOUND:
            raise DamagedEncoding("a block of the snapshot does not verify")
        try:
            log.append_raw(
                view.subject, view.subject_len, view.headers, view.headers_len, view.data,
                view.data_len, view.time_ns, sequence, view.expires_ns, False,
            )
        except SequenceMismatch:
            raise DamagedEncoding("the sequences of the snapshot do not ascend") from None
        count += 1
        sequence = block.next_live(sequence + 1)
    return count
