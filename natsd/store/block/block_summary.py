"""The summary of a block: all that index.db keeps to open the block without reading its file."""

from typing import NamedTuple

from natsd.store.block.damage import Damage


class BlockSummary(NamedTuple):
    """The summary of a block whose bytes are all on disk.

    `dead` and `skipped` are encoded SequenceSets. Sizes are in bytes.
    """

    block_id: int
    seed: int
    base_sequence: int
    last_sequence: int
    size: int
    commit_number: int
    chain: int
    last_checksum: int
    message_count: int
    live_bytes: int
    sealed: bool
    dead: bytes  # sequences from base_sequence to last_sequence without a live message
    skipped: bytes  # sequences that were reserved without a message; empty: none
    damage: tuple[Damage, ...]
