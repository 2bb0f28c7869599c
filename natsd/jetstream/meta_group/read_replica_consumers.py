"""The consumers that read replicas serve, as all servers of the cluster see them.

    created      the stream's leader chooses the server, and has that server say how it began
    listed       the stream's leader asks all servers for the infos of those that they serve
    not used     the server that serves it asks the stream's leader to delete it
    acked        the server that serves it tells the stream's leader up to where, now and then
    moved        if its server has no read replica any more, the stream's leader chooses another one

Promise
- The server is chosen once: its name is in the configuration from then on. Only a consumer that was
  created for `any` server, or says that it may move, gets another one.
- Nothing waits longer than a question does for a server that is away.

stream/own_consumers.py serves them.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from natsd.jetstream.consumer.consumer import Consumer, Floor
from natsd.jetstream.consumer.metadata import (
    ANY,
    may_move,
    on_read_replica,
    read_replica,
    refusal,
)
from natsd.jetstream.errors import ApiError, ErrorId, api_error
from natsd.jetstream.meta_group.answering import Unanswered
from natsd.jetstream.meta_group.local_streams import CAUGHT_UP_LAG, LocalStream, LocalStreams
from natsd.jetstream.meta_group.peers import Peers
from natsd.jetstream.meta_group.questions import Answer, Question, Questions
from natsd.jetstream.models.consumer import ConsumerConfig, ConsumerInfo
from natsd.jetstream.models.go_json import encode, encoded
from natsd.jetstream.models.stream import ClusterInfo
from natsd.jetstream.stream.stream import Stream

_logger = logging.getLogger(__name__)

ONE, ALL, UNUSED = "own_consumer", "own_consumers", "unused_consumer"
FLOORS = "own_consumers_floors"


class ReadReplicaConsumers:
    """What this server asks and answers about them."""

    def __init__(
        self,
        streams: LocalStreams,
        peers: Peers,
        questions: Questions,
        *,
        cluster_name: Callable[[], str],
        led: Callable[[Question], Awaitable[Stream]],
        news: Callable[[], asyncio.Event],
    ) -> None:
        """`led` waits until a stream is led here; `news` is set when something happens."""
        self._streams = streams
        self._peers = peers
        self._questions = questions
        self._cluster_name = cluster_name
        self._led = led
        self._news = news
        self.answers: Mapping[str, Answer] = {
            ONE: self._answer_one,
            ALL: self._answer_all,
            UNUSED: self._answer_unused,
            FLOORS: self._answer_floors,
        }

    # Where a consumer is served

    def placed(self, stream: Stream, config: ConsumerConfig, requester: str) -> ConsumerConfig:
        """Return a configuration that names the server, if a read replica is to serve it.

        `requester` is the server to which the client is connected that asks for the consumer; empty
        if that is not known. Raises ApiError 10094 if the server has no read replica.
        """
        wanted = read_replica(config)
        existing = stream.consumers.get(config.durable_name or config.name)
        if not wanted or (existing is not None and not may_move(config)):
            return config
        if existing is not None and existing.server:
            return on_read_replica(config, existing.server)
        return on_read_replica(config, self._server_for(stream, wanted, requester))

    async def move_on(self, local: LocalStream) -> None:
        """As the stream's leader, move consumers whose server has no read replica any more.

        They stand still as long as no server has one. Raises ApiError, StoreError, OSError.
        """
        stream, servers = local.stream, local.assignment.read_replicas
        if stream is None or not servers:
            return
        for each in list(stream.consumers.values()):
            if each.server and each.server not in servers and may_move(each.config):
                server = self._server_for(stream, ANY, "")
                _logger.warning("JetStream: %s moves from %s to %s", each, each.server, server)
                await stream.move_consumer(each, server)

    def _server_for(self, stream: Stream, wanted: str, requester: str) -> str:
        local = self._streams.find(stream.account.name, stream.name)
        servers = () if local is None else local.assignment.read_replicas
        if not servers:
            raise refusal("on a read replica needs a stream with read replicas")
        if wanted in servers:
            return wanted
        if wanted != ANY:
            raise refusal(f"on a read replica: server '{wanted}' has none of the stream")
        if requester in servers:
            return requester
        served = Counter(each.server for each in stream.consumers.values())
        lags = {} if local is None or local.group is None else local.group.lags()

        def rank(server: str) -> tuple[bool, bool, int, str]:
            lag = lags.get(self._streams.member_of(server))
            lacks_it = lag is None or lag > CAUGHT_UP_LAG
            return not self._peers.is_online(server), lacks_it, served[server], server

        return min(servers, key=rank)

    def cluster_of(self, consumer: Consumer) -> ClusterInfo:
        """Return where a consumer is served; without a leader, it is not."""
        is_there = consumer.is_serving
        return ClusterInfo(name=self._cluster_name(), leader=consumer.server if is_there else "")

    def has_server(self, consumer: Consumer) -> bool:
        """Return whether the server that is to serve a consumer has a read replica to do so."""
        stream = consumer.stream
        local = self._streams.find(stream.account.name, stream.config.name)
        return local is None or consumer.server in local.assignment.read_replicas

    def why_not(self, consumer: Consumer) -> ApiError:
        """Return the error for a consumer that nobody serves at the moment."""
        if self.has_server(consumer):
            return api_error(ErrorId.JSConsumerOfflineErr)
        return api_error(ErrorId.JSConsumerOfflineReasonErrF, err=no_read_replica(consumer))

    # Infos

    def shown(self, consumer: Consumer) -> ConsumerInfo:
        """Return the info of a consumer as this server knows it."""
        info = consumer.info(encoded(consumer.config))
        return msgspec.structs.replace(info, cluster=encoded(self.cluster_of(consumer)))

    async def info(self, consumer: Consumer) -> ConsumerInfo:
        """Return the info of a new consumer from the server that serves it.

        If that is away, or does not begin in time, it is the info of a consumer without a leader.
        """
        stream = consumer.stream
        if self._peers.is_online(consumer.server):
            body = msgspec.json.encode((consumer.name, consumer.created_ns))
            question = Question(ONE, stream.account.name, stream.config.name, body=body)
            with contextlib.suppress(Unanswered):
                return _read_info(await self._questions.first(question))
        return self.shown(consumer)

    async def infos(self, stream: Stream) -> dict[str, ConsumerInfo]:
        """Return the infos of a stream's consumers that read replicas serve now, by name."""
        question = Question(ALL, stream.account.name, stream.name)
        answers = await self._questions.gather(question)
        texts = [
            text for one in answers for text in msgspec.json.decode(one, type=list[msgspec.Raw])
        ]
        return {each.name: each for each in map(_read_info, texts)}

    async def ask_to_delete(self, account: str, stream: str, name: str, created_ns: int) -> None:
        """Have the stream's leader delete a consumer that is not used, if there is a leader."""
        body = msgspec.json.encode((name, created_ns))
        with contextlib.suppress(Unanswered):
            await self._questions.first(Question(UNUSED, account, stream, body=body))

    async def report(self, account: str, stream: str, floors: Sequence[Floor]) -> bool:
        """Tell the stream's leader how far consumers are; return whether it has kept that."""
        body = msgspec.json.encode(floors)
        with contextlib.suppress(Unanswered):
            await self._questions.first(Question(FLOORS, account, stream, body=body))
            return True
        return False

    # Answers to other servers

    async def _answer_one(self, question: Question) -> bytes | None:
        name, created_ns = msgspec.json.decode(question.body, type=tuple[str, int])
        while True:
            news, local = self._news(), self._streams.find(question.account, question.stream)
            if local is None or local.stream is None:
                return None
            consumer = local.stream.consumers.get(name)
            if consumer is not None and consumer.created_ns == created_ns:
                if not consumer.is_own:
                    return None
                if consumer.is_serving:
                    await consumer.counted()
                    return encode(self.shown(consumer))
            await news.wait()

    async def _answer_all(self, question: Question) -> bytes:
        local = self._streams.find(question.account, question.stream)
        stream = None if local is None else local.stream
        own = [] if stream is None else stream.own_consumers.all
        served = (each for each in own if each.is_serving)
        return msgspec.json.encode([msgspec.Raw(encode(self.shown(each))) for each in served])

    async def _answer_unused(self, question: Question) -> bytes:
        stream = await self._led(question)
        name, created_ns = msgspec.json.decode(question.body, type=tuple[str, int])
        consumer = stream.consumers.get(name)
        if consumer is not None and consumer.created_ns == created_ns:
            await stream.delete_consumer(name, only=consumer)
            await stream.agreed()
        return b"1"

    async def _answer_floors(self, question: Question) -> bytes | None:
        local = self._streams.find(question.account, question.stream)
        if local is None or not local.is_led or local.stream is None:
            return None
        stream = local.stream
        for floor in msgspec.json.decode(question.body, type=list[Floor]):
            consumer = stream.consumers.get(floor.name)
            if consumer is not None:
                consumer.note_floor(floor)
        await stream.agreed()
        return b"1"


def no_read_replica(consumer: Consumer) -> str:
    """Return why nobody serves a consumer whose server has no read replica of the stream."""
    return f"server '{consumer.server}' has no read replica of the stream any more"


def _read_info(text: bytes | msgspec.Raw) -> ConsumerInfo:
    """Return the info that a server has sent; the texts in it stay texts."""
    members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    config, cluster = members.pop("config"), members.pop("cluster")
    info = msgspec.json.decode(msgspec.json.encode(members), type=ConsumerInfo)
    return msgspec.structs.replace(info, config=config, cluster=cluster)
