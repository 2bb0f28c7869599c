"""Authentication: what decides over a CONNECT, and the decisions that take time.

    Client.connect_received ──▶ Authenticator.authenticate ──▶ Verdict               at once
                                          └────────────────▶ awaitable ──▶ Verdict   later

- An authenticator may answer at once, or with an awaitable: an auth callout, a JWT resolver. While
  a verdict is awaited, nothing is read from the connection: what follows CONNECT waits in its
  buffer and in the system's.
- The authentication timeout runs meanwhile. A connection that closes cancels its awaitable.
- An authenticator that raises refuses; the exception is logged.
"""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from natsd.config import Options

if TYPE_CHECKING:
    from natsd.clients.connect import ConnectOptions
    from natsd.core.permissions import Permissions


class Verdict(NamedTuple):
    """The decision over a CONNECT."""

    account: str | None  # name of the client's account; None: the client is refused
    permissions: "Permissions | None" = None  # None: the client may do everything


REFUSED: Final = Verdict(None)


class ConnectingClient(Protocol):
    """A client that has sent CONNECT, as an authenticator sees it."""

    @property
    def cid(self) -> int:
        """The connection id."""
        ...

    ip: str
    port: int


class Authenticator(Protocol):
    """Decides over each CONNECT."""

    @property
    def is_required(self) -> bool:
        """Whether a client must send a CONNECT before anything else."""
        ...

    def authenticate(
        self, client: ConnectingClient, connect: "ConnectOptions"
    ) -> Verdict | Awaitable[Verdict]:
        """Return whether, and as what, a client is accepted, or an awaitable of that."""
        ...


class SingleLogin:
    """The token, or the user and password, that the configuration gives to all clients, if any."""

    def __init__(self, options: Options, account: str) -> None:
        """Accept clients into the account of that name."""
        self._options = options
        self._accepted = Verdict(account)

    @property
    def is_required(self) -> bool:
        """Whether there is a token, or a user and password."""
        return self._options.auth_required

    def authenticate(self, client: ConnectingClient, connect: "ConnectOptions") -> Verdict:
        """Compare the credentials of a CONNECT with the configured ones."""
        options = self._options
        if options.token:
            return self._verdict(is_right=_equal(connect.auth_token, options.token))
        if options.user or options.password:
            is_user = _equal(connect.user, options.user)
            return self._verdict(is_right=_equal(connect.password, options.password) and is_user)
        return self._accepted

    def _verdict(self, *, is_right: bool) -> Verdict:
        return self._accepted if is_right else REFUSED


class PendingLogins:
    """The logins of one server that are awaited: one task for each such connection."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, login: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a login in a task."""
        task = asyncio.get_running_loop().create_task(login, name="natsd-login")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Cancel all logins, and return when their tasks have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _equal(given: str, expected: str) -> bool:
    """Return whether two secrets are equal, in constant time."""
    import hmac  # here, since it loads OpenSSL: a fifteenth of a start

    return hmac.compare_digest(given.encode(), expected.encode())
