"""Entries of a consumer's tracker as commands, and back.

The tracker notes every change that takes effect as one entry (store/consumer/consumer_tracker.pyx);
applying the commands of the entries to an equal tracker makes the same change.
"""

import contextlib
from collections.abc import Callable
from functools import singledispatch
from typing import Final, TypeAlias

from natsd.jetstream.commands.commands import (
    Acknowledge,
    Deliver,
    ForgetDeliveries,
    Hold,
    LetGo,
    PassOver,
    Terminate,
)
from natsd.store.consumer.tracking import ENTRY_KINDS, ConsumerTracker
from natsd.store.errors import MessageNotFound

TrackerCommand: TypeAlias = (
    Deliver | Acknowledge | PassOver | ForgetDeliveries | Hold | LetGo | Terminate
)

_Make: TypeAlias = Callable[[str, int, int, int, int], TrackerCommand]

_MAKE: Final[dict[str, _Make]] = {
    "DELIVERED": lambda name, count, a, b, c: Deliver(name, a, b, count, c),
    "ACKED": lambda name, _count, a, b, _c: Acknowledge(name, a, b),
    "SKIPPED": lambda name, _count, a, _b, _c: PassOver(name, a),
    "FORGOTTEN": lambda name, _count, a, _b, _c: ForgetDeliveries(name, a),
    "HELD": lambda name, _count, a, b, _c: Hold(name, a, b),
    "LET_GO": lambda name, _count, a, b, _c: LetGo(name, a, b),
    "TERMINATED": lambda name, _count, a, _b, _c: Terminate(name, a),
}
_BY_KIND: Final[dict[int, _Make]] = {ENTRY_KINDS[name]: make for name, make in _MAKE.items()}


class EntryCommands:
    """The listener of one consumer's tracker: it proposes each entry."""

    def __init__(self, name: str, propose: Callable[[TrackerCommand], None]) -> None:
        self._name = name
        self._propose = propose

    def note(self, kind: int, count: int, a: int, b: int, c: int) -> None:
        """Propose the entry; its numbers mean what the consumer's log says."""
        self._propose(_BY_KIND[kind](self._name, count, a, b, c))


@singledispatch
def apply_to_tracker(command: TrackerCommand, tracker: ConsumerTracker) -> None:
    """Make the change of a command in the tracker of its consumer."""
    raise AssertionError(command)


@apply_to_tracker.register
def _(command: Deliver, tracker: ConsumerTracker) -> None:
    tracker.update_delivered(
        command.consumer_sequence, command.stream_sequence, command.count, command.time_ns
    )


@apply_to_tracker.register
def _(command: Acknowledge, tracker: ConsumerTracker) -> None:
    with contextlib.suppress(MessageNotFound):  # only its delivery count was left
        tracker.update_acks(command.consumer_sequence, command.stream_sequence)


@apply_to_tracker.register
def _(command: PassOver, tracker: ConsumerTracker) -> None:
    tracker.update_starting(command.stream_sequence)


@apply_to_tracker.register
def _(command: ForgetDeliveries, tracker: ConsumerTracker) -> None:
    tracker.remove_redelivered_below(command.stream_sequence)


@apply_to_tracker.register
def _(command: Hold, tracker: ConsumerTracker) -> None:
    tracker.hold(command.first, command.last)


@apply_to_tracker.register
def _(command: LetGo, tracker: ConsumerTracker) -> None:
    tracker.let_go(command.first, command.last)


@apply_to_tracker.register
def _(command: Terminate, tracker: ConsumerTracker) -> None:
    tracker.terminate(command.stream_sequence)
