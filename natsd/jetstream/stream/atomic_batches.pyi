from collections.abc import Callable

from natsd.jetstream.stream.admission import Admission
from natsd.jetstream.stream.inflight_batches import InflightBatches
from natsd.jetstream.stream.publish import Ingest

class AtomicBatches(Admission):
    def __init__(
        self, ingest: Ingest, inflight: InflightBatches, abandoned: Callable[[str, str], None]
    ) -> None: ...
