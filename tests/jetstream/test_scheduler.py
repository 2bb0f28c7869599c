"""The scheduler: work in slices and deadlines, with one reactor task and one timer for all jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.core.network import Reactor
from natsd.jetstream.stream.state import Alarm, Job, Scheduler
from tests.waiting import Eventually, eventually_within

SECOND_NS = 1_000_000_000


class Clock:
    """A wall clock that the test sets by hand."""

    def __init__(self) -> None:
        self.now_ns = 1_000 * SECOND_NS

    def __call__(self) -> int:
        return self.now_ns


class Bench:
    """A reactor with a scheduler, and the failures that were logged."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.failures: list[str] = []
        self.clock = Clock()
        self.reactor = Reactor(loop, self.failures.append)
        self.scheduler = Scheduler(self.reactor, self.clock)


@pytest.fixture
async def bench() -> Iterator[Bench]:
    bench = Bench(asyncio.get_running_loop())
    yield bench
    bench.scheduler.close()
    bench.reactor.close()


async def test_work_is_done_in_turns(bench: Bench, eventually: Eventually) -> None:
    done: list[str] = []
    left = {"a": 3, "b": 1, "c": 2}

    def work_of(name: str) -> Job:
        def work(_now_ns: int) -> bool:
            done.append(name)
            left[name] -= 1
            return left[name] > 0

        return Job(bench.scheduler, work)

    for name in left:
        job = work_of(name)
        job.submit()
        job.submit()  # the second `submit` changes nothing
    assert bench.scheduler.num_queued == 3
    assert done == []  # not before the end of the turn
    await eventually(lambda: not any(left.values()))
    assert "".join(done) == "abcaca"


async def test_much_work_leaves_time_for_others(bench: Bench) -> None:
    """After 2 ms of slices, the loop's other callbacks run: one slice takes 1 ms here."""
    slices = 0
    seen: list[int] = []

    def work(_now_ns: int) -> bool:
        nonlocal slices
        slices += 1
        end = asyncio.get_running_loop().time() + 0.001
        while bench.reactor.loop.time() < end:
            sum(range(100))
        return slices < 50

    Job(bench.scheduler, work).submit()
    while slices < 50:
        await asyncio.sleep(0)
        seen.append(slices)
    assert len(set(seen)) > 5


async def test_work_that_fails_is_logged_and_stops_nobody(
    bench: Bench, eventually: Eventually
) -> None:
    done: list[str] = []

    def fail(_now_ns: int) -> bool:
        raise ValueError("on purpose")

    def work(_now_ns: int) -> bool:
        done.append("x")
        return False

    jobs = [Job(bench.scheduler, fail), Job(bench.scheduler, work)]
    alarms = [Alarm(bench.scheduler, fail), Alarm(bench.scheduler, work)]
    for job in jobs:
        job.submit()
    for alarm in alarms:
        alarm.set(bench.clock.now_ns - 1)
    await eventually(lambda: len(done) == 2)
    assert len(bench.failures) == 2
    assert bench.scheduler.num_queued == bench.scheduler.num_deadlines == 0


async def test_deadlines_come_in_their_order_and_only_when_they_are_over(
    bench: Bench, eventually: Eventually
) -> None:
    over: list[int] = []
    start = bench.clock.now_ns
    for seconds in (5, 1, 4, 2, 3):
        alarm = Alarm(bench.scheduler, lambda _now, seconds=seconds: over.append(seconds))
        alarm.set(start + seconds * SECOND_NS)
    bench.clock.now_ns = start + 3 * SECOND_NS  # set forward: noticed within a second
    await eventually(lambda: len(over) == 3)
    assert over == [1, 2, 3]
    assert bench.scheduler.num_deadlines == 2


async def test_a_deadline_replaces_the_one_before(bench: Bench, eventually: Eventually) -> None:
    over: list[str] = []
    start = bench.clock.now_ns
    moved, cancelled = (
        Alarm(bench.scheduler, lambda _now, name=name: over.append(name)) for name in "mc"
    )
    for alarm in (moved, cancelled):
        alarm.set(start + 10 * SECOND_NS)
    moved.set(start + 1)
    assert moved.due_ns == start + 1
    cancelled.cancel()
    assert (cancelled.due_ns, bench.scheduler.num_deadlines) == (0, 1)
    bench.clock.now_ns = start + 20 * SECOND_NS
    await eventually(lambda: over == ["m"])
    assert (moved.due_ns, bench.scheduler.num_deadlines) == (0, 0)


async def test_an_alarm_may_set_itself_again(bench: Bench, eventually: Eventually) -> None:
    count = 0

    def again(now_ns: int) -> None:
        nonlocal count
        count += 1
        if count < 5:
            alarm.set(now_ns)

    alarm = Alarm(bench.scheduler, again)
    alarm.set(bench.clock.now_ns)
    await eventually(lambda: count == 5)


async def test_what_is_due_soon_is_called_in_order(bench: Bench, eventually: Eventually) -> None:
    """Callbacks of `Reactor.soon` run in order: commits begin before their acks are sent."""
    called: list[object] = []
    for name in "abc":
        bench.reactor.soon(called.append, name)
    Job(bench.scheduler, lambda _now: bool(called.append("work"))).submit()
    assert called == []
    await eventually(lambda: called == ["a", "b", "c", "work"])


async def test_nothing_runs_after_the_end(bench: Bench) -> None:
    done: list[int] = []
    job = Job(bench.scheduler, lambda now_ns: bool(done.append(now_ns)))
    alarm = Alarm(bench.scheduler, done.append)
    job.submit()
    alarm.set(bench.clock.now_ns)
    bench.scheduler.close()
    job.submit()
    alarm.set(bench.clock.now_ns)
    await asyncio.sleep(0.01)
    assert done == []
    assert bench.scheduler.num_queued == bench.scheduler.num_deadlines == 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 60)), min_size=1, max_size=200
    )  # (alarm, due; 0 cancels)
)
def test_the_heap_is_a_sorted_list(changes: list[tuple[int, int]]) -> None:
    """Any program of settings and cancellations calls alarms as a dictionary model does."""
    loop = asyncio.new_event_loop()
    bench = Bench(loop)
    start = bench.clock.now_ns
    over: list[tuple[int, int]] = []
    alarms = [
        Alarm(bench.scheduler, lambda _now, i=i: over.append((model[i], i))) for i in range(31)
    ]
    model: dict[int, int] = {}
    try:
        for i, due in changes:
            if due:
                model[i] = due
                alarms[i].set(start + due)
            else:
                model.pop(i, None)
                alarms[i].cancel()
        assert bench.scheduler.num_deadlines == len(model)
        bench.clock.now_ns = start + 30
        count = sum(due <= 30 for due in model.values())
        loop.run_until_complete(eventually_within(lambda: len(over) == count))
        assert [due for due, _ in over] == sorted(due for due, _ in over)
        assert {i for _, i in over} == {i for i, due in model.items() if due <= 30}
    finally:
        bench.scheduler.close()
        bench.reactor.close()
        loop.close()
