"""JetStream's part in a cluster: what a server does so that all of them serve the same streams.

    peers          who is there                                          peers.py
    meta group     which streams there are, and where                    meta_group.py, founding.py
    local streams  the replicas that this server has                     local_streams.py
    changes        what the leader of the meta group does for requests   changes.py
    questions      what servers ask each other                           questions.py
    usage          what accounts use on the other servers                shared_usage.py

A request of a client reaches all servers. One of them answers it (`answering`): the leader of the
stream that it concerns, or the leader of the meta group.

Source: nats-server's server/jetstream_cluster.go.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from natsd.accounts.internal_client import InternalClient
from natsd.jetstream.account import JetStreamAccount
from natsd.jetstream.advisories import (
    domain_leader_elected,
    server_rescued,
    stream_leader_elected,
    stream_quorum_lost,
)
from natsd.jetstream.errors import ApiError, ErrorId, api_error
from natsd.jetstream.meta_group.account_info import (
    NO_SHARE,
    cluster_info,
    read_shares,
    share_of,
)
from natsd.jetstream.meta_group.account_info import QUESTION as ACCOUNT_QUESTION
from natsd.jetstream.meta_group.answering import Answering, Unanswered
from natsd.jetstream.meta_group.assignments import (
    Assignment,
    Assignments,
    Change,
    Dismiss,
    Introduced,
    decode,
    encode,
)
from natsd.jetstream.meta_group.balance import BALANCED_EVERY_S, to_hand_over
from natsd.jetstream.meta_group.changes import StreamChanges
from natsd.jetstream.meta_group.founding import Founding
from natsd.jetstream.meta_group.founding_record import read_record, write_record
from natsd.jetstream.meta_group.local_streams import CAUGHT_UP_LAG, LocalStream, LocalStreams
from natsd.jetstream.meta_group.meta_group import MetaGroup
from natsd.jetstream.meta_group.peers import Peers, Statement
from natsd.jetstream.meta_group.questions import Question, Questions
from natsd.jetstream.meta_group.read_replica_consumers import ReadReplicaConsumers
from natsd.jetstream.meta_group.rescue_order import Record, shown
from natsd.jetstream.meta_group.shared_usage import SharedUsage
from natsd.jetstream.models.account import AccountInfo
from natsd.jetstream.models.go_json import decode as decode_model
from natsd.jetstream.models.go_json import encode as encode_model
from natsd.jetstream.models.go_json import encoded
from natsd.jetstream.models.stream import ClusterInfo, PeerInfo, StreamInfo
from natsd.jetstream.server_resources import ServerResources
from natsd.jetstream.short_hash import short_hash
from natsd.jetstream.stream.info import stream_info
from natsd.jetstream.stream.metadata import with_shown_metadata
from natsd.jetstream.stream.stream import Stream
from natsd.raft.account_transport import AccountTransport
from natsd.raft.errors import RaftError, TransferError
from natsd.raft.group import RaftGroup
from natsd.raft.host import HostOptions, RaftHost
from natsd.raft.options import Options
from natsd.raft.storage.raft_logs import RaftLogs
from natsd.raft.transport import server_key

_logger = logging.getLogger(__name__)

LOGS_DIRECTORY: Final = "raft.logs"
MEMBER_DIRECTORY: Final = "raft.member"
OPTIONS: Final = HostOptions(group=Options(election_ticks=20))
HAND_OVER_S: Final = 2.0
PROPOSAL_S: Final = 4.0
ALL_EXPECTED_S: Final = 10.0
"""So long the founding waits for all servers; then most of them are enough."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """What JetStream is told of the cluster."""

    name: Callable[[], str]
    expected: Callable[[], int]  # servers that the configuration names, this one included
    tags: tuple[str, ...] = ()


class JetStreamCluster:
    """One server's part, between `open` and `close`."""

    def __init__(
        self,
        jetstream: ServerResources,
        accounts: Mapping[str, JetStreamAccount],
        settings: ClusterSettings,
    ) -> None:
        """Open nothing; `accounts` are those that are served here."""
        self._jetstream = jetstream
        self._accounts = accounts
        self.settings = settings
        self.server = jetstream.server_name
        self._host: RaftHost
        self._logs: RaftLogs
        self.assignments = Assignments(self._changed)
        self.peers: Peers
        self.questions: Questions
        self.usage: SharedUsage
        self.meta: MetaGroup
        self.streams: LocalStreams
        self.read_replica_consumers: ReadReplicaConsumers
        self.changes: StreamChanges
        self._news = asyncio.Event()
        self._led_since_ns: dict[tuple[str, str], int] = {}
        self._is_removing = False  # a server
        self._founding: Founding
        self._began_s = 0.0
        self._balancing: asyncio.TimerHandle | None = None
        self._restoring: asyncio.Task[None] | None = None

    # ---- life

    async def open(self) -> None:
        """Read what the logs hold. Raises OSError, LogsUnreadableError, EncryptionError."""
        jetstream = self._jetstream
        client, loop = self._client, jetstream.loop
        self._began_s = loop.time()
        self._logs = await asyncio.to_thread(
            RaftLogs.open,
            jetstream.volume.disk,
            jetstream.directory / LOGS_DIRECTORY,
            jetstream.random_bytes,
            keys=jetstream.keys,
        )
        key = server_key(self.server)
        self._host = RaftHost(
            key,
            self._logs,
            AccountTransport(client, key),
            self._random_below,
            OPTIONS,
            loop,
            jetstream.reactor,
        )
        self.peers = Peers(client, self._describe, loop)
        self.questions = Questions(client, self.peers, jetstream.random_bytes)
        self.usage = SharedUsage(self.server, self._accounts, client, self._is_member, loop)
        self.meta = MetaGroup(
            self.server,
            self._host,
            self.assignments,
            self.peers,
            client,
            jetstream.vault,
            jetstream.directory / MEMBER_DIRECTORY,
            jetstream.random_bytes,
        )
        self.meta.propose_anywhere = self.propose
        self.meta.end_streams = self._end_streams
        self.peers.news = self._peer_news
        self.streams = LocalStreams(
            self.server, self._host, self.assignments, self._accounts, client, self.propose
        )
        self.read_replica_consumers = ReadReplicaConsumers(
            self.streams,
            self.peers,
            self.questions,
            cluster_name=self.settings.name,
            led=self._led,
            news=lambda: self._news,
        )
        self.streams.own_begun = self._tell_news
        self.streams.ask_to_delete = self.read_replica_consumers.ask_to_delete
        self.streams.report = self.read_replica_consumers.report
        self.streams.place_consumers = self.read_replica_consumers.move_on
        self.meta.set_aside = self.streams.set_aside
        self.meta.rescuing.now_ns = jetstream.scheduler.now_ns
        self.meta.rescuing.news = self._tell_rescued
        self.streams.rescue_failed = self.meta.rescuing.failed
        self.streams.leading_news = self._leading_news
        self.streams.own_member = lambda: self.meta.member
        self.changes = StreamChanges(
            self.assignments,
            self,
            self.peers,
            self.questions,
            jetstream.random_bytes,
            unique_tag=jetstream.options.unique_tag,
            max_ha_assets=jetstream.options.limits.max_ha_assets,
        )
        self.assignments.on_leading(self._meta_leading)
        await asyncio.to_thread(self.meta.open, self._make_founding)

    def start(self) -> None:
        """Take part in the cluster."""
        self._host.start()
        self.questions.start(
            {
                "info": self._answer_info,
                "gone": self._answer_gone,
                "consumers": self._answer_consumers,
                "list": self._answer_list,
                ACCOUNT_QUESTION: self._answer_account,
                "propose": self._answer_propose,
                **self.read_replica_consumers.answers,
            }
        )
        self.usage.start()
        self.peers.start()
        self.meta.start()
        self._balancing = self._jetstream.loop.call_later(BALANCED_EVERY_S, self._balance)

    def account_served(self, account: JetStreamAccount) -> None:
        """Open the streams of an account that is served from now on."""
        self.usage.limits_changed(account)
        self.streams.account_served(account)

    async def account_left(self, account: JetStreamAccount) -> None:
        """End the replicas of an account that is not served any more; their files stay."""
        await self.streams.account_left(account)
        self.usage.account_left(account.name)

    async def leave(self) -> None:
        """Hand the leaderships over, so that nobody waits for an election."""
        self.peers.close()
        self.usage.close()
        if self._balancing is not None:
            self._balancing.cancel()
        if self._restoring is not None:
            self._restoring.cancel()
        groups = [each.group for each in self.streams if each.group is not None]
        if self.meta.group is not None:
            groups.append(self.meta.group)
        led = [each for each in groups if each.is_leader and self._hand_over(each)]
        deadline = self._jetstream.loop.time() + HAND_OVER_S
        while any(each.is_leader for each in led) and self._jetstream.loop.time() < deadline:  # noqa: ASYNC110 - groups tell nobody of their end
            await asyncio.sleep(0.01)

    def _hand_over(self, group: RaftGroup) -> bool:
        """Transfer the leadership to a voter that is online; return whether there is one."""
        for member in sorted(group.membership.voters - {group.node.id}):
            if self.peers.is_online(self.meta.name_of(member)):
                try:
                    group.transfer_leadership(member)
                except TransferError:
                    continue
                return True
        return False

    async def close(self) -> None:
        """End the groups; the streams stay open."""
        await self.meta.close()
        await self.questions.close()
        await self._host.close()
        await self.streams.close()

    def close_logs(self) -> None:
        """Close the logs: the streams must be closed."""
        self._logs.close()

    @property
    def _client(self) -> InternalClient:
        assert self._jetstream.system_account is not None
        return self._jetstream.system_account.internal_client

    def _random_below(self, limit: int) -> int:
        return int.from_bytes(self._jetstream.random_bytes(8), "big") % limit

    def _make_founding(self, send: Callable[[str, bytes], None]) -> Founding:
        jetstream = self._jetstream
        vault, directory = jetstream.vault, jetstream.directory / MEMBER_DIRECTORY
        self._founding = Founding(
            self.server,
            self._expected(),
            read_record(vault, directory),
            lambda record: write_record(vault, directory, record),
            send,
            lambda: "_meta_" + short_hash(jetstream.random_bytes(12)),
        )
        return self._founding

    def _expected(self) -> int:
        """Return the servers without which nothing is founded.

        Most of those that the configuration names are enough: no two such sets are disjoint.
        """
        expected = self.settings.expected()
        has_waited = self._jetstream.loop.time() - self._began_s > ALL_EXPECTED_S
        return expected // 2 + 1 if has_waited and expected > 2 else expected

    def _describe(self) -> Statement:
        usage = self._jetstream.usage
        return Statement(
            self.server,
            self.settings.name(),
            self.settings.tags,
            self._expected(),
            self._founding.founded,
            self.meta.name,
            self.meta.incarnation,
            self.meta.nonce,
            self.meta.superseded if self.meta.group is None else "",
            max(usage.memory_limit - max(usage.memory_used, usage.memory_reserved), 0),
            max(usage.file_limit - max(usage.file_used, usage.file_reserved), 0),
        )

    async def _end_streams(self) -> None:
        """Close all streams, and forget what the meta group said: another one has the word."""
        await self.streams.suspend()
        self.assignments.forget()
        self.streams.resume()

    # ---- news

    def _is_member(self, server: str) -> bool:
        known = self.assignments.servers.get(server)
        is_dismissed = known is not None and known.is_dismissed
        return server in self.peers.known and not is_dismissed

    def _peer_news(self) -> None:
        self.meta.wake()
        self.usage.exchange()
        self._restore_replicas_soon()

    def _restore_replicas_soon(self) -> None:
        """As the leader, give streams the replicas that they lack, unless that is under way."""
        if self.meta.is_leader and self._restoring is None:
            self._restoring = self._jetstream.loop.create_task(
                self._restore_replicas(), name="natsd-restore-replicas"
            )

    async def _restore_replicas(self) -> None:
        try:
            for each in self.assignments:
                await self.changes.restore_replicas(each)
        except (RaftError, Unanswered) as error:
            _logger.debug("JetStream: replicas are made later: %s", error)
        finally:
            self._restoring = None

    def _changed(self, before: Assignment | None, after: Assignment | None) -> None:
        self.streams.changed(before, after)
        self._tell_news()

    def _tell_news(self) -> None:
        """Wake the answers that wait for something to happen here."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _meta_leading(self, is_leader: bool) -> None:
        self.meta.wake()
        if is_leader:
            _logger.info("Self is new JetStream cluster metadata leader")
            replicas = [each.model_dump() for each in self.meta_replicas()]
            domain_leader_elected(self._jetstream, self.settings.name(), replicas)

    def _tell_rescued(self, records: Sequence[Record]) -> None:
        for each in shown(records):
            server_rescued(self._jetstream, self.settings.name(), each)

    def _leading_news(self, stream: LocalStream) -> None:
        key = stream.assignment.key
        was_led = key in self._led_since_ns
        if stream.is_led and not was_led:
            self._led_since_ns[key] = self._jetstream.scheduler.now_ns()
            if stream.group is not None:
                self._tell_elected(stream)
        elif not stream.is_led and was_led:
            del self._led_since_ns[key]
            if stream.group is not None and not (stream.group.leader or stream.group.is_closed):
                replicas = self._shown_replicas(stream)
                stream_quorum_lost(stream.account, stream.assignment.name, replicas)
        self._tell_news()

    def _tell_elected(self, stream: LocalStream) -> None:
        replicas = self._shown_replicas(stream)
        stream_leader_elected(stream.account, stream.assignment.name, self.server, replicas)

    def _shown_replicas(self, stream: LocalStream) -> list[dict[str, object]]:
        return [each.model_dump() for each in self.stream_cluster(stream).replicas]

    def _balance(self) -> None:
        """Hand over what is led here beyond this server's share."""
        self._balancing = self._jetstream.loop.call_later(BALANCED_EVERY_S, self._balance)
        self._restore_replicas_soon()
        replicated = sum(bool(each.group) for each in self.assignments)
        share = -(-replicated // (1 + len(self.peers.online)))
        led = {each.assignment.key: each for each in self.streams if each.group and each.is_led}

        def may_lead(assignment: Assignment) -> bool:
            shown = self.stream_cluster(led[assignment.key]).replicas
            return any(each.name == assignment.servers[0] and each.current for each in shown)

        assignments = [each.assignment for each in led.values() if not each.assignment.leaving]
        for each in to_hand_over(self.server, assignments, share, may_lead):
            self.step_down(led[each.key].group, each.servers[0])

    # ---- who answers

    def answering(self, account: str, stream: str = "") -> Answering:
        """Return who answers a request of an account; `stream`: it concerns that one alone."""
        if stream:
            local = self.streams.find(account, stream)
            if local is not None and local.is_led:
                return Answering.HERE
            assigned = self.assignments.find(account, stream)
            if assigned is not None:
                return self._answering_soon(assigned, local)
        if self.meta.is_leader:
            return Answering.HERE
        return Answering.ELSEWHERE if self.meta.leader else Answering.NOBODY

    def answering_consumer(self, account: str, stream: str, name: str) -> Answering:
        """Return who answers a request that needs the state of a consumer.

        Where a read replica serves the consumer, its server does, also while the site is cut off.
        """
        local = self.streams.find(account, stream)
        if local is None or local.stream is None:
            return self.answering(account, stream)
        consumer = local.stream.consumers.get(name)
        if consumer is None and self.server in local.assignment.read_replicas:
            return Answering.SOON  # it may be on its way
        if consumer is None or not consumer.server:
            return self.answering(account, stream)
        if consumer.is_own:
            return Answering.HERE
        is_there = consumer.server in local.assignment.holders
        if is_there and self.peers.is_online(consumer.server):
            return Answering.ELSEWHERE
        answering = self.answering(account, stream)
        return Answering.UNSERVED if answering is Answering.HERE else answering

    def why_unserved(self, account: str, stream: str, name: str) -> ApiError:
        """Return the error for a consumer that no read replica serves at the moment."""
        local = self.streams.find(account, stream)
        found = None if local is None or local.stream is None else local.stream.consumers.get(name)
        if found is None:
            return api_error(ErrorId.JSConsumerOfflineErr)
        return self.read_replica_consumers.why_not(found)

    def _answering_soon(self, assigned: Assignment, local: LocalStream | None) -> Answering:
        """Return who answers a request about a stream that is not led here."""
        if self.server in assigned.servers:
            group = None if local is None else local.group
            is_led_elsewhere = group is not None and group.leader and not group.is_leader
            return Answering.ELSEWHERE if is_led_elsewhere else Answering.SOON
        if self.meta.is_leader and not any(map(self.peers.is_online, assigned.servers)):
            return Answering.OFFLINE
        return Answering.ELSEWHERE

    # ---- changes

    async def propose(self, change: Change) -> object:
        """Have the meta group make a change, whoever leads it; None: it came too late.

        Raises Unanswered, RaftError.
        """
        if self.meta.is_leader:
            try:
                async with asyncio.timeout(PROPOSAL_S):
                    return await self.meta.propose(change)
            except TimeoutError:
                raise Unanswered("the meta group has no majority") from None
        question = Question("propose", body=encode(change))
        answer = await self.questions.first(question)
        return True if answer == b"1" else None

    async def _answer_propose(self, question: Question) -> bytes | None:
        if not self.meta.is_leader:
            return None
        return b"0" if await self.meta.propose(decode(question.body)) is None else b"1"

    async def remove_server(self, name: str) -> bool:
        """Remove a server for good; its replicas are made elsewhere. False: it is no member.

        Raises ApiError 10202 while another one is being removed.
        """
        if self._is_removing:
            raise api_error(ErrorId.JSClusterServerMemberChangeInflightErr)
        known = self.assignments.servers.get(name)
        if known is None or known.is_dismissed:
            return False
        self._is_removing = True
        try:
            assert isinstance(await self.meta.propose(Dismiss(name)), Introduced)
            for each in self.assignments:
                if name in each.holders:
                    await self.changes.move_off(each, name)
        finally:
            self._is_removing = False
        self.meta.wake()
        return True

    async def list_streams(self, account: str, names: Sequence[str]) -> dict[str, StreamInfo]:
        """Return the infos of the streams that are led anywhere, by name."""
        question = Question("list", account, body=msgspec.json.encode(list(names)))
        found: dict[str, StreamInfo] = {}
        for answer in await self.questions.gather(question):
            for each in msgspec.json.decode(answer, type=list[msgspec.Raw]):
                info = decode_model(StreamInfo, bytes(each), strict=False)
                found[info.config.name] = info
        return found

    async def account_info(self, account: JetStreamAccount) -> AccountInfo:
        """Return what an account has and uses on all servers."""
        answers = await self.questions.gather(Question(ACCOUNT_QUESTION, account.name))
        assigned = self.assignments.of_account(account.name)
        return cluster_info(account, assigned, read_shares(answers))

    def step_down(self, group: RaftGroup | None, preferred: str = "") -> bool:
        """Have another server lead a group; return whether one may."""
        if group is None or not group.is_leader:
            return False
        if not preferred:
            return self._hand_over(group)
        member = self.streams.member_of(preferred)
        try:
            group.transfer_leadership(member)
        except TransferError:
            return False
        return True

    # ---- answers to other servers

    async def _led(self, question: Question) -> Stream:
        """Wait until a stream is led here, as its assignment of that version says."""
        while True:
            news = self._news
            local = self.streams.find(question.account, question.stream)
            if (
                local is not None
                and local.is_led
                and local.assignment.version >= question.version
                and local.is_configured
                and local.stream is not None
            ):
                return local.stream
            await news.wait()

    async def _answer_info(self, question: Question) -> bytes:
        stream = await self._led(question)
        return encode_model(with_shown_metadata(self.shown(await stream.info(), stream)))

    async def _answer_gone(self, question: Question) -> bytes:
        """Answer when a stream of that version, or an earlier one, is not served here any more."""
        key = question.account, question.stream
        while True:
            news, local = self._news, self.streams.find(*key)
            assigned = self.assignments.find(*key)
            is_removed = assigned is None or assigned.version > question.version
            if is_removed and (local is None or local.assignment.version > question.version):
                return b"1"
            await news.wait()

    async def _answer_consumers(self, question: Question) -> bytes:
        stream = await self._led(question)
        return msgspec.json.encode(
            {name: encoded(each.config) for name, each in stream.consumers.items()}
        )

    async def _answer_list(self, question: Question) -> bytes:
        """Return the infos of the streams with these names that are led here."""
        names = msgspec.json.decode(question.body, type=list[str])
        infos = [
            encoded(self.shown(stream_info(local.stream), local.stream))
            for name in names
            if (local := self.streams.find(question.account, name)) is not None
            and local.is_led
            and local.stream is not None
        ]
        return msgspec.json.encode(infos)

    async def _answer_account(self, question: Question) -> bytes:
        """Return what is used of an account by the streams that are led here."""
        account = self._accounts.get(question.account)
        if account is None:
            return NO_SHARE
        led = (each.stream for each in self.streams if each.account is account and each.is_led)
        return share_of(account, [stream for stream in led if stream is not None])

    # ---- what infos show

    def shown(self, info: StreamInfo, stream: Stream) -> StreamInfo:
        """Return a stream's info with its cluster."""
        local = self.streams.find(stream.account.name, stream.name)
        cluster = None if local is None else self.stream_cluster(local)
        return info.model_copy(update={"cluster": cluster})

    def stream_cluster(self, local: LocalStream) -> ClusterInfo:
        """Return where the replicas of a stream are, and how far."""
        assigned, group = local.assignment, local.group
        if group is None:
            return ClusterInfo(name=self.settings.name(), leader=self.server)
        return ClusterInfo(
            name=self.settings.name(),
            raft_group=group.name,
            leader=self.meta.name_of(group.leader) if group.leader else "",
            leader_since=self._led_since_ns.get(assigned.key, 0),
            system_account=True,
            traffic_account=self._jetstream.system_account.name
            if self._jetstream.system_account is not None
            else "",
            replicas=self._replicas(
                group, (*assigned.servers, *assigned.leaving), assigned.read_replicas
            ),
        )

    def _replicas(
        self, group: RaftGroup, servers: tuple[str, ...], learning: tuple[str, ...] = ()
    ) -> list[PeerInfo]:
        """Return how far the members are; `learning` are the servers that never have a vote."""
        lags, membership = group.lags(), group.membership
        found = []
        for name in servers + learning:
            if name == self.server:
                continue
            member = self.streams.member_of(name)
            counted = membership.learners if name in learning else membership.voters
            is_there = self.peers.is_member(name, member) and member in counted
            lag = lags.get(member) if is_there else None
            found.append(self._replica(name, lag, is_read_replica=name in learning))
        return found

    def _replica(self, name: str, lag: int | None, *, is_read_replica: bool) -> PeerInfo:
        is_online = self.peers.is_online(name)
        return PeerInfo(
            name=name,
            current=is_online and lag is not None and lag <= CAUGHT_UP_LAG,
            offline=not is_online,
            active=self.peers.active_ns(name),
            lag=lag or 0,
            peer=short_hash(name.encode()),
            read_replica=is_read_replica,
        )

    def meta_replicas(self) -> list[PeerInfo]:
        """Return the other members of the meta group."""
        group = self.meta.group
        if group is None:
            return []
        names = [self.meta.name_of(member) for member in self.meta.members()]
        return self._replicas(group, tuple(name for name in names if name))
