"""The API router: it receives an account's requests, reads them, carries them out and answers.

    $JS.API.STREAM.CREATE.ORDERS ──▶ route ──▶ waiting ──▶ body read ──▶ handler ──▶ answer

Promise
- Any bytes may come on any subject: the answer is the requested one or one of the documented
  errors. A handler that fails is logged and answered with 500; the server goes on.
- A request without a reply subject is carried out and not answered, as nats-server does.
- No body blocks the event loop: long bodies are read in a thread.
- The number of waiting requests is bounded, and so is the number of running ones; queries never
  wait behind changes.
- `$JS.<domain>.API.…` stands for `$JS.API.…`; requests that streams and consumers serve themselves
  are forwarded to them.
- Each request that was carried out or refused is published as an audit advisory, with its client,
  if the advisory has a listener.

Source: nats-server's `apiDispatch` and `enableAllJetStreamServiceImportsAndMappings`; answers were
compared with a running nats-server 2.14.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from natsd.accounts import Account
from natsd.accounts.internal_client import Service, wire_subject
from natsd.core.network import Session
from natsd.core.quoting import quoted
from natsd.core.routing import InvalidSubject, Subscription
from natsd.jetstream.account import JetStreamAccount
from natsd.jetstream.advisories import api_audit, api_limit_reached
from natsd.jetstream.api.answer import encode_answer
from natsd.jetstream.api.invalid_requests import InvalidRequests
from natsd.jetstream.api.request import Request
from natsd.jetstream.api.table import ROUTES, Body, Route, Served
from natsd.jetstream.api.waiting import Asset, WaitingRequests
from natsd.jetstream.early_requests import EarlyRequest, EarlyRequests
from natsd.jetstream.errors import ApiError, ErrorId, api_error
from natsd.jetstream.headers import demands_too_much
from natsd.jetstream.models.base import Model
from natsd.jetstream.models.go_json import (
    InvalidJson,
    decode,
    encode,
    is_empty_object,
    is_object_or_array,
)
from natsd.jetstream.models.response import ErrorBody
from natsd.jetstream.names import (
    API_PREFIX,
    ASSET_SPACES,
    DOMAIN_SPACES,
    domain_api_prefix,
)
from natsd.jetstream.server_resources import ServerResources
from natsd.store.errors import StoreError

_logger = logging.getLogger(__name__)

AT_ONCE: Final = 16
"""Changes, and queries, that run at once: the number of nats-server's workers."""

CHANGES_QUEUE: Final = "JetStream API queue"
INFOS_QUEUE: Final = "JetStream API info queue"

LARGE_BODY_BYTES: Final = 8 << 10
"""Reading a longer body takes longer than a turn of the event loop may take."""

_CLIENT_SPACES: Final = ("$KV.>", "$OBJ.>")
_NO_RESPONDERS: Final = "NATS/1.0 503\r\nNats-Subject: {subject}\r\n\r\n"


@dataclass(frozen=True, slots=True)
class _Received:
    """A request as it was received."""

    account: JetStreamAccount
    route: Route
    subject: str
    reply: str | None
    headers: bytes
    data: bytes
    origin: Session | None

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the tokens of the subject at the route's wildcards."""
        return self.route.arguments(self.subject.removeprefix(f"{API_PREFIX}."))

    @property
    def asset(self) -> Asset:
        """The asset that the request concerns, which determines the order of execution."""
        if not self.arguments:
            return ()
        name, *below = self.arguments[:2]
        consumer = [below[0].partition(".")[0]] if below else []
        return (self.account.name, name, *consumer)


class Router:
    """Router of one server, for all accounts with JetStream."""

    def __init__(
        self,
        jetstream: ServerResources,
        accounts: Mapping[str, JetStreamAccount],
        early: EarlyRequests | None = None,
    ) -> None:
        """Answer nothing yet; `accounts` are those that JetStream serves, by name.

        `early` holds the requests that the accounts received before.
        """
        options = jetstream.options
        self._jetstream = jetstream
        self._accounts = accounts
        self._early = early
        self._changes = WaitingRequests(
            options.request_queue_limit, AT_ONCE, partial(self._drop, CHANGES_QUEUE)
        )
        self._infos = WaitingRequests(
            options.info_queue_limit, AT_ONCE, partial(self._drop, INFOS_QUEUE)
        )
        self._subscriptions: list[tuple[Account, Subscription]] = []
        self._services: dict[Subscription, Service] = {}
        self._invalid = InvalidRequests(jetstream.loop.time)
        self._reading = asyncio.Lock()
        self.dropped = 0

    # Accounts

    def serve(self, account: JetStreamAccount) -> None:
        """Answer the account's requests from now on."""
        domain = self._jetstream.options.domain
        self._serve(account, API_PREFIX)
        self._ignore_others(account.account, API_PREFIX, (">",))
        if domain:
            self._serve(account, domain_api_prefix(domain))
            self._serve_domain(account.account, domain_api_prefix(domain))
            self._ignore_others(account.account, domain_api_prefix(domain), DOMAIN_SPACES)
        self._answer_early(account.account)

    def refuse(self, account: Account) -> None:
        """Answer the account's requests with the error that JetStream is not enabled for it.

        Requests that need a cluster are answered with the error that there is none. The system
        account's own requests are served.
        """
        asker = JetStreamAccount(self._jetstream, account, {})
        for route in ROUTES:
            service: Service = partial(self._refuse, account, route)
            if route.served is Served.ASSET:
                continue
            if route.served is Served.SYSTEM and route.handler and account.is_system:
                service = partial(self._receive, asker, route, API_PREFIX)
            self._subscribe(account, f"{API_PREFIX}.{route.subject}", service)
        self._answer_early(account)

    @property
    def waiting(self) -> dict[str, int]:
        """Number of waiting requests in each queue."""
        return {CHANGES_QUEUE: len(self._changes), INFOS_QUEUE: len(self._infos)}

    async def close(self) -> None:
        """Take no more requests, and return when the running ones are answered."""
        for account, subscription in self._subscriptions:
            account.internal_client.unsubscribe(subscription)
        self._subscriptions.clear()
        self._services.clear()
        await self._changes.close()
        await self._infos.close()

    def _subscribe(
        self,
        account: Account,
        subject: str,
        service: Service,
    ) -> None:
        subscription = account.internal_client.serve(subject, service)
        self._subscriptions.append((account, subscription))
        self._services[subscription] = service

    def _answer_early(self, account: Account) -> None:
        """Answer the requests that the account received before, as if they came now."""
        if self._early is not None:
            self._early.hand_over(account, self._serve_early)

    def _serve_early(self, request: EarlyRequest) -> None:
        """Give the request to the service of its subject; a subject without one is not answered."""
        for subscription in request.account.sublist.match(request.subject).plain:
            if service := self._services.get(subscription):
                service(
                    request.subject, request.reply, request.headers, request.data, request.origin
                )

    def _serve(self, account: JetStreamAccount, prefix: str) -> None:
        """Answer requests behind the prefix as those behind `$JS.API`."""
        for route in ROUTES:
            if route.served in (Served.CHANGE, Served.INFO):
                receive = partial(self._receive, account, route, prefix)
                self._subscribe(account.account, f"{prefix}.{route.subject}", receive)

    def _ignore_others(self, account: Account, prefix: str, spaces: Iterable[str]) -> None:
        """Leave subjects that are no request unanswered, as nats-server does.

        Requests to a missing stream or consumer get a no-responders status, which clients wait for.
        """
        refused = tuple(f"{prefix}.{space}" for space in ASSET_SPACES)
        for space in spaces:
            subscription = account.internal_client.ignore(f"{prefix}.{space}", refused=refused)
            self._subscriptions.append((account, subscription))

    def _serve_domain(self, account: Account, prefix: str) -> None:
        """Forward requests on the domain's prefix that the router does not answer.

        They go to streams and consumers, and to the subjects of key-value and object stores.
        """
        for route in ROUTES:
            if route.served not in (Served.CHANGE, Served.INFO):
                forward = partial(_forward, account, prefix, API_PREFIX)
                self._subscribe(account, f"{prefix}.{route.subject}", forward)
        for space in _CLIENT_SPACES:
            self._subscribe(
                account, f"{prefix}.{space}", partial(_forward, account, f"{prefix}.", "")
            )

    # Requests

    def _receive(
        self,
        account: JetStreamAccount,
        route: Route,
        prefix: str,
        subject: str,
        reply: str | None,
        headers: bytes,
        data: bytes,
        origin: Session | None,
    ) -> None:
        subject = API_PREFIX + subject.removeprefix(prefix)
        received = _Received(account, route, subject, reply, headers, data, origin)
        self._jetstream.api_counters.inflight += 1
        if route.served is Served.INFO:
            self._infos.add((), partial(self._answer, received))
        else:
            self._changes.add(received.asset, partial(self._answer, received))

    def _drop(self, queue: str, count: int) -> None:
        self.dropped += count
        self._jetstream.api_counters.inflight -= count
        _logger.warning("%s limit reached, dropping %d requests", queue, count)
        api_limit_reached(self._jetstream, count)

    async def _answer(self, received: _Received) -> None:
        """Carry out the request and send the answer; never raises."""
        account, reply = received.account.account, received.reply
        text, is_error = await self._carry_out(received)
        self._jetstream.api_counters.inflight -= 1
        if reply is not None:
            _publish(account, reply, text)
        if is_error or received.route.is_tracked:
            for counters in (received.account.api, self._jetstream.api_counters):
                counters.total += 1
                counters.errors += is_error
            api_audit(
                self._jetstream, account, received.subject, received.data, text, received.origin
            )

    async def _carry_out(self, received: _Received) -> tuple[bytes, bool]:
        """Carry out the request; return the answer, and whether it is an error."""
        route = received.route
        assert route.handler is not None
        try:
            if demands_too_much(received.headers):
                raise api_error(ErrorId.JSRequiredApiLevelErr)
            body = await self._read(route, received.data)
            request = Request(
                received.account,
                received.subject,
                received.arguments,
                body,
                self._accounts,
                received.origin,
            )
            return await encode_answer(await route.handler(request)), False
        except ApiError as error:
            if isinstance(error.__cause__, InvalidJson):
                self._invalid.warn(received.account.name, received.subject, error.__cause__)
            return encode(route.response(error=ErrorBody.of(error))), True
        except StoreError as error:  # The store has logged it, or the client is to see it.
            failure = api_error(ErrorId.JSStreamGeneralErrorF, err=error.text)
            return encode(route.response(error=ErrorBody.of(failure))), True
        except Exception:
            _logger.exception("JetStream: request on %s failed", quoted(received.subject))
            failure = api_error(ErrorId.JSStreamGeneralErrorF, err="internal error")
            return encode(route.response(error=ErrorBody.of(failure))), True

    async def _read(self, route: Route, data: bytes) -> Model:
        """Read the body; a large one is read in a thread, one at a time. Raises ApiError."""
        read = partial(read_body, route, data, strict=self._jetstream.options.strict)
        if len(data) <= LARGE_BODY_BYTES:
            return read()
        async with self._reading:
            return await self._jetstream.volume.read(read)

    def _refuse(
        self,
        account: Account,
        route: Route,
        subject: str,
        reply: str | None,
        _headers: bytes,
        data: bytes,
        origin: Session | None,
    ) -> None:
        needs_cluster = route.served is Served.SYSTEM
        error = ErrorId.JSClusterRequiredErr if needs_cluster else ErrorId.JSNotEnabledForAccountErr
        text = encode(route.response(error=ErrorBody.of(api_error(error))))
        if reply is not None:
            _publish(account, reply, text)
        api_audit(self._jetstream, account, subject, data, text, origin)


def read_body(route: Route, data: bytes, *, strict: bool) -> Model:
    """Return the body as the route's model. Raises ApiError."""
    match route.body:
        case Body.EMPTY if not is_empty_object(data):
            raise api_error(ErrorId.JSNotEmptyRequestErr)
        case Body.MUST if is_empty_object(data):
            raise api_error(ErrorId.JSBadRequestErr)
        case Body.ANY | Body.EMPTY:
            data = b""
        case Body.MAYBE if not is_object_or_array(data):
            data = b""
    try:
        is_one = route.body is Body.ONE or (route.body is Body.ONE_OR_NONE and bool(data))
        is_strict = strict and route.is_strict
        return decode(route.request, data, strict=is_strict, is_one_value=is_one)
    except InvalidJson as error:
        raise api_error(ErrorId.JSInvalidJSONErr, err=error) from error


def _forward(
    account: Account,
    prefix: str,
    served: str,
    subject: str,
    reply: str | None,
    headers: bytes,
    data: bytes,
    _origin: Session | None,
) -> None:
    """Publish the message again with `served` in place of the prefix."""
    forwarded = served + subject.removeprefix(prefix)
    with contextlib.suppress(InvalidSubject):
        target = wire_subject(forwarded)
        answer_to = None if reply is None else wire_subject(reply)
        if not account.publisher.publish(target, data, answer_to, headers) and reply is not None:
            status = _NO_RESPONDERS.format(subject=forwarded).encode("utf-8", "surrogateescape")
            _publish(account, reply, b"", status)


def _publish(account: Account, reply: str, data: bytes, headers: bytes = b"") -> None:
    with contextlib.suppress(InvalidSubject):
        account.internal_client.publish(reply, data, headers=headers)
