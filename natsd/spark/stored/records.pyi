from natsd.spark.rows.message_batch import MessageBatch
from natsd.store.filter import Filter
from natsd.store.scan import Scan
from natsd.store.sequence_set import SequenceSet
from natsd.store.subject_index import SubjectIndex

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
