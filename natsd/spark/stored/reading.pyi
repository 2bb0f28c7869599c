from natsd.spark.rows.message_batch import MessageBatch
from natsd.store.block.blocks import Scan
from natsd.store.log.subjects import Filter, SubjectIndex
from natsd.store.sequence_set import SequenceSet

class Records:
    """The wanted messages of a block, from `first` to `last` and not in `dead`.

    `start_time_ns` (inclusive) and `end_time_ns` (exclusive) are ns since the epoch, or None.
    """

    first_sequence: int
    last_sequence: int

    def __init__(
        self,
        scan: Scan,
        first: int,
        last: int,
        dead: SequenceSet,
        wanted: Filter,
        start_time_ns: int | None = None,
        end_time_ns: int | None = None,
    ) -> None: ...
    def fill(self, batch: MessageBatch) -> bool: ...
    def missing(self) -> SequenceSet: ...
    def last_of_subjects(self, seen: SubjectIndex) -> SequenceSet: ...
    def first_wanted(self) -> int | None: ...

CHUNK_BITS: int

class Digests:
    """Digests of the messages of a stream.

    `wanted` holds the numbers of the chunks whose single messages are kept too; None: no chunk's.
    """

    first_sequence: int
    last_sequence: int
    count: int
    data_bytes: int
    first_time_ns: int
    last_time_ns: int
    descents: int

    def __init__(self, wanted: SequenceSet | None = None) -> None: ...
    def add(self, records: Records) -> None: ...
    def take_chunks(self) -> list[bytes]: ...
    def take_ids(self) -> list[bytes]: ...
    def take_rows(self) -> list[bytes]: ...
