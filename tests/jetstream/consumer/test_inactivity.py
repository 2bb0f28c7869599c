"""The deletion of unused consumers (`inactive_threshold`)."""

from dataclasses import dataclass

import pytest

from natsd.jetstream.consumer.inactivity import (
    Threshold,
    busy_until_ns,
    looks_again_at,
    with_threshold,
)
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.store.consumer.consumer_state import ConsumerState, Pending, SequencePair

SECOND = 1_000_000_000
MS = 1_000_000


@dataclass
class Use:
    num_waiting: int = 0
    last_request_ns: int = 0
    last_ack_ns: int = 0


@pytest.mark.parametrize("chance", [0, 1, 899, 900, 2**32 - 1])
def test_how_long_a_consumer_may_be_unused(chance: int) -> None:
    """Ephemeral: 5 s and a little. Pull: the configured time and a little. Durable: forever."""
    ephemeral = Threshold.of(ConsumerConfig(), chance)
    assert 5 * SECOND + 100 * MS <= ephemeral.span_ns < 6 * SECOND
    pull = Threshold.of(ConsumerConfig(inactive_threshold=SECOND), chance)
    assert SECOND + 100 * MS <= pull.span_ns < 2 * SECOND
    push = ConsumerConfig(inactive_threshold=SECOND, deliver_subject="d")
    assert Threshold.of(push, chance).span_ns == SECOND
    assert Threshold.of(ConsumerConfig(durable_name="C"), chance).span_ns == 0


def test_an_ephemeral_consumer_says_how_long_it_lives() -> None:
    assert with_threshold(ConsumerConfig()).inactive_threshold == 5 * SECOND
    assert with_threshold(ConsumerConfig(inactive_threshold=1)).inactive_threshold == 1
    assert with_threshold(ConsumerConfig(durable_name="C")).inactive_threshold == 0


def test_what_was_used_lately_stays_for_one_more_threshold() -> None:
    span = Threshold(10)
    for use in (Use(last_request_ns=95), Use(last_ack_ns=95)):
        assert looks_again_at(span, 0, use, 0, now_ns=100) == 105
    assert looks_again_at(span, 95, Use(), 0, now_ns=100) == 105
    assert looks_again_at(span, 90, Use(last_ack_ns=80), 0, now_ns=100) == 0


def test_a_request_that_waits_is_use() -> None:
    assert looks_again_at(Threshold(10), 0, Use(num_waiting=1), 0, now_ns=100) == 110


def test_who_may_still_be_at_work_is_waited_for() -> None:
    assert looks_again_at(Threshold(10), 0, Use(), 120, now_ns=100) == 130
    assert looks_again_at(Threshold(10), 0, Use(), 95, now_ns=100) == 105
    assert looks_again_at(Threshold(10), 0, Use(), 90, now_ns=100) == 0


def test_work_ends_with_the_last_ack_wait() -> None:
    state = ConsumerState(
        delivered=SequencePair(3, 3),
        pending={1: Pending(1, 100), 2: Pending(2, 110), 3: Pending(3, 120)},
        redelivered={1: 5, 2: 1},
    )
    waits = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=10)
    assert busy_until_ns(state, waits) == 130
    backoff = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, backoff=[1, 2, 50])
    assert busy_until_ns(state, backoff) == 150
    assert busy_until_ns(ConsumerState(), waits) == 0
