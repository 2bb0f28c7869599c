"""An account: its interest, its counters, and the client through which the server's own parts use
it."""

from typing import Final

from natsd.accounts.internal_client import InternalClient
from natsd.core.reactor import Counters, Reactor
from natsd.core.sublist import SubList

GLOBAL_ACCOUNT: Final = "$G"
SYSTEM_ACCOUNT: Final = "$SYS"


class Account:
    """A space of subjects. Messages of one account are never seen in another."""

    __slots__ = ("connections", "counters", "internal_client", "name", "sublist")

    def __init__(self, name: str, reactor: Reactor, *, sublist_cache: bool = True) -> None:
        self.name = name
        self.sublist = SubList(cache=sublist_cache)
        self.counters = Counters()
        self.connections = 0
        self.internal_client = InternalClient(reactor, self.sublist, self.counters)

    def close(self) -> None:
        """Drop the server's own subscriptions."""
        self.internal_client.close()

    def __repr__(self) -> str:
        return f"Account({self.name!r})"
