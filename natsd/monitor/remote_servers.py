"""The other servers of the cluster, as they tell of themselves in the system account.

    $SYS.SERVER.<id>.STATSZ             a server lives                            every 10 s
    $SYS.SERVER.<id>.SHUTDOWN           it stops; LAMEDUCK: it takes no more clients
    $SYS.SERVER.ACCOUNT.<a>.CONNS       its connections in an account             on change; 30 s
    $SYS._INBOX_.<our id>               the same, as the answer to our request    for a new account

- `account.remote_connections` is the sum over all other servers: an account's limit of connections
  holds in the whole cluster. If servers admitted too many at the same time, each closes its newest
  ones.
- A server that is silent for `SILENT_S` is forgotten, as one that has stopped.
- A new server is told of the connections of our accounts at once: so limits hold from the first
  seconds on, and not after the next heartbeat only.

Source: nats-server's `remoteServerUpdate`, `remoteConnsUpdate`, `checkRemoteServers`,
`enableAccountTracking` (server/events.go) and `Account.updateRemoteServer` (server/accounts.go).
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec.json

from natsd.accounts import Account
from natsd.core.quoting import quoted
from natsd.core.routing import Subscription

if TYPE_CHECKING:
    from natsd.monitor.observed import ObservedServer

SILENT_S: Final = 150.0
SWEEP_S: Final = 90.0
SERVERS_MAX: Final = 10_000
"""Servers that are remembered; further ones are ignored."""

_logger = logging.getLogger("natsd.monitor")


class SpeakingServer(msgspec.Struct):
    """The server that sent a message."""

    id: str = ""
    seq: int = 0


class ServerMessage(msgspec.Struct):
    """A message that names its server."""

    server: SpeakingServer = msgspec.field(default_factory=SpeakingServer)


class ConnectionsMessage(ServerMessage):
    """The connections that an account has on a server."""

    acc: str = ""
    conns: int = 0
    leafnodes: int = 0


class RemoteServer:
    """What is known of another server."""

    __slots__ = ("connections", "seen_s", "seq")

    def __init__(self) -> None:
        self.seq = 0
        self.seen_s = 0.0
        self.connections: dict[str, int] = {}  # of its accounts that this server has, too


_Message = TypeVar("_Message", bound=ServerMessage)


class RemoteServers:
    """The other servers, from `start` to `close`."""

    def __init__(self, server: "ObservedServer", met: Callable[[], None]) -> None:
        """Know no server; `met` is called for each new one."""
        self._server = server
        self._met = met
        self._known: dict[str, RemoteServer] = {}
        self._subscriptions: list[Subscription] = []
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._known)

    # ---- life

    def start(self) -> None:
        """Listen to the other servers."""
        client = self._server.accounts.system.internal_client
        handlers = {
            "$SYS.SERVER.*.STATSZ": self._seen,
            "$SYS.SERVER.*.SHUTDOWN": self._stopped,
            "$SYS.SERVER.*.LAMEDUCK": self._stopped,
            "$SYS.SERVER.ACCOUNT.*.CONNS": self._connections_changed,
            f"$SYS._INBOX_.{self._server.id}": self._connections_changed,
        }
        for subject, handler in handlers.items():
            self._subscriptions.append(client.subscribe(subject, handler))
        self._server.accounts.on_added(self._account_added)
        self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def close(self) -> None:
        """Listen no more, and forget all servers."""
        self._server.accounts.no_longer(self._account_added)
        client = self._server.accounts.system.internal_client
        for subscription in self._subscriptions:
            client.unsubscribe(subscription)
        self._subscriptions.clear()
        if self._timer is not None:
            self._timer.cancel()
        for server_id in tuple(self._known):
            self._forget(server_id)

    def connected_to(self, account: str) -> int:
        """Return how many other servers have connections in an account."""
        return sum(bool(each.connections.get(account)) for each in self._known.values())

    # ---- messages of other servers

    def _seen(self, subject: str, _reply: str | None, _headers: bytes, data: bytes) -> None:
        message = _decoded(ServerMessage, subject, data)
        if message is not None:
            self._update(message.server)

    def _stopped(self, subject: str, _reply: str | None, _headers: bytes, _data: bytes) -> None:
        self._forget(subject.split(".")[2])

    def _connections_changed(
        self, subject: str, _reply: str | None, _headers: bytes, data: bytes
    ) -> None:
        message = _decoded(ConnectionsMessage, subject, data)
        if message is None or message.server.id == self._server.id:
            return
        self._update(message.server)
        known = self._known.get(message.server.id)
        account = self._server.accounts.get(message.acc)
        if known is None or account is None:
            return
        before = known.connections.pop(account.name, 0)
        if message.conns > 0:
            known.connections[account.name] = message.conns
        account.remote_connections += max(message.conns, 0) - before
        self._close_newest(account)

    def _update(self, server: SpeakingServer) -> None:
        """Remember that a server lives; its messages have growing numbers."""
        if server.id in {"", self._server.id}:
            return
        now_s = asyncio.get_running_loop().time()
        known = self._known.get(server.id)
        is_new = known is None
        if known is None:
            if len(self._known) >= SERVERS_MAX:
                return
            known = self._known[server.id] = RemoteServer()
        elif server.seq <= known.seq:
            _logger.error("Received out of order remote server update from: %s", quoted(server.id))
            return
        known.seq, known.seen_s = server.seq, now_s
        if is_new:
            self._met()

    # ---- servers that are gone

    def _sweep(self) -> None:
        """Forget silent servers, and set the timer."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(SWEEP_S, self._sweep)
        for server_id, known in tuple(self._known.items()):
            if loop.time() - known.seen_s > SILENT_S:
                _logger.debug("Detected orphan remote server: %s", quoted(server_id))
                self._forget(server_id)

    def _forget(self, server_id: str) -> None:
        known = self._known.pop(server_id, None)
        for name, count in () if known is None else known.connections.items():
            account = self._server.accounts.get(name)
            if account is not None:
                account.remote_connections -= count

    # ---- accounts

    def _account_added(self, account: Account) -> None:
        """Ask the other servers for their connections in a new account."""
        account.remote_connections = 0
        for known in self._known.values():
            known.connections.pop(account.name, None)
        system = self._server.accounts.system
        subject = f"$SYS.REQ.ACCOUNT.{account.name}.CONNS"
        request = {"server": self._server.describe(), "acc": account.name}
        system.internal_client.publish(
            subject, msgspec.json.encode(request), reply=f"$SYS._INBOX_.{self._server.id}"
        )

    def _close_newest(self, account: Account) -> None:
        """Close the newest connections of an account that has too many in the cluster."""
        over = account.connections_over
        if over <= 0:
            return
        members = [each for each in self._server.clients.values() if each.account is account]
        for client in sorted(members, key=lambda each: each.start_ns, reverse=True)[:over]:
            client.account_full()


def _decoded(kind: type[_Message], subject: str, data: bytes) -> _Message | None:
    """Return a message; None: it cannot be read."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _logger.debug("Bad message on %s: %s", subject, error)
        return None
