from natsd.core.tracing import TracedMessage
from natsd.jetstream.stream.publish import Ingest

def trace_publish(ingest: Ingest, traced: TracedMessage) -> None: ...
