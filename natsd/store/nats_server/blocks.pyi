from collections.abc import Callable

from natsd.store.block.blocks import MsgBlock
from natsd.store.log.message_log import MessageLog
from natsd.store.sequence_set import SequenceSet

def unpack_frames(data: bytes) -> tuple[bytes, int]: ...
def encode_block(block: MsgBlock, key: bytes) -> tuple[bytes, list[int]]: ...
def encode_tombstone(sequence: int, time_ns: int, key: bytes) -> bytes: ...
def highway_hash(key: bytes, data: bytes) -> bytes: ...

class BlockFile:
    first_sequence: int
    last_sequence: int
    last_time_ns: int
    last_checksum: int
    live_bytes: int
    torn_bytes: int
    damage: list[tuple[int, int, int, int]]
    tombstones: SequenceSet
    last_tombstone: int
    last_tombstone_ns: int
    def __init__(self, content: bytes, key: bytes, *, is_verified: bool = False) -> None: ...
    @property
    def messages(self) -> int: ...
    def add_sequences(self, found: SequenceSet) -> None: ...
    def append_to(
        self,
        log: MessageLog,
        removed: SequenceSet,
        last: int,
        number: int,
        bytes_max: int,
        subjects: set[bytes] | None,
        lifetime: Callable[[bytes, int], int] | None,
        refused: list[tuple[int, str]],
    ) -> int: ...

class IndexFile:
    messages: int
    last_sequence: int
    last_time_ns: int
    subjects: set[bytes]
    removed: SequenceSet
    last_block: int
    last_checksum: int
    def __init__(self, data: bytes) -> None: ...
