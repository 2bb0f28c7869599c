"""Events that the server publishes about itself and its connections, most in the system account.

    Server ──▶ SystemEvents: does somebody listen? ──yes──▶ EventMessages (event_messages.py)
                    └ no: nothing is built, and the module that builds is not imported

    subject                               when
    $SYS.ACCOUNT.<account>.CONNECT        a client was accepted
    $SYS.ACCOUNT.<account>.DISCONNECT     a client's connection ended
    $SYS.ACCOUNT.<account>.SERVER.CONNS   an account has another number of connections; every 30 s
                                          while it has any. Never about the default account
    $SYS.SERVER.ACCOUNT.<account>.CONNS   the same, under its old name
    $SYS.SERVER.<id>.CLIENT.AUTH.ERR      a client was refused
    $SYS.ACCOUNT.CLIENT.AUTH.ERR          the same, in the account that the client was in
    $SYS.SERVER.<id>.STATSZ               every 10 s; sooner right after the start, and on request
    $SYS.SERVER.<id>.LAMEDUCK             lame duck mode begins
    $SYS.SERVER.<id>.SHUTDOWN             the server stops; this is the last event

In a cluster the other servers listen to these events, and this one listens to theirs
(remote_servers.py).

Source: nats-server's server/events.go; order and members were compared with nats-server 2.14.5.
"""

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from natsd.accounts import Account
from natsd.clients import Client
from natsd.core.steps import run_cooperatively

if TYPE_CHECKING:
    from natsd.monitor.event_messages import EventMessages
    from natsd.monitor.observed import ObservedServer
    from natsd.monitor.remote_servers import RemoteServers

STATSZ_S_FIRST: Final = 0.25
"""Seconds until the first STATSZ; each following pause is twice as long, up to STATSZ_S."""
STATSZ_S: Final = 10.0
STATSZ_S_MIN: Final = 1.0
"""Seconds between two STATSZ of the timer, at least."""
CONNECTIONS_S: Final = 30.0


class SystemEvents:
    """The events of one server, from `start` to `close`."""

    def __init__(self, server: "ObservedServer") -> None:
        self._server = server
        self._messages: EventMessages | None = None
        self._is_on = False
        self._statsz_timer: asyncio.TimerHandle | None = None
        self._statsz_pause_s = STATSZ_S_FIRST
        self._statsz_sent_s = -STATSZ_S_MIN
        self._connections_timer: asyncio.TimerHandle | None = None
        self._others: RemoteServers | None = None  # None: the server is in no cluster
        self._heartbeat: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Publish events from now on, if the server has a system account."""
        self._is_on = self._server.accounts.has_system
        if not self._is_on:
            return
        self._statsz_pause_s = STATSZ_S_FIRST
        loop = asyncio.get_running_loop()
        self._statsz_timer = loop.call_later(STATSZ_S_FIRST, self._statsz_due)
        self._connections_timer = loop.call_later(CONNECTIONS_S, self._connections_due)
        if self._server.cluster is not None:
            from natsd.monitor.remote_servers import RemoteServers

            self._others = RemoteServers(self._server, self._server_met)
            self._others.start()

    def close(self) -> None:
        """Publish SHUTDOWN, and no further events."""
        if not self._is_on:
            return
        subject = f"$SYS.SERVER.{self._server.id}.SHUTDOWN"
        if self._is_heard(subject):
            self._builder.server(subject)
        self._is_on = False
        for timer in (self._statsz_timer, self._connections_timer):
            if timer is not None:
                timer.cancel()
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        if self._others is not None:
            self._others.close()
            self._others = None

    # ---- connections

    def client_connected(self, client: Client, left: Account | None) -> None:
        """Announce an accepted client, and that it left an account, if it did."""
        if not self._is_on:
            return
        account = client.account
        assert account is not None
        if left is not account:
            if left is not None:
                self._connections_changed(left)
            self._connections_changed(account)
        subject = f"$SYS.ACCOUNT.{account.name}.CONNECT"
        if self._is_heard(subject):
            self._builder.connected(subject, client)

    def client_closed(self, client: Client) -> None:
        """Announce the end of a connection, which its account does not count any more."""
        account = client.account
        if not self._is_on or account is None:
            return
        self._connections_changed(account)
        subject = f"$SYS.ACCOUNT.{account.name}.DISCONNECT"
        if self._is_heard(subject):
            self._builder.disconnected(subject, client)

    def client_refused(self, client: Client, account: Account | None) -> None:
        """Announce a client whose login was refused, in an account, too.

        Its connection has a reason.
        """
        if not self._is_on:
            return
        subject = f"$SYS.SERVER.{self._server.id}.CLIENT.AUTH.ERR"
        if self._is_heard(subject):
            self._builder.disconnected(subject, client)
        subject = "$SYS.ACCOUNT.CLIENT.AUTH.ERR"
        if account is not None and account.sublist.has_interest(subject):
            self._builder.disconnected(subject, client, account)

    def _connections_changed(self, account: Account) -> None:
        """Announce the number of an account's connections, except for the default account."""
        if account is self._server.accounts.default:
            return
        subjects = (
            f"$SYS.SERVER.ACCOUNT.{account.name}.CONNS",
            f"$SYS.ACCOUNT.{account.name}.SERVER.CONNS",
        )
        heard = tuple(filter(self._is_heard, subjects))
        if heard:
            self._builder.connections(heard, account)

    # ---- other servers

    @property
    def known_servers(self) -> int:
        """How many other servers have told of themselves."""
        return 0 if self._others is None else len(self._others)

    def servers_connected_to(self, account: str) -> int:
        """Return how many other servers have connections in an account."""
        return 0 if self._others is None else self._others.connected_to(account)

    def _server_met(self) -> None:
        """Tell a new server of this one, and of the connections here."""
        self.send_statsz()
        self._announce_all()

    # ---- the server

    def lame_duck_began(self) -> None:
        """Announce that lame duck mode begins."""
        subject = f"$SYS.SERVER.{self._server.id}.LAMEDUCK"
        if self._is_on and self._is_heard(subject):
            self._builder.server(subject)

    def send_statsz(self) -> None:
        """Publish the server's load now, if somebody listens."""
        subject = f"$SYS.SERVER.{self._server.id}.STATSZ"
        if self._is_on and self._is_heard(subject):
            self._statsz_sent_s = asyncio.get_running_loop().time()
            self._builder.statsz(subject)

    def _statsz_due(self) -> None:
        """Publish the load, unless a request caused that a moment ago, and set the timer."""
        loop = asyncio.get_running_loop()
        wait_s = self._statsz_sent_s + STATSZ_S_MIN - loop.time()
        if wait_s > 0:
            self._statsz_timer = loop.call_later(wait_s, self._statsz_due)
            return
        self._statsz_pause_s = min(2 * self._statsz_pause_s, STATSZ_S)
        self._statsz_timer = loop.call_later(self._statsz_pause_s, self._statsz_due)
        self.send_statsz()

    def _connections_due(self) -> None:
        """Announce the connections of all accounts that have any, and set the timer."""
        loop = asyncio.get_running_loop()
        self._connections_timer = loop.call_later(CONNECTIONS_S, self._connections_due)
        self._announce_all()

    def _announce_all(self) -> None:
        """Announce the connections of all accounts that have any, unless that is under way."""
        if self._heartbeat is None or self._heartbeat.done():
            work = run_cooperatively(self._announce_connections())
            loop = asyncio.get_running_loop()
            self._heartbeat = loop.create_task(work, name="natsd-connections-heartbeat")

    def _announce_connections(self) -> Generator[None, None, None]:
        for account in tuple(self._server.accounts.values()):
            if account.connections:
                self._connections_changed(account)
            yield

    # ---- listeners and messages

    def _is_heard(self, subject: str) -> bool:
        """Return whether somebody in the system account listens on a subject."""
        return self._server.accounts.system.sublist.has_interest(subject)

    @property
    def _builder(self) -> "EventMessages":
        if self._messages is None:
            from natsd.monitor.event_messages import EventMessages

            self._messages = EventMessages(self._server)
        return self._messages
