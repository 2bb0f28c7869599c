"""Images of blocks: messages as the bytes of a closed block, as snapshots and backups carry them.

Sequences without a message are the gaps between the messages, and those that the state of the store
has before the first message and behind the last.
"""

from __future__ import annotations

from collections.abc import Iterator

from natsd.store.backup.snapshots import append_from
from natsd.store.block.blocks import MsgBlock
from natsd.store.errors import DamagedEncoding
from natsd.store.log.message_log import MessageLog
from natsd.store.store import StoreState

BLOCK_BYTES = 128 << 10  # bytes of records that are copied at once: a slice of the loop
BLOCK_BYTES_LIMIT = (1 << 31) - 1


def closed_bytes(block: MsgBlock) -> bytes:
    """Return the bytes of the block's file, closed: nothing is appended to it any more."""
    extent = block.take_extent(1, block.base_sequence, force=True, closing=True)
    assert extent is not None
    return bytes(memoryview(extent))


def append_image(log: MessageLog, block: MsgBlock) -> Iterator[None]:
    """Append a block's messages to the log, one slice at each step.

    Raises DamagedEncoding and StoreError.
    """
    sequence = append_from(log, block, 0, BLOCK_BYTES)
    while sequence:
        yield
        sequence = append_from(log, block, sequence, BLOCK_BYTES)


def end_as(log: MessageLog, state: StoreState, live_bytes: int) -> None:
    """Make the log end where the state says, after all messages were appended.

    `live_bytes` is the length of the live records in the blocks, with headers that the log dropped
    since they are no header block. Raises DamagedEncoding if the log then does not hold what the
    state says.
    """
    if state.last_sequence > log.last_sequence:
        log.skip(state.last_sequence - log.last_sequence)
    log.set_last_time(state.last_time_ns)
    there = log.msgs, live_bytes, log.last_sequence
    if there != (state.msgs, state.bytes, state.last_sequence):
        raise DamagedEncoding("the snapshot does not hold what its state says")
