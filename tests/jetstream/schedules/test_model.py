"""Schedules and delayed messages against a plain model, with a clock that the test sets."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.accounts import Account
from natsd.jetstream.models.times import format_time
from natsd.jetstream.stream.state import Alarm
from natsd.jetstream.tiers import UNLIMITED
from tests.jetstream.clock import SECOND_NS, Clock
from tests.jetstream.serving import ACCOUNT, account_of, build, create, publish
from tests.jetstream.stream.publishing import header_block
from tests.waiting import eventually_within

Seen = tuple[str, bytes]


@dataclass
class Plan:
    data: bytes
    at_ns: int
    every_ns: int  # 0: once


@dataclass
class PlainStream:
    """A model of the messages that are published later, and their times."""

    now_ns: int
    plans: dict[str, Plan] = field(default_factory=dict)
    waiting: list[tuple[int, int, bytes]] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)

    def advance(self, seconds: int) -> None:
        self.now_ns += seconds * SECOND_NS
        for subject, plan in list(self.plans.items()):
            if plan.at_ns > self.now_ns:
                continue
            self.seen.append(("s.out", plan.data))
            if not plan.every_ns:
                del self.plans[subject]
                continue
            plan.at_ns += plan.every_ns
            if plan.at_ns < self.now_ns:
                plan.at_ns = self.now_ns + plan.every_ns
        due = sorted(each for each in self.waiting if each[0] <= self.now_ns)
        self.waiting = [each for each in self.waiting if each[0] > self.now_ns]
        self.seen += [("s.late", data) for _, _, data in due]


class Served:
    """The real stream, on files, with the same clock."""

    def __init__(self, directory: Path) -> None:
        self.directories: Iterator[Path] = (directory / str(n) for n in itertools.count())
        self.directory = next(self.directories)
        self.clock = Clock()
        self.is_new = True

    async def start(self) -> None:
        self.jetstream = build(self.directory, clock=self.clock)
        self.account = Account(ACCOUNT, self.jetstream.reactor)
        await self.jetstream.start([])
        await self.jetstream.configure_account(self.account, UNLIMITED)
        if self.is_new:
            self.is_new = False
            await create(self.jetstream, "S", subjects=["s.>"], allow_msg_schedules=True)
        scheduled = account_of(self.jetstream).stream("S").scheduled
        assert scheduled is not None
        await eventually_within(lambda: not scheduled.schedules.is_finding)
        await eventually_within(lambda: not scheduled.delays.is_finding)
        self.scheduled = scheduled

    async def stop(self) -> None:
        await self.jetstream.stop()
        self.account.close()
        self.jetstream.reactor.close()

    async def kill(self) -> None:
        """Continue with the files that are on disk at this moment."""
        copy = next(self.directories)
        shutil.copytree(self.directory, copy, ignore=shutil.ignore_patterns("*lock*"))
        await self.stop()
        self.directory = copy
        await self.start()

    async def advance(self, seconds: int) -> None:
        self.clock.now_ns += seconds * SECOND_NS
        Alarm(self.jetstream.scheduler, lambda _now_ns: None).set(1)  # wakes the scheduler

    async def publish(self, subject: str, data: bytes, **headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        ack = await publish(self.jetstream, subject, data, header_block(named))
        assert "error" not in ack, ack
        sequence: int = ack["seq"]
        return sequence

    def seen(self) -> list[Seen]:
        log = account_of(self.jetstream).stream("S").readers.log
        found = []
        for sequence in range(log.first_sequence, log.last_sequence + 1):
            if log.has(sequence):
                message = log.load(sequence)
                assert message is not None
                if message.subject in ("s.out", "s.late"):
                    found.append((message.subject, message.data))
        return found

    async def settled(self) -> None:
        stream = account_of(self.jetstream).stream("S")
        await stream.store.synced()
        await eventually_within(lambda: stream.readers.visible == stream.readers.log.last_sequence)
        schedules, delays = self.scheduled.schedules, self.scheduled.delays
        await eventually_within(lambda: not schedules.is_busy and not delays.is_busy)


PLAN = st.sampled_from(["s.p1", "s.p2", "s.p3"])
SECONDS = st.integers(1, 9)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("once"), PLAN, SECONDS),
        st.tuples(st.just("every"), PLAN, SECONDS),
        st.tuples(st.just("plain"), PLAN, SECONDS),
        st.tuples(st.just("purge"), PLAN, SECONDS),
        st.tuples(st.just("delay"), PLAN, SECONDS),
        st.tuples(st.just("delay"), PLAN, SECONDS),
        st.tuples(st.just("advance"), PLAN, SECONDS),
        st.tuples(st.just("advance"), PLAN, SECONDS),
        st.tuples(st.just("stop"), PLAN, SECONDS),
        st.tuples(st.just("restart"), PLAN, SECONDS),
        st.tuples(st.just("kill"), PLAN, SECONDS),
    ),
    max_size=25,
)


async def perform(served: Served, model: PlainStream, step: tuple[str, str, int], n: int) -> None:
    what, subject, seconds = step
    data = b"%d" % n
    at_ns = model.now_ns + seconds * SECOND_NS
    if what == "once":
        pattern = f"@at {format_time(at_ns)}"
        await served.publish(subject, data, Nats_Schedule=pattern, Nats_Schedule_Target="s.out")
        model.plans[subject] = Plan(data, at_ns, 0)
    elif what == "every":
        pattern = f"@every {seconds}s"
        await served.publish(subject, data, Nats_Schedule=pattern, Nats_Schedule_Target="s.out")
        model.plans[subject] = Plan(data, at_ns, seconds * SECOND_NS)
    elif what == "plain":
        await served.publish(subject, data)
        model.plans.pop(subject, None)
    elif what == "purge":
        await account_of(served.jetstream).stream("S").purge(subject)
        model.plans.pop(subject, None)
    elif what == "delay":
        sequence = await served.publish("s.late", data, Nats_Delay=f"{seconds}s")
        model.waiting.append((at_ns, sequence, data))
    elif what == "advance":
        model.advance(seconds)
        await served.advance(seconds)
    elif what == "stop":  # the server starts again later
        await served.stop()
        served.clock.now_ns += seconds * SECOND_NS
        await served.start()
        model.advance(seconds + 1)  # schedules are looked at 0.25 s after a start
        await served.advance(1)
    elif what == "restart":
        await served.stop()
        await served.start()
    else:
        await served.settled()
        await served.kill()


async def compare(steps: list[tuple[str, str, int]], directory: Path) -> None:
    served = Served(directory)
    await served.start()
    model = PlainStream(served.clock.now_ns)
    for n, step in enumerate([*steps, ("advance", "", 9), ("advance", "", 9)]):
        await perform(served, model, step, n)
        # Scheduled and delayed messages are independent: each kind has its own order.
        for subject in ("s.out", "s.late"):
            wanted = [each for each in model.seen if each[0] == subject]

            def found(subject: str = subject) -> list[Seen]:
                return [each for each in served.seen() if each[0] == subject]

            def is_same(wanted: list[Seen] = wanted, found: object = found) -> bool:
                return sorted(served_of(found)) == sorted(wanted)

            await eventually_within(is_same)
            if subject == "s.late":
                assert found() == wanted
        await served.settled()
    await served.stop()


def served_of(found: object) -> list[Seen]:
    assert callable(found)
    result: list[Seen] = found()
    return result


@settings(deadline=None, max_examples=8)
@given(STEPS)
def test_as_the_model(steps: list[tuple[str, str, int]]) -> None:
    with TemporaryDirectory() as directory:
        asyncio.run(compare(steps, Path(directory)))
