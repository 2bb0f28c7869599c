"""The API's way in and out: requests arrive in an account, are read, carried out and answered.

    $JS.API.STREAM.CREATE.ORDERS ──▶ route ──▶ waiting ──▶ body read ──▶ handler ──▶ answer

Promise
- Any bytes may come on any subject: the answer is what was asked for or one of the documented
  errors. A handler that fails is logged and answered with 500; the server goes on.
- A request without a reply subject is carried out and not answered, as nats-server does.
- No body holds the loop, whatever is in it: long ones are read elsewhere.
- What waits is bounded, and so is what is done at once; questions never wait behind changes.
- `$JS.<domain>.API.…` stands for `$JS.API.…`; what streams and consumers serve is passed on.
- What was carried out or refused is told to who listens for it, with who asked.

Source: reference §6.1, §6.2; nats-server 2.14, tried.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from natsd.accounts import SYSTEM_ACCOUNT, Account
from natsd.accounts.internal_client import Service, wire_subject
from natsd.core.quoting import quoted
from natsd.core.subject import InvalidSubject
from natsd.core.subscription import Subscription
from natsd.core.wire import Wire
from natsd.jetstream.account import JetStreamAccount
from natsd.jetstream.advisories import api_audit, api_limit_reached
from natsd.jetstream.api.answer import encode_answer
from natsd.jetstream.api.invalid_requests import InvalidRequests
from natsd.jetstream.api.request import Request
from natsd.jetstream.api.table import ROUTES, Body, Route, Served
from natsd.jetstream.api.waiting import Asset, WaitingRequests
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
from natsd.jetstream.names import API_PREFIX, domain_api_prefix
from natsd.store.errors import StoreError

if TYPE_CHECKING:
    from natsd.jetstream.jetstream import JetStream

_logger = logging.getLogger(__name__)

AT_ONCE: Final = 16
"""Changes, and questions, that are carried out at once: as many as nats-server has workers."""

CHANGES_QUEUE: Final = "JetStream API queue"
INFOS_QUEUE: Final = "JetStream API info queue"

_ASSET_SPACES: Final = ("DIRECT.GET", "CONSUMER.MSG.NEXT.")
"""What subjects of streams and consumers begin with; nats-server looks for the same letters."""
_DOMAIN_SPACES: Final = ("STREAM.>", "CONSUMER.>", "META.>", "SERVER.>", "ACCOUNT.>")
"""What nats-server brings from a domain's prefix to the API, requests or not."""
LARGE_BODY_BYTES: Final = 8 << 10
"""A longer body takes longer to read than a turn of the loop may."""

_CLIENT_SPACES: Final = ("$KV.>", "$OBJ.>")
_NO_RESPONDERS: Final = "NATS/1.0 503\r\nNats-Subject: {subject}\r\n\r\n"


@dataclass(frozen=True, slots=True)
class _Received:
    """A request as it came."""

    account: JetStreamAccount
    route: Route
    subject: str
    reply: str | None
    headers: bytes
    data: bytes
    origin: Wire | None

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.route.arguments(self.subject.removeprefix(f"{API_PREFIX}."))

    @property
    def asset(self) -> Asset:
        """What it concerns, for the order in which requests are carried out."""
        if not self.arguments:
            return ()
        name, *below = self.arguments[:2]
        consumer = [below[0].partition(".")[0]] if below else []
        return (self.account.name, name, *consumer)


class Router:
    """One per server; every account that JetStream serves is brought to it."""

    def __init__(self, jetstream: "JetStream") -> None:
        options = jetstream.options
        self._jetstream = jetstream
        self._changes = WaitingRequests(
            options.request_queue_limit, AT_ONCE, partial(self._drop, CHANGES_QUEUE)
        )
        self._infos = WaitingRequests(
            options.info_queue_limit, AT_ONCE, partial(self._drop, INFOS_QUEUE)
        )
        self._subscriptions: list[tuple[Account, Subscription]] = []
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
            self._ignore_others(account.account, domain_api_prefix(domain), _DOMAIN_SPACES)

    def refuse(self, account: Account) -> None:
        """Tell the account's clients that JetStream is not enabled for it, and what is a cluster's
        that there is none. The system account is served what is its own."""
        asker = JetStreamAccount(self._jetstream, account, {})
        for route in ROUTES:
            service: Service = partial(self._refuse, account, route)
            if route.served is Served.ASSET:
                continue
            if route.served is Served.SYSTEM and route.handler and account.name == SYSTEM_ACCOUNT:
                service = partial(self._receive, asker, route, API_PREFIX)
            self._subscribe(account, f"{API_PREFIX}.{route.subject}", service)

    @property
    def waiting(self) -> dict[str, int]:
        """How many requests wait in each queue."""
        return {CHANGES_QUEUE: len(self._changes), INFOS_QUEUE: len(self._infos)}

    async def close(self) -> None:
        """Take no more requests; returns when those that had begun are answered."""
        for account, subscription in self._subscriptions:
            account.internal_client.unsubscribe(subscription)
        self._subscriptions.clear()
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

    def _serve(self, account: JetStreamAccount, prefix: str) -> None:
        """Answer what stands behind the prefix as if it were the API's."""
        for route in ROUTES:
            if route.served in (Served.CHANGE, Served.INFO):
                receive = partial(self._receive, account, route, prefix)
                self._subscribe(account.account, f"{prefix}.{route.subject}", receive)

    def _ignore_others(self, account: Account, prefix: str, spaces: Iterable[str]) -> None:
        """Leave what is no request unanswered, as nats-server does; but tell those who ask a stream
        or a consumer that is not there that nobody listens: clients wait for that."""
        refused = tuple(f"{prefix}.{space}" for space in _ASSET_SPACES)
        for space in spaces:
            subscription = account.internal_client.ignore(f"{prefix}.{space}", refused=refused)
            self._subscriptions.append((account, subscription))

    def _serve_domain(self, account: Account, prefix: str) -> None:
        """What of the domain's others serve is theirs: streams and consumers, and the clients of
        key-value and object stores."""
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
        origin: Wire | None,
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
        """Carry it out and send the answer; never raises."""
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
        """The answer, and whether it is an error."""
        route = received.route
        assert route.handler is not None
        try:
            if demands_too_much(received.headers):
                raise api_error(ErrorId.JSRequiredApiLevelErr)
            body = await self._read(route, received.data)
            request = Request(
                received.account, received.subject, received.arguments, body, received.origin
            )
            return await encode_answer(await route.handler(request)), False
        except ApiError as error:
            if isinstance(error.__cause__, InvalidJson):
                self._invalid.warn(received.account.name, received.subject, error.__cause__)
            return encode(route.response(error=ErrorBody.of(error))), True
        except StoreError as error:  # which the store has told, or the client is to know
            failure = api_error(ErrorId.JSStreamGeneralErrorF, err=error.text)
            return encode(route.response(error=ErrorBody.of(failure))), True
        except Exception:
            _logger.exception("JetStream: request on %s failed", quoted(received.subject))
            failure = api_error(ErrorId.JSStreamGeneralErrorF, err="internal error")
            return encode(route.response(error=ErrorBody.of(failure))), True

    async def _read(self, route: Route, data: bytes) -> Model:
        """The body; a large one is read in a thread, and one at a time. Raises ApiError."""
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
        origin: Wire | None,
    ) -> None:
        needs_cluster = route.served is Served.SYSTEM
        error = ErrorId.JSClusterRequiredErr if needs_cluster else ErrorId.JSNotEnabledForAccountErr
        text = encode(route.response(error=ErrorBody.of(api_error(error))))
        if reply is not None:
            _publish(account, reply, text)
        api_audit(self._jetstream, account, subject, data, text, origin)


def read_body(route: Route, data: bytes, *, strict: bool) -> Model:
    """The body as the route's model; raises ApiError."""
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
    _origin: Wire | None,
) -> None:
    """Publish it again with `served` in place of the prefix."""
    forwarded = served + subject.removeprefix(prefix)
    with contextlib.suppress(InvalidSubject):
        target = wire_subject(forwarded)
        answer_to = None if reply is None else wire_subject(reply)
        if not account.outlet.publish(target, data, answer_to, headers) and reply is not None:
            status = _NO_RESPONDERS.format(subject=forwarded).encode("utf-8", "surrogateescape")
            _publish(account, reply, b"", status)


def _publish(account: Account, reply: str, data: bytes, headers: bytes = b"") -> None:
    with contextlib.suppress(InvalidSubject):
        account.internal_client.publish(reply, data, headers=headers)
