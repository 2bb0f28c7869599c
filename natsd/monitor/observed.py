"""What monitoring reads from the server: these attributes, and nothing else."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from natsd.accounts import Account
from natsd.clients import Client, ClosedClient
from natsd.config import Options
from natsd.core.reactor import Counters

if TYPE_CHECKING:
    from natsd.jetstream.jetstream import JetStream


class ObservedServer(Protocol):
    """A server, as far as monitoring looks."""

    @property
    def options(self) -> Options: ...
    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def start_time(self) -> datetime: ...
    @property
    def client_host(self) -> str: ...
    @property
    def client_port(self) -> int: ...
    @property
    def counters(self) -> Counters: ...
    @property
    def total_connections(self) -> int: ...
    @property
    def clients(self) -> Mapping[int, Client]: ...
    @property
    def closed_clients(self) -> Iterable[ClosedClient]: ...
    @property
    def is_ready(self) -> bool: ...
    @property
    def jetstream(self) -> "JetStream | None": ...
    @property
    def accounts(self) -> Mapping[str, Account]: ...
