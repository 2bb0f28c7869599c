from collections.abc import Callable
from typing import Final

from natsd.core.tracing import TracedMessage
from natsd.jetstream.scheduler import Actor
from natsd.jetstream.stream.admission import Admission
from natsd.jetstream.stream.core import StreamCore
from natsd.jetstream.stream.counters import Counters
from natsd.jetstream.stream.message_ids import MessageIds
from natsd.jetstream.stream.scheduled import Scheduled
from natsd.jetstream.stream.settings import IngestSettings
from natsd.jetstream.usage import Usage
from natsd.store.errors import StoreError

DUPLICATE_REFUSED: Final[bytes]

class Ingest(Actor):
    settings: IngestSettings
    is_paused: bool
    trace_publish: Callable[[Ingest, TracedMessage], None] | None
    atomic_batches: Admission | None
    fast_batches: Admission | None
    message_ids: MessageIds
    scheduled: Scheduled
    counters: Counters | None
    expiring: Callable[[int], None] | None
    failing: Callable[[StoreError], None] | None

    def __init__(self, stream: StreamCore, settings: IngestSettings, usage: Usage) -> None: ...
    def configure(self, settings: IngestSettings) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def publish_internal(
        self, subject: str | bytes, headers: bytes, data: bytes, reply: bytes | None = None
    ) -> None: ...
    def store_own(
        self, subject: bytes, headers: bytes, data: bytes, *, is_mapped: bool = False
    ) -> int: ...
    def release_answer(self, sequence: int) -> None: ...
    def fail_answer(self, sequence: int, error: StoreError) -> None: ...
    def count_usage(self) -> None: ...
    def release_usage(self) -> None: ...
    @property
    def num_unanswered(self) -> int: ...
    def close(self) -> None: ...
