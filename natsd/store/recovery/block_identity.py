"""The owner of a block file: its stream, its number, and the last sequence before the block.

    block header   40 store id u64, random, the same in all blocks and in index.db of one store
                   48 follows u64: the stream's last sequence when the block began
    index.db       32 place u64: checksum of the stream's path in the store directory

Promise
- A block whose header names another stream, or another number than its file's name, is never served
  and is reported: the file was copied or renamed, or the disk returned the wrong one.
- The store id is taken from index.db if a block confirms it, otherwise from the majority of blocks.
  If there is one block only and it differs from index.db, index.db is believed: then nothing wrong
  is served. An index.db that names another place than its own is not believed.
- Store id 0 means that the file was written before there were store ids. Such a block counts as
  the stream's own.

All functions that read files block and raise OSError.
"""

import contextlib
import struct
from collections import Counter
from typing import Final

from natsd.store.block.blocks import Scan
from natsd.store.block.stored_blocks import (
    HEADER_BYTES,
    IDENTITY,
    StoredBlocks,
    block_id_of,
    header_verifies,
)
from natsd.store.codec.records import checksum
from natsd.store.recovery.index_db import StoreImage

_PLACE: Final = 40
_SEED: Final = struct.Struct("<Q")
_SEED_PLACE: Final = 16


def place_of(context: str) -> int:
    """Return the number that index.db stores for a stream's path; 0 for an empty (unknown) path."""
    return checksum(context.encode("utf-8", "surrogateescape")) if context else 0


def why_refused(scan: Scan, block_id: int, store_id: int) -> str:
    """Return the reason why a scanned block file must not be served; empty if it may be served."""
    if scan.readable and scan.block_id != block_id:
        return f"is block {scan.block_id}"
    if scan.store_id and store_id and scan.store_id != store_id:
        return "block of another stream"
    return ""


def find_store_id(blocks: StoredBlocks, image: StoreImage | None) -> int:
    """Return the store's id; 0 if neither index.db nor any block tells it. Blocks."""
    names = blocks.disk.listdir(blocks.directory)
    ids = sorted(filter(None, map(block_id_of, names)), reverse=True)
    if image is not None and blocks.place and image.place not in (0, blocks.place):
        image = None
    known = image.store_id if image is not None else 0
    if image is not None and known:
        seeds = {each.block_id: each.seed for each in image.blocks}
        for block_id in ids:
            if block_id in seeds:
                if _read_header(blocks, block_id)[0] == seeds[block_id]:
                    return known
                break
    found = Counter(filter(None, (_read_header(blocks, block_id)[1] for block_id in ids)))
    if not found or known in found:
        return known
    (most, count), *_ = found.most_common(1)  # ties go to the newest block, which was counted first
    return most if count > 1 or not known else known


def _read_header(blocks: StoredBlocks, block_id: int) -> tuple[int, int]:
    """Return the seed and the store id from a block's header; zeros if it does not verify."""
    with contextlib.closing(blocks.disk.open(blocks.path_of(block_id), write=False)) as file:
        try:
            header = file.pread(HEADER_BYTES, 0)
        except OSError:
            return 0, 0
    if not header_verifies(header):
        return 0, 0
    return _SEED.unpack_from(header, _SEED_PLACE)[0], IDENTITY.unpack_from(header, _PLACE)[0]
