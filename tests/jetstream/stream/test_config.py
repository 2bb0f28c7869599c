"""The rules of a stream's configuration and their errors (nats-server's `checkStreamCfg`).

The tables were recorded from nats-server 2.14.5.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.core.routing import collide
from natsd.core.steps import at_once
from natsd.jetstream.errors import ApiError, ErrorId
from natsd.jetstream.models.account import AccountLimits
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.stream import StreamConfig, StreamInfo, StreamState
from natsd.jetstream.stream.config import (
    ConfigRules,
    check_change,
    check_config,
    check_consumers,
)
from natsd.jetstream.stream.metadata import with_shown_metadata, with_static_metadata

SECOND = 1_000_000_000
MS = 1_000_000
FREE = ConfigRules(AccountLimits())
NAME = "stream name is required and can not contain '.', '*', '>', '\\', '/'"
API = "subjects that overlap with jetstream api require no-ack to be true"
TRANSFORM = "stream transform: invalid mapping destination: "


def complete(rules: ConfigRules = FREE, *, pedantic: bool = False, **fields: Any) -> StreamConfig:
    """Return the configuration that applies; fail if it is refused."""
    config = StreamConfig.model_validate({"name": "S", **fields})
    return at_once(check_config(config, rules, pedantic=pedantic))


def republish(dest: str, src: str = "") -> dict[str, object]:
    return {"republish": {"src": src, "dest": dest}}


def transform(src: str, dest: str) -> dict[str, object]:
    return {"subject_transform": {"src": src, "dest": dest}}


REFUSED: list[tuple[dict[str, Any], tuple[int, str]]] = [
    # Schedules
    (
        {"allow_msg_schedules": True, "discard": "new"},
        (10052, "message scheduling cannot use discard new"),
    ),
    # Texts
    ({"name": ""}, (10052, NAME)),
    ({"name": "a.b"}, (10052, NAME)),
    ({"name": "a/b"}, (10052, NAME)),
    ({"name": "a b"}, (10052, NAME)),
    ({"name": "a\x00"}, (10052, NAME)),
    ({"name": "n" * 256}, (10052, "stream name is too long, maximum allowed is 255")),
    ({"name": "\u00e9" * 128}, (10052, "stream name is too long, maximum allowed is 255")),
    (
        {"description": "d" * 4097},
        (10052, "stream description is too long, maximum allowed is 4096"),
    ),
    (
        {"metadata": {"k": "v" * 131_072}},
        (10052, "stream metadata exceeds maximum size of 131072 bytes"),
    ),
    # Limits
    ({"num_replicas": 6}, (10052, "maximum replicas is 5")),
    ({"num_replicas": -1}, (10133, "replicas count cannot be negative")),
    ({"max_age": -1}, (10052, "max age can not be negative")),
    ({"max_age": 99 * MS}, (10052, "max age needs to be >= 100ms")),
    ({"duplicate_window": -1}, (10052, "duplicates window can not be negative")),
    (
        {"max_age": SECOND, "duplicate_window": 2 * SECOND},
        (10052, "duplicates window can not be larger then max age"),
    ),
    ({"duplicate_window": 99 * MS}, (10052, "duplicates window needs to be >= 100ms")),
    # Combinations
    (
        {"deny_purge": True, "allow_rollup_hdrs": True},
        (10052, "roll-ups require the purge permission"),
    ),
    (
        {"discard_new_per_subject": True},
        (10052, "discard new per subject requires discard new policy to be set"),
    ),
    (
        {"discard_new_per_subject": True, "discard": "new"},
        (10052, "discard new per subject requires max msgs per subject > 0"),
    ),
    (
        {"persist_mode": "async", "storage": "memory"},
        (10052, "async persist mode is only supported on file storage"),
    ),
    (
        {"persist_mode": "async", "num_replicas": 3},
        (10052, "async persist mode is not supported on replicated streams"),
    ),
    (
        {"persist_mode": "async", "allow_atomic": True},
        (10052, "async persist mode is not supported with atomic batch publish"),
    ),
    (
        {"allow_msg_counter": True, "discard": "new"},
        (10052, "counter stream cannot use discard new"),
    ),
    (
        {"allow_msg_counter": True, "allow_msg_ttl": True},
        (10052, "counter stream cannot use message TTLs"),
    ),
    (
        {"allow_msg_counter": True, "allow_msg_schedules": True},
        (10052, "counter stream cannot use message schedules"),
    ),
    (
        {"allow_msg_counter": True, "retention": "interest"},
        (10052, "counter stream can only use limits retention"),
    ),
    # Subjects
    ({"subjects": ["a..b"]}, (10052, "invalid subject")),
    ({"subjects": ["a b"]}, (10052, "invalid subject")),
    ({"subjects": [""]}, (10052, "invalid subject")),
    ({"subjects": ["a", "a"]}, (10052, 'subject "a" overlaps with "a"')),
    ({"subjects": ["x", "a.*", "b", "a.b"]}, (10052, 'subject "a.*" overlaps with "a.b"')),
    ({"subjects": [">"]}, (10052, "capturing all subjects requires no-ack to be true")),
    (
        {"subjects": [">"], "no_ack": True, "num_replicas": 3},
        (10052, "capturing all subjects requires replicas of 1"),
    ),
    ({"subjects": ["$JS.API.>"]}, (10052, API)),
    ({"subjects": ["*.x"]}, (10052, API)),
    ({"subjects": ["$NRG.x"]}, (10052, API)),
    (
        {"subjects": ["$SYS.>"]},
        (10052, "subjects that overlap with system api require no-ack to be true"),
    ),
    # Transforms
    (transform("a..b", "x"), (10155, "stream transform source: invalid subject a..b")),
    (
        transform("a.*", "b.{{wildcard(2)}}"),
        (10156, TRANSFORM + "wildcard index out of range in {{wildcard(2)}}: [2]"),
    ),
    (transform("a.*", "b.{{foo(1)}}"), (10156, TRANSFORM + "unknown function in {{foo(1)}}")),
    (transform("a.>", "b"), (10156, "stream transform: invalid subject")),
    (transform("a.*", "b..c"), (10156, TRANSFORM + "invalid transform")),
    (transform("a.*", "b.>.c"), (10156, TRANSFORM + "invalid transform in c")),
    (
        republish("S"),
        (10052, "stream configuration for republish destination forms a cycle"),
    ),
    (
        republish("x.*", "S"),
        (10052, "stream configuration for republish with transform from 'S' to 'x.*' not valid"),
    ),
    (
        transform("a.*", "b c.$1"),
        (10156, "stream transform: invalid mapping destination: invalid transform"),
    ),
    (
        republish("x y", "S"),
        (10052, "stream configuration for republish with transform from 'S' to 'x y' not valid"),
    ),
    (
        {"placement": {"preferred": "n1"}},
        (10052, "preferred server not permitted in placement"),
    ),
]


@pytest.mark.parametrize(("fields", "error"), REFUSED)
def test_refused(fields: dict[str, Any], error: tuple[int, str]) -> None:
    with pytest.raises(ApiError) as raised:
        complete(**fields)
    assert (raised.value.err_code, raised.value.description) == error


@pytest.mark.parametrize(
    "fields",
    [
        {"subjects": ["$JS.EVENT.ADVISORY.>", "$SYS.ACCOUNT.>"]},
        {"subjects": [">"], "no_ack": True},
        {"subjects": ["$JS.API.>"], "no_ack": True},
        {"subjects": ["a.*.c", "a.b.d", "a"]},
        {"placement": {"cluster": "C", "tags": ["x"]}},
        transform("", ""),
        republish("x.>"),
    ],
)
def test_allowed(fields: dict[str, Any]) -> None:
    complete(**fields)


def test_what_is_filled_in() -> None:
    config = complete()
    assert config.subjects == ["S"]
    assert config.num_replicas == 1
    assert config.duplicate_window == 120 * SECOND
    for field in ("max_msgs", "max_bytes", "max_msgs_per_subject", "max_consumers", "max_msg_size"):
        assert getattr(config, field) == -1
        assert getattr(complete(**{field: -7}), field) == -1
        assert getattr(complete(**{field: 7}), field) == 7
    assert complete(max_age=SECOND).duplicate_window == SECOND
    assert complete(placement={}).placement is None
    filled = complete(**republish("x.>")).republish
    assert filled is not None and filled.src == ">"
    implicit = complete(subjects=["a.>"], **transform("a.>", "b.>"), **republish(">", ">"))
    assert implicit.republish is not None
    assert (implicit.republish.src, implicit.republish.dest) == ("b.>", "b.>")


PEDANTIC = [
    ({"max_msgs": -2}, "max_msgs must be set to -1"),
    ({"max_bytes": -2}, "max_bytes must be set to -1"),
    ({"max_age": SECOND}, "duplicate window cannot be bigger than max age"),
    (republish("x.>"), "republish source can not be empty"),
]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "subject delete marker cannot be set if message TTLs are disabled"),
        ({"allow_msg_ttl": True}, "subject delete marker cannot be set if roll-ups are disabled"),
    ],
)
def test_markers_need_what_they_use(fields: dict[str, Any], text: str) -> None:
    markers = {"subject_delete_marker_ttl": SECOND, **fields}
    filled = complete(**markers)
    assert filled.allow_msg_ttl and filled.allow_rollup_hdrs
    with pytest.raises(ApiError) as raised:
        complete(pedantic=True, **markers)
    assert (raised.value.err_code, raised.value.description) == (10052, text)


def test_a_counter_has_no_markers() -> None:
    """nats-server accepts such a stream, and a marker then breaks its counter."""
    with pytest.raises(ApiError, match="counter stream cannot use message TTLs"):
        complete(allow_msg_counter=True, subject_delete_marker_ttl=SECOND)


@pytest.mark.parametrize(("fields", "text"), PEDANTIC)
def test_pedantic_fills_nothing_in(fields: dict[str, Any], text: str) -> None:
    complete(**fields)
    with pytest.raises(ApiError) as raised:
        complete(pedantic=True, **fields)
    assert raised.value.error_id is ErrorId.JSPedanticErrF
    assert raised.value.description == f"pedantic mode: {text}"


def test_the_servers_limit_on_windows() -> None:
    rules = ConfigRules(AccountLimits(), duplicate_window_ns_max=10 * SECOND)
    assert complete(rules).duplicate_window == 10 * SECOND
    with pytest.raises(ApiError, match="larger then server limit of 10s"):
        complete(rules, duplicate_window=11 * SECOND)
    with pytest.raises(ApiError, match="duplicate window limits are higher than current limits"):
        complete(rules, pedantic=True)


def test_the_accounts_limits_on_bytes() -> None:
    limits = AccountLimits(
        max_bytes_required=True, memory_max_stream_bytes=10, storage_max_stream_bytes=20
    )
    rules = ConfigRules(limits)
    assert complete(rules, max_bytes=20).max_bytes == 20
    for fields, error_id in (
        ({}, ErrorId.JSStreamMaxBytesRequired),
        ({"max_bytes": 21}, ErrorId.JSStreamMaxStreamBytesExceeded),
        ({"max_bytes": 20, "storage": "memory"}, ErrorId.JSStreamMaxStreamBytesExceeded),
    ):
        with pytest.raises(ApiError) as raised:
            complete(rules, **fields)
        assert raised.value.error_id is error_id


CHANGE = "stream configuration update can not"
CHANGES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"name": "T"}, "stream configuration name must match original"),
    ({}, {"storage": "memory"}, f"{CHANGE} change storage type"),
    (
        {},
        {"retention": "workqueue"},
        f"{CHANGE} change retention policy to/from workqueue",
    ),
    (
        {"retention": "workqueue"},
        {"retention": "interest"},
        f"{CHANGE} change retention policy to/from workqueue",
    ),
    (
        {"allow_msg_schedules": True},
        {"allow_msg_schedules": False},
        "message schedules can not be disabled",
    ),
    ({"sealed": True}, {"sealed": False}, f"{CHANGE} unseal a sealed stream"),
    ({"deny_delete": True}, {"deny_delete": False}, f"{CHANGE} cancel deny message deletes"),
    ({"deny_purge": True}, {"deny_purge": False}, f"{CHANGE} cancel deny purge"),
    ({"allow_msg_ttl": True}, {"allow_msg_ttl": False}, "message TTL status can not be disabled"),
    ({}, {"allow_msg_counter": True}, f"{CHANGE} change message counter setting"),
    ({}, {"persist_mode": "async"}, f"{CHANGE} change persist mode"),
]


@pytest.mark.parametrize(("before", "change", "text"), CHANGES)
def test_what_can_not_change(before: dict[str, Any], change: dict[str, Any], text: str) -> None:
    old = complete(**before)
    with pytest.raises(ApiError) as raised:
        check_change(old, complete(**(before | change)))
    assert (raised.value.err_code, raised.value.description) == (10052, text)


def test_of_several_changes_the_first_is_refused_in_the_order_of_nats_server() -> None:
    old = StreamConfig.model_validate(
        {"name": "S", "sealed": True, "deny_delete": True, "deny_purge": True}
        | {"allow_msg_ttl": True, "allow_msg_schedules": True}
    )
    new = StreamConfig.model_validate(
        {"name": "T", "storage": "memory", "retention": "workqueue", "mirror": {"name": "M"}}
        | {"allow_msg_counter": True, "persist_mode": "async"}
    )
    order = {
        "name": "stream configuration name must match original",
        "storage": f"{CHANGE} change storage type",
        "retention": f"{CHANGE} change retention policy to/from workqueue",
        "sealed": f"{CHANGE} unseal a sealed stream",
        "deny_delete": f"{CHANGE} cancel deny message deletes",
        "deny_purge": f"{CHANGE} cancel deny purge",
        "mirror": "stream mirror configuration can not be updated",
        "allow_msg_ttl": "message TTL status can not be disabled",
        "allow_msg_counter": f"{CHANGE} change message counter setting",
        "allow_msg_schedules": "message schedules can not be disabled",
        "persist_mode": f"{CHANGE} change persist mode",
    }
    for field, text in order.items():
        with pytest.raises(ApiError) as raised:
            check_change(old, new)
        assert raised.value.description == text
        new = new.model_copy(update={field: getattr(old, field)})
    assert check_change(old, new).sealed


def test_what_can_change() -> None:
    old = complete(retention="limits", subjects=["a"], max_msgs=5)
    new = complete(retention="interest", subjects=["b"], max_msgs=1, allow_direct=True, no_ack=True)
    assert check_change(old, new) == new


def test_sealing_closes_everything() -> None:
    sealed = check_change(complete(max_age=SECOND), complete(max_age=SECOND, sealed=True))
    assert (sealed.max_age, sealed.discard) == (0, "new")
    assert sealed.deny_delete and sealed.deny_purge and not sealed.allow_rollup_hdrs


def test_consumers_beyond_new_limits() -> None:
    old, new = complete(), complete(consumer_limits={"max_ack_pending": 10})
    consumers = {"A": ConsumerConfig(max_ack_pending=10), "B": ConsumerConfig(max_ack_pending=11)}
    check_consumers(old, old, consumers)
    with pytest.raises(ApiError) as raised:
        check_consumers(old, new, consumers)
    assert raised.value.error_id is ErrorId.JSStreamUpdateErrF
    assert raised.value.description == "change to limits violates consumers: B"


def test_metadata_of_the_server() -> None:
    """The required level is stored; the server's version and level are only shown (ADR-44)."""
    given = StreamConfig(name="S", metadata={"k": "v", "_nats.ver": "1", "_nats.level": "9"})
    stored = with_static_metadata(given)
    assert stored.metadata == {"k": "v", "_nats.req.level": "0"}
    info = StreamInfo(config=stored, created=1, state=StreamState())
    assert with_shown_metadata(info).config.metadata == {
        "k": "v",
        "_nats.req.level": "0",
        "_nats.ver": "2.14.5",
        "_nats.level": "4",
    }
    for fields, level in (
        ({"allow_msg_ttl": True}, "1"),
        ({"persist_mode": "async"}, "2"),
        ({"allow_batched": True}, "4"),
    ):
        config = StreamConfig.model_validate({"name": "S", **fields})
        assert with_static_metadata(config).metadata["_nats.req.level"] == level


PATTERNS = st.lists(st.sampled_from(["a", "b", "a.b", "a.*", "*.b", "a.>", "*"]), max_size=5)


@given(PATTERNS)
def test_overlaps_are_found_wherever_they_stand(subjects: list[str]) -> None:
    """The first overlapping pair is the same as by comparing all pairs in order."""
    pairs = itertools.combinations(subjects, 2)
    first = next((pair for pair in pairs if collide(*pair)), None)
    if first is None:
        complete(subjects=subjects, no_ack=True)
        return
    with pytest.raises(ApiError) as raised:
        complete(subjects=subjects, no_ack=True)
    assert raised.value.description == f'subject "{first[0]}" overlaps with "{first[1]}"'


TOKENS = st.sampled_from(["a", "b", "*", ">", "", " ", "$JS", "$1", "{{wildcard(1)}}"])
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=3).map(".".join)


@given(st.lists(SUBJECTS, max_size=4), SUBJECTS, SUBJECTS, st.booleans())
def test_any_subjects_are_taken_or_refused(
    subjects: list[str], src: str, dest: str, pedantic: bool
) -> None:
    """Accepted subjects are accepted again unchanged."""
    with contextlib.suppress(ApiError):
        config = complete(
            pedantic=pedantic, subjects=subjects, **transform(src, dest), **republish(dest, src)
        )
        assert at_once(check_config(config, FREE)) == config


ORDER: tuple[tuple[str, dict[str, Any]], ...] = (
    ("maximum replicas is 5", {"num_replicas": 9}),
    ("max age can not be negative", {"max_age": -1}),
    ("duplicates window can not be negative", {"duplicate_window": -1}),
    (
        "roll-ups require the purge permission",
        {"deny_purge": True, "allow_rollup_hdrs": True},
    ),
    (
        "counter stream can only use limits retention",
        {"allow_msg_counter": True, "retention": "interest"},
    ),
    (
        "discard new per subject requires discard new policy to be set",
        {"discard_new_per_subject": True},
    ),
    ("subject delete marker TTL must not be negative", {"subject_delete_marker_ttl": -1}),
    (
        "async persist mode is only supported on file storage",
        {"persist_mode": "async", "storage": "memory"},
    ),
    ("sourced stream name is invalid", {"sources": [{"name": "a.b"}]}),
    ("invalid subject", {"subjects": ["a..b"]}),
    (
        "stream transform source: invalid subject a..b",
        {"subject_transform": {"src": "a..b", "dest": "x"}},
    ),
    ("preferred server not permitted in placement", {"placement": {"preferred": "x"}}),
)


@pytest.mark.parametrize(("first", "second"), [*itertools.combinations(ORDER, 2)])
def test_of_two_faults_the_first_in_order_is_told(
    first: tuple[str, dict[str, Any]], second: tuple[str, dict[str, Any]]
) -> None:
    """Of any two errors the first in nats-server's order is answered."""
    with pytest.raises(ApiError) as refused:
        complete(**first[1], **second[1])
    assert refused.value.description == first[0]
