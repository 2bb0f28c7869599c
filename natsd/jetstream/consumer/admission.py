"""The rules for one more consumer of a stream: their number, and the demands of a work queue.

In a work queue each message is for one consumer: every consumer acknowledges explicitly and starts
at the beginning, and no two consumers want the same subject. There may be very many filters: they
are checked in steps.

Source: nats-server's `addConsumerWithAssignment` and `partitionUnique`.
"""

from collections.abc import Mapping, Sequence

from natsd.core.steps import Steps
from natsd.jetstream.consumer.config import filters_of
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig, DeliverPolicy
from natsd.jetstream.models.stream import Retention, StreamConfig
from natsd.jetstream.overlaps import do_collide


def counted(consumers: Mapping[str, ConsumerConfig]) -> dict[str, ConsumerConfig]:
    """Return the consumers that limits and rules count: not those of mirrors and sources."""
    return {
        name: config for name, config in consumers.items() if not (config.direct or config.sourcing)
    }


def check_room(
    stream: StreamConfig, account_max_consumers: int, consumers: Mapping[str, ConsumerConfig]
) -> None:
    """Raise ApiError 10026 if the stream has as many consumers as it may have."""
    limits = [limit for limit in (stream.max_consumers, account_max_consumers) if limit > 0]
    if limits and len(counted(consumers)) >= min(limits):
        raise api_error(ErrorId.JSMaximumConsumersLimitErr)


def check_work_queue(
    config: ConsumerConfig, stream: StreamConfig, consumers: Mapping[str, ConsumerConfig]
) -> Steps[None]:
    """Check a new consumer of a work queue, in steps. Raises ApiError 10098 to 10101."""
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
    """Check new filters of a consumer of a work queue, in steps. Raises ApiError 10099, 10100."""
    if stream.retention is not Retention.WORKQUEUE:
        return
    others = {other: what for other, what in counted(consumers).items() if other != name}
    filters = filters_of(config)
    if others and not filters and not (config.direct or config.sourcing):
        raise api_error(ErrorId.JSConsumerWQMultipleUnfilteredErr)
    if not (yield from is_partition(filters, others)):
        raise api_error(ErrorId.JSConsumerWQConsumerNotUniqueErr)


def is_partition(filters: Sequence[str], others: Mapping[str, ConsumerConfig]) -> Steps[bool]:
    """Tell whether no other consumer wants a subject that matches these filters."""
    if not others:
        return True
    theirs = list[str]()
    for other in others.values():
        theirs += filters_of(other) or (">",)
    return not (yield from do_collide(filters, theirs))
