"""Expiry in an origin, its mirrors and a source against plain lists, with a clock set by the test.

TTLs and markers are those of ADR-43.
- A mirror has the times of its origin, so that messages expire in both at the same moment. The
  origin's markers are copied like other messages and live as long; a mirror makes none.
- A source's messages live from their arrival, with the age and the markers of its own stream.
- Where TTLs are not allowed, the TTL of a copied message is only stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.stream import StreamSource
from natsd.jetstream.stream.stream import Stream
from tests.jetstream.clock import SECOND_NS, Clock
from tests.jetstream.serving import account_of, create, publish, serving
from tests.waiting import eventually_within

NEVER = -1
QUARTER_NS = SECOND_NS // 4

Held = tuple[str, int, bool]
"""Subject, time in seconds, and whether it is a marker."""


@dataclass(frozen=True)
class PlainMessage:
    """A message; `lifetime_s` 0: it has no TTL."""

    subject: str
    time_ns: int
    lifetime_s: int
    is_marker: bool = False


@dataclass
class PlainStream:
    """A model of a stream; its copies get each message that it stores.

    `heeds` tells whether it observes TTLs and rollups of messages; `marker_s` 0: it makes no
    markers.
    """

    heeds: bool = True
    max_age_s: int = 0
    marker_s: int = 0
    messages: list[PlainMessage] = field(default_factory=list)
    mirrors: list[PlainStream] = field(default_factory=list)
    sourcing: list[PlainStream] = field(default_factory=list)

    def store(self, message: PlainMessage, now_ns: int) -> None:
        if self.heeds and 0 < message.lifetime_s < self.marker_s:
            message = PlainMessage(message.subject, message.time_ns, self.marker_s)
        if message.is_marker and self.heeds:
            self.remove(message.subject)
        self.messages.append(message)
        for mirror in self.mirrors:
            mirror.store(message, now_ns)
        for copy in self.sourcing:
            copy.store(
                PlainMessage(message.subject, now_ns, message.lifetime_s, message.is_marker), now_ns
            )

    def remove(self, subject: str) -> None:
        self.messages = [each for each in self.messages if each.subject != subject]

    def is_due(self, message: PlainMessage, now_ns: int) -> bool:
        lifetime_s = message.lifetime_s if self.heeds else 0
        age_ns = now_ns - message.time_ns
        if lifetime_s == NEVER:
            return False
        return any(0 < limit_s * SECOND_NS <= age_ns for limit_s in (self.max_age_s, lifetime_s))

    def look(self, now_ns: int) -> None:
        for message in [each for each in self.messages if self.is_due(each, now_ns)]:
            others = [each for each in self.messages if each.subject == message.subject]
            if others == [message] and self.marker_s and not message.is_marker:
                self.store(PlainMessage(message.subject, now_ns, self.marker_s, True), now_ns)
            elif message in self.messages:
                self.messages.remove(message)

    def contents(self) -> list[Held]:
        return sorted((each.subject, each.time_ns, each.is_marker) for each in self.messages)


def has_all_of(stream: Stream, origin: Stream) -> bool:
    """Return whether the copy has processed all messages of its origin."""
    log = origin.store.log
    newest = max(filter(log.has, range(log.first_sequence, log.last_sequence + 1)), default=0)
    links = stream.sourcing._links.values()
    return all(link.is_placed and link.receiver.sequence >= newest for link in links)


def contents(stream: Stream) -> list[Held]:
    log = stream.store.log
    found = []
    for sequence in filter(log.has, range(log.first_sequence, log.last_sequence + 1)):
        message = stream.store.load_cached(sequence)
        if message is not None:
            is_marker = b"Nats-Marker-Reason: MaxAge" in (message.headers or b"")
            found.append((message.subject, message.time_ns, is_marker))
    return sorted(found)


@dataclass(frozen=True)
class Case:
    """The configurations of the four streams, in seconds."""

    max_age_s: int
    marker_s: int
    source_age_s: int
    source_marker_s: int


class Program:
    """An origin `O`; its mirrors `M`, which expires, and `K`, which keeps; its source `S`."""

    def __init__(self, case: Case, directory: Path) -> None:
        self.case = case
        self.directory = directory
        self.clock = Clock()
        mirror = PlainStream(max_age_s=case.max_age_s)
        keeping = PlainStream(heeds=False)
        source = PlainStream(max_age_s=case.source_age_s, marker_s=case.source_marker_s)
        self.plain = {
            "O": PlainStream(
                max_age_s=case.max_age_s,
                marker_s=case.marker_s,
                mirrors=[mirror, keeping],
                sourcing=[source],
            ),
            "M": mirror,
            "K": keeping,
            "S": source,
        }

    async def run(self, steps: list[tuple[str, Any, Any]]) -> None:
        is_new = True
        steps = [*steps, ("wait", 13, None)]
        while steps:
            async with serving(self.directory, clock=self.clock) as jetstream:
                if is_new:
                    await self.create(jetstream)
                    is_new = False
                await self.agree(jetstream)
                while steps and (step := steps.pop(0))[0] != "restart":
                    await self.step(jetstream, *step)
                    await self.agree(jetstream)
            if step[0] == "restart":
                self.clock.now_ns += step[1] * QUARTER_NS

    async def create(self, jetstream: JetStream) -> None:
        case, origin = self.case, StreamSource(name="O")
        aged = {"allow_msg_ttl": True, "duplicate_window": SECOND_NS}
        await create(
            jetstream,
            "O",
            subjects=["s.*"],
            max_age=case.max_age_s * SECOND_NS,
            subject_delete_marker_ttl=case.marker_s * SECOND_NS,
            **aged,
        )
        await create(
            jetstream,
            "M",
            mirror=origin,
            max_age=case.max_age_s * SECOND_NS,
            allow_rollup_hdrs=True,
            **aged,
        )
        await create(jetstream, "K", mirror=origin)
        await create(
            jetstream,
            "S",
            sources=[origin],
            max_age=case.source_age_s * SECOND_NS,
            subject_delete_marker_ttl=case.source_marker_s * SECOND_NS,
            allow_rollup_hdrs=True,
            **aged,
        )

    async def step(self, jetstream: JetStream, what: str, chosen: Any, lifetime_s: int) -> None:
        if what == "wait":
            self.clock.now_ns += chosen * QUARTER_NS
            return
        self.clock.now_ns += 1  # no two messages have the same time
        text = b"never" if lifetime_s == NEVER else b"%d" % lifetime_s
        block = b"NATS/1.0\r\nNats-TTL: %b\r\n\r\n" % text if lifetime_s else b""
        assert "error" not in await publish(jetstream, chosen, b"", block)
        now_ns = self.clock.now_ns
        self.plain["O"].store(PlainMessage(chosen, now_ns, lifetime_s), now_ns)

    async def agree(self, jetstream: JetStream) -> None:
        """Wait until streams and models agree; a check for due messages may be 0.25 s late."""
        for plain in self.plain.values():
            plain.look(self.clock.now_ns)
        origin = account_of(jetstream).stream("O")
        for name, plain in self.plain.items():
            stream, expected = account_of(jetstream).stream(name), plain.contents()

            def agreed(stream: Stream = stream, expected: list[Held] = expected) -> bool:
                jetstream.scheduler._timer_over()  # type: ignore[attr-defined]  # the loop's timer
                return contents(stream) == expected and has_all_of(stream, origin)

            await eventually_within(agreed)


subjects = st.sampled_from(["s.a", "s.b"])
lifetimes = st.sampled_from([0, 0, 1, 2, 5, NEVER])
programs = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), subjects, lifetimes),
        st.tuples(st.just("publish"), subjects, lifetimes),
        st.tuples(st.just("wait"), st.sampled_from([1, 2, 4, 13]), st.none()),
        st.tuples(st.just("restart"), st.sampled_from([1, 4, 13]), st.none()),
    ),
    max_size=10,
)
ages = st.sampled_from([3, 0])
markers = st.sampled_from([2, 0])


@given(programs, st.builds(Case, ages, markers, ages, markers))
@example([("publish", "s.a", 0), ("publish", "s.b", NEVER)], Case(3, 0, 0, 0))
@example([("publish", "s.a", 1), ("wait", 4, None)], Case(0, 2, 3, 0))
@example([("publish", "s.a", 5), ("restart", 13, None)], Case(3, 2, 0, 2))
@settings(max_examples=12, deadline=None)
async def test_copies_expire_like_plain_lists(
    program: list[tuple[str, Any, Any]], case: Case
) -> None:
    with TemporaryDirectory() as directory:
        await Program(case, Path(directory)).run(program)
