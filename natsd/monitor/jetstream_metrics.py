"""The metrics of JetStream: `jetstream_server_*`, `_account_*`, `_stream_*`, `_consumer_*`.

- `natsd_scrub_*` and `natsd_repaired_*` are natsd's own (natsd/jetstream/scrubber.py).
- The other names, labels and help texts are those of the Prometheus NATS exporter (`-jsz=all`).
- Streams and consumers are read in steps, without the models of the API: those take 20 times as
  long. A change between two steps may be in the answer or not.

Source: prometheus-nats-exporter's `jszCollector`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from natsd.core.steps import Steps
from natsd.core.wall_time import SECOND_NS
from natsd.monitor.jetstream_rows import stored
from natsd.monitor.jsz import UINT64
from natsd.monitor.metric_text import Gauges, Row, Value, escaped, families, label_text, row
from natsd.monitor.observed import ObservedServer

if TYPE_CHECKING:
    from natsd.jetstream.account import JetStreamAccount
    from natsd.jetstream.consumer.consumer import Consumer
    from natsd.jetstream.jetstream import JetStream
    from natsd.jetstream.models.stream import StreamSourceInfo
    from natsd.jetstream.stream.stream import Stream

Depth = Literal["none", "accounts", "streams", "consumers"]
"""How much is told: nothing, or the server and its accounts, and then their streams, and so on."""

CONSUMERS_PER_STEP: Final = 5

SERVER: Final[Gauges] = (
    ("server_jetstream_disabled", "JetStream disabled or not"),
    ("server_total_streams", "Total number of streams in JetStream"),
    ("server_total_consumers", "Total number of consumers in JetStream"),
    ("server_total_messages", "Total number of stored messages in JetStream"),
    ("server_total_message_bytes", "Total number of bytes stored in JetStream"),
    ("server_max_memory", "JetStream Max Memory"),
    ("server_max_storage", "JetStream Max Storage"),
)
SCRUB: Final[Gauges] = (
    ("scrub_runs", "Scrubs of all stored files that have ended since the start"),
    ("scrub_running", "Whether a scrub runs now"),
    ("scrub_streams", "Streams that the running scrub, or else the last one, has read"),
    ("scrub_blocks", "Blocks that this scrub has read"),
    ("scrub_bytes", "Bytes of blocks that this scrub has read"),
    ("scrub_repaired", "Damaged places that this scrub has found and repaired"),
    ("scrub_damaged", "Damaged places that this scrub has found and could not repair"),
    ("scrub_end_seconds", "When the last scrub ended, in seconds since 1970"),
    ("repaired_blocks", "Blocks that were repaired since the start, by scrubs and reads"),
    ("repaired_messages", "Messages that came from other replicas for these repairs"),
)
ACCOUNT: Final[Gauges] = (
    ("account_max_memory", "JetStream Account Max Memory in bytes"),
    ("account_max_storage", "JetStream Account Max Storage in bytes"),
    ("account_storage_used", "Total number of bytes used by JetStream storage"),
    ("account_memory_used", "Total number of bytes used by JetStream memory"),
)
STREAM: Final[Gauges] = (
    ("stream_total_messages", "Total number of messages from a stream"),
    ("stream_total_bytes", "Total stored bytes from a stream"),
    ("stream_first_seq", "First sequence from a stream"),
    ("stream_last_seq", "Last sequence from a stream"),
    ("stream_consumer_count", "Total number of consumers from a stream"),
    ("stream_subject_count", "Total number of subjects in a stream"),
    (
        "stream_limit_bytes",
        "The maximum configured storage limit (in bytes) for a JetStream stream."
        " A value of -1 indicates no limit.",
    ),
    (
        "stream_limit_messages",
        "The maximum number of messages allowed in a JetStream stream as per its configuration."
        " A value of -1 indicates no limit.",
    ),
)
SOURCE: Final[Gauges] = (
    ("stream_source_lag", "Number of messages a stream source is behind"),
    (
        "stream_source_active_duration_ns",
        "Stream source active duration in nanoseconds (-1 indicates inactive)",
    ),
)
MIRROR: Final[Gauges] = (
    ("stream_mirror_lag", "Number of messages a stream mirror is behind"),
    (
        "stream_mirror_active_duration_ns",
        "Stream mirror active duration in nanoseconds (-1 indicates inactive)",
    ),
)
CONSUMER: Final[Gauges] = (
    ("consumer_delivered_consumer_seq", "Latest sequence number of a stream consumer"),
    ("consumer_delivered_stream_seq", "Latest sequence number of a stream"),
    ("consumer_last_delivery_seconds", "Seconds since last message delivery to consumer"),
    ("consumer_last_ack_seconds", "Seconds since last ack from consumer"),
    ("consumer_num_ack_pending", "Number of pending acks from a consumer"),
    ("consumer_num_redelivered", "Number of redelivered messages from a consumer"),
    ("consumer_num_waiting", "Number of inflight fetch requests from a pull consumer"),
    ("consumer_num_pending", "Number of pending messages from a consumer"),
    ("consumer_ack_floor_stream_seq", "Number of ack floor stream seq from a consumer"),
    ("consumer_ack_floor_consumer_seq", "Number of ack floor consumer seq from a consumer"),
)


@dataclass(slots=True)
class JetStreamRows:
    """The rows of all families."""

    server: list[Row] = field(default_factory=list)
    scrubs: list[Row] = field(default_factory=list)
    accounts: list[Row] = field(default_factory=list)
    streams: list[Row] = field(default_factory=list)
    sources: list[Row] = field(default_factory=list)
    mirrors: list[Row] = field(default_factory=list)
    consumers: list[Row] = field(default_factory=list)

    def text(self, prefix: str) -> Iterator[bytes]:
        """Yield the text of all families."""
        yield from families(prefix, SERVER, self.server)
        yield from families("natsd_", SCRUB, self.scrubs)
        yield from families(prefix, ACCOUNT, self.accounts)
        yield from families(prefix, STREAM, self.streams)
        yield from families(prefix, SOURCE, self.sources)
        yield from families(prefix, MIRROR, self.mirrors)
        yield from families(prefix, CONSUMER, self.consumers)


def jetstream_rows(server: ObservedServer, server_id: str, depth: Depth) -> Steps[JetStreamRows]:
    """Return, in steps, the rows about JetStream; `server_id` is the label of that name."""
    rows = JetStreamRows()
    engine = server.jetstream
    labels = label_text(
        server_id=server_id,
        server_name=server.name,
        cluster="",
        domain="" if engine is None else engine.options.domain,
        meta_leader="",
        is_meta_leader="true",
    )
    if depth == "none":
        return rows
    if engine is None:
        rows.server.append(row(labels, (1, 0, 0, 0, 0, 0, 0)))
        return rows
    totals = [0, 0, 0, 0]
    for account in list(engine.accounts.values()):
        yield
        streams = list(account.streams.values())
        reading = _AccountReading(rows, labels, account, server)
        for stream in streams:
            if account.streams.get(stream.name) is not stream:
                continue  # it was deleted since
            counts = yield from reading.add(stream, depth)
            totals = [total + count for total, count in zip(totals, counts, strict=True)]
    options = engine.options
    limits = (options.max_memory_store, options.max_file_store)
    rows.server.append(row(labels, (0, *totals, *limits)))
    rows.scrubs.append(_scrub_row(engine, labels))
    return rows


def _scrub_row(engine: "JetStream", labels: str) -> Row:
    scrubber, repairs = engine.scrubber, engine.volume.repairs
    last = scrubber.last
    shown = scrubber.running or last
    read: tuple[Value, ...] = (0, 0, 0, 0, 0)
    if shown is not None:
        read = (shown.streams, shown.blocks, shown.bytes, shown.repaired, shown.left)
    ended_s = None if last is None else last.ended_ns // SECOND_NS
    values = (scrubber.ended, int(scrubber.running is not None), *read, ended_s)
    return row(labels, (*values, repairs.blocks, repairs.messages))


class _AccountReading:
    """Adds the rows of one account."""

    def __init__(
        self, rows: JetStreamRows, shared: str, account: "JetStreamAccount", server: ObservedServer
    ) -> None:
        self._rows = rows
        self._server_name = server.name
        shown = server.accounts.get(account.name)
        name = account.name if shown is None else shown.name_tag
        own = label_text(account=name, account_name=name, account_id=account.name)
        self._labels = f"{shared},{own}"
        tiers = account.tiers
        limits = tiers.limits
        # As in /jsz: no limit (-1) is the largest uint64.
        values = (
            limits.max_memory % UINT64,
            limits.max_storage % UINT64,
            tiers.file_used,
            tiers.memory_used,
        )
        rows.accounts.append(row(self._labels, values))

    def add(self, stream: "Stream", depth: Depth) -> Steps[tuple[int, int, int, int]]:
        """Add a stream as deep as asked for; return 1, and its consumers, messages and bytes."""
        state = stored(stream)
        consumers = stream.public_consumers
        config, rows = stream.config, self._rows
        yield
        if depth in ("streams", "consumers"):
            labels = self._stream_labels(stream.name)
            values = (
                state.msgs,
                state.bytes,
                state.first_sequence,
                state.last_sequence,
                len(consumers),
                state.num_subjects,
                config.max_bytes,
                config.max_msgs,
            )
            rows.streams.append(row(labels, values))
            mirror = stream.sourcing.mirror_info()
            rows.mirrors += [_origin(labels, "mirror", mirror)] if mirror is not None else []
            rows.sources += [
                _origin(labels, "source", each) for each in stream.sourcing.sources_info()
            ]
            if depth == "consumers":
                yield from self._add_consumers(stream, consumers, labels)
        return 1, len(consumers), state.msgs, state.bytes

    def _stream_labels(self, name: str) -> str:
        leader = self._server_name
        own = label_text(
            stream_name=name, stream_leader=leader, is_stream_leader="true", stream_raft_group=""
        )
        return f"{self._labels},{own}"

    def _add_consumers(
        self, stream: "Stream", consumers: list["Consumer"], labels: str
    ) -> Steps[None]:
        rows, scheduler = self._rows.consumers, stream.jetstream.scheduler
        for start in range(0, len(consumers), CONSUMERS_PER_STEP):
            now_ns = scheduler.now_ns()
            rows += [
                row(f"{labels},{_consumer_labels(each)}", _consumer_values(each, now_ns))
                for each in consumers[start : start + CONSUMERS_PER_STEP]
                if not each.engine.is_stopped
            ]
            yield


def _consumer_labels(consumer: "Consumer") -> str:
    """Return the labels of a consumer; made in one piece, for there may be very many."""
    return (
        f'consumer_name="{escaped(consumer.name)}",consumer_leader="",is_consumer_leader="true",'
        f'consumer_desc="{escaped(consumer.config.description)}"'
    )


def _consumer_values(consumer: "Consumer", now_ns: int) -> tuple[Value, ...]:
    """Return the values of a consumer, as its info has them (natsd.jetstream.consumer.info)."""
    engine = consumer.engine
    engine.check_requests()
    delivered, floor = engine.delivered(), engine.ack_floor()
    redelivered = engine.num_redelivered
    return (
        delivered.consumer,
        delivered.stream,
        _seconds_since(engine.last_delivered_ns, now_ns),
        _seconds_since(engine.last_ack_ns, now_ns),
        engine.num_ack_pending,
        redelivered if redelivered and consumer.config.max_deliver != 1 else 0,
        engine.num_waiting,
        engine.num_pending,
        floor.stream,
        floor.consumer,
    )


def _seconds_since(then_ns: int, now_ns: int) -> float | None:
    """Return the seconds since a time; None: there is no such time."""
    return (now_ns - then_ns) / SECOND_NS if then_ns else None


def _origin(stream: str, kind: Literal["mirror", "source"], info: "StreamSourceInfo") -> Row:
    """Return the row of a mirror or source; `stream` are the labels of the stream it fills."""
    external = info.external
    labels = {
        f"{kind}_name": info.name,
        f"{kind}_api": "" if external is None else external.api,
        f"{kind}_deliver": "" if external is None else external.deliver,
    }
    return row(f"{stream},{label_text(**labels)}", (info.lag, info.active))
