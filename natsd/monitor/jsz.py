"""`/jsz`: JetStream in numbers, by account, stream and consumer.

- The totals are those of all accounts, whichever account the request asks for.
- Streams are counted in steps, and a row is made only when it is written: so neither many streams
  nor many consumers block the event loop or are held in memory. A change in between may be in the
  answer or not.
- Parameters about replicas are read, but change little: a single server leads all its streams.

`scrub` is natsd's own. Sources: nats-server's `Server.Jsz` and `JSInfo`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from natsd.core.steps import Steps
from natsd.jetstream.errors import ApiError
from natsd.jetstream.models.times import format_time
from natsd.monitor import jetstream
from natsd.monitor.clock import Clock
from natsd.monitor.jetstream_rows import ConfigTexts, state_row, stored
from natsd.monitor.observed import ObservedServer
from natsd.monitor.query import BadParameter, Query
from natsd.monitor.turns import Turns
from natsd.monitor.values import timestamp

if TYPE_CHECKING:
    from natsd.jetstream.account import JetStreamAccount
    from natsd.jetstream.jetstream import JetStream
    from natsd.jetstream.models.consumer import ConsumerInfo
    from natsd.jetstream.stream.stream import Stream

LIMIT_DEFAULT: Final = 1024
UINT64: Final = 2**64


@dataclass(frozen=True, slots=True)
class JszOptions:
    """The parameters of a `/jsz` request."""

    account: str
    accounts: bool
    streams: bool
    consumers: bool
    direct_consumers: bool
    """Whether consumers of mirrors and sources are shown too; needs `consumers`."""
    config: bool
    leader_only: bool
    leaders: bool
    """Whether the streams and consumers that this server leads are counted."""
    offset: int
    limit: int

    @classmethod
    def of(cls, query: Query) -> "JszOptions":
        """Read the parameters; raises BadParameter."""
        accounts = query.flag("accounts")
        streams = query.flag("streams")
        consumers = query.flag("consumers")
        direct_consumers = query.flag("direct-consumers")
        config = query.flag("config")
        offset, limit = max(query.whole("offset"), 0), query.whole("limit")
        leader_only = query.flag("leader-only")
        leaders = query.flag("raft")
        query.flag("stream-leader-only")
        account = query.text("acc")
        streams = streams or consumers
        return cls(
            account=account,
            accounts=accounts or (streams and not account),
            streams=streams,
            consumers=consumers,
            direct_consumers=consumers and direct_consumers,
            config=config,
            leader_only=leader_only,
            leaders=leaders,
            offset=offset,
            limit=limit or LIMIT_DEFAULT,
        )


@dataclass(slots=True)
class Totals:
    """Sums over all accounts."""

    streams: int = 0
    consumers: int = 0
    messages: int = 0
    bytes: int = 0

    def fields(self, *, leaders: bool) -> dict[str, int]:
        """Return the sums as the answer shows them.

        With `leaders` the counts of led streams and consumers are added; a single server leads all.
        """
        shown = {"streams": self.streams}
        shown |= {"streams_leader": self.streams} if leaders and self.streams else {}
        shown |= {"consumers": self.consumers}
        shown |= {"consumers_leader": self.consumers} if leaders and self.consumers else {}
        return shown | {"messages": self.messages, "bytes": self.bytes}


async def jsz(
    server: ObservedServer, options: JszOptions, clock: Clock, turns: Turns, configs: ConfigTexts
) -> dict[str, Any]:
    """Return the answer to `/jsz`; its rows are iterators, which make each one on demand.

    Raises BadParameter for `leader-only` without JetStream.
    """
    engine = server.jetstream
    if engine is None and options.leader_only:
        raise BadParameter("filtered response: not leader")
    answer = jetstream.NO_STATS if engine is None else jetstream.stats(engine)
    answer |= {"server_id": server.id, "now": timestamp(clock.wall_ns())}
    if engine is None:
        answer |= {"disabled": True, "config": jetstream.NO_CONFIG}
        return answer | Totals().fields(leaders=False) | {"total": 0}
    answer |= {
        "config": jetstream.config(engine.options),
        "limits": jetstream.limits(engine.options),
    }
    if engine.cluster is not None:
        answer["meta_cluster"] = jetstream.meta_cluster(engine.cluster)
        if found := jetstream.rescues(engine.cluster):
            answer["rescues"] = found
    answer["scrub"] = jetstream.scrub(engine)
    totals = await turns.run(_count(engine))
    answer |= totals.fields(leaders=options.leaders)
    if chosen := _chosen(engine, options):
        answer["account_details"] = (
            account_detail(account, options, server, configs) for account in chosen
        )
    return answer | {"total": len(engine.accounts)}


def _count(engine: "JetStream") -> Steps[Totals]:
    totals = Totals()
    for account in list(engine.accounts.values()):
        yield
        streams = list(account.streams.values())
        totals.streams += len(streams)
        for stream in streams:
            yield
            state = stored(stream)
            totals.messages += state.msgs
            totals.bytes += state.bytes
            totals.consumers += len(stream.public_consumers)
    return totals


def _chosen(engine: "JetStream", options: JszOptions) -> list["JetStreamAccount"]:
    """Return the accounts to show in detail: the requested one, else a page of all if requested."""
    if options.account in engine.accounts:
        return [engine.accounts[options.account]]
    if not options.accounts:
        return []
    by_name = [engine.accounts[name] for name in sorted(engine.accounts)]
    if options.limit < 0:
        return by_name
    return by_name[options.offset : options.offset + options.limit]


def account_detail(
    account: "JetStreamAccount", options: JszOptions, server: ObservedServer, configs: ConfigTexts
) -> dict[str, Any]:
    """Return one account's JetStream on this server."""
    shown = server.accounts.get(account.name)
    detail = {
        "name": account.name if shown is None else shown.name_tag,
        "id": account.name,
        "memory": account.tiers.memory_used,
        "storage": account.tiers.file_used,
        # nats-server shows the limits as reservations; no limit (-1) is the largest uint64.
        "reserved_memory": account.tiers.limits.max_memory % UINT64,
        "reserved_storage": account.tiers.limits.max_storage % UINT64,
        "accounts": 0,
        "ha_assets": 0,
        "api": jetstream.api(account.api, 0),
    }
    if options.streams and account.streams:
        names = sorted(account.streams)
        detail["stream_detail"] = (
            _stream(stream, options, server, configs)
            for name in names
            if (stream := account.streams.get(name)) is not None
        )
    return detail


def _stream(
    stream: "Stream", options: JszOptions, server: ObservedServer, configs: ConfigTexts
) -> dict[str, Any]:
    row: dict[str, Any] = {"name": stream.name, "created": format_time(stream.created_ns)}
    cluster = None if server.jetstream is None else server.jetstream.cluster
    local = None if cluster is None else cluster.streams.find(stream.account.name, stream.name)
    row["cluster"] = {"leader": server.name}
    if cluster is not None and local is not None:
        row["cluster"] = cluster.stream_cluster(local).model_dump()
    if options.config:
        row["config"] = configs.text(stream.config)
    row["state"] = state_row(stream)
    if options.consumers:
        by_name = sorted(stream.consumers)
        public = [name for name in by_name if not stream.consumers[name].config.direct]
        if public:
            row["consumer_detail"] = _consumers(stream, public, options, configs)
        if options.direct_consumers and len(public) < len(by_name):
            direct = [name for name in by_name if stream.consumers[name].config.direct]
            row["direct_consumer_detail"] = _consumers(stream, direct, options, configs)
    mirror = stream.sourcing.mirror_info()
    if mirror is not None:
        row["mirror"] = mirror.model_dump()
    if sources := stream.sourcing.sources_info():
        row["sources"] = (each.model_dump() for each in sources)
    return row


def _consumers(
    stream: "Stream", names: list[str], options: JszOptions, configs: ConfigTexts
) -> Iterator["ConsumerInfo"]:
    """Yield the rows of the consumers; those that were deleted since are left out."""
    for name in names:
        consumer = stream.consumers.get(name)
        if consumer is None:
            continue
        try:
            info = consumer.info(configs.text(consumer.config) if options.config else None)
        except ApiError:  # it is being deleted
            continue
        yield info
