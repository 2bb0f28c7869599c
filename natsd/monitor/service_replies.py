"""The replies to requests for monitoring over NATS.

    {"server": {…}, "data": {…}}        or "error": {"code": 500, "description": "…"}

- A request whose body selects other servers than this one is not answered.
- A reply is compressed if the request accepts that (`Accept-Encoding`: snappy or gzip).
- A reply has at most `REPLY_BYTES_MAX`; a longer one is refused, and the client has to ask for
  pages by offset and limit.

Sources: nats-server's `Server.zReq`, `Server.filterRequest`, `ServerAPIResponse` and `ServerInfo`;
replies were compared with those of nats-server 2.14.
"""

import asyncio
import base64
import contextlib
import gzip
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import cramjam
import msgspec.json

from natsd.accounts import Account
from natsd.clients import Client
from natsd.core.routing import InvalidSubject
from natsd.jetstream.headers import header_value
from natsd.jetstream.models.base import Model
from natsd.jetstream.models.go_json import InvalidJson, decode
from natsd.monitor import service_actions
from natsd.monitor.accounts import account_detail, accstatz, shown_accounts
from natsd.monitor.answers import Answers
from natsd.monitor.clock import Clock
from natsd.monitor.event_messages import connections_event
from natsd.monitor.json_text import pieces
from natsd.monitor.observed import ObservedServer
from natsd.monitor.other_answers import pass_on, sum_of_counts
from natsd.monitor.query import BadParameter, Query
from natsd.monitor.service_actions import ActionRefused
from natsd.monitor.service_requests import EVENT_OPTIONS, query_of
from natsd.monitor.service_table import ACTIONS, ServiceRequest
from natsd.monitor.subscriber_count import count_subscribers
from natsd.monitor.user_info import user_facts

REPLY_BYTES_MAX: Final = 32 << 20
LARGE_BODY_BYTES: Final = 8 << 10
BAD_BODY: Final = 400
FAILED: Final = 500
ACCEPT_ENCODING: Final = "Accept-Encoding"

Fields = dict[str, Any]


class NotAsked(Exception):
    """The request is for other servers, or about something unknown here: it gets no reply."""


class ReplyError(Exception):
    """The request failed; the reply has this code and description in place of data."""

    def __init__(self, code: int, description: object) -> None:
        super().__init__(str(description))
        self.code = code


class Replies:
    """The replies of one server."""

    def __init__(self, server: ObservedServer, reload: Callable[[], object] | None = None) -> None:
        """`reload` reloads the configuration file; None: there is none."""
        self._server = server
        self._reload = reload
        self._answers = Answers(server, Clock(), server.http_port)
        answers = self._answers
        self._of_server = {
            "VARZ": answers.varz,
            "SUBSZ": answers.subsz,
            "CONNZ": answers.connz,
            "ROUTEZ": answers.routez,
            "GATEWAYZ": answers.gatewayz,
            "LEAFZ": answers.leafz,
            "ACCOUNTZ": answers.accountz,
            "JSZ": answers.jsz,
            "IPQUEUESZ": answers.ipqueuesz,
            "EXPVARZ": answers.expvarz,
        }
        self._of_account = {
            "SUBSZ": answers.subsz,
            "CONNZ": answers.connz,
            "LEAFZ": answers.leafz,
            "JSZ": answers.account_jsz,
        }

    async def reply(self, request: ServiceRequest) -> None:
        """Carry the request out, and send the reply if there is one and the request asks for it."""
        with contextlib.suppress(NotAsked):
            servers = self._servers
            if request.is_for_all and servers > 1:
                await pass_on(self._server.accounts.system, request, servers)
                return
            if request.kind == "STATSZ" and not request.reply:
                await self._options(request, "STATSZ")
                self._server.send_statsz()
                return
            answer = await self._answer(request)
            if request.reply:
                await self._send(request, answer)

    @property
    def _servers(self) -> int:
        """How many servers the cluster has, with this one."""
        return 1 if self._server.cluster is None else 1 + len(self._server.cluster.peers)

    async def _answer(self, request: ServiceRequest) -> Fields:
        """Return the whole reply, which may be an error."""
        try:
            return await self._answer_well(request)
        except BadParameter as error:
            return {"server": self._describe(), "data": None} | _error(FAILED, error)
        except ActionRefused as error:
            return {"server": self._describe()} | _error(FAILED, error)
        except ReplyError as error:
            return {"server": self._describe()} | _error(error.code, error)

    async def _answer_well(self, request: ServiceRequest) -> Fields:
        kind = request.kind
        if kind == "IDZ":
            server = self._server
            return {"name": server.name, "host": server.client_host, "id": server.id}
        if kind == "SUBSCRIBERS":
            return {"": await self._subscribers(request)}
        if kind == "NSUBS":
            return {"": await self._account_subscribers(request)}
        if kind in ACTIONS:
            await self._act(request)
            return {"server": self._describe()}
        if kind == "USER.INFO":
            return self._with_data(self._user_info(request))
        if kind.startswith("ACCOUNT."):
            return await self._of_one_account(request, kind.removeprefix("ACCOUNT."))
        return await self._of_this_server(request)

    async def _of_this_server(self, request: ServiceRequest) -> Fields:
        """Return the reply about the whole server."""
        kind = request.kind
        options = await self._options(request, kind)
        query = query_of(options)
        if kind == "STATSZ":
            return {"server": self._describe(), "statsz": await self._answers.statsz(query)}
        if kind == "HEALTHZ":
            code, health = await self._answers.health(query)
            return self._with_data({"status": health.pop("status"), "status_code": code} | health)
        if kind == "RAFTZ":
            return self._with_data({})
        if kind == "PROFILEZ":
            return self._with_data(await _profilez(query))
        return self._with_data(await self._of_server[kind](query))

    async def _of_one_account(self, request: ServiceRequest, kind: str) -> Fields:
        """Return the reply about one account."""
        name = request.about
        if kind == "CONNS":
            return await self._connections(request)
        if kind == "INFO":
            await self._options(request, kind)
            return self._with_data(account_detail(self._server, name))
        if kind == "STATZ":
            return self._with_data(await self._account_statz(request))
        given = query_of(await self._options(request, kind))
        fixed = {"acc": name} | ({"subs": "true"} if kind == "SUBSZ" else {})
        return self._with_data(await self._of_account[kind](Query({**given.parameters, **fixed})))

    async def _account_statz(self, request: ServiceRequest) -> Fields:
        options: Any = await self._options(request, "STATZ")
        is_everybody = request.about == "PING" and request.account.is_system
        names = frozenset(options.accounts if is_everybody else [request.about])
        accounts = shown_accounts(self._server, names, unused=options.include_unused)
        if not accounts and not options.include_unused:
            raise NotAsked
        return accstatz(self._server, self._answers.clock, accounts)

    async def _connections(self, request: ServiceRequest) -> Fields:
        """Return the event about an account's connections; raises NotAsked if it has none."""
        account = self._server.accounts.get(request.about)
        asked: Any = await self._read("CONNS", request)
        if asked.acc not in ("", request.about):
            raise NotAsked
        if account is None or not account.connections:
            raise NotAsked
        return connections_event(account, self._describe(), self._answers.clock.wall_ns())

    def _user_info(self, request: ServiceRequest) -> Fields:
        """Return who sent the request, and what that user may do."""
        account, client = request.account, request.origin
        if not isinstance(client, Client):
            return {"user": "", "account": account.name, "account_name": account.name_tag}
        info = {
            "user": client.authorized_user,
            "account": account.name,
            "account_name": account.name_tag,
        }
        return info | user_facts(client.verdict, self._answers.clock.wall_ns())

    async def _subscribers(self, request: ServiceRequest) -> int:
        """Return how many subscriptions the subject in the request has in the whole cluster.

        A queue may follow it. The account is that of the client.
        """
        subject, _, queue = request.data.decode("utf-8", "replace").strip().partition(" ")
        if not subject:
            return 0
        account = request.account
        if isinstance(request.origin, Client):
            account = request.origin.account or account
        count = await self._count(account, subject, queue or None)
        others = self._server.servers_connected_to(account.name)
        if not others:
            return count
        asked = {"server": self._describe(), "acc": account.name, "subject": subject}
        if queue:
            asked["queue"] = base64.b64encode(queue.encode()).decode()
        system = self._server.accounts.system
        return count + await sum_of_counts(system, msgspec.json.encode(asked), others)

    async def _account_subscribers(self, request: ServiceRequest) -> int:
        """Return how many subscriptions a subject has in an account that has connections."""
        asked: Any = await self._read("NSUBS", request)
        account = self._server.accounts.get(asked.acc)
        if account is None or not account.connections:
            raise NotAsked
        return await self._count(account, asked.subject, asked.queue_name())

    async def _count(self, account: Account, subject: str, queue: str | None) -> int:
        return await self._answers.turns.run(count_subscribers(account, subject, queue))

    async def _act(self, request: ServiceRequest) -> None:
        """Carry out RELOAD, KICK or LDM. Raises ActionRefused."""
        options: Any = await self._options(request, request.kind)
        if request.kind == "RELOAD":
            await service_actions.reload(self._reload)
        elif not request.data.strip():
            raise NotAsked
        elif request.kind == "KICK":
            service_actions.kick(self._server, options.cid)
        else:
            service_actions.move(self._server, options.cid)

    async def _options(self, request: ServiceRequest, kind: str) -> Model:
        """Return the parsed body; raises NotAsked if it selects other servers."""
        options = await self._read(kind, request)
        if not self._is_meant(options):
            raise NotAsked
        return options

    async def _read(self, kind: str, request: ServiceRequest) -> Model:
        """Return the parsed body of a request of that kind; a large one is read in a thread.

        Raises ReplyError.
        """
        read = partial(_decode, EVENT_OPTIONS[kind], request.data or b"{}")
        if len(request.data) <= LARGE_BODY_BYTES:
            return read()
        return await asyncio.to_thread(read)

    def _is_meant(self, options: Any) -> bool:
        """Return whether the body's filter selects this server."""
        ours = {
            "server_name": self._server.name,
            "host": self._server.client_host,
            "cluster": self._server.cluster_name,
            "domain": self._server.options.jetstream.domain,
        }
        for name, own in ours.items():
            wanted = getattr(options, name)
            exact = options.exact_match or name == "domain"
            if wanted and not (wanted == own if exact else wanted in own):
                return False
        return set(options.tags) <= set(self._server.options.server_tags)

    def _describe(self) -> Fields:
        return self._server.describe()

    def _with_data(self, data: Fields) -> Fields:
        return {"server": self._describe(), "data": data}

    async def _send(self, request: ServiceRequest, answer: Fields) -> None:
        text = await self._text(answer)
        headers = b""
        accepted = (header_value(request.headers, ACCEPT_ENCODING) or b"").lower()
        if b"snappy" in accepted or b"s2" in accepted:
            text = await asyncio.to_thread(lambda: bytes(cramjam.snappy.compress(text)))
            headers = b"NATS/1.0\r\nContent-Encoding: snappy\r\n\r\n"
        elif b"gzip" in accepted:
            text = await asyncio.to_thread(gzip.compress, text)
            headers = b"NATS/1.0\r\nContent-Encoding: gzip\r\n\r\n"
        elif accepted:
            headers = b"NATS/1.0\r\nContent-Encoding: identity\r\n\r\n"
        with contextlib.suppress(InvalidSubject):
            request.account.internal_client.publish(request.reply, text, headers=headers)

    async def _text(self, answer: Fields) -> bytes:
        """Return the answer as JSON; an answer with the empty name as its key is the value alone.

        An answer longer than `REPLY_BYTES_MAX` is replaced by an error.
        """
        value = answer.get("", answer)
        parts, size, is_last = [], 0, False
        text = pieces(value, pretty=False)
        while not is_last:
            chunk, is_last = await self._answers.turns.chunk(text)
            parts.append(chunk)
            size += len(chunk)
            if size > REPLY_BYTES_MAX:
                refusal = {"server": self._describe()} | _error(
                    FAILED, f"the reply is longer than {REPLY_BYTES_MAX} bytes"
                )
                return b"".join(pieces(refusal, pretty=False))
        return b"".join(parts)


def _decode(model: type[Model], body: bytes) -> Model:
    """Return the body as a model. Raises ReplyError."""
    try:
        return decode(model, body, strict=False, is_one_value=True)
    except InvalidJson as error:
        raise ReplyError(BAD_BODY, error) from None


def _error(code: int, text: object) -> Fields:
    """Return the member of a reply that says why a request failed."""
    return {"error": {"code": code, "description": str(text)}}


async def _profilez(query: Query) -> Fields:
    """Return a profile, or why there is none; `duration` is in ns."""
    from natsd.monitor.profiling.profilez import profilez

    return await profilez(query.text("name"), query.whole("debug"), query.whole("duration"))
