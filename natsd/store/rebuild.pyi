from natsd.store.block import MsgBlock
from natsd.store.expiries import Expiries
from natsd.store.scan import Scan
from natsd.store.sequence_set import SequenceSet
from natsd.store.subject_index import SubjectIndex
from natsd.trie.record_trie import RecordTrie

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
