from natsd.spark.stored.records import Records
from natsd.store.sequence_set import SequenceSet

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
