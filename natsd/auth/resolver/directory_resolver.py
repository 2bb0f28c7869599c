"""The resolvers that keep JWTs in a directory, and compare it with those of other servers.

    full     keeps every account: what is missing or newer at another server is fetched
    cache    keeps what was asked for: a JWT that is missing is asked for from the full ones

- The directory's work runs in a thread, one call at a time.
- A lookup at other servers takes at most `timeout_s`. If nobody else listens, it fails at once.
- `changed` is called with an account and its JWT, `deleted` with an account, after the directory
  has it so.

Source: nats-server's `DirAccResolver`, `CacheDirAccResolver`, `Server.fetch` (server/accounts.go).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, ParamSpec, Protocol, TypeVar

from natsd.auth.jwt.token import BadToken
from natsd.auth.resolver.jwt_directory import JwtDirectory
from natsd.auth.resolver.resolver import NotResolved
from natsd.config.public_keys import Kind, is_public

CHECK_S_MAX: Final = 60.0
LOOKUP_SUBJECT: Final = "$SYS.REQ.ACCOUNT.{}.CLAIMS.LOOKUP"

_logger = logging.getLogger("natsd.auth")

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Peers(Protocol):
    """The other servers, as far as a resolver asks them."""

    async def lookup(self, name: str, timeout_s: float) -> str | None:
        """Return the JWT of an account that another server has; None: none has it."""
        ...


class DirectoryResolver:
    """The JWTs in a directory."""

    def __init__(
        self,
        directory: JwtDirectory,
        *,
        timeout_s: float,
        check_s: float = CHECK_S_MAX,
        may_delete: bool = False,
        keeps_deleted: bool = True,
    ) -> None:
        """Use a directory; every `check_s` seconds what has expired is dropped from it."""
        self._directory = directory
        self._timeout_s = timeout_s
        self._check_s = check_s
        self.may_delete = may_delete
        self._keeps_deleted = keeps_deleted
        self._turn = asyncio.Lock()
        self._checking: asyncio.Task[None] | None = None
        self.peers: Peers | None = None
        self.changed: Callable[[str, str], Awaitable[None]] = _ignore_change
        self.deleted: Callable[[str], None] = _ignore_deletion

    async def start(self) -> None:
        """Read the directory. Raises OSError."""
        await self._run(self._directory.open)
        self._checking = asyncio.create_task(self._check(), name="natsd-jwt-directory")

    async def close(self) -> None:
        """Stop to drop what has expired."""
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)
            self._checking = None

    async def fetch(self, name: str) -> str:
        """Return the JWT of an account, from here or from another server. Raises NotResolved."""
        jwt = await self.load(name)
        if jwt is not None:
            return jwt
        if self.peers is None:
            raise NotResolved("account jwt not found")
        found = await self.peers.lookup(name, self._timeout_s)
        if found is None:
            raise NotResolved("account jwt not found")
        await self.store(name, found)
        return found

    async def load(self, name: str) -> str | None:
        """Return the JWT of an account that the directory has; None: it has none."""
        if not is_public(name, Kind.ACCOUNT):
            raise NotResolved("will only fetch valid account keys")
        try:
            return await self._run(self._directory.load, name)
        except OSError as error:
            raise NotResolved(str(error)) from None

    async def store(self, name: str, jwt: str) -> None:
        """Keep a JWT unless the present one was issued later. Raises NotResolved."""
        try:
            changed = await self._run(self._directory.save_if_newer, name, jwt)
        except (OSError, BadToken) as error:
            raise NotResolved(str(error)) from None
        if changed:
            await self.changed(name, jwt)

    async def save(self, name: str, jwt: str) -> None:
        """Keep a JWT in place of the present one. Raises NotResolved, BadToken or OSError."""
        if await self._run(self._directory.save, name, jwt):
            await self.changed(name, jwt)

    async def delete(self, name: str) -> None:
        """Delete an account. Raises OSError."""
        if await self._run(self._directory.delete, name, keep=self._keeps_deleted):
            self.deleted(name)

    async def reload(self) -> None:
        """Read the directory again, and tell what has changed. Raises OSError."""
        for name in await self._run(self._directory.reload):
            jwt = await self.load(name)
            if jwt is not None:
                await self.changed(name, jwt)

    async def pack(self) -> list[tuple[str, str]]:
        """Return all accounts with their JWTs. Raises OSError."""
        return await self._run(lambda: list(self._directory.valid()))

    @property
    def digest(self) -> bytes:
        """What two directories with the same JWTs have in common."""
        return self._directory.digest

    @property
    def path(self) -> str:
        """The directory."""
        return str(self._directory.path)

    async def _run(
        self,
        function: Callable[Arguments, Result],
        *given: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        async with self._turn:
            return await asyncio.to_thread(function, *given, **named)

    async def _check(self) -> None:
        while True:
            await asyncio.sleep(self._check_s)
            try:
                expired = await self._run(self._directory.drop_expired)
            except OSError as error:
                _logger.error("%s: expired JWTs are still there: %s", self.path, error)
            else:
                for name in expired:
                    _logger.debug("%s: the JWT of account %s is dropped", self.path, name)


async def _ignore_change(_name: str, _jwt: str) -> None:
    """Tell nobody."""


def _ignore_deletion(_name: str) -> None:
    """Tell nobody."""
