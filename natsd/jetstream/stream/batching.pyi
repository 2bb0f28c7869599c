from collections.abc import Callable

from natsd.core.network import TracedMessage
from natsd.jetstream.stream.checks import Admission, InflightBatches
from natsd.jetstream.stream.publishing import Ingest

class AtomicBatch: ...

class AtomicBatches(Admission):
    def __init__(
        self, ingest: Ingest, inflight: InflightBatches, abandoned: Callable[[str, str], None]
    ) -> None: ...

class FastBatches(Admission):
    def __init__(self, ingest: Ingest, inflight: InflightBatches) -> None: ...

def trace_publish(ingest: Ingest, traced: TracedMessage) -> None: ...
