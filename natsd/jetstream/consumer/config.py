"""The rules for a ConsumerConfig, with the error of each.

Defaults are already filled in (defaults.py). The order of the rules decides which of several errors
is reported. Rules about the stream's other consumers are in admission.py, those about updates in
changes.py.

Source: nats-server's `checkConsumerCfg`. As on nats-server, filters need not be subsets of the
stream's subjects: a consumer may wait for a subject that an update will add.
"""

import re
from typing import Final

from natsd.core.durations import format_duration_ns
from natsd.core.routing import is_literal, is_subset, is_valid
from natsd.core.steps import Steps, slices
from natsd.jetstream.consumer.defaults import FLOW_CONTROL_HEARTBEAT_NS, Ceilings
from natsd.jetstream.consumer.metadata import check_read_replica, check_settings
from natsd.jetstream.errors import ApiError, ErrorId, api_error
from natsd.jetstream.models.consumer import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    PriorityPolicy,
)
from natsd.jetstream.models.stream import Retention, StreamConfig
from natsd.jetstream.names import (
    BACKOFF_MAX,
    DESCRIPTION_BYTES_MAX,
    FILTERS_MAX,
    GROUPS_MAX,
    METADATA_BYTES_MAX,
    byte_length,
    is_valid_asset_name,
    metadata_length,
)
from natsd.jetstream.overlaps import coverings

HEARTBEAT_NS_MIN: Final = 100_000_000
REQUEST_EXPIRES_NS_MIN: Final = 1_000_000

_NAME_TEXT: Final = "can not contain '.', '*', '>', '\\', '/'"
_GROUP: Final = re.compile(r"[a-zA-Z0-9/_=-]{1,16}")
_WHOLE: Final = re.compile(r"([+-]?)0*([0-9]+)")

# The name of each deliver policy in errors, and the option that it needs.
_DELIVER: Final = {
    DeliverPolicy.ALL: ("all", ""),
    DeliverPolicy.LAST: ("last", ""),
    DeliverPolicy.LAST_PER_SUBJECT: ("last per subject", ""),
    DeliverPolicy.NEW: ("new", ""),
    DeliverPolicy.BY_START_SEQUENCE: ("by start sequence", "sequence"),
    DeliverPolicy.BY_START_TIME: ("by start time", "time"),
}


def filters_of(config: ConsumerConfig) -> tuple[str, ...]:
    """Return the filter subjects; empty: every message of the stream."""
    if config.filter_subject:
        return (config.filter_subject,)
    return tuple(config.filter_subjects)


def is_push(config: ConsumerConfig) -> bool:
    """Tell whether messages are sent to a deliver subject, not to pull requests."""
    return bool(config.deliver_subject)


def sample_percent(config: ConsumerConfig) -> int:
    """Return the percentage of acknowledgements for which a metric is published."""
    return _read_whole(config.sample_freq.removesuffix("%")) or 0


def is_group_name(name: str) -> bool:
    """Tell whether the text is a valid name of a priority group."""
    return _GROUP.fullmatch(name) is not None


def check_config(
    config: ConsumerConfig,
    stream: StreamConfig,
    ceilings: Ceilings,
    *,
    is_recovering: bool = False,
) -> Steps[None]:
    """Check a configuration, in steps, since there may be many filters.

    Raises the ApiError of the first rule that is broken.
    """
    _check_names(config)
    _check_lengths(config)
    _check_replicas(config, stream, is_recovering)
    _check_waits(config)
    if config.ack_policy is AckPolicy.FLOW_CONTROL:
        _check_flow_control_acks(config)
    if config.backoff and -1 != config.max_deliver < len(config.backoff):
        raise api_error(ErrorId.JSConsumerMaxDeliverBackoffErr)
    if byte_length(config.description) > DESCRIPTION_BYTES_MAX:
        raise api_error(ErrorId.JSConsumerDescriptionTooLongErrF, max=DESCRIPTION_BYTES_MAX)
    if is_push(config):
        yield from _check_push(config, stream)
    else:
        _check_pull(config, stream, ceilings)
    _check_ceilings(config, stream, ceilings)
    _check_direct(config)
    yield from _check_filters(config)
    _check_start(config)
    _check_sampling(config)
    if config.flow_control and config.idle_heartbeat == 0:
        raise api_error(ErrorId.JSConsumerWithFlowControlNeedsHeartbeats)
    if config.durable_name and config.name and config.name != config.durable_name:
        raise api_error(ErrorId.JSConsumerCreateDurableAndNameMismatch)
    _check_metadata(config)
    check_read_replica(config, stream)
    _check_priority(config)


def _invalid(text: str) -> ApiError:
    return api_error(ErrorId.JSStreamInvalidConfigF, err=text)


def _check_names(config: ConsumerConfig) -> None:
    if config.name and not is_valid_asset_name(config.name):
        raise _invalid(f"consumer name {_NAME_TEXT}")
    if config.durable_name and not is_valid_asset_name(config.durable_name):
        raise _invalid(f"consumer durable name {_NAME_TEXT}")


def _check_lengths(config: ConsumerConfig) -> None:
    """Check the lengths of lists; these limits are natsd's own."""
    for items, what, most in (
        (config.filter_subjects, "filter subjects", FILTERS_MAX),
        (config.backoff, "backoff values", BACKOFF_MAX),
        (config.priority_groups, "priority groups", GROUPS_MAX),
    ):
        if len(items) > most:
            raise _invalid(f"consumer has too many {what}, maximum allowed is {most}")


def _check_replicas(config: ConsumerConfig, stream: StreamConfig, is_recovering: bool) -> None:
    if config.num_replicas > max(stream.num_replicas, 0):
        raise api_error(ErrorId.JSConsumerReplicasExceedsStream)
    if config.num_replicas < 0:
        raise api_error(ErrorId.JSReplicasCountCannotBeNegative)
    if stream.retention is Retention.LIMITS or is_recovering:
        return
    if config.num_replicas not in (0, stream.num_replicas):
        raise api_error(ErrorId.JSConsumerReplicasShouldMatchStream)


def _check_waits(config: ConsumerConfig) -> None:
    if any(wait_ns < 0 for wait_ns in config.backoff):
        raise api_error(ErrorId.JSConsumerBackOffNegativeErr)
    if config.ack_wait < 0:
        raise api_error(ErrorId.JSConsumerAckWaitNegativeErr)


def _check_flow_control_acks(config: ConsumerConfig) -> None:
    """Check ack policy `flow_control`, with which flow control replies acknowledge.

    Such a reply acknowledges all messages that were sent before it.
    """
    if not is_push(config):
        raise api_error(ErrorId.JSConsumerAckFCRequiresPushErr)
    if not config.flow_control:
        raise api_error(ErrorId.JSConsumerAckFCRequiresFCErr)
    if config.idle_heartbeat != FLOW_CONTROL_HEARTBEAT_NS:
        raise _invalid("flow control ack policy heartbeat needs to be 1s")
    if config.max_ack_pending <= 0:
        raise api_error(ErrorId.JSConsumerAckFCRequiresMaxAckPendingErr)
    if config.ack_wait != 0 or config.backoff:
        raise api_error(ErrorId.JSConsumerAckFCRequiresNoAckWaitErr)
    if config.max_deliver > 0:
        raise api_error(ErrorId.JSConsumerAckFCRequiresNoMaxDeliverErr)


def _check_push(config: ConsumerConfig, stream: StreamConfig) -> Steps[None]:
    if not is_literal(config.deliver_subject):
        raise api_error(ErrorId.JSConsumerDeliverToWildcardsErr)
    if not is_valid(config.deliver_subject):
        raise api_error(ErrorId.JSConsumerInvalidDeliverSubject)
    for some in slices(stream.subjects):
        if any(is_subset(config.deliver_subject, subject) for subject in some):
            raise api_error(ErrorId.JSConsumerDeliverCycleErr)
        yield
    if config.max_waiting != 0:
        raise api_error(ErrorId.JSConsumerPushMaxWaitingErr)
    if config.max_ack_pending > 0 and config.ack_policy is AckPolicy.NONE:
        raise api_error(ErrorId.JSConsumerMaxPendingAckPolicyRequiredErr)
    if 0 < config.idle_heartbeat < HEARTBEAT_NS_MIN:
        raise api_error(ErrorId.JSConsumerSmallHeartbeatErr)


def _check_pull(config: ConsumerConfig, stream: StreamConfig, ceilings: Ceilings) -> None:
    if config.ack_policy is AckPolicy.NONE and stream.retention is Retention.WORKQUEUE:
        raise api_error(ErrorId.JSConsumerPullRequiresAckErr)
    if config.rate_limit_bps > 0:
        raise api_error(ErrorId.JSConsumerPullWithRateLimitErr)
    if config.idle_heartbeat > 0:
        raise api_error(ErrorId.JSConsumerHBRequiresPushErr)
    if config.flow_control:
        raise api_error(ErrorId.JSConsumerFCRequiresPushErr)
    if 0 < config.max_expires < REQUEST_EXPIRES_NS_MIN:
        raise api_error(ErrorId.JSConsumerMaxRequestExpiresTooSmall)
    if 0 < ceilings.max_request_batch < config.max_batch:
        limit = ceilings.max_request_batch
        raise api_error(ErrorId.JSConsumerMaxRequestBatchExceededF, limit=limit)


def _check_ceilings(config: ConsumerConfig, stream: StreamConfig, ceilings: Ceilings) -> None:
    limits = stream.consumer_limits
    for limit in (
        ceilings.max_ack_pending,
        ceilings.account_max_ack_pending,
        limits.max_ack_pending,
    ):
        if 0 < limit < config.max_ack_pending:
            raise api_error(ErrorId.JSConsumerMaxPendingAckExcessErrF, limit=limit)
    if 0 < limits.inactive_threshold < config.inactive_threshold:
        limit_text = format_duration_ns(limits.inactive_threshold)
        raise api_error(ErrorId.JSConsumerInactiveThresholdExcess, limit=limit_text)


def _check_direct(config: ConsumerConfig) -> None:
    """Check a direct consumer, with which a mirror or a source of another server reads."""
    if not config.direct:
        return
    if not is_push(config):
        raise api_error(ErrorId.JSConsumerDirectRequiresPushErr)
    if config.durable_name:
        raise api_error(ErrorId.JSConsumerDirectRequiresEphemeralErr)


def _check_filters(config: ConsumerConfig) -> Steps[None]:
    if config.filter_subject and config.filter_subjects:
        raise api_error(ErrorId.JSConsumerDuplicateFilterSubjects)
    if config.filter_subject and not is_valid(config.filter_subject):
        raise _invalid("invalid subject")
    if "" in config.filter_subjects:
        raise api_error(ErrorId.JSConsumerEmptyFilter)
    filters = filters_of(config)

    def tell(place: int, other: int | None) -> None:
        if not is_valid(filters[place]):
            raise _invalid("invalid subject")
        if other is not None:
            raise api_error(ErrorId.JSConsumerOverlappingSubjectFilters)

    yield from coverings(filters, tell)


def _check_start(config: ConsumerConfig) -> None:
    """Check that a start position is given exactly where the deliver policy needs it."""
    policy, needed = _DELIVER[config.deliver_policy]
    has_sequence, has_time = config.opt_start_seq > 0, config.opt_start_time is not None
    if (needed == "sequence" and not has_sequence) or (needed == "time" and not has_time):
        raise _start_error(policy, f"start {needed} is not set")
    if has_sequence and needed != "sequence":
        # nats-server says "start" twice here
        what = "start start sequence" if needed == "time" else "start sequence"
        raise _start_error(policy, f"{what} is also set")
    if has_time and needed != "time":
        raise _start_error(policy, "start time is also set")
    if config.deliver_policy is DeliverPolicy.LAST_PER_SUBJECT and not filters_of(config):
        raise _start_error(policy, "filter subject is not set")


def _start_error(policy: str, text: str) -> ApiError:
    return api_error(
        ErrorId.JSConsumerInvalidPolicyErrF,
        err=f"consumer delivery policy is deliver {policy}, but optional {text}",
    )


def _check_sampling(config: ConsumerConfig) -> None:
    if not config.sample_freq:
        return
    text = config.sample_freq.removesuffix("%")
    value = _read_whole(text)
    if value is None:
        why = f'strconv.Atoi: parsing "{text}": invalid syntax'
    elif not -(1 << 63) <= value < 1 << 63:
        why = f'strconv.Atoi: parsing "{text}": value out of range'
    elif value < 0:
        why = "<nil>"  # the text of nats-server, a nil error in Go
    else:
        return
    raise api_error(ErrorId.JSConsumerInvalidSamplingErrF, err=why)


def _read_whole(text: str) -> int | None:
    """Return the number as Go reads it, or None.

    Of a number that is too large, as many digits are read as show that it is.
    """
    found = _WHOLE.fullmatch(text)
    return None if found is None else int(found[1] + found[2][:20])


def _check_metadata(config: ConsumerConfig) -> None:
    if metadata_length(config.metadata) > METADATA_BYTES_MAX:
        limit = f"{METADATA_BYTES_MAX >> 10}KB"
        raise api_error(ErrorId.JSConsumerMetadataLengthErrF, limit=limit)
    check_settings(config)


def _check_priority(config: ConsumerConfig) -> None:
    if config.priority_policy is PriorityPolicy.NONE:
        if config.priority_groups:
            raise api_error(ErrorId.JSConsumerPriorityGroupWithPolicyNone)
        if config.priority_timeout > 0:
            raise api_error(ErrorId.JSConsumerPinnedTTLWithoutPriorityPolicyNone)
        return
    if is_push(config):
        raise api_error(ErrorId.JSConsumerPushWithPriorityGroupErr)
    if not config.priority_groups:
        raise api_error(ErrorId.JSConsumerPriorityPolicyWithoutGroup)
    for group in config.priority_groups:
        if not group:
            raise api_error(ErrorId.JSConsumerEmptyGroupName)
        if not is_group_name(group):
            raise api_error(ErrorId.JSConsumerInvalidGroupNameErr)
