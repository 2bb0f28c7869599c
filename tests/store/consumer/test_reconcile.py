"""Consumers and their stream after recovery, with interest and work queue retention.

The rules are those of nats-server's `checkInterestState`.
"""

from hypothesis import given
from hypothesis import strategies as st

from natsd.store.consumer.consumer_state import AckPolicyCode, ConsumerState, Pending, SequencePair
from natsd.store.consumer.reconcile import cut_back
from natsd.store.consumer.tracking import ConsumerTracker


def consumer_of(delivered: list[int], acked: list[int]) -> ConsumerState:
    tracker = ConsumerTracker(AckPolicyCode.EXPLICIT)
    for consumer, stream in enumerate(delivered, 1):
        tracker.update_delivered(consumer, stream, 1, stream)
    for stream in acked:
        tracker.update_acks(delivered.index(stream) + 1, stream)
    return tracker.state()


def test_a_consumer_ahead_of_its_stream_is_cut_back() -> None:
    """A state beyond the stream's last message is cut back: other messages get these sequences."""
    state = consumer_of([1, 2, 3, 8, 9], [1, 2, 8])
    reconciled = cut_back(state, 5, lambda sequence: True)
    assert reconciled.state == ConsumerState(
        SequencePair(4, 5), SequencePair(2, 2), {3: Pending(3, 3)}, {}
    )
    assert reconciled.changes == ("delivered up to 9, but the stream ends at 5: cut back",)
    all_acked = consumer_of([1, 2, 8], [1, 2, 8])
    assert cut_back(all_acked, 5, lambda sequence: True).state == ConsumerState(
        SequencePair(3, 5), SequencePair(3, 5)
    )


def test_pending_messages_that_are_gone_are_dropped() -> None:
    state = consumer_of([1, 2, 3, 4], [2])
    reconciled = cut_back(state, 4, lambda sequence: sequence > 2)
    assert reconciled.state == ConsumerState(
        SequencePair(4, 4), SequencePair(2, 2), {3: Pending(3, 3), 4: Pending(4, 4)}, {}
    )
    assert reconciled.changes == ("1 pending messages are gone, the first is 1",)
    assert cut_back(state, 4, lambda sequence: False).state == ConsumerState(
        SequencePair(4, 4), SequencePair(4, 4)
    )


def test_a_state_that_fits_is_left_alone() -> None:
    state = consumer_of([1, 2, 3], [1])
    assert cut_back(state, 3, lambda sequence: True).state is state


@given(
    delivered=st.lists(st.integers(1, 30), max_size=12, unique=True).map(sorted),
    acks=st.sets(st.integers(0, 11)),
    last=st.integers(0, 32),
    stored=st.sets(st.integers(1, 32)),
)
def test_cut_back_skips_nothing_that_is_or_will_be_stored(
    delivered: list[int], acks: set[int], last: int, stored: set[int]
) -> None:
    acked = [delivered[index] for index in sorted(acks) if index < len(delivered)]
    state = consumer_of(delivered, acked)
    found = cut_back(state, last, stored.__contains__).state
    found.validate()
    assert found.delivered.stream <= last
    assert found.delivered.consumer <= state.delivered.consumer
    unacked = {s for s in delivered if s <= last and s not in acked and s in stored}
    assert set(found.pending) == unacked
    assert cut_back(found, last, stored.__contains__).changes == ()
