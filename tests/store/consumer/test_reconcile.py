"""Consumers and their stream after recovery, with interest and work queue retention.

The rules are those of nats-server's `checkInterestState`.
"""

from hypothesis import given
from hypothesis import strategies as st

from natsd.store.consumer.consumer_state import AckPolicy, ConsumerState, Pending, SequencePair
from natsd.store.consumer.reconcile import Interested, acked_by_all, acked_in_work_queue, cut_back
from natsd.store.consumer.tracking import ConsumerTracker
from natsd.store.sequence_set import SequenceSet


def consumer_of(delivered: list[int], acked: list[int]) -> ConsumerState:
    tracker = ConsumerTracker(AckPolicy.EXPLICIT)
    for consumer, stream in enumerate(delivered, 1):
        tracker.update_delivered(consumer, stream, 1, stream)
    for stream in acked:
        tracker.update_acks(delivered.index(stream) + 1, stream)
    return tracker.state()


def test_interest_takes_what_all_have_acked() -> None:
    fast = Interested(consumer_of([1, 2, 3, 4, 5], [1, 2, 4]))
    slow = Interested(consumer_of([1, 2, 3, 4], [1, 3, 4]))
    assert list(acked_by_all([fast, slow], 1, 6)) == [1, 4]
    assert list(acked_by_all([fast], 1, 6)) == [1, 2, 4]
    assert list(acked_by_all([], 1, 6)) == [1, 2, 3, 4, 5, 6]


def test_interest_asks_only_those_whose_filter_lets_it_through() -> None:
    odd = Interested(consumer_of([1, 3], [1]), SequenceSet([1, 3, 5]))
    assert list(acked_by_all([odd], 1, 6)) == [1, 2, 4, 6]


def test_a_work_queue_takes_what_its_one_consumer_has_acked() -> None:
    odd = Interested(consumer_of([1, 3], [3]), SequenceSet([1, 3, 5]))
    even = Interested(consumer_of([2, 4], [2]), SequenceSet([2, 4]))
    assert list(acked_in_work_queue([odd, even], 1, 6)) == [2, 3]
    assert list(acked_in_work_queue([], 1, 6)) == []


def test_what_was_delivered_too_often_stays() -> None:
    tracker = ConsumerTracker(AckPolicy.EXPLICIT, max_deliver=1)
    tracker.update_delivered(1, 1, 1, 0)
    tracker.update_delivered(2, 1, 2, 0)
    tracker.update_delivered(3, 2, 1, 0)
    tracker.update_acks(3, 2)
    assert list(acked_in_work_queue([Interested(tracker.state())], 1, 2)) == [2]


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


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(1, 20), max_size=8, unique=True).map(sorted),
            st.sets(st.integers(0, 7)),
            st.none() | st.sets(st.integers(1, 20)),
        ),
        max_size=3,
    ),
    st.integers(1, 20),
    st.integers(0, 20),
)
def test_retention_message_by_message(
    consumers: list[tuple[list[int], set[int], set[int] | None]], first: int, last: int
) -> None:
    interested, model = [], []
    for streams, acks, wanted in consumers:
        delivered = [s for s in streams if wanted is None or s in wanted]
        acked = [delivered[index] for index in sorted(acks) if index < len(delivered)]
        state = consumer_of(delivered, acked)
        interested.append(Interested(state, None if wanted is None else SequenceSet(wanted)))
        model.append((state, wanted))

    def is_acked(sequence: int, state: ConsumerState) -> bool:
        return sequence <= state.delivered.stream and sequence not in state.pending

    span = range(first, last + 1)
    by_all = [
        s for s in span if all((w is not None and s not in w) or is_acked(s, c) for c, w in model)
    ]
    by_one = [s for s in span if any((w is None or s in w) and is_acked(s, c) for c, w in model)]
    assert list(acked_by_all(interested, first, last)) == by_all
    assert list(acked_in_work_queue(interested, first, last)) == by_one
