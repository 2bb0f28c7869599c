"""Virtual time, and a network that loses, delays, doubles and reorders.

One heap of events in order of time; events of the same time happen in the order in which they were
made. All randomness comes from the seed, so a seed is a history.
"""

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from natsd.raft.messages import Message
from tests.sim.knobs import Knobs

Handler = Callable[[Any], None]


class World:
    def __init__(self, rng: random.Random, knobs: Knobs, trace: bool) -> None:
        self.rng = rng
        self.knobs = knobs
        self.now = 0
        self.events: list[tuple[int, int, Handler, Any]] = []
        self.event_count = 0
        self.blocked: set[tuple[int, int]] = set()
        """Sender and receiver whose messages are lost."""
        self.is_calm = False
        """The faults are over: nothing is lost or delayed much."""
        self.receive: dict[int, Handler] = {}
        self.lines: list[str] | None = [] if trace else None

    def note(self, *words: object) -> None:
        if self.lines is not None:
            self.lines.append(f"{self.now:7} " + " ".join(map(str, words)))

    def at(self, delay: int, handler: Handler, argument: Any = None) -> None:
        """Call the handler after a delay."""
        self.event_count += 1
        heappush(self.events, (self.now + delay, self.event_count, handler, argument))

    def stamp(self) -> int:
        """Return a number that is higher than any before: the order of what clients do and see."""
        self.event_count += 1
        return self.event_count

    def run_until(self, time: int) -> None:
        events = self.events
        while events and events[0][0] <= time:
            self.now, _, handler, argument = heappop(events)
            handler(argument)
        self.now = time

    def send(self, message: Message) -> None:
        """Carry a message, or do not."""
        rng, knobs = self.rng, self.knobs
        if (message.sender, message.receiver) in self.blocked:
            return
        delay = 1 + int(rng.random() * knobs.delay_max)
        if not self.is_calm:
            chance = rng.random()
            if chance < knobs.loss:
                return
            if chance > 1 - knobs.duplicate:
                self.at(delay + int(rng.random() * 3 * knobs.delay_max), self.deliver, message)
            if knobs.straggle and rng.random() < knobs.straggle:
                delay *= 10
        self.at(delay, self.deliver, message)

    def deliver(self, message: Message) -> None:
        if (message.sender, message.receiver) not in self.blocked:
            receive = self.receive.get(message.receiver)
            if receive is not None:
                if self.lines is not None:
                    self.note(f"{message.sender}→{message.receiver}", describe(message))
                receive(message)


def describe(message: Message) -> str:
    """Return a message as a short line."""
    values = message._asdict()
    entries = values.pop("entries", None)
    shown = [f"{k}={getattr(v, 'name', v)}" for k, v in list(values.items())[2:] if k != "snapshot"]
    if entries is not None:
        shown.append("[" + " ".join(f"{e.index}/{e.term}" for e in entries) + "]")
    if "snapshot" in values:
        shown.append(f"snapshot={values['snapshot'].index}/{values['snapshot'].term}")
    return f"{type(message).__name__} {' '.join(shown)}"
