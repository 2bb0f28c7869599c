"""The live messages of a block's file, as the bytes of a block: for snapshots and backups.

If every message of a block lives, the image is the bytes of its file. Otherwise the live messages
are copied into a new block. Neither image has the content of a removed message. This takes a while:
call it in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass

from natsd.store.backup.block_images import BLOCK_BYTES, BLOCK_BYTES_LIMIT, closed_bytes
from natsd.store.block.blocks import MsgBlock, Scan, copy_messages
from natsd.store.sequence_set import SequenceSet


@dataclass(frozen=True, slots=True)
class LiveImage:
    """The bytes of a block with `msgs` messages of `bytes` bytes.

    `data` is empty if no message lives. `lost` is the number of messages that should live and do
    not verify.
    """

    data: bytes = b""
    msgs: int = 0
    bytes: int = 0
    lost: int = 0


def live_image(scan: Scan, first: int, last: int, dead: SequenceSet) -> LiveImage:
    """Return the image of the messages from `first` to `last` that are not in `dead`.

    `scan` is the scan of the block that holds all these sequences.
    """
    removed = SequenceSet()
    if first <= last:
        removed.add_range(first, last)
        removed.intersection_update(dead)
    expected = max(last - first + 1, 0) - removed.count
    if not expected:
        return LiveImage()
    if not scan.readable:
        return LiveImage(lost=expected)
    if scan.live_count == expected and not scan.damage:  # so all of its messages live
        data = scan.data if scan.end == len(scan.data) else scan.data[: scan.end]
        return LiveImage(data, expected, scan.live_bytes)
    return _copied(scan, first, last, removed, expected)


def _copied(scan: Scan, first: int, last: int, removed: SequenceSet, expected: int) -> LiveImage:
    """Copy the live messages in slices, between which another thread can take the GIL."""
    source = MsgBlock.from_scan(scan, BLOCK_BYTES_LIMIT)
    for sequence in removed:
        source.remove(sequence)
    image = MsgBlock(1, 0, first, BLOCK_BYTES_LIMIT)
    at = first
    while at <= last:
        at = copy_messages(source, image, at, last, image.size + BLOCK_BYTES)
    lost = expected - image.message_count
    if not image.message_count:
        return LiveImage(lost=lost)
    return LiveImage(closed_bytes(image), image.message_count, image.live_bytes, lost)
