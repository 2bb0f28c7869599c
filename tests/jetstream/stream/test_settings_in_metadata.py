"""natsd's own settings of streams, in their metadata, and those of consumers on read replicas."""

from __future__ import annotations

import pytest

from natsd.core.steps import at_once
from natsd.jetstream.consumer.changes import check_update as check_consumer_update
from natsd.jetstream.consumer.config import check_config
from natsd.jetstream.consumer.defaults import Ceilings
from natsd.jetstream.consumer.metadata import check_settings
from natsd.jetstream.errors import ApiError
from natsd.jetstream.models.account import AccountLimits
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.jetstream.models.stream import Retention, StreamConfig
from natsd.jetstream.stream.config import ConfigRules, check_create, check_update
from natsd.jetstream.stream.settings_in_metadata import (
    ACK,
    AckLevel,
    ReadReplicas,
    ack_level,
    copies,
    read_max_staleness_s,
    read_replicas,
)

ALONE = ConfigRules(AccountLimits())
CLUSTERED = ConfigRules(AccountLimits(), is_clustered=True)
NUMBER = "natsd.read_replicas"
TAGS = "natsd.read_replica_tags"
AGE = "natsd.read_max_staleness"


def created(
    metadata: dict[str, str], rules: ConfigRules = CLUSTERED, *, allow_direct: bool = True
) -> StreamConfig:
    """Return the configuration of a new stream; fail if it is refused."""
    config = StreamConfig(name="S", metadata=metadata, allow_direct=allow_direct, num_replicas=3)
    if not rules.is_clustered:
        config = config.model_copy(update={"num_replicas": 1})
    return at_once(check_create(config, rules))


@pytest.mark.parametrize(
    ("metadata", "found", "longest_s"),
    [
        ({}, ReadReplicas(0, ()), 0),
        ({"team": "a", "natsdx": "b"}, ReadReplicas(0, ()), 0),
        ({NUMBER: "16"}, ReadReplicas(16, ()), 0),
        ({NUMBER: "1", TAGS: "region:eu, !old"}, ReadReplicas(1, ("region:eu", "!old")), 0),
        ({NUMBER: "1", AGE: "1m30s"}, ReadReplicas(1, ()), 90),
        ({NUMBER: "1", AGE: "3s"}, ReadReplicas(1, ()), 3),
    ],
)
def test_what_they_mean(metadata: dict[str, str], found: ReadReplicas, longest_s: float) -> None:
    config = created(metadata)
    assert read_replicas(config) == found
    assert read_max_staleness_s(config) == longest_s
    assert copies(config) == 3 + found.number


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"natsd.read_replica": "1"}, "metadata has an unknown setting 'natsd.read_replica'"),
        *(
            ({NUMBER: text}, f"number of read replicas '{text}' is not one from 1 to 16")
            for text in ("", "0", "00", "-1", "17", "two", "1.0", "²", "0" * 5000)
        ),
        *(
            (
                {ACK: text},
                f"acknowledgement level '{text}' is not one of"
                " quorum-synced, quorum-written, leader",
            )
            for text in ("", "all", "Leader", "leader ")
        ),
        ({TAGS: "a"}, f"has settings of read replicas, and no '{NUMBER}'"),
        ({AGE: "5s"}, f"has settings of read replicas, and no '{NUMBER}'"),
        *(
            (
                {NUMBER: "1", TAGS: text},
                f"tags of read replicas '{text}' are not tags separated by commas",
            )
            for text in ("", "a,,b", "!", "a, ")
        ),
        *(
            (
                {NUMBER: "1", AGE: text},
                f"staleness of read replicas '{text}' is not a duration of 3s or more",
            )
            for text in ("", "2.9s", "-5s", "5", "soon")
        ),
    ],
)
def test_refused(metadata: dict[str, str], text: str) -> None:
    with pytest.raises(ApiError) as raised:
        created(metadata)
    assert (raised.value.err_code, raised.value.description) == (10052, f"stream {text}")


def test_publishes_are_acknowledged_when_a_majority_has_synced_them_by_default() -> None:
    assert ack_level(created({})) is AckLevel.QUORUM_SYNCED
    assert ack_level(created({ACK: "leader"})) is AckLevel.LEADER
    assert ack_level(created({ACK: "leader"}, ALONE)) is AckLevel.LEADER  # it may be scaled up


def test_read_replicas_need_direct_gets_and_a_cluster() -> None:
    with pytest.raises(ApiError, match="stream with read replicas must allow direct gets"):
        created({NUMBER: "1"}, allow_direct=False)
    with pytest.raises(ApiError, match="stream with read replicas needs a cluster"):
        created({NUMBER: "1"}, ALONE)
    before = created({}, ALONE)
    after = before.model_copy(update={"metadata": {NUMBER: "1"}})
    with pytest.raises(ApiError, match="stream with read replicas needs a cluster"):
        at_once(check_update(before, after, ALONE, dict))


FAR, MOVES = "natsd.read_replica", "natsd.read_replica_moves"
CEILINGS = Ceilings(max_ack_pending=0, max_request_batch=0, account_max_ack_pending=0)


@pytest.mark.parametrize(
    ("server", "retention", "num_replicas", "text"),
    [
        ("n4", Retention.LIMITS, 0, ""),
        ("any", Retention.LIMITS, 1, ""),
        ("", Retention.LIMITS, 0, "read replica '' is not the name of a server or 'any'"),
        ("n4", Retention.LIMITS, 3, "on a read replica has one replica, not 3"),
        *(
            ("n4", each, 0, "on a read replica needs a stream with limits retention")
            for each in (Retention.INTEREST, Retention.WORKQUEUE)
        ),
    ],
)
def test_consumers_on_read_replicas(
    server: str, retention: Retention, num_replicas: int, text: str
) -> None:
    stream = StreamConfig(name="S", num_replicas=3, retention=retention)
    config = ConsumerConfig(
        durable_name="c",
        ack_policy=AckPolicy.EXPLICIT,
        num_replicas=num_replicas,
        metadata={FAR: server},
    )
    if not text:
        at_once(check_config(config, stream, CEILINGS))
        return
    with pytest.raises(ApiError) as raised:
        at_once(check_config(config, stream, CEILINGS))
    assert (raised.value.err_code, raised.value.description) == (10094, f"consumer {text}")


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({FAR: "n4", MOVES: "true"}, ""),
        ({MOVES: "true"}, f"with '{MOVES}' needs '{FAR}'"),
        (
            {FAR: "n4", MOVES: "false"},
            f"on a read replica moves if '{MOVES}' is 'true', not 'false'",
        ),
    ],
)
def test_consumers_on_read_replicas_that_may_move(metadata: dict[str, str], text: str) -> None:
    config = ConsumerConfig(durable_name="c", metadata=metadata)
    if not text:
        check_settings(config)
        return
    with pytest.raises(ApiError) as raised:
        check_settings(config)
    assert (raised.value.err_code, raised.value.description) == (10094, f"consumer {text}")


def test_a_consumer_stays_where_it_is() -> None:
    one, other, ordinary = (ConsumerConfig(metadata=each) for each in ({FAR: "a"}, {FAR: "b"}, {}))
    for before, after in ((one, other), (one, ordinary), (ordinary, one)):
        with pytest.raises(ApiError, match="read replica can not be updated"):
            check_consumer_update(before, after, is_bound=False)
    check_consumer_update(one, one.model_copy(update={"max_ack_pending": 7}), is_bound=False)


def test_a_stream_with_such_consumers_keeps_messages_until_its_limits() -> None:
    before = created({NUMBER: "1"})
    after = before.model_copy(update={"retention": Retention.INTEREST})
    consumers = {"c": ConsumerConfig(metadata={FAR: "n4"}), "d": ConsumerConfig()}
    text = "retention must stay limits for consumers on read replicas: c"
    with pytest.raises(ApiError, match=text):
        at_once(check_update(before, after, CLUSTERED, lambda: consumers))
    del consumers["c"]
    at_once(check_update(before, after, CLUSTERED, lambda: consumers))
