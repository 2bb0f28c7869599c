from collections.abc import Callable

from natsd.store.block import BlockExtent, MsgBlock
from natsd.store.expiries import Expiries
from natsd.store.record import StoredMessage
from natsd.store.sequence_set import SequenceSet
from natsd.store.store import Limits, StoreState
from natsd.store.subject_index import SubjectIndex

class MessageLog:
    msgs: int
    bytes: int
    subjects: SubjectIndex
    dead: SequenceSet
    expiries: Expiries
    limits: Limits
    wanted: MsgBlock | None
    active: MsgBlock | None
    is_undoable: bool
    tombstones: SequenceSet
    erasures: SequenceSet
    erased: SequenceSet
    is_behind: bool

    def __init__(
        self,
        limits: Limits | None = None,
        make_block: Callable[[int], MsgBlock] | None = None,
        *,
        is_undoable: bool = True,
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
    def skip(self, count: int = 1) -> int: ...
    def delete(self, sequence: int, *, erase: bool = False) -> bool: ...
    def load(self, sequence: int) -> StoredMessage | None: ...
    def state(self, *, with_deleted: bool = False) -> StoreState: ...
    @property
    def first_sequence(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def last_time_ns(self) -> int: ...
    @property
    def is_crowded(self) -> bool: ...
    def settle(self, removals_max: int) -> bool: ...
    def set_limits(self, limits: Limits) -> None: ...
    def next_expiry_ns(self) -> int | None: ...
    def expire(self, now_ns: int, removals_max: int) -> tuple[int, bool]: ...
    @property
    def all_blocks(self) -> tuple[MsgBlock, ...]: ...
    def block_with(self, sequence: int) -> MsgBlock | None: ...
    def adopt(
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
        bytes: int,
    ) -> None: ...
    def clear(self, next_sequence: int) -> int: ...
    def replace_block(self, old: MsgBlock, new: MsgBlock) -> None: ...
    def cut(self, sequence: int) -> tuple[list[MsgBlock], MsgBlock | None]: ...
    @property
    def is_quiet(self) -> bool: ...
    @property
    def is_dirty(self) -> bool: ...
    def may_undo_in(self, block: MsgBlock) -> bool: ...
    @property
    def undo_bytes(self) -> int: ...
    def take(
        self, commit_number: int, *, force: bool = False, closing: bool = False
    ) -> list[tuple[MsgBlock, BlockExtent]]: ...
    def committed(self) -> list[MsgBlock]: ...
    def rolled_back(self) -> list[MsgBlock]: ...
