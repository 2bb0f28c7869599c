"""The info that the API shows of a consumer, as nats-server's `infoWithSnap` makes it."""

from typing import Protocol

import msgspec

from natsd.jetstream.consumer.delivery import ConsumerEngine
from natsd.jetstream.models.consumer import (
    ConsumerConfig,
    ConsumerInfo,
    PriorityGroupState,
    SequenceInfo,
)
from natsd.jetstream.models.times import format_time
from natsd.jetstream.names import API_LEVEL, SERVER_LEVEL_KEY, SERVER_VERSION_KEY
from natsd.jetstream.stream.staleness import Staleness
from natsd.version import NATS_VERSION


class ShownConsumer(Protocol):
    """A consumer, as far as its info needs it."""

    name: str
    config: ConsumerConfig
    created_ns: int
    engine: ConsumerEngine
    is_bound: bool
    staleness: Staleness | None


def consumer_info(
    consumer: ShownConsumer, stream: str, now_ns: int, config: msgspec.Raw | None
) -> ConsumerInfo:
    """Return the info, with this text of the configuration; None: without.

    `num_pending` is exact unless the engine counts (`Consumer.counted`).
    """
    settings, engine = consumer.config, consumer.engine
    engine.check_requests()
    floor, delivered = engine.ack_floor(), engine.delivered()
    delivered_ns, acked_ns = engine.last_delivered_ns, engine.last_ack_ns
    pause_ns = max(settings.pause_until - now_ns, 0)
    return ConsumerInfo(
        stream_name=stream,
        name=consumer.name,
        created=format_time(consumer.created_ns),
        config=config,
        delivered=SequenceInfo(
            consumer_seq=delivered.consumer,
            stream_seq=delivered.stream,
            last_active=format_time(delivered_ns) if delivered_ns else "",
        ),
        ack_floor=SequenceInfo(
            consumer_seq=floor.consumer,
            stream_seq=floor.stream,
            last_active=format_time(acked_ns) if acked_ns else "",
        ),
        num_ack_pending=engine.num_ack_pending,
        # A message that may be delivered once is never redelivered, whatever the state remembers.
        num_redelivered=0 if settings.max_deliver == 1 else engine.num_redelivered,
        num_waiting=engine.num_waiting,
        num_pending=engine.num_pending,
        push_bound=consumer.is_bound,
        priority_groups=_groups(consumer) if settings.priority_groups else (),
        paused=pause_ns > 0,
        pause_remaining=pause_ns,
        ts=format_time(now_ns),
        natsd_staleness="" if consumer.staleness is None else consumer.staleness.age(),
    )


def _groups(consumer: ShownConsumer) -> tuple[PriorityGroupState, ...]:
    """Return the first group with the pin: all groups share one pin."""
    engine, group = consumer.engine, consumer.config.priority_groups[0]
    pinned = format_time(engine.pinned_ns)
    return (PriorityGroupState(group=group, pinned_client_id=engine.pin_id, pinned_ts=pinned),)


def with_shown_metadata(config: ConsumerConfig) -> ConsumerConfig:
    """Return the configuration with the server's version and level.

    Requests about one consumer are answered with it.
    """
    shown = {SERVER_VERSION_KEY: NATS_VERSION, SERVER_LEVEL_KEY: str(API_LEVEL)}
    return config.model_copy(update={"metadata": config.metadata | shown})
