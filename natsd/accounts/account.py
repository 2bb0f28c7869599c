"""The account: its subscriptions, its counters, and its publishers for the server's own parts.

The server's own parts use the account through an internal client, and through the publisher beneath
that, which compiled code calls directly.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from natsd.accounts.internal_client import InternalClient
from natsd.config.trace_options import MsgTraceOptions
from natsd.core.network import AccountPublisher, Reactor, TrafficStats
from natsd.core.routing import SubjectMappings, SubList

if TYPE_CHECKING:
    from natsd.config.account_options import AccountLimits, AccountOptions
    from natsd.core.imports import AccountEntry

GLOBAL_ACCOUNT: Final = "$G"
SYSTEM_ACCOUNT: Final = "$SYS"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountDescription:
    """An account as it was last configured, for monitoring."""

    name: str
    updated_ns: int
    """Unix time of its last change."""
    options: "AccountOptions | None" = None
    """None: it has the default settings."""
    jwt: str = ""
    """Empty: the account comes from the settings."""
    name_in_jwt: str = ""

    @property
    def name_tag(self) -> str:
        """The name that people gave the account; in operator mode `name` is a public key."""
        return self.name_in_jwt or self.name


class Account:
    """An isolated subject space: messages of one account never reach another."""

    __slots__ = (
        "connections",
        "counters",
        "description",
        "entry",
        "internal_client",
        "is_system",
        "limits",
        "mapping_options",
        "mappings",
        "msg_trace",
        "name",
        "publisher",
        "remote_connections",
        "sublist",
    )

    def __init__(
        self,
        name: str,
        reactor: Reactor,
        *,
        sublist_cache: bool = True,
        msg_trace: MsgTraceOptions | None = None,
        limits: "AccountLimits | None" = None,
        is_system: bool = False,
    ) -> None:
        """Create an account without connections.

        `msg_trace` says where messages with a sampled `traceparent` are traced; None: nowhere.
        `limits` are those of its clients; None: there are none. With
        `is_system` it is the account in which the server itself is observed.
        """
        self.name = name
        self.is_system = is_system
        self.msg_trace = msg_trace
        self.limits = limits
        self.sublist = SubList(cache=sublist_cache)
        self.counters = TrafficStats()
        self.connections = 0
        self.remote_connections = 0  # on the other servers of the cluster
        self.mapping_options: Mapping[str, object] = {}  # what `mappings` was made from
        self.mappings: SubjectMappings | None = None  # None: there are none
        self.entry: AccountEntry | None = None  # None: no service is imported here, or exported
        self.description = AccountDescription(name=name, updated_ns=time.time_ns())
        self.publisher = AccountPublisher(reactor, self.sublist, self)
        self.internal_client = InternalClient(reactor, self.sublist, self.publisher)

    def is_full_for(self, current: "Account | None") -> bool:
        """Return whether no connection that is in the account `current` may join this one."""
        return self.connections_over - (current is self) >= 0

    @property
    def connections_over(self) -> int:
        """By how many its connections in the cluster exceed the limit; below 0: more may come."""
        if self.limits is None or self.limits.max_connections < 0:
            return -1
        return self.connections + self.remote_connections - self.limits.max_connections

    def describe(
        self, options: "AccountOptions | None", jwt: str = "", name_in_jwt: str = ""
    ) -> None:
        """Remember the settings that the account has now, for monitoring."""
        self.description = AccountDescription(
            name=self.name,
            updated_ns=time.time_ns(),
            options=options,
            jwt=jwt,
            name_in_jwt=name_in_jwt,
        )

    @property
    def name_tag(self) -> str:
        """The name that people gave the account; in operator mode `name` is a public key."""
        return self.description.name_tag

    def close(self) -> None:
        """Remove the subscriptions of the internal client, and give up pending replies."""
        self.internal_client.close()
        if self.entry is not None:
            self.entry.close()

    def __repr__(self) -> str:
        return f"Account({self.name!r})"
