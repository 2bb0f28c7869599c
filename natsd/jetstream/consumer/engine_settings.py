"""A consumer's configuration, as its engine wants it. Source: reference §6.5."""

from natsd.jetstream.consumer.config import filters_of, sample_percent
from natsd.jetstream.consumer.metadata import key_token
from natsd.jetstream.consumer.settings import RATE_BURST_BYTES, EngineSettings
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig, ReplayPolicy
from natsd.jetstream.models.stream import StreamConfig
from natsd.store import consumer_state
from natsd.store.consumer_state import ConsumerOptions

_ACK_POLICIES = {
    AckPolicy.NONE: consumer_state.AckPolicy.NONE,
    AckPolicy.ALL: consumer_state.AckPolicy.ALL,
    AckPolicy.EXPLICIT: consumer_state.AckPolicy.EXPLICIT,
    AckPolicy.FLOW_CONTROL: consumer_state.AckPolicy.FLOW_CONTROL,
}


def engine_settings(config: ConsumerConfig, stream: StreamConfig) -> EngineSettings:
    """`config` is complete: defaults are filled in."""
    return EngineSettings(
        stream=stream.name,
        ack_policy=_ACK_POLICIES[config.ack_policy],
        ack_wait_ns=config.ack_wait,
        backoff_ns=tuple(config.backoff),
        max_deliver=max(config.max_deliver, 0),
        max_ack_pending=max(config.max_ack_pending, 0),
        filters=filters_of(config),
        headers_only=config.headers_only,
        replay_original=config.replay_policy is ReplayPolicy.ORIGINAL,
        sample_percent=sample_percent(config),
        key_token=key_token(config),
        max_waiting=config.max_waiting,
        max_request_batch=config.max_batch,
        max_request_expires_ns=config.max_expires,
        max_request_bytes=config.max_bytes,
        deliver_subject=config.deliver_subject or None,
        flow_control=config.flow_control,
        idle_heartbeat_ns=config.idle_heartbeat,
        rate_limit_bps=config.rate_limit_bps,
        rate_burst_bytes=stream.max_msg_size if stream.max_msg_size > 0 else RATE_BURST_BYTES,
    )


def store_options(config: ConsumerConfig) -> ConsumerOptions:
    """What decides how the consumer's state changes."""
    return ConsumerOptions(_ACK_POLICIES[config.ack_policy], max(config.max_deliver, 0))
