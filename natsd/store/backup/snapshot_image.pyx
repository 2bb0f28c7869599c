"""The compiled part of restores: opens the image of a block and appends its messages to a log."""

from libc.stdint cimport uint64_t

from natsd.store.block.blocks cimport FOUND, MsgBlock, Scan
from natsd.store.block.sendable cimport sendable_headers
from natsd.store.codec.records cimport RecordView
from natsd.store.log.message_log cimport MessageLog

from natsd.store.errors import DamagedEncoding, SequenceMismatch

cdef enum:
    RECORD_BYTES = 100      # cost of a message besides its bytes, in bytes that cost as much


def open_image(bytes image not None) -> MsgBlock:
    """Return the block that a snapshot's bytes hold; works mostly without the GIL.

    Raises DamagedEncoding if the bytes do not verify.
    """
    cdef Scan scan = Scan(image)
    if not scan.readable or scan.damage or scan.torn_bytes:
        raise DamagedEncoding("a block of the snapshot does not verify")
    return MsgBlock.from_scan(scan, 0x7fffffff)


def append_from(
    MessageLog log not None, MsgBlock block not None, uint64_t first, uint64_t bytes_max,
) -> int:
    """Append the block's messages from `first` on, about `bytes_max` bytes of them.

    Returns the sequence to go on with, 0 at the end. Headers that are no header block are dropped.
    Raises DamagedEncoding, or the errors of the log's append.
    """
    cdef RecordView view
    cdef uint64_t taken = 0
    cdef uint64_t sequence = block.next_live(first)
    while sequence and taken < bytes_max:
        if block.view(sequence, &view) != FOUND:
            raise DamagedEncoding("a block of the snapshot does not verify")
        try:
            log.append_raw(
                view.subject, view.subject_len, view.headers,
                sendable_headers(view.headers, view.headers_len), view.data, view.data_len,
                view.time_ns, sequence, view.expires_ns, False,
            )
        except SequenceMismatch:
            raise DamagedEncoding("the sequences of the snapshot do not ascend") from None
        taken += RECORD_BYTES + view.subject_len + view.headers_len + view.data_len
        sequence = block.next_live(sequence + 1)
    return sequence
