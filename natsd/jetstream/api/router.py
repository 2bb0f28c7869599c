"""The API router: it receives an account's requests, reads them, carries them out and answers.

    $JS.API.STREAM.CREATE.ORDERS ──▶ route ──▶ waiting ──▶ body read ──▶ handler ──▶ answer

Promise
- Any bytes may come on any subject: the answer is the requested one or one of the documented
  errors. A handler that fails is logged and answered with 500; the server goes on.
- A request without a reply subject is carried out and not answered, as nats-server does.
- No body blocks the event loop: long bodies are read in a thread.
- The number of waiting requests is bounded, and so is the number of running ones; queries never
  wait behind changes, and no account waits for another one (waiting.py).
- `$JS.<domain>.API.…` stands for `$JS.API.…` (account_subjects.py); the system account sends some
  requests for other accounts (all_accounts.py).
- Each request that was carried out or refused is published as an audit advisory, with its client,
  if the advisory has a listener.

Source: nats-server's `apiDispatch` and `enableAllJetStreamServiceImportsAndMappings`; answers were
compared with a running nats-server 2.14.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from natsd.accounts import Account
from natsd.accounts.internal_client import Service
from natsd.core.network import Session
from natsd.core.quoting import quoted
from natsd.core.routing import InvalidSubject
from natsd.jetstream.account import JetStreamAccount
from natsd.jetstream.advisories import api_audit, api_limit_reached
from natsd.jetstream.api.account_subjects import AccountSubjects
from natsd.jetstream.api.all_accounts import AllAccounts
from natsd.jetstream.api.answer import encode_answer
from natsd.jetstream.api.body import read_body
from natsd.jetstream.api.held_requests import HeldRequests
from natsd.jetstream.api.invalid_requests import InvalidRequests
from natsd.jetstream.api.request import Request
from natsd.jetstream.api.route_index import RouteIndex
from natsd.jetstream.api.table import INFO_SUBJECT, ROUTES, Route, Served
from natsd.jetstream.api.waiting import Asset, WaitingRequests
from natsd.jetstream.commands.committer import NotCommitted
from natsd.jetstream.early_requests import EarlyRequest, EarlyRequests
from natsd.jetstream.errors import ApiError, ErrorId, api_error
from natsd.jetstream.headers import demands_too_much
from natsd.jetstream.meta_group.answering import Answering, Unanswered
from natsd.jetstream.models.base import Model
from natsd.jetstream.models.go_json import InvalidJson, encode
from natsd.jetstream.models.response import ErrorBody, Response
from natsd.jetstream.models.responses import AccountInfoResponse, SystemResponse
from natsd.jetstream.names import API_PREFIX
from natsd.jetstream.server_resources import ServerResources
from natsd.jetstream.stream.agreement import Agreement
from natsd.raft.errors import RaftError
from natsd.store.errors import StoreError

if TYPE_CHECKING:
    from natsd.jetstream.meta_group.cluster import JetStreamCluster

_logger = logging.getLogger(__name__)

AT_ONCE: Final = 16
"""Changes, and queries, that run at once: the number of nats-server's workers."""

CHANGES_QUEUE: Final = "JetStream API queue"
INFOS_QUEUE: Final = "JetStream API info queue"

NO_LEADER_S: Final = 0.5
"""So long a request waits that only a leader, or a server that is away, could answer, before it is
refused."""

LARGE_BODY_BYTES: Final = 8 << 10
"""Reading a longer body takes longer than a turn of the event loop may take."""


@dataclass(frozen=True, slots=True)
class _Message:
    """A request as it arrived; `origin` is None if the server itself sent it.

    `requestor` is the account that gets the answer, if that is not the account of the request.
    """

    subject: str
    reply: str | None
    headers: bytes
    data: bytes
    origin: Session | None
    requestor: Account | None = None


@dataclass(frozen=True, slots=True)
class _Received:
    """A request that is to be carried out in an account."""

    account: JetStreamAccount
    route: Route
    message: _Message

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the tokens of the subject at the route's wildcards."""
        return self.route.arguments(self.message.subject.removeprefix(f"{API_PREFIX}."))

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
        self._early = early or EarlyRequests(options.domain)
        self._routes = RouteIndex(ROUTES)
        self._changes = WaitingRequests(
            options.request_queue_limit, AT_ONCE, partial(self._drop, CHANGES_QUEUE)
        )
        self._infos = WaitingRequests(
            options.info_queue_limit, AT_ONCE, partial(self._drop, INFOS_QUEUE)
        )
        self._subjects: dict[Account, AccountSubjects] = {}
        self._of_all: dict[Account, AllAccounts] = {}  # of the system account
        self._invalid = InvalidRequests(jetstream.loop.time)
        self._reading = asyncio.Lock()
        self.dropped = 0
        self._held = HeldRequests(jetstream.loop)
        self.cluster: JetStreamCluster | None = None  # None: this server is in none

    # Accounts

    def serve(self, account: JetStreamAccount) -> None:
        """Answer the account's requests from now on."""
        self._listen(account.account, partial(self._receive, account))

    def refuse(self, account: Account) -> None:
        """Answer the account's requests with the error that JetStream is not enabled for it.

        In the system account every subject is answered: its own requests are carried out, and
        those that need a cluster get the error that there is none.
        """
        if account.is_system:
            asker = JetStreamAccount(self._jetstream, account, {})
            self._listen(account, partial(self._receive_of_system, asker), takes_all=True)
            self._of_all[account] = AllAccounts(account, partial(self._receive_for, account))
        else:
            self._listen(account, partial(self._refuse, account))

    def hold(self, account: Account) -> None:
        """Keep the account's requests until it is served or refused."""
        self._unsubscribe(account)
        self._early.hold(account)

    def forget(self, account: Account) -> None:
        """Take no more requests of the account."""
        self._unsubscribe(account)
        self._early.forget(account)

    def _unsubscribe(self, account: Account) -> None:
        subjects = self._subjects.pop(account, None)
        if subjects is not None:
            subjects.close()
        of_all = self._of_all.pop(account, None)
        if of_all is not None:
            of_all.close()

    async def settle(self, account: str) -> None:
        """Wait until the running requests of the account of that name are answered."""
        await self._changes.settle(account)
        await self._infos.settle(account)

    @property
    def waiting(self) -> dict[str, int]:
        """Number of waiting requests in each queue."""
        return {CHANGES_QUEUE: len(self._changes), INFOS_QUEUE: len(self._infos)}

    async def close(self) -> None:
        """Take no more requests, and return when the running ones are answered."""
        for account in list(self._subjects):
            self.forget(account)
        await self._changes.close()
        await self._infos.close()

    def _listen(self, account: Account, service: Service, *, takes_all: bool = False) -> None:
        """Give the account's requests to `service`, in place of the service before."""
        self._unsubscribe(account)
        domain = self._jetstream.options.domain
        subjects = AccountSubjects(account, domain, service, takes_all=takes_all)
        self._subjects[account] = subjects
        self._early.hand_over(account, self._receive_early)

    def _receive_early(self, request: EarlyRequest) -> None:
        """Treat a request that the account received before as if it came now."""
        subjects = self._subjects.get(request.account)
        if subjects is not None:
            subjects.receive(
                request.subject, request.reply, request.headers, request.data, request.origin
            )

    # Requests

    def _find(self, subject: str) -> Route | None:
        """Return the route of a subject that begins with `$JS.API.`."""
        return self._routes.find(subject[len(API_PREFIX) + 1 :])

    def _receive(
        self,
        account: JetStreamAccount,
        subject: str,
        reply: str | None,
        headers: bytes,
        data: bytes,
        origin: Session | None,
    ) -> None:
        """Queue a request; a subject that is no request gets no answer, as from nats-server."""
        route = self._find(subject)
        if route is not None and route.served in (Served.CHANGE, Served.INFO):
            message = _Message(subject, reply, headers, data, origin)
            self._queue_if_ours(_Received(account, route, message))

    def _queue_if_ours(self, received: _Received) -> None:
        """Queue a request that this server answers; in a cluster, one of the servers does."""
        if self.cluster is None:
            self._queue(received)
        else:
            self._held.hold(partial(self._is_decided, self.cluster, received))

    def _is_decided(self, cluster: "JetStreamCluster", received: _Received) -> bool:
        """Queue or refuse a request if it is known who answers; return whether it is."""
        account, route = received.account.account, received.route
        stream = received.arguments[0] if route.is_of_stream else ""
        if route.needs_consumer:
            answering = cluster.answering_consumer(account.name, *received.arguments[:2])
        else:
            answering = cluster.answering(account.name, stream)
        if answering is Answering.HERE:
            self._queue(received)
        elif answering is Answering.OFFLINE:
            error = api_error(ErrorId.JSStreamOfflineErr)
            self._answer_error(account, received.message, route.response, error)
        elif answering in (Answering.NOBODY, Answering.UNSERVED):  # somebody may answer before
            if answering is Answering.NOBODY:
                error = api_error(ErrorId.JSClusterNotAvailErr)
            else:
                error = cluster.why_unserved(account.name, *received.arguments[:2])
            self._jetstream.loop.call_later(
                NO_LEADER_S,
                self._answer_error,
                *(account, received.message, route.response, error),
            )
        return answering is not Answering.SOON

    def _queue(self, received: _Received) -> None:
        self._jetstream.api_counters.inflight += 1
        name, answer = received.account.name, partial(self._answer, received)
        if received.route.served is Served.INFO:
            self._infos.add(name, (), answer)
        else:
            self._changes.add(name, received.asset, answer)

    def _receive_of_system(
        self,
        asker: JetStreamAccount,
        subject: str,
        reply: str | None,
        headers: bytes,
        data: bytes,
        origin: Session | None,
    ) -> None:
        message = _Message(subject, reply, headers, data, origin)
        route = self._find(subject)
        if route is None or route.served is not Served.SYSTEM:
            is_info = route is not None and route.subject == INFO_SUBJECT
            response = AccountInfoResponse if is_info else SystemResponse
            error = api_error(ErrorId.JSNotEnabledForAccountErr)
            self._answer_error(asker.account, message, response, error)
        elif route.handler is None or (route.needs_cluster and self.cluster is None):
            error = api_error(ErrorId.JSClusterRequiredErr)
            self._answer_error(asker.account, message, SystemResponse, error)
        else:
            self._queue_if_ours(_Received(asker, route, message))

    def _receive_for(
        self,
        system: Account,
        name: str,
        subject: str,
        reply: str | None,
        headers: bytes,
        data: bytes,
        origin: Session | None,
    ) -> None:
        """Queue a request of the system account for the account of that name."""
        route = self._find(subject)
        if route is None:
            return
        message = _Message(subject, reply, headers, data, origin, system)
        account = self._accounts.get(name)
        if account is None:
            error = api_error(ErrorId.JSNotEnabledForAccountErr)
            self._answer_error(system, message, route.response, error)
        else:
            self._queue_if_ours(_Received(account, route, message))

    def _drop(self, queue: str, account: str, count: int) -> None:
        self.dropped += count
        self._jetstream.api_counters.inflight -= count
        _logger.warning(
            "%s limit reached, dropping %d requests of account %s", queue, count, quoted(account)
        )
        api_limit_reached(self._jetstream, count)

    async def _answer(self, received: _Received) -> None:
        """Carry out the request and send the answer; never raises."""
        account, message = received.account.account, received.message
        text, is_error = await self._carry_out(received)
        self._jetstream.api_counters.inflight -= 1
        if message.reply is not None:
            _publish(message.requestor or account, message.reply, text)
        if is_error or received.route.is_tracked:
            for counters in (received.account.api, self._jetstream.api_counters):
                counters.total += 1
                counters.errors += is_error
            self._audit(account, message, text)

    async def _carry_out(self, received: _Received) -> tuple[bytes, bool]:
        """Carry out the request; return the answer, and whether it is an error."""
        route, message = received.route, received.message
        assert route.handler is not None
        try:
            if received.account.is_closed:
                raise api_error(ErrorId.JSNotEnabledForAccountErr)
            if demands_too_much(message.headers):
                raise api_error(ErrorId.JSRequiredApiLevelErr)
            body = await self._read(route, message.data)
            request = Request(
                received.account,
                message.subject,
                received.arguments,
                body,
                self._accounts,
                message.origin,
                message.headers,
                message.requestor,
                self.cluster,
            )
            agreement = _agreement(received)
            answer = await route.handler(request)
            if agreement is not None:
                await agreement.reached()
            return await encode_answer(answer), False
        except ApiError as error:
            if isinstance(error.__cause__, InvalidJson):
                self._invalid.warn(received.account.name, message.subject, error.__cause__)
            return encode(route.response(error=ErrorBody.of(error))), True
        except (NotCommitted, RaftError, Unanswered):
            failure = api_error(ErrorId.JSClusterNotAvailErr)
            return encode(route.response(error=ErrorBody.of(failure))), True
        except StoreError as error:  # The store has logged it, or the client is to see it.
            failure = api_error(ErrorId.JSStreamGeneralErrorF, err=error.text)
            return encode(route.response(error=ErrorBody.of(failure))), True
        except Exception:
            _logger.exception("JetStream: request on %s failed", quoted(message.subject))
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
        subject: str,
        reply: str | None,
        headers: bytes,
        data: bytes,
        origin: Session | None,
    ) -> None:
        """Answer a request of an account without JetStream; other subjects get no answer."""
        route = self._find(subject)
        if route is not None and route.served in (Served.CHANGE, Served.INFO):
            message = _Message(subject, reply, headers, data, origin)
            error = api_error(ErrorId.JSNotEnabledForAccountErr)
            self._answer_error(account, message, route.response, error)

    def _answer_error(
        self, account: Account, message: _Message, response: type[Response], error: ApiError
    ) -> None:
        text = encode(response(error=ErrorBody.of(error)))
        if message.reply is not None:
            _publish(account, message.reply, text)
        self._audit(account, message, text)

    def _audit(self, account: Account, message: _Message, answer: bytes) -> None:
        api_audit(
            self._jetstream,
            account,
            message.subject,
            message.data,
            answer,
            message.origin,
            message.headers,
        )


def _agreement(received: _Received) -> Agreement | None:
    """Return the agreement of the replicas that a request may change; None: there is one."""
    if not received.route.is_of_stream:
        return None
    stream = received.account.streams.get(received.arguments[0])
    return None if stream is None else stream.agreement


def _publish(account: Account, reply: str, data: bytes) -> None:
    with contextlib.suppress(InvalidSubject):
        account.internal_client.publish(reply, data)
