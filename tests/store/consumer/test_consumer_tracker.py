"""ConsumerTracker against a model with the rules of nats-server's `consumerFileStore`."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.store.consumer.consumer_state import AckPolicyCode, ConsumerState, Pending, SequencePair
from natsd.store.consumer.tracking import ConsumerTracker, scan_log
from natsd.store.errors import (
    DamagedEncoding,
    InvalidConsumerState,
    MessageNotFound,
    NoAckPolicy,
    OldUpdate,
    StoreError,
)

SEED = 42
ENTRY_BYTES = 32


def deliver(tracker: ConsumerTracker, *streams: int) -> None:
    for stream in streams:
        tracker.update_delivered(tracker.delivered_consumer + 1, stream, 1, 1000 + stream)


def floor(tracker: ConsumerTracker) -> tuple[int, int]:
    return tracker.floor_consumer, tracker.floor_stream


def test_the_floor_rises_when_the_lowest_is_acked() -> None:
    tracker = ConsumerTracker(AckPolicyCode.EXPLICIT)
    deliver(tracker, 10, 20, 30, 40)
    tracker.update_acks(2, 20)
    assert floor(tracker) == (0, 0)
    tracker.update_acks(1, 10)
    assert floor(tracker) == (2, 29)  # the floor ends below the next pending message
    tracker.update_acks(4, 40)
    tracker.update_acks(3, 30)
    assert floor(tracker) == (4, 40)  # nothing is pending, so all that was delivered is acked
    assert tracker.state().pending == {}


def test_an_ack_for_all_takes_what_is_below() -> None:
    for policy in (AckPolicyCode.ALL, AckPolicyCode.FLOW_CONTROL):
        tracker = ConsumerTracker(policy)
        deliver(tracker, 1, 2, 5, 9)
        tracker.update_delivered(5, 2, 2, 77)
        tracker.update_acks(3, 5)
        assert floor(tracker) == (3, 5)
        assert tracker.state().pending == {9: Pending(4, 1009)}
        assert tracker.redelivered == {}


def test_without_acks_the_floor_follows_what_is_delivered() -> None:
    tracker = ConsumerTracker(AckPolicyCode.NONE)
    deliver(tracker, 1, 2, 7)
    assert floor(tracker) == (3, 7)
    tracker.update_starting(11)
    assert floor(tracker) == (3, 11)
    with pytest.raises(NoAckPolicy):
        tracker.update_acks(3, 7)
    with pytest.raises(NoAckPolicy):
        tracker.update_delivered(4, 7, 2, 0)


def test_a_redelivery_keeps_its_first_consumer_sequence() -> None:
    tracker = ConsumerTracker(AckPolicyCode.EXPLICIT)
    deliver(tracker, 1, 2)
    tracker.update_delivered(3, 1, 2, 5000)
    assert tracker.pending(1) == Pending(1, 5000)
    assert tracker.redelivered == {1: 1}
    tracker.update_acks(3, 1)  # an ack of the second delivery
    assert floor(tracker) == (1, 1)
    assert tracker.redelivered == {}


def test_what_was_delivered_too_often_is_pending_no_more() -> None:
    tracker = ConsumerTracker(AckPolicyCode.EXPLICIT, max_deliver=2)
    deliver(tracker, 1, 2)
    tracker.update_delivered(3, 1, 2, 0)
    tracker.update_delivered(4, 1, 3, 0)
    assert tracker.pending(1) is None
    assert tracker.redelivered == {1: 2}
    assert floor(tracker) == (1, 1)


def test_old_news_is_ignored() -> None:
    """Changes that the state includes already are ignored when a log is replayed."""
    tracker = ConsumerTracker(AckPolicyCode.EXPLICIT)
    deliver(tracker, 1, 2)
    tracker.update_acks(1, 1)
    before = tracker.state()
    tracker.update_delivered(1, 1, 1, 0)
    tracker.update_acks(1, 1)
    assert tracker.state() == before
    with pytest.raises(MessageNotFound):
        tracker.update_acks(3, 3)


def test_redeliveries_of_what_is_gone_are_forgotten() -> None:
    tracker = ConsumerTracker(AckPolicyCode.EXPLICIT)
    deliver(tracker, 1, 2, 3)
    for consumer, stream in ((4, 1), (5, 2), (6, 3)):
        tracker.update_delivered(consumer, stream, 2, 0)
    tracker.remove_redelivered_below(3)
    assert tracker.redelivered == {3: 1}


def test_a_state_that_contradicts_itself_is_refused() -> None:
    pair = SequencePair
    for state in (
        ConsumerState(pair(1, 5), pair(2, 5)),
        ConsumerState(pair(5, 5), pair(2, 6)),
        ConsumerState(pair(5, 5), pair(2, 2), {2: Pending(3, 0)}),
        ConsumerState(pair(5, 5), pair(2, 2), {6: Pending(3, 0)}),
        ConsumerState(pair(5, 5), pair(2, 2), {4: Pending(0, 0)}),
    ):
        with pytest.raises(InvalidConsumerState):
            state.validate()


def test_a_state_that_is_behind_is_told() -> None:
    tracker = ConsumerTracker(AckPolicyCode.EXPLICIT)
    deliver(tracker, 1, 2)
    tracker.check_newer(tracker.state())
    with pytest.raises(OldUpdate):
        tracker.check_newer(ConsumerState(SequencePair(1, 1)))


def test_changes_are_told_once_until_they_are_taken() -> None:
    told: list[int] = []
    tracker = ConsumerTracker(AckPolicyCode.EXPLICIT, on_change=lambda: told.append(1))
    tracker.start_logging(0)
    deliver(tracker, 1, 2, 3)
    assert len(told) == 1
    tracker.changes.seal(SEED, 64, 3)
    deliver(tracker, 4, 5)
    assert len(told) == 2
    assert tracker.change_count == 5


@dataclass
class Model:
    """The rules of nats-server's `consumerFileStore` on dictionaries, slow and plain.

    nats-server moves the floor past messages that were delivered too often in memory only; here the
    stored state does the same.
    """

    policy: AckPolicyCode
    max_deliver: int
    delivered: list[int] = field(default_factory=lambda: [0, 0])
    floor: list[int] = field(default_factory=lambda: [0, 0])
    pending: dict[int, tuple[int, int]] = field(default_factory=dict)
    redelivered: dict[int, int] = field(default_factory=dict)

    def update_delivered(self, consumer: int, stream: int, count: int, time_ns: int) -> str:
        if count != 1 and self.policy is AckPolicyCode.NONE:
            return "NoAckPolicy"
        if consumer <= self.floor[0]:
            return ""
        if self.policy is not AckPolicyCode.NONE:
            if stream > self.delivered[1]:
                self.pending[stream] = (consumer, time_ns)
            elif stream in self.pending:
                self.pending[stream] = (self.pending[stream][0], time_ns)
        self.delivered = [max(consumer, self.delivered[0]), max(stream, self.delivered[1])]
        if self.policy is AckPolicyCode.NONE:
            self.floor = list(self.delivered)
        elif count > 1:
            if 0 < self.max_deliver < count and stream in self.pending:
                self.acknowledge_one(stream)
            self.redelivered[stream] = max(count - 1, self.redelivered.get(stream, 0))
        return ""

    def update_acks(self, consumer: int, stream: int) -> str:
        if self.policy is AckPolicyCode.NONE:
            return "NoAckPolicy"
        self.redelivered.pop(stream, None)
        if consumer <= self.floor[0]:
            return ""
        if stream not in self.pending:
            return "MessageNotFound"
        if self.policy is AckPolicyCode.EXPLICIT:
            self.acknowledge_one(stream)
        else:
            for below in [s for s in self.pending if s <= stream]:
                del self.pending[below]
                self.redelivered.pop(below, None)
            self.floor = [min(consumer, self.delivered[0]), stream]
        return ""

    def acknowledge_one(self, stream: int) -> None:
        consumer, _ = self.pending.pop(stream)
        if not self.pending:
            self.floor = list(self.delivered)
        elif consumer == self.floor[0] + 1:
            self.floor = [consumer, stream]
            lowest = min(self.pending)
            if self.delivered[0] > consumer:
                self.floor = [self.pending[lowest][0] - 1, lowest - 1]

    def update_starting(self, stream: int) -> str:
        if stream > self.delivered[1]:
            self.delivered[1] = stream
            if self.policy is AckPolicyCode.NONE or not (self.pending or self.redelivered):
                self.floor = [self.delivered[0], stream]
        return ""

    def remove_redelivered_below(self, stream: int) -> str:
        self.redelivered = {s: c for s, c in self.redelivered.items() if s >= stream}
        return ""

    def state(self) -> ConsumerState:
        return ConsumerState(
            SequencePair(*self.delivered),
            SequencePair(*self.floor),
            {stream: Pending(*pending) for stream, pending in self.pending.items()},
            dict(self.redelivered),
        )


def outcome(call: Callable[[], object]) -> str:
    """Return the name of the StoreError that the call raises, or an empty string."""
    try:
        call()
    except StoreError as error:
        return type(error).__name__
    return ""


# Random changes: (kind, distance ahead or number of a pending message, count or time).
steps = st.lists(
    st.tuples(st.sampled_from("nnnnaaaaarrsfx"), st.integers(0, 8), st.integers(0, 200)),
    max_size=120,
)


def run(steps: list[tuple[str, int, int]], tracker: ConsumerTracker, model: Model) -> None:
    for what, near, far in steps:
        pending = sorted(model.pending)
        some = pending[far % len(pending)] if pending else far
        following = model.delivered[0] + 1
        counts = model.redelivered.get(some, 0) + 2
        calls: dict[str, tuple[str, tuple[int, ...]]] = {
            "n": ("update_delivered", (following, model.delivered[1] + 1 + near, 1, far)),
            "a": ("update_acks", (model.pending.get(some, (following, 0))[0], some)),
            "r": ("update_delivered", (following, some, counts, far)),
            "s": ("update_starting", (model.delivered[1] + near,)),
            "f": ("remove_redelivered_below", (far,)),
            "x": ("update_acks", (near, far)),
        }
        name, arguments = calls[what]
        if name == "update_acks" and model.policy is AckPolicyCode.ALL and what == "x":
            continue  # AckPolicyCode.ALL needs the message's own consumer sequence
        got = outcome(lambda n=name, a=arguments: getattr(tracker, n)(*a))
        assert got == getattr(model, name)(*arguments)


def counting_pending(state: ConsumerState) -> ConsumerState:
    """Return a state without the delivery counts of messages that are not pending."""
    counts = {each: count for each, count in state.redelivered.items() if each in state.pending}
    return replace(state, redelivered=counts)


@given(steps, st.sampled_from(list(AckPolicyCode)[:3]), st.integers(0, 3), st.integers(0, 9))
@settings(max_examples=200)
def test_state_log_and_checkpoint_are_those_of_the_model(
    steps: list[tuple[str, int, int]], policy: AckPolicyCode, max_deliver: int, again: int
) -> None:
    tracker, model = ConsumerTracker(policy, max_deliver), Model(policy, max_deliver)
    tracker.start_logging(0)
    run(steps, tracker, model)
    assert tracker.state() == model.state()
    assert tracker.pending_count == len(model.pending)
    tracker.state().validate()
    # The log and the checkpoint give the same state.
    total = tracker.change_count
    batch = tracker.changes.seal(SEED, 64, total) if total else b""
    entries = bytes(scan_log(bytes(64) + batch, SEED, 0).entries)
    replayed = ConsumerTracker(policy, 0)
    replayed.replay(entries)
    assert replayed.state() == model.state()
    # So does another replica, which may get the last entries again.
    replica = ConsumerTracker(policy, 0)
    replica.start_logging(0)
    replica.apply(entries)
    assert replica.state() == model.state()
    assert replica.change_count == total
    replica.apply(entries[len(entries) * again // 10 // ENTRY_BYTES * ENTRY_BYTES :])
    assert counting_pending(replica.state()) == counting_pending(model.state())
    decoded = ConsumerTracker(policy, max_deliver)
    decoded.decode(tracker.encode())
    assert decoded.state() == model.state()
    replaced = ConsumerTracker(policy, max_deliver)
    replaced.replace(model.state())
    assert replaced.encode() == tracker.encode()


def test_thousands_in_any_order() -> None:
    """5000 pending messages with gaps are acked in any order, and the table is compacted."""
    tracker, model = ConsumerTracker(AckPolicyCode.EXPLICIT), Model(AckPolicyCode.EXPLICIT, 0)
    for number in range(1, 5001):
        for target in (tracker, model):
            target.update_delivered(number, number * 3, 1, number)
    order = [(number * 1237) % 5000 + 1 for number in range(5000)]
    for number in order:
        for target in (tracker, model):
            target.update_acks(number, number * 3)
        if number % 500 == 0:
            assert tracker.state() == model.state()
    assert tracker.state() == model.state()
    assert tracker.pending_count == 0


def test_a_checkpoint_that_is_not_one_is_refused() -> None:
    tracker = ConsumerTracker(AckPolicyCode.EXPLICIT)
    deliver(tracker, 5, 6, 7)
    encoded = tracker.encode()
    for damaged in (b"", encoded[:-1], encoded + b"\0", bytes(64)):
        with pytest.raises(DamagedEncoding):
            ConsumerTracker(AckPolicyCode.EXPLICIT).decode(damaged)
    for at in (64, 24, 48, 56, 72):  # pending and delivered stream, counts, pending consumer
        damaged = encoded[:at] + bytes(8) + encoded[at + 8 :]
        if damaged != encoded:
            with pytest.raises(DamagedEncoding):
                ConsumerTracker(AckPolicyCode.EXPLICIT).decode(damaged)
