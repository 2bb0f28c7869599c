"""The info that the API shows of a consumer, as nats-server's `infoWithSnap` makes it."""

from typing import Protocol

from natsd.jetstream.consumer.delivery import ConsumerEngine
from natsd.jetstream.models.consumer import (
    ConsumerConfig,
    ConsumerInfo,
    PriorityGroupState,
    SequenceInfo,
)
from natsd.jetstream.names import API_LEVEL, SERVER_LEVEL_KEY, SERVER_VERSION_KEY
from natsd.version import NATS_VERSION


class ShownConsumer(Protocol):
    """A consumer, as far as its info needs it."""

    name: str
    config: ConsumerConfig
    created_ns: int
    engine: ConsumerEngine
    is_bound: bool


def consumer_info(consumer: ShownConsumer, stream: str, now_ns: int) -> ConsumerInfo:
    """Return the info; `num_pending` is exact unless the engine counts (`Consumer.counted`)."""
    config, engine = consumer.config, consumer.engine
    engine.check_requests()
    floor, delivered = engine.ack_floor(), engine.delivered()
    pause_ns = max(config.pause_until - now_ns, 0)
    return ConsumerInfo(
        stream_name=stream,
        name=consumer.name,
        created=consumer.created_ns,
        config=config,
        delivered=SequenceInfo(
            consumer_seq=delivered.consumer,
            stream_seq=delivered.stream,
            last_active=engine.last_delivered_ns,
        ),
        ack_floor=SequenceInfo(
            consumer_seq=floor.consumer, stream_seq=floor.stream, last_active=engine.last_ack_ns
        ),
        num_ack_pending=engine.num_ack_pending,
        # A message that may be delivered once is never redelivered, whatever the state remembers.
        num_redelivered=0 if config.max_deliver == 1 else engine.num_redelivered,
        num_waiting=engine.num_waiting,
        num_pending=engine.num_pending,
        push_bound=consumer.is_bound,
        priority_groups=_groups(consumer),
        paused=pause_ns > 0,
        pause_remaining=pause_ns,
        ts=now_ns,
    )


def _groups(consumer: ShownConsumer) -> list[PriorityGroupState]:
    """Return the first group with the pin: all groups share one pin."""
    engine = consumer.engine
    return [
        PriorityGroupState(group=group, pinned_client_id=engine.pin_id, pinned_ts=engine.pinned_ns)
        for group in consumer.config.priority_groups[:1]
    ]


def with_shown_metadata(info: ConsumerInfo) -> ConsumerInfo:
    """Return the info with the server's version and level, for requests about one consumer."""
    if info.config is None:
        return info
    shown = {SERVER_VERSION_KEY: NATS_VERSION, SERVER_LEVEL_KEY: str(API_LEVEL)}
    config = info.config.model_copy(update={"metadata": info.config.metadata | shown})
    return info.model_copy(update={"config": config})
