"""Peers: the servers with JetStream in this cluster, as each of them describes itself.

    every TOLD_EVERY_S, and when something has changed ── $JSC.PEER ──▶ all others

A server is online if it was heard of within SILENCE_S and its RAFT subject has a listener: routes
tell at once when a server is gone.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct

from natsd.accounts.internal_client import InternalClient
from natsd.core.routing import Subscription
from natsd.jetstream.meta_group.founding_record import Founded
from natsd.jetstream.meta_group.placement import Candidate
from natsd.raft.account_transport import SUBJECT as RAFT_SUBJECT
from natsd.raft.transport import member_id, server_key

_logger = logging.getLogger(__name__)

SUBJECT: Final = "$JSC.PEER"
TOLD_EVERY_S: Final = 1.0
SILENCE_S: Final = 5.0


class Statement(Struct, frozen=True):
    """What a server says of itself."""

    name: str
    cluster: str
    tags: tuple[str, ...] = ()
    expected: int = 1  # servers that the cluster has, as far as its configuration tells
    founded: Founded | None = None  # the meta group that it belongs to or will join
    group: str = ""  # the meta group that it is a member of; empty: of none yet
    incarnation: int = 0  # of its member
    nonce: str = ""  # of its request to join the meta group; empty: it does not ask
    superseded: str = ""  # the meta group that it belongs to, which was rescued without it
    memory_free: int = 0  # bytes that are neither used nor reserved
    file_free: int = 0
    is_leaving: bool = False

    def candidate(
        self, *, is_online: bool, is_memory: bool, streams: int, replicated: int
    ) -> Candidate:
        """Return what placement needs to know; the server has replicas of so many streams."""
        return Candidate(
            self.name,
            self.cluster,
            frozenset(tag.lower() for tag in self.tags),
            is_online,
            self.memory_free if is_memory else self.file_free,
            streams,
            replicated,
        )


_statements = msgspec.json.Decoder(Statement)


class Peers:
    """The other servers, and what they are told of this one."""

    def __init__(
        self,
        client: InternalClient,
        describe: Callable[[], Statement],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Use `client`, which is that of the system account."""
        self._client = client
        self._describe = describe
        self._loop = loop
        self._known: dict[str, Statement] = {}
        self._heard_s: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._subscription: Subscription | None = None
        self.news: Callable[[], object] = lambda: None
        """Called when a server has come, gone, or says something else of its membership."""

    def start(self) -> None:
        """Begin to tell and to listen."""
        self._subscription = self._client.subscribe(SUBJECT, self._receive)
        self._on_timer()

    def close(self) -> None:
        """Tell the others that this server goes."""
        if self._timer is not None:
            self._timer.cancel()
        if self._subscription is not None:
            self._client.unsubscribe(self._subscription)
            said = msgspec.structs.replace(self._describe(), is_leaving=True)
            self._client.publish(SUBJECT, msgspec.json.encode(said))

    def tell(self) -> None:
        """Tell the others now what this server is."""
        self._client.publish(SUBJECT, msgspec.json.encode(self._describe()))

    @property
    def own(self) -> Statement:
        """What this server says of itself."""
        return self._describe()

    @property
    def online(self) -> dict[str, Statement]:
        """The other servers that are there, by name."""
        return {name: each for name, each in self._known.items() if self.is_online(name)}

    @property
    def known(self) -> dict[str, Statement]:
        """The other servers that were there since the start, by name, as they said last."""
        return self._known

    def is_online(self, name: str) -> bool:
        """Tell whether a server is there; this one is."""
        said = self._known.get(name)
        if said is None:
            return name == self.own.name
        return (
            not said.is_leaving
            and self._loop.time() - self._heard_s[name] < SILENCE_S
            and self._client.has_interest(RAFT_SUBJECT.format(server_key(name)))
        )

    def is_member(self, name: str, member: int) -> bool:
        """Tell whether a server says that it is this member: one whose disk is new is none yet."""
        said = self._known.get(name)
        if said is None or not said.group:
            return False
        return member_id(server_key(name), said.incarnation) == member

    def active_ns(self, name: str) -> int:
        """Return the nanoseconds since a server was heard of; 0: it is this one, or never was."""
        heard_s = self._heard_s.get(name)
        return 0 if heard_s is None else round((self._loop.time() - heard_s) * 1e9)

    def _on_timer(self) -> None:
        self.tell()
        self._timer = self._loop.call_later(TOLD_EVERY_S, self._on_timer)

    def _receive(self, _subject: str, _reply: str | None, _headers: bytes, data: bytes) -> None:
        try:
            said = _statements.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            _logger.warning("JetStream: what a server says of itself is not understood: %s", error)
            return
        own = self._describe()
        if said.name == own.name:
            return
        before = self._known.get(said.name)
        was_online = before is not None and self.is_online(said.name)
        self._known[said.name] = said
        self._heard_s[said.name] = self._loop.time()
        if before is None or not was_online:
            self.tell()
        if (
            before is None
            or not was_online
            or said.is_leaving
            or (before.founded, before.group, before.nonce, before.incarnation)
            != (said.founded, said.group, said.nonce, said.incarnation)
        ):
            self.news()
