"""How servers with full directories come to have the same JWTs.

    every interval:  PACK, with the own digest ──▶ one other server: each of its JWTs as a message
                                               ◀── <account>|<jwt>, …, at last an empty message

- A server asks for a pack every `interval_s`, and answers the requests of others. A server whose
  digest is that of the request answers with the empty message alone.
- Only a server that got the request knows the subject that packs are sent to.
- A JWT in a pack is kept unless the present one was issued later.
- A lookup that finds nothing here asks all other servers, and takes the first JWT. It ends when all
  of them have answered that they have none, or when its time is over.

Source: nats-server's `DirAccResolver.Start`, `Server.fetch` (server/accounts.go),
`DirJWTStore.Merge` (server/dirstore.go).
"""

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import Final

from natsd.auth.resolver.directory_resolver import LOOKUP_SUBJECT, DirectoryResolver
from natsd.auth.resolver.resolver import NotResolved
from natsd.auth.resolver.services import (
    PACK,
    PACK_INBOX,
    PACK_QUEUE,
    ClaimsServices,
    SystemClient,
)
from natsd.config.public_keys import Kind, is_public

LOOKUP_INBOX: Final = "$SYS._INBOX_.{}.CLAIMS.{}"

_logger = logging.getLogger("natsd.auth")


class PackExchange:
    """The exchange of JWTs between this server and the others."""

    def __init__(
        self,
        services: ClaimsServices,
        client: SystemClient,
        resolver: DirectoryResolver,
        server_id: str,
        interval_s: float,
    ) -> None:
        self._services = services
        self._client = client
        self._resolver = resolver
        self._inbox = PACK_INBOX.format(server_id, uuid.uuid4().hex)
        self._interval_s = interval_s
        self._asking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Serve lookups and packs, and ask for packs."""
        self._services.serve(LOOKUP_SUBJECT.format("*"), self._lookup)
        self._services.serve(PACK, self._pack, queue=PACK_QUEUE)
        self._services.serve(self._inbox, self._merge)
        self._asking = asyncio.create_task(self._ask(), name="natsd-jwt-packs")

    async def close(self) -> None:
        """Ask for no more packs."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            self._client.publish(PACK, self._resolver.digest, reply=self._inbox)

    async def _lookup(self, subject: str, reply: str, _payload: bytes) -> None:
        account = subject.split(".")[3]
        if not reply:
            return
        try:
            jwt = await self._resolver.load(account)
        except NotResolved as error:
            _logger.error('Error looking up account "%s": %s', account, error)
        else:
            self._client.publish(reply, (jwt or "").encode())

    async def _pack(self, _subject: str, reply: str, payload: bytes) -> None:
        if not reply:
            return
        if payload != self._resolver.digest:
            for account, jwt in await self._resolver.pack():
                self._client.publish(reply, f"{account}|{jwt}".encode())
        self._client.publish(reply)

    async def _merge(self, _subject: str, _reply: str, payload: bytes) -> None:
        for line in payload.decode("ascii", "replace").split("\n"):
            account, separator, jwt = line.partition("|")
            if not line:
                continue
            if not separator or not is_public(account, Kind.ACCOUNT):
                _logger.error("A pack of JWTs has a line that names no account")
                continue
            try:
                await self._resolver.store(account, jwt)
            except NotResolved as error:
                _logger.error("The JWT of account %s in a pack is not kept: %s", account, error)


class OtherServers:
    """Lookups at other servers."""

    def __init__(
        self,
        client: SystemClient,
        server_id: str,
        count: Callable[[], int],
        *,
        answers_itself: bool,
    ) -> None:
        """Ask as many servers as `count` says; `answers_itself`: this one gets the question too."""
        self._client = client
        self._server_id = server_id
        self._count = count
        self._own = 1 if answers_itself else 0

    async def lookup(self, name: str, timeout_s: float) -> str | None:
        """Return the JWT of an account that another server has; None: none answered with one."""
        others = self._count()
        if others == 0:
            return None
        awaited = others + self._own
        found: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        inbox = LOOKUP_INBOX.format(self._server_id, uuid.uuid4().hex)

        def answered(_subject: str, _reply: str | None, _headers: bytes, payload: bytes) -> None:
            nonlocal awaited
            awaited -= 1
            if not found.done() and (payload or awaited == 0):
                found.set_result(payload.decode("ascii", "replace") or None)

        subscription = self._client.subscribe(inbox, answered)
        try:
            self._client.publish(LOOKUP_SUBJECT.format(name), reply=inbox)
            async with asyncio.timeout(timeout_s):
                return await found
        except TimeoutError:
            return None
        finally:
            self._client.unsubscribe(subscription)
