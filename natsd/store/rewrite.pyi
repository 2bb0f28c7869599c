from collections.abc import Collection

from natsd.store.scan import Scan
from natsd.store.sequence_set import SequenceSet

def rewrite(
    scan: Scan,
    dead: SequenceSet,
    *,
    seed: int,
    commit_number: int,
    first_sequence: int,
    last_sequence: int,
    tombstones: Collection[tuple[bool, bytes]] = (),
    created_ns: int = 0,
    flags: int = 0,
) -> bytes: ...
