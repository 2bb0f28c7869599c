"""What is known of a block without reading its file: what a snapshot of a store's state keeps."""

from typing import NamedTuple

from natsd.store.damage import Damage


class BlockSummary(NamedTuple):
    """A block whose every byte is on disk. `dead` and `skipped` are encoded SequenceSets."""

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
    dead: bytes  # what is no live message between base_sequence and last_sequence
    skipped: bytes  # reserved without a message; empty: nothing
    damage: tuple[Damage, ...]
