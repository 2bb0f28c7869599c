"""The allowed changes of a consumer, and when two configurations are the same.

`_nats.*` metadata says which server wrote the configuration: the server sets it, not the client
(ADR-44).

Source: nats-server's `checkNewConsumerConfig` and `setStaticConsumerMetadata`.
"""

from typing import Final

from natsd.jetstream.consumer.metadata import key_token, read_replica
from natsd.jetstream.errors import ApiError, ErrorId, api_error
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig, PriorityPolicy
from natsd.jetstream.names import REQUIRED_LEVEL_KEY, SERVER_LEVEL_KEY, SERVER_VERSION_KEY

_DYNAMIC_KEYS: Final = frozenset({SERVER_VERSION_KEY, SERVER_LEVEL_KEY})

# Fields that never change, and the error text for a change.
_FIXED: Final = (
    ("deliver_policy", "deliver policy can not be updated"),
    ("mem_storage", "storage type can not be updated"),
    ("opt_start_seq", "start sequence can not be updated"),
    ("opt_start_time", "start time can not be updated"),
    ("ack_policy", "ack policy can not be updated"),
    ("replay_policy", "replay policy can not be updated"),
    ("idle_heartbeat", "heart beats can not be updated"),
    ("flow_control", "flow control can not be updated"),
)


def check_update(old: ConsumerConfig, new: ConsumerConfig, *, is_bound: bool) -> None:
    """Raise ApiError if `old` cannot become `new`.

    `is_bound`: there is a subscription to the deliver subject.
    """
    for field, text in _FIXED:
        if getattr(old, field) != getattr(new, field):
            raise _refused(text)
    if old.deliver_subject != new.deliver_subject:
        if not old.deliver_subject:
            raise _refused("can not update pull consumer to push based")
        if not new.deliver_subject:
            raise _refused("can not update push consumer to pull based")
        if is_bound:
            raise api_error(ErrorId.JSConsumerNameExistErr)
    if key_token(old) != key_token(new):
        raise _refused("key token can not be updated")
    if read_replica(old) != read_replica(new):
        raise _refused("read replica can not be updated")
    if old.max_waiting != new.max_waiting:
        raise _refused("max waiting can not be updated")


def _refused(text: str) -> ApiError:
    return api_error(ErrorId.JSConsumerCreateErrF, err=text)


def with_required_level(config: ConsumerConfig) -> ConsumerConfig:
    """Return the configuration as it is stored, with the API level that it needs."""
    metadata = _without(config, _DYNAMIC_KEYS)
    metadata[REQUIRED_LEVEL_KEY] = str(_required_level(config))
    return config.model_copy(update={"metadata": metadata})


def is_same(one: ConsumerConfig, other: ConsumerConfig) -> bool:
    """Tell whether two configurations agree in everything that a client sets."""
    ours = _DYNAMIC_KEYS | {REQUIRED_LEVEL_KEY}
    return one.model_copy(update={"metadata": _without(one, ours)}) == other.model_copy(
        update={"metadata": _without(other, ours)}
    )


def _without(config: ConsumerConfig, keys: frozenset[str]) -> dict[str, str]:
    return {key: value for key, value in config.metadata.items() if key not in keys}


def _required_level(config: ConsumerConfig) -> int:
    if config.ack_policy is AckPolicy.FLOW_CONTROL:
        return 4
    has_priority = (
        config.priority_policy is not PriorityPolicy.NONE
        or config.priority_timeout != 0
        or bool(config.priority_groups)
    )
    return 1 if has_priority or config.pause_until != 0 else 0
