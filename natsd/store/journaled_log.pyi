from natsd.store.block import MsgBlock
from natsd.store.block_extent import BlockExtent
from natsd.store.expiries import Expiries
from natsd.store.log import MessageLog
from natsd.store.sequence_set import SequenceSet
from natsd.store.subject_index import SubjectIndex

class JournaledLog(MessageLog):
    @property
    def is_dirty(self) -> bool: ...
    @property
    def active(self) -> MsgBlock | None: ...
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
    def take(
        self, commit_number: int, *, force: bool = False, closing: bool = False
    ) -> list[tuple[MsgBlock, BlockExtent]]: ...
    def committed(self) -> list[MsgBlock]: ...
    def rolled_back(self) -> list[MsgBlock]: ...
