"""The engine's settings, made from a consumer's configuration."""

from typing import Final

from natsd.jetstream.consumer import settings
from natsd.jetstream.consumer.config import filters_of, sample_percent
from natsd.jetstream.consumer.metadata import key_token
from natsd.jetstream.consumer.settings import RATE_BURST_BYTES, EngineSettings
from natsd.jetstream.models.consumer import (
    AckPolicy,
    ConsumerConfig,
    PriorityPolicy,
    ReplayPolicy,
)
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.models.times import bounded_ns
from natsd.store.consumer import consumer_state
from natsd.store.consumer.consumer_state import ConsumerOptions

FOREVER_NS: Final = 2**63 - 1

_ACK_POLICIES = {
    AckPolicy.NONE: consumer_state.AckPolicyCode.NONE,
    AckPolicy.ALL: consumer_state.AckPolicyCode.ALL,
    AckPolicy.EXPLICIT: consumer_state.AckPolicyCode.EXPLICIT,
    AckPolicy.FLOW_CONTROL: consumer_state.AckPolicyCode.FLOW_CONTROL,
}
_PRIORITY_POLICIES = {
    PriorityPolicy.NONE: settings.PriorityPolicyCode.NONE,
    PriorityPolicy.OVERFLOW: settings.PriorityPolicyCode.OVERFLOW,
    PriorityPolicy.PINNED_CLIENT: settings.PriorityPolicyCode.PINNED_CLIENT,
    PriorityPolicy.PRIORITIZED: settings.PriorityPolicyCode.PRIORITIZED,
}


def engine_settings(config: ConsumerConfig, stream: StreamConfig) -> EngineSettings:
    """Return the settings; `config` is complete: defaults are filled in."""
    return EngineSettings(
        stream=stream.name,
        ack_policy=_ACK_POLICIES[config.ack_policy],
        ack_wait_ns=_ack_wait_ns(config),
        backoff_ns=tuple(map(bounded_ns, config.backoff)),
        max_deliver=max(config.max_deliver, 0),
        max_ack_pending=max(config.max_ack_pending, 0),
        filters=filters_of(config),
        headers_only=config.headers_only,
        replay_original=config.replay_policy is ReplayPolicy.ORIGINAL,
        sample_percent=sample_percent(config),
        key_token=key_token(config),
        max_waiting=config.max_waiting,
        max_request_batch=config.max_batch,
        max_request_expires_ns=bounded_ns(config.max_expires),
        max_request_bytes=config.max_bytes,
        priority_policy=_PRIORITY_POLICIES[config.priority_policy],
        priority_groups=tuple(config.priority_groups),
        priority_timeout_ns=bounded_ns(config.priority_timeout),
        deliver_subject=config.deliver_subject or None,
        flow_control=config.flow_control,
        idle_heartbeat_ns=bounded_ns(config.idle_heartbeat),
        rate_limit_bps=config.rate_limit_bps,
        rate_burst_bytes=stream.max_msg_size if stream.max_msg_size > 0 else RATE_BURST_BYTES,
    )


def _ack_wait_ns(config: ConsumerConfig) -> int:
    """Return the ack wait in ns; FOREVER_NS with flow control acknowledgements.

    A client that lost messages then asks for all of them again.
    """
    if config.ack_policy is AckPolicy.FLOW_CONTROL:
        return FOREVER_NS
    return bounded_ns(config.ack_wait)


def store_options(config: ConsumerConfig) -> ConsumerOptions:
    """Return the options that decide how the consumer's state changes."""
    return ConsumerOptions(_ACK_POLICIES[config.ack_policy], max(config.max_deliver, 0))
