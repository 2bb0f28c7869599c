"""The defaults of a consumer's configuration.

- A value below the lowest that has a meaning becomes the one that means "none"; an omitted one is
  filled in from the limits of the stream, the server and the account.
- With `pedantic`, a value that would be changed silently is refused (10157), but not a plain
  default.

The order decides which of several errors is reported. Source: nats-server's
`setConsumerConfigDefaults`.
"""

from dataclasses import dataclass
from typing import Final

from natsd.jetstream.errors import ApiError, ErrorId, api_error
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig, PriorityPolicy
from natsd.jetstream.models.stream import StreamConfig

_SECOND_NS: Final = 1_000_000_000

ACK_WAIT_NS: Final = 30 * _SECOND_NS
MAX_WAITING: Final = 512
MAX_ACK_PENDING: Final = 1_000
PINNED_NS: Final = 120 * _SECOND_NS
FLOW_CONTROL_HEARTBEAT_NS: Final = _SECOND_NS

# Field, its lowest value with a meaning, and the pedantic error for a lower one.
_FLOORS: Final = (
    ("max_deliver", -1, "max_deliver must be set to -1"),
    ("max_waiting", 0, "max_waiting must not be negative"),
    ("max_ack_pending", -1, "max_ack_pending must be set to -1"),
    ("max_batch", 0, "max_batch must not be negative"),
    ("max_expires", 0, "max_expires must not be negative"),
    ("max_bytes", 0, "max_bytes must not be negative"),
    ("idle_heartbeat", 0, "idle_heartbeat must not be negative"),
    ("inactive_threshold", 0, "inactive_threshold must not be negative"),
    ("priority_timeout", 0, "priority_timeout must not be negative"),
)


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The limits of server and account for a consumer; 0: no limit."""

    max_ack_pending: int = 0
    max_request_batch: int = 0
    account_max_ack_pending: int = 0


def pedantic_error(text: str) -> ApiError:
    """Return the error for a value that would have been changed."""
    return api_error(ErrorId.JSPedanticErrF, err=text)


def with_defaults(
    config: ConsumerConfig, stream: StreamConfig, ceilings: Ceilings, *, pedantic: bool = False
) -> ConsumerConfig:
    """Return the configuration with every default filled in. Raises ApiError 10157."""
    config = _lifted(config, pedantic)
    config = _with_plain_defaults(config)
    config = _with_backoff(config, pedantic)
    config = _with_stream_limits(config, stream, pedantic)
    config = _with_ceilings(config, ceilings, pedantic)
    changes: dict[str, object] = {}
    if config.priority_policy is PriorityPolicy.PINNED_CLIENT and config.priority_timeout == 0:
        changes["priority_timeout"] = PINNED_NS
    if config.ack_policy is AckPolicy.FLOW_CONTROL and not pedantic:
        changes |= {"flow_control": True, "idle_heartbeat": FLOW_CONTROL_HEARTBEAT_NS}
    return config.model_copy(update=changes)


def _lifted(config: ConsumerConfig, pedantic: bool) -> ConsumerConfig:
    changes: dict[str, object] = {}
    for field, lowest, text in _FLOORS:
        if getattr(config, field) < lowest:
            if pedantic:
                raise pedantic_error(text)
            changes[field] = lowest
    return config.model_copy(update=changes)


def _with_plain_defaults(config: ConsumerConfig) -> ConsumerConfig:
    changes: dict[str, object] = {}
    if config.max_deliver == 0:
        changes["max_deliver"] = -1
    if not config.deliver_subject and config.max_waiting == 0:
        changes["max_waiting"] = MAX_WAITING
    if config.ack_wait == 0 and config.ack_policy in (AckPolicy.EXPLICIT, AckPolicy.ALL):
        changes["ack_wait"] = ACK_WAIT_NS
    return config.model_copy(update=changes)


def _with_backoff(config: ConsumerConfig, pedantic: bool) -> ConsumerConfig:
    if not config.backoff:
        return config
    if pedantic and config.ack_wait != config.backoff[0]:
        raise pedantic_error("first backoff value has to equal batch AckWait")
    return config.model_copy(update={"ack_wait": config.backoff[0]})


def _with_stream_limits(
    config: ConsumerConfig, stream: StreamConfig, pedantic: bool
) -> ConsumerConfig:
    changes: dict[str, object] = {}
    for field in ("max_ack_pending", "inactive_threshold"):
        limit = getattr(stream.consumer_limits, field)
        if getattr(config, field) == 0 and limit > 0:
            if pedantic:
                raise pedantic_error(f"{field} must be set if it's configured in stream limits")
            changes[field] = limit
    return config.model_copy(update=changes)


def _with_ceilings(config: ConsumerConfig, ceilings: Ceilings, pedantic: bool) -> ConsumerConfig:
    changes: dict[str, object] = {}
    if config.max_ack_pending == 0 and config.ack_policy is not AckPolicy.NONE:
        limits = (ceilings.max_ack_pending, ceilings.account_max_ack_pending)
        changes["max_ack_pending"] = min(
            [MAX_ACK_PENDING, *(limit for limit in limits if limit > 0)]
        )
    if not config.deliver_subject and config.max_batch == 0 and ceilings.max_request_batch > 0:
        if pedantic:
            raise pedantic_error("max_request_batch must be set if it's JetStream limits are set")
        changes["max_batch"] = ceilings.max_request_batch
    return config.model_copy(update=changes)
