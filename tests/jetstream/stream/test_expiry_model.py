"""TTLs, ages and markers against a plain list, with a clock that the test sets (ADR-43)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.stream.stream import Stream
from tests.jetstream.clock import SECOND_NS, Clock
from tests.jetstream.serving import account_of, create, publish, serving
from tests.waiting import eventually_within

NEVER = -1


@dataclass
class PlainMessage:
    """A message; `expires_ns` 0: it expires by the stream's age only."""

    subject: str
    time_ns: int
    expires_ns: int
    is_marker: bool = False


@dataclass
class PlainStream:
    """A model of a stream; expiry is checked after each step."""

    max_age_ns: int
    marker_ns: int
    messages: list[PlainMessage] = field(default_factory=list)

    def publish(self, subject: str, now_ns: int, lifetime_s: int) -> None:
        expires_ns = lifetime_s
        if lifetime_s > 0:
            expires_ns = now_ns + max(lifetime_s * SECOND_NS, self.marker_ns)
        self.messages.append(PlainMessage(subject, now_ns, expires_ns))

    def is_due(self, message: PlainMessage, now_ns: int) -> bool:
        too_old = 0 < self.max_age_ns <= now_ns - message.time_ns
        return (too_old and message.expires_ns != NEVER) or 0 < message.expires_ns <= now_ns

    def look(self, now_ns: int) -> None:
        """Remove due messages; the last of a subject leaves a marker, unless it is one."""
        for message in [each for each in self.messages if self.is_due(each, now_ns)]:
            others = [each for each in self.messages if each.subject == message.subject]
            self.messages.remove(message)
            if len(others) == 1 and self.marker_ns and not message.is_marker:
                marker = PlainMessage(message.subject, now_ns, now_ns + self.marker_ns, True)
                self.messages.append(marker)

    def contents(self) -> list[tuple[str, int, bool]]:
        return sorted((each.subject, each.time_ns, each.is_marker) for each in self.messages)


def contents(stream: Stream) -> list[tuple[str, int, bool]]:
    log = stream.store.log
    found = []
    for sequence in range(log.first_sequence, log.last_sequence + 1):
        if log.has(sequence):
            message = stream.store.load_cached(sequence)
            if message is not None:
                marked = b"Nats-Marker-Reason: MaxAge" in (message.headers or b"")
                found.append((message.subject, message.time_ns, marked))
    return sorted(found)


subjects = st.sampled_from(["s.a", "s.b", "s.c"])
lifetimes = st.sampled_from([0, 0, 1, 2, 5, NEVER])
steps = st.one_of(
    st.tuples(st.just("publish"), subjects, lifetimes),
    st.tuples(st.just("publish"), subjects, lifetimes),
    st.tuples(st.just("wait"), st.sampled_from([1, 2, 4, 13]), st.none()),
    st.tuples(st.just("delete"), st.integers(0, 9), st.none()),
    st.tuples(st.just("purge"), subjects, st.none()),
    st.tuples(st.just("restart"), st.sampled_from([1, 4, 13]), st.none()),
)
programs = st.lists(steps, max_size=20)
QUARTER_NS = SECOND_NS // 4


class Program:
    """A stream and its model; `quarters` of a second pass between checks."""

    def __init__(self, plain: PlainStream, directory: Path, storage: str) -> None:
        self.plain = plain
        self.directory = directory
        self.storage = storage
        self.clock = Clock()

    async def run(self, program: list[tuple[str, Any, Any]]) -> None:
        while program:
            async with serving(self.directory, clock=self.clock) as jetstream:
                stream = await self.open(jetstream)
                await self.agree(jetstream, stream)
                while program and (step := program.pop(0))[0] != "restart":
                    await self.step(jetstream, stream, *step)
                    await self.agree(jetstream, stream)
            if self.storage == "memory":
                self.plain.messages.clear()
            if step[0] == "restart":
                self.clock.now_ns += step[1] * QUARTER_NS

    async def open(self, jetstream: JetStream) -> Stream:
        known = account_of(jetstream).streams.get("S")
        if known is not None:
            return known
        return await create(
            jetstream,
            "S",
            subjects=["s.*"],
            storage=self.storage,
            allow_msg_ttl=True,
            max_age=self.plain.max_age_ns,
            duplicate_window=SECOND_NS,
            subject_delete_marker_ttl=self.plain.marker_ns,
        )

    async def step(
        self, jetstream: JetStream, stream: Stream, what: str, chosen: Any, lifetime_s: int
    ) -> None:
        if what == "wait":
            self.clock.now_ns += chosen * QUARTER_NS
        elif what == "publish":
            self.clock.now_ns += 1  # no two messages have the same time
            text = b"never" if lifetime_s == NEVER else b"%d" % lifetime_s
            block = b"NATS/1.0\r\nNats-TTL: %b\r\n\r\n" % text if lifetime_s else b""
            assert "error" not in await publish(jetstream, chosen, b"", block)
            self.plain.publish(chosen, self.clock.now_ns, lifetime_s)
        elif what == "purge":
            await stream.purge(chosen)
            kept = [each for each in self.plain.messages if each.subject != chosen]
            self.plain.messages = kept
        elif self.plain.messages:
            live = filter(stream.store.log.has, range(1, stream.store.log.last_sequence + 1))
            sequence = list(live)[chosen % len(self.plain.messages)]
            message = stream.store.load_cached(sequence)
            assert message is not None
            await stream.delete_message(sequence)
            self.plain.messages = [
                each
                for each in self.plain.messages
                if (each.subject, each.time_ns) != (message.subject, message.time_ns)
            ]

    async def agree(self, jetstream: JetStream, stream: Stream) -> None:
        """Wait until stream and model agree; a check for due messages may be 0.25 s late.

        No check may be running then: it would schedule another one at a time that this clock never
        reaches.
        """
        self.plain.look(self.clock.now_ns)
        expected = self.plain.contents()

        def agreed() -> bool:
            jetstream.scheduler._timer_over()  # type: ignore[attr-defined]  # the loop's timer
            return stream._expiry._work is None and contents(stream) == expected

        await eventually_within(agreed)


@example(
    [
        ("publish", "s.a", 2),
        ("delete", 0, None),
        ("publish", "s.a", 5),
        ("wait", 13, None),
        ("wait", 13, None),
    ],
    0,
    2 * SECOND_NS,
    "memory",
)
@given(
    programs,
    st.sampled_from([0, 0, 3 * SECOND_NS]),
    st.sampled_from([0, 2 * SECOND_NS, 2 * SECOND_NS]),
    st.sampled_from(["memory", "file"]),
)
@settings(max_examples=60, deadline=None)
async def test_like_a_plain_list(
    program: list[tuple[str, Any, Any]], max_age_ns: int, marker_ns: int, storage: str
) -> None:
    with TemporaryDirectory() as directory:
        plain = PlainStream(max_age_ns, marker_ns)
        await Program(plain, Path(directory), storage).run(program)
