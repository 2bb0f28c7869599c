"""The subjects in the system account by which the JWTs of accounts are read and changed.

    $SYS.REQ.ACCOUNT.<account>.CLAIMS.LOOKUP   the JWT; empty: there is none            full
    $SYS.REQ.ACCOUNT.<account>.CLAIMS.UPDATE   keep this JWT (`nsc push`)               all
    $SYS.ACCOUNT.<account>.CLAIMS.UPDATE       the same, its name of old                all
    $SYS.REQ.CLAIMS.UPDATE                     the same, the account is in the JWT      full, cache
    $SYS.REQ.CLAIMS.LIST                       the accounts                             full, cache
    $SYS.REQ.CLAIMS.DELETE                     delete accounts; an operator signs       full, cache
    $SYS.REQ.CLAIMS.PACK                       all JWTs, unless the digests are equal   full

- The requests of one server are carried out one after the other, and at most `WAITING_MAX` wait; a
  further one is dropped.
- Every reply but LOOKUP and PACK is {"server": {…}, "data": {…}} or {"server": {…}, "error": {…}},
  with the texts of nats-server.
- JWTs are read in a thread: one may be 1 MiB.
- A JWT is only stored if its signature is right and nothing in it is wrong. Whether the operator
  signed it is asked when it is used, as in nats-server.

Source: nats-server's `DirAccResolver.Start`, `CacheDirAccResolver.Start`, `handleListRequest`,
`handleDeleteRequest`, `respondToUpdate` (server/accounts.go), `accountClaimUpdate` (events.go).
"""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from natsd.auth.jwt.account import AccountClaims
from natsd.auth.jwt.account_checks import account_issues
from natsd.auth.jwt.decode import decode_as, decode_generic
from natsd.auth.jwt.token import BadToken
from natsd.auth.resolver.directory_resolver import DirectoryResolver
from natsd.auth.resolver.resolver import NotResolved
from natsd.config.public_keys import Kind, is_public

WAITING_MAX: Final = 1024
OK: Final = 200
FAILED: Final = 500
UPDATE: Final = "$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE"
UPDATE_OLD: Final = "$SYS.ACCOUNT.*.CLAIMS.UPDATE"
UPDATE_ANY: Final = "$SYS.REQ.CLAIMS.UPDATE"
LIST: Final = "$SYS.REQ.CLAIMS.LIST"
DELETE: Final = "$SYS.REQ.CLAIMS.DELETE"
PACK: Final = "$SYS.REQ.CLAIMS.PACK"
PACK_QUEUE: Final = "responder"
PACK_INBOX: Final = "$SYS._INBOX_.{}.PACK.{}"

_logger = logging.getLogger("natsd.auth")

Handler = Callable[[str, str | None, bytes, bytes], object]


class SystemClient(Protocol):
    """The internal client of the system account."""

    def publish(
        self, subject: str, payload: bytes = b"", *, reply: str | None = None, headers: bytes = b""
    ) -> None:
        """Queue a message."""
        ...

    def subscribe(self, subject: str, handler: Handler, *, queue: str | None = None) -> Any:
        """Call `handler` with each message on `subject`."""
        ...

    def unsubscribe(self, subscription: Any) -> None:
        """End a subscription."""
        ...


class ServedServer(Protocol):
    """What the services use of their server."""

    @property
    def id(self) -> str:
        """The server's id."""
        ...

    def describe(self) -> dict[str, object]:
        """Return the server's fields in a message that it publishes about itself."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsTrust:
    """Who may change JWTs through the services."""

    operator: str  # public key of the first operator
    operator_keys: frozenset[str]  # its key and its signing keys, as far as they may sign
    is_strict: bool  # only signing keys may sign
    system_account: str


class RequestFailed(Exception):
    """A request is refused; the reply has this account, and this text before the reason."""

    def __init__(self, account: str, message: str, reason: object) -> None:
        super().__init__(str(reason))
        self.account = account
        self.message = message


class ClaimsServices:
    """The services of one server; `serve_directory` or `serve_updates` says which."""

    def __init__(self, server: ServedServer, client: SystemClient) -> None:
        self._server = server
        self._client = client
        self._subscriptions: list[Any] = []
        self._waiting: deque[Callable[[], Awaitable[None]]] = deque()
        self._working: asyncio.Task[None] | None = None

    def serve(self, subject: str, handle: "Serve", *, queue: str | None = None) -> None:
        """Call `handle` with each request on a subject, one after the other."""

        def received(subject: str, reply: str | None, _headers: bytes, payload: bytes) -> None:
            if len(self._waiting) >= WAITING_MAX:
                _logger.debug("%s is not answered: too many requests wait", subject)
                return
            self._waiting.append(lambda: handle(subject, reply or "", payload))
            if self._working is None:
                self._working = asyncio.create_task(self._work(), name="natsd-claims")

        self._subscriptions.append(self._client.subscribe(subject, received, queue=queue))

    async def close(self) -> None:
        """Unsubscribe, and drop the requests that wait."""
        for subscription in self._subscriptions:
            self._client.unsubscribe(subscription)
        self._subscriptions.clear()
        self._waiting.clear()
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)

    def answer(self, reply: str, fields: dict[str, Any]) -> None:
        """Publish a reply that begins with the server's fields."""
        if reply:
            body = {"server": self._server.describe(), **fields}
            self._client.publish(reply, json.dumps(body, separators=(",", ":")).encode())

    def succeeded(self, reply: str, account: str, message: str) -> None:
        """Log and answer that a request was carried out."""
        _logger.debug("%s - %s", message, account) if account else _logger.debug("%s", message)
        data = {"account": account} if account else {}
        self.answer(reply, {"data": {**data, "code": OK, "message": message}})

    def failed(self, reply: str, failure: RequestFailed) -> None:
        """Log and answer why a request was refused."""
        parts = (failure.message, failure.account, str(failure))
        _logger.error("%s", " - ".join(filter(None, parts)))
        error: dict[str, Any] = {"account": failure.account} if failure.account else {}
        error |= {"code": FAILED, "description": f"{failure.message} - {failure}"}
        self.answer(reply, {"error": error})

    async def _work(self) -> None:
        """Carry out the waiting requests, one by one."""
        try:
            while self._waiting:
                request = self._waiting.popleft()
                try:
                    await request()
                except Exception:
                    _logger.exception("A request about the JWTs of accounts failed")
        finally:
            self._working = None


Serve = Callable[[str, str, bytes], Awaitable[None]]
"""Called with subject, reply (empty: none) and payload."""


def serve_updates(
    services: ClaimsServices, apply: Callable[[str, str], Awaitable[bool | str]]
) -> None:
    """Serve updates of accounts whose resolver keeps nothing itself.

    `apply` gets an account and its JWT. Its result is True if it put the JWT in force, False if
    this server has no such account now, or why it refused.
    """

    async def update(subject: str, reply: str, payload: bytes) -> None:
        account, message = _account_in(subject), "jwt update resulted in error"
        try:
            if not payload:
                raise RequestFailed(account, "jwt update error", "request body is empty")
            jwt, _ = await asyncio.to_thread(_account_claims, payload, account, message, account)
            result = await apply(account, jwt)
            if isinstance(result, str):
                raise RequestFailed(account, message, result)
        except RequestFailed as failure:
            services.failed(reply, failure)
        else:
            services.succeeded(reply, account, "jwt updated" if result else "jwt update skipped")

    services.serve(UPDATE_OLD, update)
    services.serve(UPDATE, update)


def serve_directory(
    services: ClaimsServices,
    resolver: DirectoryResolver,
    trust: ClaimsTrust,
    *,
    has_account: Callable[[str], bool] | None = None,
) -> None:
    """Serve the JWTs of a directory. With `has_account` it is a cache, which only takes those."""
    directory = _DirectoryRequests(services, resolver, trust, has_account)
    services.serve(UPDATE_OLD, directory.update)
    services.serve(UPDATE, directory.update)
    services.serve(UPDATE_ANY, directory.update)
    services.serve(LIST, directory.names)
    services.serve(DELETE, directory.delete)


class _DirectoryRequests:
    """The requests about the JWTs of a directory."""

    def __init__(
        self,
        services: ClaimsServices,
        resolver: DirectoryResolver,
        trust: ClaimsTrust,
        has_account: Callable[[str], bool] | None,
    ) -> None:
        self._services = services
        self._resolver = resolver
        self._trust = trust
        self._has_account = has_account
        self._what = "" if has_account is None else " cache"

    async def update(self, subject: str, reply: str, payload: bytes) -> None:
        """Keep a JWT."""
        try:
            await self._update(subject, reply, payload)
        except RequestFailed as failure:
            self._services.failed(reply, failure)

    async def _update(self, subject: str, reply: str, payload: bytes) -> None:
        message = f"jwt update{self._what} resulted in error"
        named = _account_in(subject)
        unnamed = (self._what and named) or "n/a"
        jwt, claims = await asyncio.to_thread(_account_claims, payload, named, message, unnamed)
        account = claims.subject
        if self._trust.is_strict and claims.issuer == self._trust.operator:
            raise RequestFailed(account, message, "operator requires issuer to be a signing key")
        if self._has_account is not None and not self._has_account(account):
            self._services.succeeded(reply, account, "jwt update cache skipped")
            return
        issues = await asyncio.to_thread(account_issues, claims, time.time_ns() / 1e9)
        if issues.errors:
            checked = f"jwt{' update cache' if self._what else ''} validation failed"
            reason = f"validation errors: [{' '.join(issues.errors)}]"
            raise RequestFailed(account, checked, reason)
        try:
            await self._resolver.save(account, jwt)
        except (NotResolved, BadToken, OSError) as error:
            raise RequestFailed(account, message, error) from None
        self._services.succeeded(reply, account, f"jwt updated{self._what}")

    async def names(self, _subject: str, reply: str, _payload: bytes) -> None:
        """Answer with all accounts."""
        names = [name for name, _ in await self._resolver.pack()]
        self._services.answer(reply, {"data": names})

    async def delete(self, _subject: str, reply: str, payload: bytes) -> None:
        """Delete the accounts that an operator names."""
        try:
            accounts = self._named_accounts(payload)
        except RequestFailed as failure:
            self._services.failed(reply, failure)
            return
        errors = []
        for account in accounts:
            try:
                await self._resolver.delete(account)
            except OSError as error:
                errors.append(str(error))
        done = f"deleted {len(accounts) - len(errors)} accounts"
        if errors:
            failed = RequestFailed("", f"{done}, failed for {len(errors)}", "\n".join(errors))
            self._services.failed(reply, failed)
        else:
            self._services.succeeded(reply, "", done)

    def _named_accounts(self, payload: bytes) -> list[str]:
        """Return the accounts that a request to delete names. Raises RequestFailed."""
        subject = ""
        try:
            claims = decode_generic(payload.decode("ascii", "replace"))
            subject = claims.subject
            if not self._resolver.may_delete:
                raise BadToken("delete must be enabled in server config")
            if claims.subject != claims.issuer:
                raise BadToken("not self signed")
            if claims.issuer not in self._trust.operator_keys:
                raise BadToken("not trusted")
            accounts = claims.data.get("accounts")
            if not isinstance(accounts, list) or not all(
                isinstance(each, str) and is_public(each, Kind.ACCOUNT) for each in accounts
            ):
                raise BadToken("malformed request")
            if self._trust.system_account in accounts:
                raise BadToken("not allowed to delete system account")
        except BadToken as error:
            message = f"delete accounts request by {subject} failed"
            raise RequestFailed("", message, error) from None
        return accounts


def _account_in(subject: str) -> str:
    """Return the account in a subject; empty: it names none."""
    tokens = subject.split(".")
    return tokens[-3] if len(tokens) >= 5 else ""


def _account_claims(
    payload: bytes, account: str, message: str, unnamed: str
) -> tuple[str, AccountClaims]:
    """Return a JWT and its claims, which must be those of `account`, if it is given.

    Raises RequestFailed, for the account `unnamed` if the JWT is none.
    """
    jwt = payload.decode("ascii", "replace").strip()
    try:
        claims = decode_as(AccountClaims, jwt)
        if account and claims.subject != account:
            raise RequestFailed(account, message, "subject does not match jwt content")
        if not is_public(claims.subject, Kind.ACCOUNT):
            raise BadToken("the subject is not an account public key")
    except BadToken as error:
        raise RequestFailed(unnamed, message, error) from None
    return jwt, claims
