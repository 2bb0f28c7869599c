"""The streams and consumers of the summary: the busiest, the largest, the fullest, the laggards.

`/jsz` lists all.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from natsd.core.steps import Steps
from natsd.monitor.summary.meter import Meter, rounded
from natsd.monitor.summary.ranking import Ranking, shown
from natsd.monitor.values import timestamp

if TYPE_CHECKING:
    from natsd.jetstream.consumer.consumer import Consumer
    from natsd.jetstream.jetstream import JetStream
    from natsd.jetstream.stream.stream import Stream
    from natsd.store.store import StoreState

FIRST_BY_EACH: Final = 25
PROBLEMS_MAX: Final = 20
SUBJECTS_SHOWN: Final = 5


@dataclass(slots=True, eq=False)
class MeasuredStream:
    """A stream, its state, and the messages per second that it takes."""

    account: str
    stream: "Stream"
    state: "StoreState"
    rate: float | None

    @property
    def fullness(self) -> float:
        """The share of its tightest limit that is used, from 0 to 1; 0: it has no limit."""
        config, state = self.stream.config, self.state
        return max(
            state.msgs / config.max_msgs if config.max_msgs > 0 else 0.0,
            state.bytes / config.max_bytes if config.max_bytes > 0 else 0.0,
        )

    def row(self) -> dict[str, Any]:
        """Return the stream as the summary shows it."""
        config, state = self.stream.config, self.state
        return {
            "account": shown(self.account),
            "name": shown(self.stream.name),
            "description": shown(config.description),
            "subjects": [shown(each) for each in config.subjects[:SUBJECTS_SHOWN]],
            "subjects_more": max(len(config.subjects) - SUBJECTS_SHOWN, 0),
            "storage": config.storage.value,
            "retention": config.retention.value,
            "discard": config.discard.value,
            "messages": state.msgs,
            "bytes": state.bytes,
            "num_subjects": state.num_subjects,
            "num_deleted": state.num_deleted,
            "first_seq": state.first_sequence,
            "last_seq": state.last_sequence,
            "first_ts": timestamp(state.first_time_ns) if state.first_time_ns else None,
            "last_ts": timestamp(state.last_time_ns) if state.last_time_ns else None,
            "consumers": len(self.stream.public_consumers),
            "msgs_rate": rounded(self.rate),
            "max_msgs": config.max_msgs,
            "max_bytes": config.max_bytes,
            "max_age_s": config.max_age / 1e9,
            "full": round(self.fullness, 4),
        }


@dataclass(slots=True, eq=False)
class MeasuredConsumer:
    """A consumer, and the messages per second that it delivers."""

    account: str
    stream: str
    consumer: "Consumer"
    pending: int
    ack_pending: int
    redelivered: int
    waiting: int
    delivered: int
    rate: float | None

    def row(self) -> dict[str, Any]:
        """Return the consumer as the summary shows it."""
        consumer, config = self.consumer, self.consumer.config
        last_ns = consumer.engine.last_delivered_ns
        return {
            "account": shown(self.account),
            "stream": shown(self.stream),
            "name": shown(consumer.name),
            "description": shown(config.description),
            "push": bool(config.deliver_subject),
            "push_bound": consumer.is_bound,
            "num_pending": self.pending,
            "num_ack_pending": self.ack_pending,
            "max_ack_pending": config.max_ack_pending,
            "num_redelivered": 0 if config.max_deliver == 1 else self.redelivered,
            "num_waiting": self.waiting,
            "delivered": self.delivered,
            "msgs_rate": rounded(self.rate),
            "last_delivered": timestamp(last_ns) if last_ns else None,
        }


class ChosenStreams:
    """The streams and consumers to show, and what is wrong with others."""

    def __init__(self) -> None:
        self.streams: Ranking[MeasuredStream] = Ranking(4, FIRST_BY_EACH)
        self.consumers: Ranking[MeasuredConsumer] = Ranking(4, FIRST_BY_EACH)
        self.messages = 0
        self.problems: list[str] = []

    def choose(self, engine: "JetStream | None", meter: Meter) -> Steps[None]:
        """Look at every stream and consumer."""
        if engine is None:
            return
        for account in list(engine.accounts.values()):
            yield
            for name, reason in list(account.offline.items())[:PROBLEMS_MAX]:
                self._report(f"Stream {shown(name)} of {shown(account.name)}: {shown(reason)}")
            for stream in list(account.streams.values()):
                yield
                if account.streams.get(stream.name) is not stream:
                    continue  # it was deleted between two steps
                self._add_stream(account.name, stream, meter)
                for consumer in list(stream.consumers.values()):
                    is_there = stream.consumers.get(consumer.name) is consumer
                    if is_there and not consumer.config.direct:
                        self._add_consumer(account.name, stream.name, consumer, meter)
                        yield

    def _report(self, problem: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)

    def _add_stream(self, account: str, stream: "Stream", meter: Meter) -> None:
        from natsd.jetstream.stream.state import visible_state

        if error := stream.store.write_error:
            self._report(f"Stream {shown(stream.name)} of {shown(account)}: {error}")
        state = visible_state(stream.readers.log, stream.readers.visible)
        rates = meter.rates((account, stream.name), (state.last_sequence,))
        measured = MeasuredStream(account, stream, state, rates[0] if rates else None)
        self.messages += state.msgs
        self.streams.add(
            measured, (measured.rate or 0.0, state.msgs, state.bytes, measured.fullness)
        )

    def _add_consumer(self, account: str, stream: str, consumer: "Consumer", meter: Meter) -> None:
        engine = consumer.engine
        delivered = engine.delivered().consumer
        rates = meter.rates((account, stream, consumer.name), (delivered,))
        measured = MeasuredConsumer(
            account,
            stream,
            consumer,
            pending=engine.num_pending,
            ack_pending=engine.num_ack_pending,
            redelivered=engine.num_redelivered,
            waiting=engine.num_waiting,
            delivered=delivered,
            rate=rates[0] if rates else None,
        )
        self.consumers.add(
            measured,
            (
                measured.pending,
                measured.ack_pending,
                measured.redelivered,
                measured.rate or 0.0,
            ),
        )
