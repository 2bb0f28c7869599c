"""Whether a stream takes one more consumer: how many it may have, and what a work queue demands.

In a work queue each message is for one consumer: all consumers acknowledge each message, start at
the beginning, and no two of them want the same subject. Filters may be very many: checks of them
are made in steps.

Source: reference §6.5; nats-server's addConsumer, partitionUnique.
"""

from collections.abc import Mapping, Sequence

from natsd.core.steps import Steps
from natsd.jetstream.consumer.config import filters_of
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig, DeliverPolicy
from natsd.jetstream.models.stream import Retention, StreamConfig
from natsd.jetstream.overlaps import do_collide


def counted(consumers: Mapping[str, ConsumerConfig]) -> dict[str, ConsumerConfig]:
    """Those that limits and rules look at: not the ones that mirrors and sources read with."""
    return {
        name: config for name, config in consumers.items() if not (config.direct or config.sourcing)
    }


def check_room(
    stream: StreamConfig, account_max_consumers: int, consumers: Mapping[str, ConsumerConfig]
) -> None:
    """Raises ApiError 10026 when there are as many as there may be."""
    limits = [limit for limit in (stream.max_consumers, account_max_consumers) if limit > 0]
    if limits and len(counted(consumers)) >= min(limits):
        raise api_error(ErrorId.JSMaximumConsumersLimitErr)


def check_work_queue(
    config: ConsumerConfig, stream: StreamConfig, consumers: Mapping[str, ConsumerConfig]
) -> Steps[None]:
    """A new consumer; nothing with other retentions. Raises ApiError 10098 to 10101."""
    if stream.retention is not Retention.WORKQUEUE or config.direct or config.sourcing:
        return
    if config.ack_policy not in (AckPolicy.EXPLICIT, AckPolicy.FLOW_CONTROL):
        raise api_error(ErrorId.JSConsumerWQRequiresExplicitAckErr)
    if config.deliver_policy is not DeliverPolicy.ALL:
        raise api_error(ErrorId.JSConsumerWQConsumerNotDeliverAllErr)
    others = counted(consumers)
    filters = filters_of(config)
    if others and not filters:
        raise api_error(ErrorId.JSConsumerWQMultipleUnfilteredErr)
    if not (yield from is_partition(filters, others)):
        raise api_error(ErrorId.JSConsumerWQConsumerNotUniqueErr)


def check_work_queue_update(
    name: str,
    config: ConsumerConfig,
    stream: StreamConfig,
    consumers: Mapping[str, ConsumerConfig],
) -> Steps[None]:
    """New filters of a consumer that is there. Raises ApiError 10099, 10100."""
    if stream.retention is not Retention.WORKQUEUE:
        return
    others = {other: what for other, what in counted(consumers).items() if other != name}
    filters = filters_of(config)
    if others and not filters and not (config.direct or config.sourcing):
        raise api_error(ErrorId.JSConsumerWQMultipleUnfilteredErr)
    if not (yield from is_partition(filters, others)):
        raise api_error(ErrorId.JSConsumerWQConsumerNotUniqueErr)


def is_partition(filters: Sequence[str], others: Mapping[str, ConsumerConfig]) -> Steps[bool]:
    """Whether no other consumer wants a subject that these filters let through."""
    if not others:
        return True
    theirs = list[str]()
    for other in others.values():
        theirs += filters_of(other) or (">",)
    return not (yield from do_collide(filters, theirs))
