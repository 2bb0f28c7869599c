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
import os
from typing import Any, Final

import cramjam

from natsd.clients import Client
from natsd.core.reasons import ClosedReason
from natsd.core.routing import InvalidSubject
from natsd.jetstream.headers import header_value
from natsd.jetstream.models.base import Model
from natsd.jetstream.models.go_json import InvalidJson, decode
from natsd.monitor.accounts import account_detail, account_stats, accstatz
from natsd.monitor.answers import Answers
from natsd.monitor.clock import Clock
from natsd.monitor.json_text import pieces
from natsd.monitor.observed import ObservedServer
from natsd.monitor.query import BadParameter, Query
from natsd.monitor.service_requests import EVENT_OPTIONS, ClientID, query_of
from natsd.monitor.service_table import ServiceRequest
from natsd.monitor.values import timestamp
from natsd.version import FEATURE_FLAGS, NATS_VERSION

REPLY_BYTES_MAX: Final = 32 << 20
BAD_BODY: Final = 400
FAILED: Final = 500
JETSTREAM_FLAG: Final = 1
EVENT_ID_BYTES: Final = 16
ACCEPT_ENCODING: Final = "Accept-Encoding"
NO_RELOAD: Final = "can only reload config when a file is provided using -c or --config"
CONNECTIONS_TYPE: Final = "io.nats.server.advisory.v1.account_connections"

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

    def __init__(self, server: ObservedServer) -> None:
        self._server = server
        self._answers = Answers(server, Clock(), server.http_port)
        self._sequence = 0
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
            answer = await self._answer(request)
            if request.reply:
                await self._send(request, answer)

    async def _answer(self, request: ServiceRequest) -> Fields:
        """Return the whole reply, which may be an error."""
        try:
            return await self._answer_well(request)
        except BadParameter as error:
            return self._refusal(FAILED, str(error)) | {"data": None}
        except ReplyError as error:
            return self._refusal(error.code, str(error))

    def _refusal(self, code: int, text: str) -> Fields:
        return {"server": self.server_info(), "error": {"code": code, "description": text}}

    async def _answer_well(self, request: ServiceRequest) -> Fields:
        kind = request.kind
        if kind == "SUBSCRIBERS":
            return {"": self._count_subscribers(request)}
        if kind in ("RELOAD", "KICK", "LDM"):
            self._act(request)
            return {"server": self.server_info()}
        if kind == "USER.INFO":
            return self._with_data(self._user_info(request))
        if kind.startswith("ACCOUNT."):
            return await self._of_one_account(request, kind.removeprefix("ACCOUNT."))
        options = self._options(request, kind)
        if kind == "IDZ":
            return {name: self.server_info()[name] for name in ("name", "host", "id")}
        query = query_of(options)
        if kind == "STATSZ":
            return {"server": self.server_info(), "statsz": await self._answers.statsz(query)}
        if kind == "HEALTHZ":
            code, health = self._answers.health(query)
            return self._with_data({"status": health.pop("status"), "status_code": code} | health)
        if kind == "RAFTZ":
            return self._with_data({})
        if kind == "PROFILEZ":
            return self._with_data(_profile(query.text("name")))
        return self._with_data(await self._of_server[kind](query))

    async def _of_one_account(self, request: ServiceRequest, kind: str) -> Fields:
        """Return the reply about one account."""
        server, name = self._server, request.about
        if kind == "INFO":
            return self._with_data(account_detail(server, name))
        if kind == "STATZ":
            return self._with_data(self._account_statz(request))
        if kind == "CONNS":
            return self._connections_event(name)
        given = query_of(self._options(request, kind))
        fixed = {"acc": name} | ({"subs": "true"} if kind == "SUBSZ" else {})
        return self._with_data(await self._of_account[kind](Query({**given.parameters, **fixed})))

    def _account_statz(self, request: ServiceRequest) -> Fields:
        options = self._options(request, "STATZ")
        is_everybody = request.about == "PING" and request.account.is_system
        names = getattr(options, "accounts") if is_everybody else [request.about]  # noqa: B009  a computed model
        unused = bool(getattr(options, "include_unused"))  # noqa: B009  a computed model
        answer = accstatz(self._server, self._answers.clock, names=names, unused=unused)
        if not answer["account_statz"] and not unused:
            raise NotAsked
        return answer

    def _connections_event(self, name: str) -> Fields:
        account = self._server.accounts.get(name)
        if account is None:
            raise NotAsked
        event = {
            "type": CONNECTIONS_TYPE,
            "id": base64.urlsafe_b64encode(os.urandom(EVENT_ID_BYTES)).decode().rstrip("="),
            "timestamp": timestamp(self._answers.clock.wall_ns()),
            "server": self.server_info(),
        }
        return event | account_stats(account)

    def _user_info(self, request: ServiceRequest) -> Fields:
        """Return the user that sent the request.

        natsd restricts no user's permissions, and no login expires, so the reply does not name
        either.
        """
        name = request.account.name
        user = request.origin.authorized_user if isinstance(request.origin, Client) else ""
        return {"user": user, "account": name, "account_name": name}

    def _count_subscribers(self, request: ServiceRequest) -> int:
        """Return how many subscriptions a message on the subject matches.

        With a queue name in the request, only members of that queue group are counted.
        """
        subject, _, queue = request.data.decode("utf-8", "replace").strip().partition(" ")
        if not subject:
            return 0
        if not queue:
            return sum(request.account.sublist.num_interest(subject))
        return len(request.account.sublist.match(subject).queues.get(queue, ()))

    def _act(self, request: ServiceRequest) -> None:
        if request.kind == "RELOAD":
            raise ReplyError(FAILED, NO_RELOAD)
        if not request.data.strip():
            raise NotAsked
        cid = getattr(self._read(ClientID, request), "cid")  # noqa: B009  a computed model
        client = self._server.clients.get(cid)
        if request.kind == "KICK":
            if client is None:
                raise ReplyError(FAILED, "no such client or leafnode id")
            client.close(ClosedReason.KICKED)
        else:
            if client is None:
                raise ReplyError(FAILED, "no such client id")
            client.announce_lame_duck()

    def _options(self, request: ServiceRequest, kind: str) -> Model:
        """Return the parsed body; raises NotAsked if it selects other servers."""
        options = self._read(EVENT_OPTIONS[kind], request)
        if request.account.is_system and not self._is_meant(options):
            raise NotAsked
        return options

    def _read(self, model: type[Model], request: ServiceRequest) -> Model:
        try:
            return decode(model, request.data, strict=False)
        except InvalidJson as error:
            raise ReplyError(BAD_BODY, error) from None

    def _is_meant(self, options: Any) -> bool:
        """Return whether the body's filter selects this server."""
        ours = {
            "server_name": self._server.name,
            "host": self._server.client_host,
            "cluster": "",
            "domain": self._server.options.jetstream.domain,
        }
        for name, own in ours.items():
            wanted = getattr(options, name)
            exact = options.exact_match or name == "domain"
            if wanted and not (wanted == own if exact else wanted in own):
                return False
        return not options.tags  # this server has no tags

    def server_info(self) -> Fields:
        """Return the description of this server, with the reply's sequence and time."""
        server = self._server
        self._sequence += 1
        info: Fields = {"name": server.name, "host": server.client_host, "id": server.id}
        if server.options.jetstream.enabled and server.options.jetstream.domain:
            info["domain"] = server.options.jetstream.domain
        is_enabled = server.jetstream is not None
        return info | {
            "ver": NATS_VERSION,
            "feature_flags": FEATURE_FLAGS,
            "jetstream": is_enabled,
            "flags": JETSTREAM_FLAG if is_enabled else 0,
            "seq": self._sequence,
            "time": timestamp(self._answers.clock.wall_ns()),
        }

    def _with_data(self, data: Fields) -> Fields:
        return {"server": self.server_info(), "data": data}

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
                refusal = self._refusal(FAILED, f"the reply is longer than {REPLY_BYTES_MAX} bytes")
                return b"".join(pieces(refusal, pretty=False))
        return b"".join(parts)


def _profile(name: str) -> Fields:
    """Return what nats-server answers for an unknown profile; this process has no Go profiles."""
    error = f'Profile "{name}" not found' if name else "Profile name not specified"
    return {"profile": None, "error": error}
