from collections.abc import Callable, Iterable

from natsd.store.block.blocks import BlockExtent, MsgBlock, Scan
from natsd.store.codec.records import StoredMessage
from natsd.store.log.subjects import Filter, SubjectIndex
from natsd.store.sequence_set import SequenceSet
from natsd.store.store import Limits, StoreState
from natsd.trie.in_memory import RecordTrie

class Expiries:
    def __len__(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...

class LogObserver: ...

class CallbackObserver(LogObserver):
    def __init__(
        self, on_removed: Callable[[int, int | None], object], on_emptied: Callable[[], object]
    ) -> None: ...

class MessageLog:
    msgs: int
    live_bytes: int
    subjects: SubjectIndex
    dead: SequenceSet
    wanted: MsgBlock | None
    expiries: Expiries
    limits: Limits
    is_undoable: bool
    tombstones: SequenceSet
    erasures: SequenceSet
    sparse: set[MsgBlock]
    is_behind: bool
    is_overcrowded: bool
    is_staged: bool
    applied_index: int
    committed_index: int
    durable_index: int
    needs_care: bool

    def __init__(
        self,
        limits: Limits | None = None,
        make_block: Callable[[int], MsgBlock] | None = None,
    ) -> None: ...
    def append(
        self,
        subject: str | bytes,
        headers: bytes | None,
        data: bytes,
        time_ns: int,
        *,
        sequence: int = 0,
        expires_ns: int = 0,
        is_checked: bool = True,
    ) -> int: ...
    def load(self, sequence: int) -> StoredMessage | None: ...
    def has(self, sequence: int) -> bool: ...
    @property
    def first_sequence(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def last_time_ns(self) -> int: ...
    @property
    def presence_bytes(self) -> int: ...
    @property
    def active(self) -> MsgBlock | None: ...
    @property
    def all_blocks(self) -> tuple[MsgBlock, ...]: ...
    def block_with(self, sequence: int) -> MsgBlock | None: ...
    def set_observer(self, observer: LogObserver | None) -> None: ...
    def set_listener(self, listener: Callable[[], None] | None) -> None: ...
    def append_together(
        self, messages: Iterable[tuple[str | bytes, bytes | None, bytes]], time_ns: int
    ) -> int: ...
    def append_many(
        self, messages: Iterable[tuple[str | bytes, bytes | None, bytes]], time_ns: int
    ) -> int: ...
    def skip(self, count: int = 1) -> int: ...
    def delete(self, sequence: int, *, erase: bool = False) -> bool: ...
    def set_last_time(self, time_ns: int) -> None: ...
    def state(self, *, with_deleted: bool = False) -> StoreState: ...
    def set_limits(self, limits: Limits) -> None: ...
    def next_expiry_ns(self) -> int | None: ...
    def clear(self, next_sequence: int) -> int: ...
    def replace_block(self, old: MsgBlock, new: MsgBlock) -> None: ...
    def drop_block(self, block: MsgBlock) -> None: ...
    def refuse_changes(self, error: Callable[[], Exception] | None) -> None: ...
    def cut(self, sequence: int) -> tuple[list[MsgBlock], MsgBlock | None]: ...
    @property
    def undo_bytes(self) -> int: ...
    def take_over(
        self,
        blocks: list[MsgBlock],
        subjects: SubjectIndex,
        dead: SequenceSet,
        expiries: Expiries,
        *,
        first_sequence: int,
        last_sequence: int,
        first_time_ns: int,
        last_time_ns: int,
        msgs: int,
        live_bytes: int,
    ) -> None: ...

def settle_limits(log: MessageLog, removals_max: int) -> bool: ...

class LogCommits:
    log: MessageLog
    erased: SequenceSet

    def __init__(self, log: MessageLog) -> None: ...
    @property
    def is_quiet(self) -> bool: ...
    @property
    def is_dirty(self) -> bool: ...
    @property
    def is_taken(self) -> bool: ...
    @property
    def is_held(self) -> bool: ...
    def take(
        self, commit_number: int, force: bool = False, closing: bool = False
    ) -> list[tuple[MsgBlock, BlockExtent]]: ...
    def committed(self) -> list[MsgBlock]: ...
    def rolled_back(self) -> list[MsgBlock]: ...
    def cut(self, sequence: int) -> tuple[list[MsgBlock], MsgBlock | None]: ...

class Operation:
    result: object
    def step(self, budget: int) -> bool: ...

class NextMatch(Operation):
    result: int
    def __init__(self, log: MessageLog, wanted: Filter, from_sequence: int) -> None: ...

class SequenceAt(Operation):
    result: int
    def __init__(self, log: MessageLog, time_ns: int) -> None: ...

class LastMatch(Operation):
    result: int
    def __init__(self, log: MessageLog, wanted: Filter) -> None: ...

class MultiLast(Operation):
    result: list[int]
    def __init__(
        self, log: MessageLog, wanted: Filter, up_to_sequence: int = 0, max_allowed: int = -1
    ) -> None: ...

class NumPending(Operation):
    result: tuple[int, int]
    def __init__(
        self, log: MessageLog, wanted: Filter, from_sequence: int, last_per_subject: bool = False
    ) -> None: ...

class SubjectTotals(Operation):
    result: dict[str, int]
    def __init__(self, log: MessageLog, wanted: Filter) -> None: ...

def last_of_subject(log: MessageLog, subject: str | bytes) -> int | None: ...
def read_batch(
    log: MessageLog, from_sequence: int, messages_max: int, bytes_max: int
) -> list[StoredMessage]: ...

class Purge(Operation):
    result: int
    def __init__(
        self, log: MessageLog, wanted: Filter, up_to_sequence: int = 0, keep: int = 0
    ) -> None: ...

class Compact(Operation):
    result: int
    def __init__(self, log: MessageLog, sequence: int) -> None: ...

class RemoveAbove(Operation):
    result: int
    def __init__(self, log: MessageLog, sequence: int) -> None: ...

class Expire(Operation):
    result: int
    last: list[tuple[int, bytes, bytes]] | None
    def __init__(self, log: MessageLog, now_ns: int, is_replacing: bool = False) -> None: ...
    def replaced(self) -> bool: ...

class EnforcePerSubjectLimit(Operation):
    result: int
    def __init__(self, log: MessageLog) -> None: ...

class Sweep(Operation):
    result: int
    def __init__(self, log: MessageLog) -> None: ...

class BlockShare:
    subjects: RecordTrie
    first_sequence: int
    last_sequence: int
    count: int
    live_bytes: int
    first_time_ns: int
    last_time_ns: int

    def __init__(
        self, block: MsgBlock, removed: SequenceSet, floor: int, from_offset: int = 0
    ) -> None: ...
    def merge_into(self, index: SubjectIndex, expiries: Expiries) -> None: ...

def unnote_removed(
    block: MsgBlock,
    index: SubjectIndex,
    removed: SequenceSet,
    dead: SequenceSet,
    first_sequence: int,
    floor: int,
    upto_offset: int,
) -> tuple[int, int]: ...
def pack_blocks(blocks: tuple[MsgBlock, ...]) -> bytes: ...
def look_up_slots(scan: Scan, index: SubjectIndex) -> None: ...
def set_slots(block: MsgBlock, index: SubjectIndex) -> None: ...
def note_gaps(block: MsgBlock, first: int, last: int, dead: SequenceSet) -> None: ...
def dump_expiries(expiries: Expiries) -> bytes: ...
def load_expiries(expiries: Expiries, data: bytes) -> None: ...
