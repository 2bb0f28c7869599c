"""All states that a small cluster can reach while it founds a meta group.

    state    servers ─┬─ record on disk
                      └─ memory
             messages: all that were ever sent; each may arrive at any time, again, or never
             ticks and restarts that are still to come

A step is a tick of a server that sees certain others, the arrival of a message, or the restart of a
server from its record. What a server does depends only on itself and the step, so it is computed
once for each of its own states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import combinations
from typing import NamedTuple

from natsd.jetstream.meta_group.founding import Founding, PeerView
from natsd.jetstream.meta_group.founding_messages import Chosen, decode
from natsd.jetstream.meta_group.founding_record import Founded, Record


class Message(NamedTuple):
    sender: str
    receiver: str
    data: bytes


class Server(NamedTuple):
    """A server's record and, as text, its memory; `States.memory` has it as an object."""

    name: str
    record: Record
    memory: str


class State(NamedTuple):
    servers: tuple[Server, ...]
    messages: frozenset[Message]
    ticks: int
    restarts: int


class Outcome(NamedTuple):
    server: Server
    sent: frozenset[Message]


class States:
    """The reachable states; `looks` are the servers that tick, and what each of them sees then."""

    def __init__(self, expected: Mapping[str, int], looks: Sequence[tuple[str, str]]) -> None:
        self.expected = expected
        self.looks = looks
        self.memory: dict[Server, Founding] = {}
        self.outcomes: dict[tuple[Server, str | Message | None], Outcome] = {}
        self.record = Record()  # of the server that does a step
        self.sent: list[Message] = []

    def explore(self, ticks: int, restarts: int) -> int:
        """Check every reachable state and return their number."""
        servers = tuple(self._start(name, Record()) for name in self.expected)
        reached = {State(servers, frozenset(), ticks, restarts)}
        waiting = list(reached)
        while waiting:
            for state in self._after(waiting.pop()):
                if state not in reached:
                    self._check(state)
                    reached.add(state)
                    waiting.append(state)
        return len(reached)

    def _check(self, state: State) -> None:
        founded = {each.record.founded for each in state.servers} - {None}
        for one, other in combinations(founded, 2):
            assert isinstance(one, Founded)
            assert isinstance(other, Founded)
            assert not set(one.members) & set(other.members), f"{one} and {other}"

    def _after(self, state: State) -> Iterator[State]:
        names = list(self.expected)
        if state.ticks:
            for name, sees in self.looks:
                yield self._step(state._replace(ticks=state.ticks - 1), names.index(name), sees)
        if state.restarts:
            for at in range(len(names)):
                yield self._step(state._replace(restarts=state.restarts - 1), at, None)
        for message in state.messages:
            yield self._step(state, names.index(message.receiver), message)

    def _step(self, state: State, at: int, step: str | Message | None) -> State:
        before = state.servers[at]
        outcome = self.outcomes.get((before, step))
        if outcome is None:
            outcome = self.outcomes[before, step] = self._do(before, step)
        servers = (*state.servers[:at], outcome.server, *state.servers[at + 1 :])
        return state._replace(servers=servers, messages=state.messages | outcome.sent)

    def _do(self, before: Server, step: str | Message | None) -> Outcome:
        if step is None:
            return Outcome(self._start(before.name, before.record), frozenset())
        founding, self.record = deepcopy(self.memory[before]), before.record
        self.sent.clear()
        if isinstance(step, Message):
            founding.receive(step.sender, step.data)
        else:
            founding.tick({name: PeerView(self.expected[name]) for name in step})
        sent = (each for each in self.sent if not isinstance(decode(each.data), Chosen))
        return Outcome(self._server(before.name, self.record, founding), frozenset(sent))

    def _start(self, name: str, record: Record) -> Server:
        def persist(record: Record) -> None:
            self.record = record

        def send(receiver: str, data: bytes) -> None:
            self.sent.append(Message(name, receiver, data))

        def new_group() -> str:
            return f"{name}{self.record.promised.number}"

        founding = Founding(name, self.expected[name], record, persist, send, new_group)
        return self._server(name, record, founding)

    def _server(self, name: str, record: Record, founding: Founding) -> Server:
        memory = repr([each for each in vars(founding).values() if not callable(each)])
        server = Server(name, record, memory)
        self.memory.setdefault(server, founding)
        return server
