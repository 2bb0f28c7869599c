"""What monitoring reads from the server: these attributes, and nothing else.

Times of connections are nanoseconds of the monotonic clock, as the connections keep them; `Clock`
turns them into the wall clock's for whoever reads the answer.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from natsd.config import Options


class ObservedSubscription(Protocol):
    """One subscription of a client."""

    @property
    def subject(self) -> str: ...
    @property
    def queue(self) -> str | None: ...
    @property
    def sid(self) -> str: ...
    @property
    def msgs(self) -> int: ...
    @property
    def max(self) -> int: ...


class ObservedConnection(Protocol):
    """What open and closed connections have in common."""

    @property
    def cid(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def ip(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def last_activity_ns(self) -> int: ...
    @property
    def rtt_ns(self) -> int: ...
    @property
    def pending_bytes(self) -> int: ...
    @property
    def in_msgs(self) -> int: ...
    @property
    def in_bytes(self) -> int: ...
    @property
    def out_msgs(self) -> int: ...
    @property
    def out_bytes(self) -> int: ...
    @property
    def stalls(self) -> int: ...
    @property
    def num_subscriptions(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def lang(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def authorized_user(self) -> str: ...
    def subscriptions(self) -> Sequence[ObservedSubscription]: ...


class ObservedClient(ObservedConnection, Protocol):
    """An open connection."""

    @property
    def account(self) -> "ObservedAccount": ...


class ObservedClosedClient(ObservedConnection, Protocol):
    """A connection that is gone, remembered for `connz?state=closed`."""

    @property
    def account_name(self) -> str: ...
    @property
    def stop_ns(self) -> int: ...
    @property
    def reason(self) -> str: ...


class ObservedStatistics(Protocol):
    """What a SubList counts."""

    @property
    def num_subs(self) -> int: ...
    @property
    def num_cache(self) -> int: ...
    @property
    def num_inserts(self) -> int: ...
    @property
    def num_removes(self) -> int: ...
    @property
    def num_matches(self) -> int: ...
    @property
    def cache_hits(self) -> int: ...
    @property
    def max_fanout(self) -> int: ...
    @property
    def total_fanout(self) -> int: ...


class ObservedSubList(Protocol):
    """The interest of an account."""

    def count(self) -> int: ...
    def statistics(self) -> ObservedStatistics: ...


class ObservedAccount(Protocol):
    """An account: its name and its interest."""

    @property
    def name(self) -> str: ...
    @property
    def sublist(self) -> ObservedSubList: ...


class ObservedCounters(Protocol):
    """The server's totals since it was started."""

    @property
    def in_msgs(self) -> int: ...
    @property
    def in_bytes(self) -> int: ...
    @property
    def out_msgs(self) -> int: ...
    @property
    def out_bytes(self) -> int: ...
    @property
    def slow_consumers(self) -> int: ...
    @property
    def stalled_clients(self) -> int: ...
    @property
    def stale_connections(self) -> int: ...


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
    def counters(self) -> ObservedCounters: ...
    @property
    def total_connections(self) -> int: ...
    @property
    def clients(self) -> Mapping[int, ObservedClient]: ...
    @property
    def closed_clients(self) -> Iterable[ObservedClosedClient]: ...
    @property
    def accounts(self) -> Mapping[str, ObservedAccount]: ...


@dataclass(frozen=True, slots=True)
class Clock:
    """Both clocks, and the distance between them as it was when monitoring began.

    The distance is taken once, so that a connection's start is the same in every answer.
    """

    wall_minus_monotonic_ns: int = field(
        default_factory=lambda: time.time_ns() - time.monotonic_ns()
    )

    def wall_ns(self) -> int:
        """Now, since 1970."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """Now, as connections count."""
        return time.monotonic_ns()

    def to_wall_ns(self, monotonic_ns: int) -> int:
        """When that was, since 1970."""
        return monotonic_ns + self.wall_minus_monotonic_ns
