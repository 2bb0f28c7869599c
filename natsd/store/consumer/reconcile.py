"""Reconciliation of consumers' states with their stream's state: after recovery, and at an ack.

    stream     first ─────────────────────────────────────────── last
    consumer A        floor ── pending, pending ── delivered
    consumer B  floor ─────────────── pending ─────────── delivered
    acked by all:     ▓▓▓▓▓▓▓▓▓▓       ▓▓▓▓▓▓▓             below every floor, or above a floor and
                                                           delivered, but pending nowhere

Promise
- Interest retention: a message may be removed when each consumer whose filter matches it has acked
  it. Work queue retention: when the one consumer whose filter matches it has.
- A message that was not delivered to an interested consumer stays, whatever other consumers acked.
- A state may be ahead of its stream, if the stream's last appends were lost in a power cut, or
  behind, if its messages were removed: `cut_back` makes them fit, and never skips a message that
  will be stored: deliveries beyond the stream's last sequence are undone, since other messages will
  get these sequences.

These are pure functions over values. Source: nats-server's `checkInterestState` and
`checkStateForInterestStream`, which reconcile a stream with its consumers' states.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from natsd.store.consumer.consumer_state import ConsumerState, Pending, SequencePair


@dataclass(frozen=True, slots=True)
class Reconciled:
    """A consumer's state that fits its stream; `changes` has one line for each change made."""

    state: ConsumerState
    changes: tuple[str, ...]


def cut_back(
    state: ConsumerState, last_sequence: int, is_stored: Callable[[int], bool]
) -> Reconciled:
    """Return a recovered state that fits a stream that ends at `last_sequence`.

    Deliveries beyond the end are undone. Pending messages, and counts of redeliveries, of messages
    that are gone (`is_stored` returns False) are dropped; the ack floor then rises as if these had
    been acked.
    """
    changes = []
    delivered, floor = state.delivered, state.ack_floor
    pending = {s: p for s, p in state.pending.items() if s <= last_sequence}
    if delivered.stream > last_sequence:
        changes.append(
            f"delivered up to {delivered.stream}, but the stream ends at {last_sequence}: cut back"
        )
        delivered = _delivered_within(state, last_sequence)
        floor = SequencePair(
            min(floor.consumer, delivered.consumer), min(floor.stream, delivered.stream)
        )
    held = _held_within(state, last_sequence)
    gone = [sequence for sequence in pending if not is_stored(sequence)]
    if gone:
        changes.append(f"{len(gone)} pending messages are gone, the first is {min(gone)}")
        for sequence in gone:
            del pending[sequence]
        floor = _risen(floor, delivered, pending, held)
    redelivered = {
        sequence: count
        for sequence, count in state.redelivered.items()
        if sequence <= last_sequence and is_stored(sequence)
    }
    if len(redelivered) < len(state.redelivered):
        changes.append(f"{len(state.redelivered) - len(redelivered)} redeliveries are forgotten")
    terminated = state.terminated & pending.keys()
    fitting = ConsumerState(delivered, floor, pending, redelivered, held, terminated)
    fitting.validate()
    return Reconciled(fitting if changes else state, tuple(changes))


def _delivered_within(state: ConsumerState, last_sequence: int) -> SequencePair:
    """Return the last delivery when those beyond `last_sequence` are undone.

    The consumer sequence stays above those of all deliveries that are kept: it is at most the one
    before the first undone delivery, where that is known.
    """
    undone = [p.sequence for s, p in state.pending.items() if s > last_sequence]
    kept = [p.sequence for s, p in state.pending.items() if s <= last_sequence]
    consumer = min([state.delivered.consumer, *(sequence - 1 for sequence in undone)])
    return SequencePair(max([consumer, *kept]), last_sequence)


def _held_within(state: ConsumerState, last_sequence: int) -> tuple[tuple[int, int], ...] | None:
    """Return the runs of held messages (read, not delivered yet) up to `last_sequence`.

    None: all messages were delivered in order. Held messages that are gone stay in the runs, since
    there may be many of them.
    """
    if state.held is None:
        return None
    return tuple(
        (first, min(last, last_sequence)) for first, last in state.held if first <= last_sequence
    )


def _risen(
    floor: SequencePair,
    delivered: SequencePair,
    pending: Mapping[int, Pending],
    held: tuple[tuple[int, int], ...] | None,
) -> SequencePair:
    """Return the ack floor right below the lowest pending or held message, else at the end."""
    consumer = min((p.sequence - 1 for p in pending.values()), default=delivered.consumer)
    lowest = min([delivered.stream + 1, *pending, *(first for first, _ in held or ())])
    return SequencePair(max(floor.consumer, consumer), max(floor.stream, lowest - 1))
