"""The latency of services whose responder is connected to another server of the cluster.

    requestor's server                                  responder's server
    request, reply _R_.….<hash>.T  ─────── route ─────▶ RequestTimes.request
    LatencyMeasure.answered ◀── response ─ route ────── RequestTimes.response
    RemoteMeasures ◀── $SYS.LATENCY.M2.<hash> ─────────  └▶ how long it took, and who answered

- Each side measures its part (request_times.py has the responder's). The server of the requestor
  publishes the metric when it has both parts; they come in any order, because they may come on two
  connections.
- If the other part does not come within `WAIT_S`, the metric is published without it.

Source: nats-server's `remoteLatencyUpdate` (server/events.go), `newServiceReply` and
`ServiceLatency.merge` (server/accounts.go).
"""

import asyncio
import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from natsd.accounts.account import Account

WAIT_S: Final = 2.0
WAITING_MAX: Final = 4096
"""Measures of one side that wait for the other side's; further ones are published at once."""
HASH_LETTERS: Final = 8
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

Publish = Callable[["RemotePart | None"], object]
"""Publishes a metric with the part of the other server; None: it has not come."""


class RemotePart(msgspec.Struct):
    """The part of a metric that the responder's server measures; durations are in ns."""

    service: int = 0
    responder: dict[str, Any] | None = None

    @property
    def rtt_ns(self) -> int:
        """Round trip time of the responder."""
        found = (self.responder or {}).get("rtt", 0)
        return found if isinstance(found, int) else 0


class RemoteLatency(msgspec.Struct):
    """The message with which the responder's server tells its part."""

    account: str = ""
    req_id: str = ""
    m2: RemotePart = msgspec.field(default_factory=RemotePart)


def short_hash(server_name: str) -> str:
    """Return the short name of a server in subjects."""
    digest = hashlib.sha256(server_name.encode()).digest()
    return "".join(_DIGITS[byte % len(_DIGITS)] for byte in digest[:HASH_LETTERS])


class RemoteMeasures:
    """The requestor's side: metrics that wait for the part of another server."""

    def __init__(self, server_name: str, system: "Account") -> None:
        """Listen to the other servers, in the system account."""
        own = short_hash(server_name)
        self.reply_suffix = f".{own}.T".encode()
        self._waiting: dict[str, Publish] = {}
        self._early: dict[str, RemotePart] = {}
        system.internal_client.subscribe(f"$SYS.LATENCY.M2.{own}", self._received)

    def complete(self, reply: str, publish: Publish) -> None:
        """Call `publish` when the other part of the measure of that reply is there."""
        early = self._early.pop(reply, None)
        if early is not None or len(self._waiting) >= WAITING_MAX:
            publish(early)
            return
        self._waiting[reply] = publish
        asyncio.get_running_loop().call_later(WAIT_S, self._give_up, reply)

    def _give_up(self, reply: str) -> None:
        publish = self._waiting.pop(reply, None)
        if publish is not None:
            publish(None)

    def _received(self, _subject: str, _reply: str | None, _headers: bytes, data: bytes) -> None:
        try:
            told = msgspec.json.decode(data, type=RemoteLatency)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        publish = self._waiting.pop(told.req_id, None)
        if publish is not None:
            publish(told.m2)
            return
        if len(self._early) >= WAITING_MAX:
            del self._early[next(iter(self._early))]
        self._early[told.req_id] = told.m2
