"""The messages of the system's events: their JSON, and their publication.

    {"type": …, "id": …, "timestamp": …, "server": {…}, "client": {…}, "sent": {…}, "received": {…},
     "reason": …}

- Each call builds one event and queues it: it is delivered at the end of the loop's turn.
- `server` has a new sequence number in each message, also if two messages carry the same event.

Source: nats-server's `ConnectEventMsg`, `DisconnectEventMsg`, `AccountNumConns`, `ServerStatsMsg`.
"""

import base64
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec.json

from natsd.clients.client_info import client_info
from natsd.core.quoting import html_safe
from natsd.monitor.accounts import account_stats
from natsd.monitor.clock import Clock
from natsd.monitor.process_usage import ProcessorUse, processor_time_ns
from natsd.monitor.statsz import statsz
from natsd.monitor.values import timestamp

if TYPE_CHECKING:
    from natsd.accounts import Account
    from natsd.clients import Client
    from natsd.monitor.observed import ObservedServer

TYPE: Final = "io.nats.server.advisory.v1"
EVENT_ID_BYTES: Final = 16

Fields = dict[str, Any]


class EventMessages:
    """Builds and publishes the events of one server."""

    def __init__(self, server: "ObservedServer") -> None:
        self._server = server
        self._clock = Clock()
        self._processor = ProcessorUse(self._clock.monotonic_ns(), processor_time_ns())

    def connected(self, subject: str, client: "Client") -> None:
        """Publish that a client was accepted."""
        event = self._typed("client_connect", self._clock.wall_ns())
        info = client_info(
            client,
            client.account_name,
            self._clock.wall_minus_monotonic_ns,
            name_tag=_name_tag(client),
        )
        info.pop("rtt", None)
        self._publish(subject, event | {"client": info})

    def disconnected(
        self, subject: str, client: "Client", account: "Account | None" = None
    ) -> None:
        """Publish the end of a client that has a reason; in `account`, or the system account."""
        assert client.reason is not None
        now_ns = self._clock.wall_ns()
        info = client_info(
            client,
            client.account_name,
            self._clock.wall_minus_monotonic_ns,
            stop_ns=now_ns,
            name_tag=_name_tag(client),
        )
        event = self._typed("client_disconnect", now_ns) | {
            "client": info,
            "sent": {"msgs": client.in_msgs, "bytes": client.in_bytes},
            "received": {"msgs": client.out_msgs, "bytes": client.out_bytes},
            "reason": client.reason.value,
        }
        self._publish(subject, event, account)

    def connections(self, subjects: Iterable[str], account: "Account") -> None:
        """Publish the connections and the traffic of an account on each of the subjects."""
        event = connections_event(account, self._server.describe(), self._clock.wall_ns())
        for index, subject in enumerate(subjects):
            if index:
                event["server"] = self._server.describe()
            self._publish(subject, event)

    def statsz(self, subject: str) -> None:
        """Publish the server's load."""
        percent = self._processor.sample(self._clock.monotonic_ns(), processor_time_ns())
        stats = statsz(self._server, processor_percent=percent)
        self._publish(subject, {"server": self._server.describe(), "statsz": stats})

    def server(self, subject: str) -> None:
        """Publish the description of the server alone."""
        self._publish(subject, self._server.describe())

    def _typed(self, kind: str, now_ns: int) -> Fields:
        """Return the members with which an event begins."""
        return event_head(kind, now_ns) | {"server": self._server.describe()}

    def _publish(self, subject: str, event: Fields, account: "Account | None" = None) -> None:
        account = account or self._server.accounts.system
        account.internal_client.publish(subject, html_safe(msgspec.json.encode(event)))


def _name_tag(client: "Client") -> str:
    return "" if client.account is None else client.account.name_tag


def event_head(kind: str, now_ns: int) -> Fields:
    """Return the type, a new id and the time of an event."""
    event_id = base64.urlsafe_b64encode(os.urandom(EVENT_ID_BYTES)).decode().rstrip("=")
    return {"type": f"{TYPE}.{kind}", "id": event_id, "timestamp": timestamp(now_ns)}


def connections_event(account: "Account", server: Fields, now_ns: int) -> Fields:
    """Return the event about the connections and the traffic of an account."""
    head = event_head("account_connections", now_ns)
    return head | {"server": server} | account_stats(account)
