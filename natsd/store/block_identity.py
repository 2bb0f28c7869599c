"""Whose block a file holds: which stream's, which of its blocks, and what came before it.

    block header   40 store id u64, random, the same in all blocks and in index.db of one store
                   48 follows u64: the sequence that the stream had come to when the block began
    index.db       32 place u64: a checksum of where in the store directory the stream is

Promise
- A block that says that it is another stream's, or has another number than its file's name, is
  never served, and is reported: somebody copied or renamed it, or the disk gave back the wrong one.
- The id is index.db's, where a block bears it out; else that of most blocks. If there are one block
  and index.db, and they differ, then index.db is believed: what is not served is not wrong; but
  not an index.db that tells another place than the one where it is.
- 0: written before there were ids. Such a block is taken for the stream's own.

Blocks, and raises OSError.
"""

import contextlib
import struct
from collections import Counter
from typing import Final

from natsd.store.index_db import StoreImage
from natsd.store.record import checksum
from natsd.store.scan import Scan
from natsd.store.stored_blocks import (
    HEADER_BYTES,
    IDENTITY,
    StoredBlocks,
    block_id_of,
    header_verifies,
)

_PLACE: Final = 40
_SEED: Final = struct.Struct("<Q")
_SEED_PLACE: Final = 16


def place_of(context: str) -> int:
    """What index.db says of that place in the store directory; 0: it is not known."""
    return checksum(context.encode("utf-8", "surrogateescape")) if context else 0


def why_refused(scan: Scan, block_id: int, store_id: int) -> str:
    """Why what was found in that block's file is not to be served; empty: it may be."""
    if scan.readable and scan.block_id != block_id:
        return f"is block {scan.block_id}"
    if scan.store_id and store_id and scan.store_id != store_id:
        return "block of another stream"
    return ""


def find_store_id(blocks: StoredBlocks, image: StoreImage | None) -> int:
    """The store's id; 0: nothing tells it."""
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
    (most, count), *_ = found.most_common(1)  # of as many, the one of the newest block
    return most if count > 1 or not known else known


def _read_header(blocks: StoredBlocks, block_id: int) -> tuple[int, int]:
    """The seed and the store's id by that block's header; zeros if it does not verify."""
    with contextlib.closing(blocks.disk.open(blocks.path_of(block_id), write=False)) as file:
        try:
            header = file.pread(HEADER_BYTES, 0)
        except OSError:
            return 0, 0
    if not header_verifies(header):
        return 0, 0
    return _SEED.unpack_from(header, _SEED_PLACE)[0], IDENTITY.unpack_from(header, _PLACE)[0]
