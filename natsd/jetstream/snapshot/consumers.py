"""Check of a snapshot's consumers before a stream is restored with them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from natsd.core.steps import Steps
from natsd.jetstream.consumer.admission import check_room, check_work_queue
from natsd.jetstream.consumer.config import check_config
from natsd.jetstream.consumer.defaults import Ceilings
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.snapshot.contents import SnapshotConsumer

if TYPE_CHECKING:
    from natsd.jetstream.account_resources import AccountResources


def check_consumer(
    account: "AccountResources",
    consumer: SnapshotConsumer,
    stream: StreamConfig,
    others: Mapping[str, ConsumerConfig],
) -> Steps[None]:
    """Check the consumer by the rules that hold for new consumers. Raises ApiError."""
    limits = account.jetstream.options.limits
    tier = account.tiers.of(stream.num_replicas)
    ceilings = Ceilings(
        max_ack_pending=limits.max_ack_pending,
        max_request_batch=limits.max_request_batch,
        account_max_ack_pending=tier.limits.max_ack_pending,
    )
    check_room(stream, tier.limits.max_consumers, others)
    yield from check_work_queue(consumer.config, stream, others)
    yield from check_config(consumer.config, stream, ceilings, is_recovering=True)
