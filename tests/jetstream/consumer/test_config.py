"""The rules of a consumer's configuration and their errors (nats-server's `checkConsumerCfg`).

The table was recorded from nats-server 2.14.5.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.core.steps import at_once
from natsd.jetstream.consumer.changes import check_update, is_same, with_required_level
from natsd.jetstream.consumer.config import check_config, filters_of, sample_percent
from natsd.jetstream.consumer.defaults import Ceilings, with_defaults
from natsd.jetstream.errors import ApiError
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.stream import StreamConfig

Fields = dict[str, Any]

SECOND = 1_000_000_000
TIME = "2020-01-01T00:00:00Z"
STREAM: Fields = {"name": "S", "subjects": ["a.>", "b"], "num_replicas": 1}
LIMITED: Fields = STREAM | {
    "consumer_limits": {"max_ack_pending": 50, "inactive_threshold": 10 * SECOND}
}
WORK_QUEUE: Fields = STREAM | {"retention": "workqueue"}
PULL: Fields = {"durable_name": "C", "ack_policy": "explicit"}
PUSH: Fields = PULL | {"deliver_subject": "d.x"}
FLOW: Fields = {"durable_name": "C", "deliver_subject": "d.x", "ack_policy": "flow_control"}


def complete(
    fields: Fields,
    stream: Fields = STREAM,
    *,
    ceilings: Ceilings | None = None,
    pedantic: bool = False,
) -> ConsumerConfig:
    """Return the configuration that applies; fail if it is refused."""
    asked = ConsumerConfig.model_validate(fields)
    of_stream = StreamConfig.model_validate(stream)
    limits = ceilings or Ceilings()
    config = with_defaults(asked, of_stream, limits, pedantic=pedantic)
    at_once(check_config(config, of_stream, limits))
    return config


def start_error(text: str) -> tuple[int, str]:
    return 10094, f"consumer delivery policy is deliver {text}"


NAMES = "can not contain '.', '*', '>', '\\', '/'"
POLICY = "deliver_policy"
REFUSED: list[tuple[Fields, tuple[int, str]]] = [
    # Names and sizes
    (PULL | {"name": "a.b"}, (10052, f"consumer name {NAMES}")),
    (PULL | {"durable_name": "a*"}, (10052, f"consumer durable name {NAMES}")),
    (
        PULL | {"name": "D"},
        (10132, "Consumer Durable and Name have to be equal if both are provided"),
    ),
    (
        PULL | {"description": "x" * 4097},
        (10107, "consumer description is too long, maximum allowed is 4096"),
    ),
    (
        PULL | {"metadata": {"k": "x" * 131_072}},
        (10135, "consumer metadata exceeds maximum size of 128KB"),
    ),
    (PULL | {"num_replicas": -1}, (10133, "replicas count cannot be negative")),
    (PULL | {"num_replicas": 3}, (10126, "consumer config replica count exceeds parent stream")),
    # Waits
    (PULL | {"backoff": [-1]}, (10184, "consumer backoff needs to be positive")),
    (PULL | {"ack_wait": -1}, (10183, "consumer ack wait needs to be positive")),
    (
        PULL | {"backoff": [1, 2, 3], "max_deliver": 2},
        (10116, "max deliver is required to be > length of backoff values"),
    ),
    # Push
    (PUSH | {"deliver_subject": "d.*"}, (10079, "consumer deliver subject has wildcards")),
    (PUSH | {"deliver_subject": "d..x"}, (10112, "invalid push consumer deliver subject")),
    (PUSH | {"deliver_subject": "d x"}, (10112, "invalid push consumer deliver subject")),
    (PUSH | {"deliver_subject": "a.x"}, (10081, "consumer deliver subject forms a cycle")),
    (PUSH | {"max_waiting": 5}, (10080, "consumer in push mode can not set max waiting")),
    (
        PUSH | {"ack_policy": "none", "max_ack_pending": 5},
        (10082, "consumer requires ack policy for max ack pending"),
    ),
    (
        PUSH | {"idle_heartbeat": 99_999_999},
        (10083, "consumer idle heartbeat needs to be >= 100ms"),
    ),
    (PUSH | {"flow_control": True}, (10108, "consumer with flow control also needs heartbeats")),
    # Pull
    (PULL | {"rate_limit_bps": 1}, (10086, "consumer in pull mode can not have rate limit set")),
    (
        PULL | {"idle_heartbeat": SECOND},
        (10088, "consumer idle heartbeat requires a push based consumer"),
    ),
    (
        PULL | {"flow_control": True},
        (10089, "consumer flow control requires a push based consumer"),
    ),
    (PULL | {"max_expires": 999_999}, (10115, "consumer max request expires needs to be >= 1ms")),
    # Direct consumers, for other servers' mirrors
    ({"direct": True}, (10090, "consumer direct requires a push based consumer")),
    (PUSH | {"direct": True}, (10091, "consumer direct requires an ephemeral consumer")),
    # Filters
    (
        PULL | {"filter_subject": "b", "filter_subjects": ["a.b"]},
        (10136, "consumer cannot have both FilterSubject and FilterSubjects specified"),
    ),
    (
        PULL | {"filter_subjects": [""]},
        (10139, "consumer filter in FilterSubjects cannot be empty"),
    ),
    (PULL | {"filter_subject": "a..b"}, (10052, "invalid subject")),
    (PULL | {"filter_subjects": ["a..b"]}, (10052, "invalid subject")),
    (
        PULL | {"filter_subjects": ["a.*", "a.b"]},
        (10138, "consumer subject filters cannot overlap"),
    ),
    (
        PULL | {"filter_subjects": ["a.b", "a.b"]},
        (10138, "consumer subject filters cannot overlap"),
    ),
    # Start positions
    (PULL | {"opt_start_seq": 1}, start_error("all, but optional start sequence is also set")),
    (PULL | {"opt_start_time": TIME}, start_error("all, but optional start time is also set")),
    (
        PULL | {POLICY: "last", "opt_start_seq": 1},
        start_error("last, but optional start sequence is also set"),
    ),
    (
        PULL | {POLICY: "new", "opt_start_time": TIME},
        start_error("new, but optional start time is also set"),
    ),
    (
        PULL | {POLICY: "last_per_subject"},
        start_error("last per subject, but optional filter subject is not set"),
    ),
    (
        PULL | {POLICY: "last_per_subject", "opt_start_seq": 1},
        start_error("last per subject, but optional start sequence is also set"),
    ),
    (
        PULL | {POLICY: "by_start_sequence"},
        start_error("by start sequence, but optional start sequence is not set"),
    ),
    (
        PULL | {POLICY: "by_start_sequence", "opt_start_seq": 1, "opt_start_time": TIME},
        start_error("by start sequence, but optional start time is also set"),
    ),
    (
        PULL | {POLICY: "by_start_time"},
        start_error("by start time, but optional start time is not set"),
    ),
    (
        PULL | {POLICY: "by_start_time", "opt_start_seq": 1, "opt_start_time": TIME},
        start_error("by start time, but optional start start sequence is also set"),
    ),
    # Sampling
    (
        PULL | {"sample_freq": "xx"},
        (
            10095,
            "failed to parse consumer sampling configuration: "
            'strconv.Atoi: parsing "xx": invalid syntax',
        ),
    ),
    (
        PULL | {"sample_freq": "-1%"},
        (10095, "failed to parse consumer sampling configuration: <nil>"),
    ),
    (
        PULL | {"sample_freq": "9" * 20},
        (
            10095,
            "failed to parse consumer sampling configuration: "
            f'strconv.Atoi: parsing "{"9" * 20}": value out of range',
        ),
    ),
    # Priority groups
    (
        PUSH | {"priority_policy": "overflow"},
        (10178, "priority groups can not be used with push consumers"),
    ),
    (
        PULL | {"priority_policy": "overflow"},
        (10159, "Setting PriorityPolicy requires at least one PriorityGroup to be set"),
    ),
    (
        PULL | {"priority_policy": "overflow", "priority_groups": [""]},
        (10161, "Group name cannot be an empty string"),
    ),
    (
        PULL | {"priority_policy": "overflow", "priority_groups": ["a b"]},
        (
            10162,
            "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ "
            "and may not exceed 16 characters",
        ),
    ),
    (
        PULL | {"priority_groups": ["a"]},
        (10196, "consumer can not have priority groups when policy is none"),
    ),
    (
        PULL | {"priority_timeout": 5},
        (10197, "PinnedTTL cannot be set when PriorityPolicy is none"),
    ),
    # Acknowledged by flow control
    (
        FLOW | {"deliver_subject": ""},
        (10218, "flow control ack policy requires a push based consumer"),
    ),
    (FLOW | {"max_ack_pending": -1}, (10220, "flow control ack policy requires max ack pending")),
    (FLOW | {"ack_wait": SECOND}, (10221, "flow control ack policy requires unset ack wait")),
    (FLOW | {"max_deliver": 3}, (10222, "flow control ack policy requires unset max deliver")),
]


@pytest.mark.parametrize(("fields", "error"), REFUSED, ids=lambda value: str(value)[-60:])
def test_a_rule_that_is_broken_is_named(fields: Fields, error: tuple[int, str]) -> None:
    with pytest.raises(ApiError) as refused:
        complete(fields)
    assert (refused.value.err_code, refused.value.description) == error


def test_priority_groups() -> None:
    pinned = PULL | {"priority_policy": "pinned_client", "priority_groups": ["aZ09/_=-"]}
    assert complete(pinned).priority_timeout == 120 * SECOND
    assert complete(pinned | {"priority_timeout": SECOND}).priority_timeout == SECOND
    overflow = PULL | {"priority_policy": "overflow", "priority_groups": ["a", "b"]}
    assert complete(overflow).priority_timeout == 0


PEDANTIC: list[tuple[Fields, Fields, str]] = [
    (PULL | {"max_deliver": -5}, STREAM, "max_deliver must be set to -1"),
    (PULL | {"max_waiting": -1}, STREAM, "max_waiting must not be negative"),
    (PULL | {"max_ack_pending": -5}, STREAM, "max_ack_pending must be set to -1"),
    (PULL | {"max_batch": -1}, STREAM, "max_batch must not be negative"),
    (PULL | {"max_expires": -1}, STREAM, "max_expires must not be negative"),
    (PULL | {"max_bytes": -1}, STREAM, "max_bytes must not be negative"),
    (PUSH | {"idle_heartbeat": -1}, STREAM, "idle_heartbeat must not be negative"),
    (PULL | {"inactive_threshold": -1}, STREAM, "inactive_threshold must not be negative"),
    (PULL | {"priority_timeout": -1}, STREAM, "priority_timeout must not be negative"),
    (PULL | {"backoff": [SECOND]}, STREAM, "first backoff value has to equal batch AckWait"),
    (PULL, LIMITED, "max_ack_pending must be set if it's configured in stream limits"),
    (
        PULL | {"max_ack_pending": 5},
        LIMITED,
        "inactive_threshold must be set if it's configured in stream limits",
    ),
]


@pytest.mark.parametrize(("fields", "stream", "text"), PEDANTIC, ids=lambda value: str(value)[-40:])
def test_who_is_pedantic_is_told_what_would_be_changed(
    fields: Fields, stream: Fields, text: str
) -> None:
    with pytest.raises(ApiError) as refused:
        complete(fields, stream, pedantic=True)
    assert (refused.value.err_code, refused.value.description) == (10157, f"pedantic mode: {text}")
    complete(fields, stream)


def test_flow_control_acks_are_not_completed_for_who_is_pedantic() -> None:
    config = complete(FLOW)
    assert (config.flow_control, config.idle_heartbeat, config.ack_wait) == (True, SECOND, 0)
    with pytest.raises(ApiError) as refused:
        complete(FLOW, pedantic=True)
    assert refused.value.err_code == 10219
    with pytest.raises(ApiError) as refused:
        complete(FLOW | {"flow_control": True, "idle_heartbeat": 5 * SECOND}, pedantic=True)
    assert refused.value.description == "flow control ack policy heartbeat needs to be 1s"


def test_what_is_not_said_is_filled_in() -> None:
    config = complete(PULL)
    assert config.ack_wait == 30 * SECOND
    assert (config.max_deliver, config.max_waiting, config.max_ack_pending) == (-1, 512, 1000)
    config = complete(PUSH | {"ack_policy": "none"})
    assert (config.ack_wait, config.max_waiting, config.max_ack_pending) == (0, 0, 0)
    config = complete(PULL | {"backoff": [2 * SECOND, 5 * SECOND]})
    assert config.ack_wait == 2 * SECOND


def test_limits_of_the_stream_are_defaults_and_ceilings() -> None:
    config = complete(PULL, LIMITED)
    assert (config.max_ack_pending, config.inactive_threshold) == (50, 10 * SECOND)
    for fields, description in (
        ({"max_ack_pending": 51}, "consumer max ack pending exceeds system limit of 50"),
        (
            {"inactive_threshold": 11 * SECOND},
            "consumer inactive threshold exceeds system limit of 10s",
        ),
    ):
        with pytest.raises(ApiError) as refused:
            complete(PULL | fields, LIMITED)
        assert refused.value.description == description


def test_limits_of_server_and_account_are_defaults_and_ceilings() -> None:
    ceilings = Ceilings(max_ack_pending=70, max_request_batch=9, account_max_ack_pending=60)
    config = complete(PULL, ceilings=ceilings)
    assert (config.max_ack_pending, config.max_batch) == (60, 9)
    for fields, err_code in (
        ({"max_ack_pending": 61}, 10121),
        ({"max_ack_pending": 71}, 10121),
        ({"max_batch": 10}, 10125),
    ):
        with pytest.raises(ApiError) as refused:
            complete(PULL | fields, ceilings=ceilings)
        assert refused.value.err_code == err_code


def test_a_work_queue_is_pulled_with_acks() -> None:
    with pytest.raises(ApiError) as refused:
        complete({"durable_name": "C", "ack_policy": "none"}, WORK_QUEUE)
    assert refused.value.err_code == 10084


def test_filters_may_touch_and_may_be_foreign() -> None:
    config = complete(PULL | {"filter_subjects": ["a.*.c", "a.b.*"]})
    assert filters_of(config) == ("a.*.c", "a.b.*")
    assert filters_of(complete(PULL | {"filter_subject": "zzz"})) == ("zzz",)
    assert filters_of(complete(PULL)) == ()


@pytest.mark.parametrize(
    ("text", "percent"), [("", 0), ("30", 30), ("30%", 30), ("+5", 5), ("1000", 1000)]
)
def test_a_sample_frequency_is_a_number_with_or_without_a_sign(text: str, percent: int) -> None:
    assert sample_percent(complete(PULL | {"sample_freq": text})) == percent


@given(st.text(alphabet="0123456789+-% x", max_size=30) | st.just("0" * 5000))
def test_any_sample_frequency_is_read_or_refused(text: str) -> None:
    try:
        percent = sample_percent(complete(PULL | {"sample_freq": text}))
    except ApiError as error:
        percent = 0 if error.err_code == 10095 else -1
    assert percent >= 0


# Updates

FIXED: list[tuple[Fields, Fields, str]] = [
    (PULL, PULL | {POLICY: "new"}, "deliver policy can not be updated"),
    (PULL, PULL | {"mem_storage": True}, "storage type can not be updated"),
    (
        PULL | {POLICY: "by_start_sequence", "opt_start_seq": 1},
        PULL | {POLICY: "by_start_sequence", "opt_start_seq": 2},
        "start sequence can not be updated",
    ),
    (
        PULL | {POLICY: "by_start_time", "opt_start_time": TIME},
        PULL | {POLICY: "by_start_time", "opt_start_time": "2021-01-01T00:00:00Z"},
        "start time can not be updated",
    ),
    (PULL, PULL | {"ack_policy": "all"}, "ack policy can not be updated"),
    (PULL, PULL | {"replay_policy": "original"}, "replay policy can not be updated"),
    (PUSH, PUSH | {"idle_heartbeat": SECOND}, "heart beats can not be updated"),
    (
        PUSH | {"idle_heartbeat": SECOND},
        PUSH | {"idle_heartbeat": SECOND, "flow_control": True},
        "flow control can not be updated",
    ),
    (PULL, PUSH, "can not update pull consumer to push based"),
    (PUSH, PULL, "can not update push consumer to pull based"),
    (PULL, PULL | {"max_waiting": 5}, "max waiting can not be updated"),
]


@pytest.mark.parametrize(("old", "new", "text"), FIXED, ids=lambda value: str(value)[-40:])
def test_what_an_update_may_not_change(old: Fields, new: Fields, text: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_update(complete(old), complete(new), is_bound=False)
    assert (refused.value.code, refused.value.err_code) == (500, 10012)
    assert refused.value.description == text


def test_a_deliver_subject_changes_while_nobody_listens() -> None:
    old, new = complete(PUSH), complete(PUSH | {"deliver_subject": "d.y"})
    check_update(old, new, is_bound=False)
    with pytest.raises(ApiError) as refused:
        check_update(old, new, is_bound=True)
    assert refused.value.err_code == 10013


def test_everything_else_an_update_may_change() -> None:
    fields: Fields = {
        "max_deliver": 5,
        "ack_wait": SECOND,
        "backoff": [SECOND, SECOND],
        "filter_subject": "b",
        "max_ack_pending": 7,
        "max_batch": 3,
        "max_expires": SECOND,
        "max_bytes": 9,
        "headers_only": True,
        "inactive_threshold": SECOND,
        "sample_freq": "5",
        "num_replicas": 1,
        "metadata": {"a": "b"},
        "description": "d",
        "pause_until": TIME,
    }
    check_update(complete(PULL), complete(PULL | fields), is_bound=False)


# Metadata (ADR-44)


@pytest.mark.parametrize(
    ("fields", "level"), [(PULL, "0"), (PULL | {"pause_until": TIME}, "1"), (FLOW, "4")]
)
def test_a_configuration_names_the_level_it_needs(fields: Fields, level: str) -> None:
    asked = fields | {"metadata": {"_nats.ver": "9", "_nats.level": "9", "k": "v"}}
    config = with_required_level(complete(asked))
    assert config.metadata == {"k": "v", "_nats.req.level": level}
    assert is_same(config, complete(fields | {"metadata": {"k": "v"}}))
    assert not is_same(config, complete(fields))
