from natsd.jetstream.stream.admission import Admission
from natsd.jetstream.stream.inflight_batches import InflightBatches
from natsd.jetstream.stream.publish import Ingest

class FastBatches(Admission):
    def __init__(self, ingest: Ingest, inflight: InflightBatches) -> None: ...
