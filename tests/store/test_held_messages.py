"""ConsumerTracker with held and terminated messages, against plain sets.

A held message is delivered out of order; a terminated one is never delivered again.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.store.consumer.consumer_state import AckPolicyCode, ConsumerState, Pending, SequencePair
from natsd.store.consumer.reconcile import cut_back
from natsd.store.consumer.tracking import ConsumerTracker, scan_log
from natsd.store.errors import DamagedEncoding, InvalidConsumerState

SEED = 42


def deliver(tracker: ConsumerTracker, *streams: int) -> None:
    for stream in streams:
        tracker.update_delivered(tracker.delivered_consumer + 1, stream, 1, 1000 + stream)


def ack(tracker: ConsumerTracker, stream: int) -> None:
    pending = tracker.pending(stream)
    assert pending is not None
    tracker.update_acks(pending.sequence, stream)


def floor(tracker: ConsumerTracker) -> tuple[int, int]:
    tracker.settle_floor()
    return tracker.floor_consumer, tracker.floor_stream


def test_the_floor_waits_for_what_is_held() -> None:
    tracker = ConsumerTracker(AckPolicyCode.EXPLICIT)
    deliver(tracker, 1)
    tracker.hold(2, 3)
    deliver(tracker, 4)
    ack(tracker, 1)
    ack(tracker, 4)
    assert floor(tracker) == (2, 1)
    deliver(tracker, 2)
    assert floor(tracker) == (2, 1)
    ack(tracker, 2)
    assert floor(tracker) == (3, 2)
    tracker.let_go(3, 3)
    assert floor(tracker) == (3, 4)


def test_what_is_delivered_late_is_found_among_the_pending() -> None:
    tracker = ConsumerTracker(AckPolicyCode.EXPLICIT)
    tracker.hold(1, 9)
    deliver(tracker, 10, 11, 5, 3, 9, 1)
    assert sorted(tracker.state().pending) == [1, 3, 5, 9, 10, 11]
    assert tracker.state().held == ((2, 2), (4, 4), (6, 8))
    ack(tracker, 5)
    deliver(tracker, 4, 6)
    assert sorted(tracker.state().pending) == [1, 3, 4, 6, 9, 10, 11]
    assert tracker.pending(4) == Pending(7, 1004)


def test_what_is_terminated_stays_pending_until_it_is_acknowledged() -> None:
    tracker = ConsumerTracker(AckPolicyCode.EXPLICIT)
    deliver(tracker, 1, 2)
    tracker.terminate(1)
    tracker.terminate(7)  # the message is not pending
    assert tracker.terminated == {1}
    assert tracker.pending_count == 2
    ack(tracker, 1)
    assert not tracker.terminated


def test_a_purge_lets_go_of_what_is_held() -> None:
    tracker = ConsumerTracker(AckPolicyCode.EXPLICIT)
    tracker.hold(1, 4)
    deliver(tracker, 5)
    tracker.update_starting(3)
    assert tracker.state().held == ((4, 4),)
    tracker.update_starting(8)
    assert tracker.state().held == ()
    assert floor(tracker) == (0, 4)
    ack(tracker, 5)
    assert floor(tracker) == (1, 8)


def test_nobody_who_delivers_in_order_writes_another_version() -> None:
    tracker = ConsumerTracker(AckPolicyCode.EXPLICIT)
    deliver(tracker, 1, 2, 3)
    ack(tracker, 2)
    assert tracker.encode()[0] == 1
    tracker.terminate(1)
    assert tracker.encode()[0] == 2
    ack(tracker, 1)
    assert tracker.encode()[0] == 1


def test_a_checkpoint_that_contradicts_itself_is_refused() -> None:
    tracker = ConsumerTracker(AckPolicyCode.EXPLICIT)
    tracker.hold(1, 2)
    deliver(tracker, 3)
    tracker.terminate(3)
    encoded = tracker.encode()  # ends in the number of runs, of terminated ones, and 1, 2, 3
    for at, value in ((-8, 2), (-24, 0), (-16, 9), (-40, 2), (-32, 0), (-32, 1 << 63)):
        end = at + 8 or len(encoded)
        damaged = encoded[:at] + value.to_bytes(8, "little") + encoded[end:]
        with pytest.raises(DamagedEncoding):
            ConsumerTracker(AckPolicyCode.EXPLICIT).decode(damaged)
    for damaged in (encoded[:-1], encoded[:-8], encoded[:-40], encoded + bytes(8)):
        with pytest.raises(DamagedEncoding):
            ConsumerTracker(AckPolicyCode.EXPLICIT).decode(damaged)


def test_a_state_that_contradicts_itself_is_refused() -> None:
    pair = SequencePair
    for state in (
        ConsumerState(pair(5, 5), pair(2, 2), held=((2, 3),)),
        ConsumerState(pair(5, 5), pair(2, 2), held=((5, 6),)),
        ConsumerState(pair(5, 5), pair(2, 2), held=((4, 3),)),
        ConsumerState(pair(5, 5), pair(2, 2), held=((4, 4), (3, 3))),
        ConsumerState(pair(5, 5), pair(2, 2), terminated=frozenset([3])),
    ):
        with pytest.raises(InvalidConsumerState):
            state.validate()


def test_what_is_held_is_cut_back_with_its_stream() -> None:
    tracker = ConsumerTracker(AckPolicyCode.EXPLICIT)
    deliver(tracker, 1)
    tracker.hold(2, 4)
    tracker.hold(6, 8)
    deliver(tracker, 9)
    tracker.terminate(1)
    tracker.terminate(9)
    found = cut_back(tracker.state(), 6, lambda sequence: True).state
    assert found == ConsumerState(
        SequencePair(1, 6),
        SequencePair(0, 0),
        {1: Pending(1, 1001)},
        held=((2, 4), (6, 6)),
        terminated=frozenset([1]),
    )
    found = cut_back(tracker.state(), 9, lambda sequence: sequence != 1).state
    assert found.ack_floor == SequencePair(1, 1)
    assert found.terminated == {9}


@dataclass
class Model:
    """A consumer's state on sets, in which every message is remembered."""

    read: int = 0
    held: set[int] = field(default_factory=set)
    deliveries: int = 0
    pending: dict[int, Pending] = field(default_factory=dict)
    redelivered: dict[int, int] = field(default_factory=dict)
    terminated: set[int] = field(default_factory=set)

    def floor(self) -> tuple[int, int]:
        consumer = min((p.sequence for p in self.pending.values()), default=self.deliveries + 1)
        return consumer - 1, min([*self.pending, *self.held, self.read + 1]) - 1


def some(sequences: set[int] | dict[int, Pending], which: int) -> int:
    return sorted(sequences)[which % len(sequences)]


def step(what: str, which: int, tracker: ConsumerTracker, model: Model) -> None:
    """Apply one random change to the tracker and to the model."""
    if what == "n" or (what == "l" and model.held):
        sequence = model.read + 1 if what == "n" else some(model.held, which)
        deliver(tracker, sequence)
        model.read = max(model.read, sequence)
        model.held.discard(sequence)
        model.deliveries += 1
        model.pending[sequence] = Pending(model.deliveries, 1000 + sequence)
    elif what == "h":
        tracker.hold(model.read + 1, model.read + 1 + which % 3)
        model.held |= set(range(model.read + 1, model.read + 2 + which % 3))
        model.read += 1 + which % 3
    elif what == "a" and model.pending:
        sequence = some(model.pending, which)
        ack(tracker, sequence)
        del model.pending[sequence]
        model.redelivered.pop(sequence, None)
        model.terminated.discard(sequence)
    elif what == "t" and model.pending:
        sequence = some(model.pending, which)
        tracker.terminate(sequence)
        model.terminated.add(sequence)
    elif what == "r" and model.pending:
        sequence = some(model.pending, which)
        model.deliveries += 1
        count = model.redelivered.get(sequence, 0) + 2
        tracker.update_delivered(model.deliveries, sequence, count, which)
        model.pending[sequence] = Pending(model.pending[sequence].sequence, which)
        model.redelivered[sequence] = count - 1
    elif what == "g" and model.held:
        sequence = some(model.held, which)
        tracker.let_go(sequence, sequence)
        model.held.discard(sequence)


def as_sets(tracker: ConsumerTracker) -> Model:
    """Return the tracker's state as a model."""
    held = set(tracker.held or ())
    state = tracker.state()
    return Model(
        state.delivered.stream,
        held,
        state.delivered.consumer,
        dict(state.pending),
        dict(state.redelivered),
        set(state.terminated),
    )


@given(
    st.lists(st.tuples(st.sampled_from("nnnhhlllaaaatrg"), st.integers(0, 60)), max_size=120),
    st.integers(0, 200),
)
@settings(max_examples=200)
def test_state_log_and_checkpoint_are_those_of_the_model(
    program: list[tuple[str, int]], cut: int
) -> None:
    tracker, model = ConsumerTracker(AckPolicyCode.EXPLICIT), Model()
    tracker.start_logging(0)
    for what, which in program:
        step(what, which, tracker, model)
        assert as_sets(tracker) == model
        assert floor(tracker) == model.floor()
    state = tracker.state()
    state.validate()
    decoded, replaced = (
        ConsumerTracker(AckPolicyCode.EXPLICIT),
        ConsumerTracker(AckPolicyCode.EXPLICIT),
    )
    decoded.decode(tracker.encode())
    replaced.replace(state)
    total = tracker.change_count
    batch = tracker.changes.seal(SEED, 64, total) if total else b""
    entries = scan_log(bytes(64) + batch, SEED, 0).entries
    replayed, prefix = (
        ConsumerTracker(AckPolicyCode.EXPLICIT),
        ConsumerTracker(AckPolicyCode.EXPLICIT),
    )
    replayed.replay(entries)
    for other in (decoded, replaced, replayed):
        assert as_sets(other) == model
        assert other.encode() == tracker.encode()
    # Any prefix of the changes gives a valid state, in which no message is skipped.
    prefix.replay(entries[: cut % (len(entries) // 32 + 1) * 32])
    prefix.state().validate()
