from collections.abc import Callable
from enum import IntEnum

from natsd.core.network import Reactor, Session
from natsd.core.routing import MatchResult, Sink, SubjectMappings, Subscription

REQUEST_TIMEOUT: int
SERVICE_UNAVAILABLE: int
SERVICE_TIMEOUT: int

class ResponseType(IntEnum):
    SINGLETON = 0
    STREAM = 1
    CHUNKED = 2

class StreamImportSink(Sink):
    def __init__(
        self,
        account: object,
        *,
        subject: str | None = None,
        transform: tuple[str, str] | None = None,
        allows_trace: bool = False,
    ) -> None: ...
    has_ended: bool
    @property
    def account(self) -> object: ...
    @property
    def allows_trace(self) -> bool: ...

class ExportedService:
    response_type: ResponseType
    threshold_ns: int
    latency: object
    allows_trace: bool

    def __init__(
        self,
        subject: str,
        *,
        response_type: ResponseType = ...,
        threshold_ns: int = ...,
        latency: object = None,
        allows_trace: bool = False,
    ) -> None: ...
    @property
    def subject(self) -> str: ...

class PendingReply: ...

class AccountEntry(Sink):
    mappings: SubjectMappings | None

    def __init__(self, reactor: Reactor, account: object) -> None: ...
    def relay(self, reply: bytes) -> MatchResult: ...
    def unsubscribed(self, sub: Subscription) -> None: ...
    def expire(self) -> None: ...
    def close(self) -> None: ...
    @property
    def account(self) -> object: ...
    @property
    def pending_count(self) -> int: ...
    @property
    def awaited_count(self) -> int: ...

class ServiceImportSink(Sink):
    def __init__(
        self,
        importer: AccountEntry,
        exporter: AccountEntry,
        export: ExportedService,
        describe: Callable[[Session | None, str, str, bool, bool], bytes],
        *,
        subject: str | None = None,
        transform: tuple[str, str] | None = None,
        is_shared: bool = False,
    ) -> None: ...
    @property
    def importer(self) -> AccountEntry: ...
    @property
    def exporter(self) -> AccountEntry: ...
    @property
    def export(self) -> ExportedService: ...
    @property
    def is_shared(self) -> bool: ...

def without_imitations(block: bytes) -> bytes: ...
