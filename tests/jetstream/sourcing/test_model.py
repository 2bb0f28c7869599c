"""Random changes to an origin, its mirror and its source, against a plain model.

Before the copies are made anything happens to the origin; later the copies catch up after each
step. Now and then the server is restarted.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.stream import StreamSource
from natsd.jetstream.stream.stream import Stream
from tests.jetstream.serving import account_of, create, publish, serving
from tests.waiting import eventually_within

SUBJECTS = ("o.a", "o.b", "o.c")
FILTER = "o.a"
ROLLUP = b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n"

Message = tuple[int, str, bytes]
Kind = Literal["publish", "rollup", "delete", "purge", "restart"]


@dataclass(frozen=True)
class Step:
    kind: Kind
    subject: str
    number: int


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(("publish", "publish", "publish", "rollup", "delete", "purge", "restart")),
        st.sampled_from(SUBJECTS),
        st.integers(1, 20),
    ),
    max_size=12,
)


@dataclass
class Model:
    """The origin, its mirror, which rolls up too, and a source of one subject, which does not."""

    has_copies: bool = False
    last: int = 0
    origin: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    mirror: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    source: list[tuple[str, bytes]] = field(default_factory=list)
    sourced: list[int] = field(default_factory=list)

    def take(self, step: Step, data: bytes) -> None:
        match step.kind:
            case "publish" | "rollup":
                self.publish(step, data)
            case "delete":
                self.origin.pop(step.number, None)
            case "purge":
                self.origin = without(self.origin, step.subject)
            case "restart":
                pass
        if not self.has_copies:
            self.mirror = dict(self.origin)

    def publish(self, step: Step, data: bytes) -> None:
        self.last += 1
        for stored in (self.origin, self.mirror):
            if step.kind == "rollup":
                for sequence in [
                    s for s, (subject, _) in stored.items() if subject == step.subject
                ]:
                    del stored[sequence]
            stored[self.last] = (step.subject, data)
        if self.has_copies and step.subject == FILTER:
            self.bring(self.last, data)

    def bring(self, sequence: int, data: bytes) -> None:
        self.source.append((FILTER, data))
        self.sourced.append(sequence)

    def copy(self) -> None:
        self.has_copies = True
        for sequence, (subject, data) in sorted(self.origin.items()):
            if subject == FILTER:
                self.bring(sequence, data)


def without(stored: dict[int, tuple[str, bytes]], subject: str) -> dict[int, tuple[str, bytes]]:
    return {sequence: each for sequence, each in stored.items() if each[0] != subject}


async def carry_out(jetstream: JetStream, step: Step, data: bytes, model: Model) -> None:
    origin = account_of(jetstream).stream("O")
    match step.kind:
        case "publish":
            await publish(jetstream, step.subject, data)
        case "rollup":
            await publish(jetstream, step.subject, data, ROLLUP)
        case "delete":
            if step.number in model.origin:
                await origin.delete_message(step.number)
        case "purge":
            await origin.purge(step.subject)
        case "restart":
            raise AssertionError("that is the caller's")


async def stored(stream: Stream) -> list[Message]:
    state = stream.store.state()
    found: list[Message] = []
    for sequence in range(state.first_sequence, state.last_sequence + 1):
        if sequence and stream.readers.log.has(sequence):
            message = await stream.store.load(sequence)
            found.append((message.sequence, message.subject, message.data))
    return found


async def settle(jetstream: JetStream, model: Model) -> None:
    mirror, source = (account_of(jetstream).stream(name) for name in "MS")
    wanted = max(model.mirror, default=0)
    await eventually_within(
        lambda: mirror.readers.visible >= wanted and source.readers.visible == len(model.source)
    )


async def check(jetstream: JetStream, model: Model) -> None:
    await settle(jetstream, model)
    origin, mirror, source = (account_of(jetstream).stream(name) for name in "OMS")
    assert await stored(origin) == as_listed(model.origin)
    assert await stored(mirror) == as_listed(model.mirror)
    for sequence, _, _ in await stored(mirror):
        if origin.readers.log.has(sequence):
            assert await mirror.store.load(sequence) == await origin.store.load(sequence)
    assert [each[1:] for each in await stored(source)] == model.source
    for at, sequence in enumerate(model.sourced, 1):
        headers = (await source.store.load(at)).headers or b""
        assert f"Nats-Stream-Source: O {sequence} o.a > o.a\r\n".encode() in headers


def as_listed(stored: dict[int, tuple[str, bytes]]) -> list[Message]:
    return [(sequence, *stored[sequence]) for sequence in sorted(stored)]


async def run(directory: Path, before: list[Step], behind: list[Step]) -> None:
    model = Model()
    steps: list[Step | None] = [*before, None, *behind]
    number = 0
    while number < len(steps):
        async with serving(directory) as jetstream:
            if number == 0:
                await create(jetstream, "O", subjects=["o.*"], allow_rollup_hdrs=True)
            elif model.has_copies:
                await check(jetstream, model)
            while number < len(steps):
                step = steps[number]
                number += 1
                if step is None:
                    await make_copies(jetstream, model)
                elif step.kind == "restart":
                    break
                else:
                    data = b"%d" % number
                    await carry_out(jetstream, step, data, model)
                    model.take(step, data)
                if model.has_copies:
                    await settle(jetstream, model)
            if model.has_copies:
                await check(jetstream, model)


async def make_copies(jetstream: JetStream, model: Model) -> None:
    await create(jetstream, "M", mirror=StreamSource(name="O"), allow_rollup_hdrs=True)
    await create(jetstream, "S", sources=[StreamSource(name="O", filter_subject=FILTER)])
    model.copy()


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(before=STEPS, behind=STEPS)
def test_copies_are_what_was_there(before: list[Step], behind: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(Path(directory), before, behind))
