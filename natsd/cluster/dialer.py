"""The dialer: opens connections to other servers, and repeats attempts that fail.

    configured   for ever, a second apart; with `connect_backoff` twice as long each time, to 30 s
    told of      `connect_retries` more attempts

Promise
- A host name is looked up for each attempt, and its addresses are tried in random order. Those at
  which this server itself listens are left out; if none is left, the attempts end.
- Attempts to one address for one account are made once at a time. A pool needs no more: each of
  its connections leads to the next one.
- An error is logged for the first attempt and for every Nth one (`connect_error_reports`,
  `reconnect_error_reports`), in nats-server's words.
- After `close` there is no task and no socket.

Source: nats-server's `connectToRoute`, `reConnectToRoute` and `getRandomIP`
(server/route.go, server/server.go).
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Collection
from typing import Final, NamedTuple, Protocol

from natsd.clients.listener import host_port, lower_first
from natsd.cluster.targets import Target

logger = logging.getLogger("natsd.server")

DIAL_TIMEOUT_S: Final = 1.0
PAUSE_S: Final = 1.0
PAUSE_S_MAX: Final = 30.0
JITTER_S: Final = 0.1
"""Random part of a pause, at most: it parts servers that dial each other."""
DIALS_MAX: Final = 4096
"""Attempts that are under way at once; more are not begun."""


class Dial(NamedTuple):
    """A connection that is wanted."""

    target: Target
    account: str = ""
    """Account of a dedicated route; empty: the route is one of the pool."""
    gossip_mode: int = 0
    is_first: bool = True
    """Whether the server has not been connected before: then `connect_error_reports` counts."""


class DialSettings(Protocol):
    """The settings that attempts follow, as they are now."""

    @property
    def retries(self) -> int:
        """Attempts after the first one, for servers that another one told of."""

    @property
    def has_backoff(self) -> bool:
        """Whether pauses grow."""

    @property
    def connect_reports(self) -> int:
        """Every such attempt to a new server is logged."""

    @property
    def reconnect_reports(self) -> int:
        """Every such attempt to a lost server is logged."""

    @property
    def own_addresses(self) -> Collection[tuple[str, int]]:
        """The addresses at which this server listens for routes."""

    def is_wanted(self, dial: Dial) -> bool:
        """Return whether a configured connection is still one of the settings."""


Connected = Callable[[Dial, socket.socket], None]
"""Called with an established connection, which it owns."""


class Dialer:
    """The attempts of one server to connect to others."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, settings: DialSettings, connected: Connected
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._connected = connected
        self._tasks: dict[asyncio.Task[None], Dial] = {}

    def dial(self, dial: Dial, *, after_loss: bool = False) -> None:
        """Connect in the background; `after_loss`: after the pause that follows a lost route."""
        if len(self._tasks) >= DIALS_MAX:
            logger.error("Route to %s is not dialed: too many attempts are under way", dial.target)
            return
        if self.is_under_way(dial):
            return
        task = self._loop.create_task(self._run(dial, after_loss), name="natsd-route-dial")
        self._tasks[task] = dial
        task.add_done_callback(self._ended)

    def is_under_way(self, dial: Dial) -> bool:
        """Return whether there are attempts to make such a connection."""
        key = (dial.target.place, dial.account)
        return any((each.target.place, each.account) == key for each in self._tasks.values())

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            logger.error("An attempt to connect to a route failed", exc_info=task.exception())

    async def close(self) -> None:
        """End all attempts."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, dial: Dial, after_loss: bool) -> None:
        """Make attempts until one succeeds or no more is due."""
        if after_loss:
            await asyncio.sleep(_jitter_s() + (PAUSE_S if dial.target.is_configured else 0))
        attempts, pause_s = 0, PAUSE_S
        while self._settings.is_wanted(dial):
            try:
                connection = await self._attempt(dial.target)
            except OSError as error:
                attempts += 1
                self._report(dial, attempts, error)
            else:
                if connection is not None:
                    self._hand_over(dial, connection)
                return
            if not dial.target.is_configured and attempts > self._settings.retries:
                return
            await asyncio.sleep(pause_s - _jitter_s())
            if self._settings.has_backoff:
                pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _hand_over(self, dial: Dial, connection: socket.socket) -> None:
        # A connection may end at once, and is dialed again then, before this task is seen to end.
        task = asyncio.current_task()
        assert task is not None
        del self._tasks[task]
        if self._settings.is_wanted(dial):
            self._connected(dial, connection)
        else:
            connection.close()

    def _report(self, dial: Dial, attempt: int, error: OSError) -> None:
        settings = self._settings
        every = settings.connect_reports if dial.is_first else settings.reconnect_reports
        level = logging.ERROR if attempt == 1 or attempt % every == 0 else logging.DEBUG
        logger.log(level, "Error trying to connect to route (attempt %d): %s", attempt, error)

    async def _attempt(self, target: Target) -> socket.socket | None:
        """Return a connection; None: the only addresses are our own. Raises OSError."""
        addresses = await self._addresses(target)
        if not addresses:
            return None
        failure: OSError | None = None
        for family, address in addresses:
            shown = host_port(address[0], target.port)
            logger.debug("Trying to connect to route on %s (%s)", target.place, shown)
            try:
                return await self._connect(family, address)
            except OSError as error:
                failure = OSError(f"dial tcp {shown}: {_connect_reason(error)}")
        assert failure is not None
        raise failure

    async def _addresses(self, target: Target) -> list[tuple[int, tuple[str, int]]]:
        """Return the addresses of a host in random order, without our own. Raises OSError."""
        try:
            found = await self._loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            reason = lower_first(error.strerror or str(error))
            raise OSError(f'lookup for host "{target.host}": {reason}') from None
        own = self._settings.own_addresses
        addresses = [(family, (str(at[0]), int(at[1]))) for family, _, _, _, at in found]
        if not _is_ip(target.host):
            addresses = [each for each in addresses if each[1] not in own]
        return sorted(addresses, key=lambda _: os.urandom(4))

    async def _connect(self, family: int, address: tuple[str, int]) -> socket.socket:
        """Return a connected socket that does not block. Raises OSError."""
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await self._loop.sock_connect(connection, address)
        except BaseException:
            connection.close()
            raise
        return connection


def _jitter_s() -> float:
    return int.from_bytes(os.urandom(4), "little") / 2**32 * JITTER_S


def _is_ip(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return True
    return False


def _connect_reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "i/o timeout"
    reason = os.strerror(error.errno) if error.errno else str(error)
    return f"connect: {lower_first(reason)}"
