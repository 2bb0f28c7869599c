"""Notifications to a stream's readers, and the removal of messages without interest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.core.routing import matches
from natsd.core.steps import at_once
from natsd.jetstream.stream.state import CallbackReader, Reader
from natsd.store.store import Limits
from tests.jetstream.stream.publishing import Bench, file_bench, memory_bench
from tests.waiting import Eventually, eventually_within


class Watcher:
    """The notifications to one reader."""

    def __init__(self, bench: Bench, *filters: str) -> None:
        self.bench = bench
        self.filters = filters
        self.pending: set[int] = set()
        self.acked: set[int] = set()
        self.calls = 0
        self.recounts = 0
        self.reader = CallbackReader(self)
        bench.readers.add_reader(self.reader, filters)
        self.recount()

    def wants(self, subject: str) -> bool:
        return not self.filters or any(matches(subject, one) for one in self.filters)

    def work(self) -> None:
        self.calls += 1

    def appeared(self, sequence: int) -> None:
        assert sequence not in self.pending
        self.pending.add(sequence)

    def vanished(self, sequence: int) -> None:
        self.pending.discard(sequence)

    def recount(self) -> None:
        self.recounts += 1
        visible = self.bench.readers.visible
        contents = self.bench.contents().items()
        self.pending = {
            sequence
            for sequence, subject in contents
            if sequence <= visible and self.wants(subject)
        }

    def needs(self, sequence: int) -> bool:
        return sequence not in self.acked

    def ack(self, sequence: int) -> None:
        self.acked.add(sequence)
        self.reader.acked(sequence)


def change_filters(bench: Bench, reader: Reader, filters: Sequence[str]) -> None:
    bench.readers.change_filters(reader, at_once(bench.readers.list_filters(filters)))


async def test_filtered_readers_hear_what_they_match() -> None:
    async with memory_bench() as bench:
        await bench.store_all("s.a.1", "s.b.1")
        one = Watcher(bench, "s.a.*")
        both = Watcher(bench, "s.a.>", "s.b.>")
        everything = Watcher(bench)
        await bench.store_all("s.a.1", "s.b.1", "s.c", "s.a.2")
        assert one.pending == {1, 3, 6}
        assert both.pending == {1, 2, 3, 4, 6}
        assert everything.pending == {1, 2}
        await bench.store.delete(3)
        await bench.store.purge(pattern="s.b.*", up_to_sequence=4)
        assert one.pending == {1, 6}
        assert both.pending == {1, 4, 6}
        change_filters(bench, one.reader, ["s.c"])
        bench.readers.remove_reader(both.reader)
        await bench.store_all("s.c", "s.a.1")
        assert 7 in one.pending
        assert 8 not in both.pending


@pytest.mark.parametrize("steps_taken", [0, 3, 7, 100])
async def test_filters_that_are_being_listed_concern_nobody(
    steps_taken: int, eventually: Eventually
) -> None:
    """Filters that are being listed give no notifications and no interest, and can be removed."""
    async with memory_bench() as bench:
        bench.readers.set_retention("interest")
        other = Watcher(bench, "s.1.x", "s.999.x")
        many = [f"s.{number}.*" for number in range(1000)]
        steps = bench.readers.list_filters(many)
        for _ in range(steps_taken):
            next(steps, None)
        assert not bench.readers.has_interest("s.0.x")
        assert bench.readers.readers_of("s.1.x") == [other.reader]
        await bench.store_all("s.1.x", "s.999.x")
        assert other.pending == {1, 2}
        other.ack(1)
        await eventually(lambda: bench.contents() == {2: "s.999.x"})
        steps.close()
        whole = Watcher(bench, *many)
        assert whole.pending == {2}
        await bench.store_all("s.0.x", "s.1.x")
        assert whole.pending == {2, 3, 4}
        assert other.pending == {2, 4}


async def test_filters_that_go_concern_nobody_at_once(eventually: Eventually) -> None:
    """A removed reader's filters have no effect any more, although they leave the SubList later."""
    async with memory_bench() as bench:
        bench.readers.set_retention("interest")
        many = [f"s.{number}.*" for number in range(5000)]
        leaver, other = Watcher(bench, *many), Watcher(bench, "s.0.x", "s.4999.x")
        await bench.store_all("s.0.x", "s.1.x")
        bench.readers.remove_reader(leaver.reader)
        assert not bench.readers.has_interest("s.1.x")
        assert bench.readers.has_interest("s.0.x")
        await bench.store_all("s.4999.x")
        assert leaver.pending == {1, 2}
        assert other.pending == {1, 3}
        await eventually(lambda: bench.contents() == {1: "s.0.x", 3: "s.4999.x"})
        change_filters(bench, other.reader, many)
        change_filters(bench, other.reader, ["s.1.x"])
        await bench.store_all("s.0.x", "s.1.x")
        assert bench.contents()[5] == "s.1.x"
        assert 4 not in bench.contents()  # nobody is interested in s.0.x any more
        assert other.pending >= {5}


async def test_a_stream_may_end_while_filters_go() -> None:
    async with memory_bench() as bench:
        leaver = Watcher(bench, *(f"s.{number}.*" for number in range(5000)))
        steps = bench.readers.list_filters([f"s.*.{number}" for number in range(1000)])
        next(steps)
        bench.readers.remove_reader(leaver.reader)
        bench.readers.close()
        steps.close()


async def test_overlapping_filters_tell_once() -> None:
    async with memory_bench() as bench:
        watcher = Watcher(bench, "s.*.x", "s.a.*")
        await bench.store_all("s.a.x", "s.b.x", "s.a.y")
        assert watcher.pending == {1, 2, 3}


async def test_hungry_readers_are_called_when_there_is_something(eventually: Eventually) -> None:
    async with memory_bench() as bench:
        some, everything = Watcher(bench, "s.a"), Watcher(bench)
        some.reader.await_more()
        everything.reader.await_more()
        await bench.store_all("s.b")
        await eventually(lambda: everything.calls == 1)
        await bench.store_all("s.a", "s.b")
        await eventually(lambda: some.calls == 1)
        assert everything.calls == 1
        everything.reader.await_more()
        bench.readers.remove_reader(everything.reader)
        await bench.store_all("s.b")
        assert everything.calls == 1


async def test_nothing_appears_before_it_is_durable(tmp_path: Path, eventually: Eventually) -> None:
    async with file_bench(tmp_path) as bench:
        watcher = Watcher(bench, "s.a")
        watcher.reader.await_more()
        bench.publish("s.a")
        await bench.store.delete(1)
        bench.publish("s.a")
        assert (watcher.pending, watcher.calls) == (set(), 0)
        await eventually(lambda: watcher.pending == {2})
        await eventually(lambda: watcher.calls == 1)


async def test_an_emptied_stream_is_counted_anew(eventually: Eventually) -> None:
    async with memory_bench() as bench:
        watcher = Watcher(bench, "s.a")
        await bench.store_all("s.a", "s.a")
        bench.store.log.clear(3)
        await eventually(lambda: watcher.recounts == 2)
        assert watcher.pending == set()
        await bench.store_all("s.a")
        assert watcher.pending == {3}


async def test_a_work_queue_removes_what_was_acknowledged() -> None:
    async with memory_bench() as bench:
        bench.readers.set_retention("workqueue")
        watcher = Watcher(bench, "s.a")
        await bench.store_all("s.a", "s.b", "s.a")
        watcher.ack(1)
        watcher.ack(7)
        assert bench.contents() == {2: "s.b", 3: "s.a"}
        bench.readers.remove_reader(watcher.reader)
        await bench.store_all("s.b")
        assert bench.contents() == {2: "s.b", 3: "s.a", 4: "s.b"}


async def test_interest_keeps_what_somebody_still_needs() -> None:
    async with memory_bench() as bench:
        bench.readers.set_retention("interest")
        one, other = Watcher(bench, "s.a"), Watcher(bench)
        await bench.store_all("s.a", "s.b", "s.a")
        one.ack(1)
        assert len(bench.contents()) == 3
        other.ack(1)
        other.ack(2)
        assert bench.contents() == {3: "s.a"}


async def test_without_interest_nothing_is_stored() -> None:
    async with memory_bench(duplicate_window_ns=10**9) as bench:
        bench.readers.set_retention("interest")
        assert await bench.ask("s.a", Nats_Msg_Id="one") == {"stream": "S", "seq": 1}
        again = {"stream": "S", "seq": 1, "duplicate": True}
        assert await bench.ask("s.a", Nats_Msg_Id="one") == again
        watcher = Watcher(bench, "s.b")
        assert await bench.ask("s.a") == {"stream": "S", "seq": 2}
        assert await bench.ask("s.b") == {"stream": "S", "seq": 3}
        assert bench.contents() == {3: "s.b"}
        assert watcher.pending == {3}
        assert (bench.readers.has_interest("s.b"), bench.readers.has_interest("s.a")) == (
            True,
            False,
        )


async def test_a_stream_that_begins_or_ends_loses_nothing(eventually: Eventually) -> None:
    async with memory_bench() as bench:
        watcher = Watcher(bench)
        await bench.store_all("s.a", "s.a", "s.a")
        bench.readers.remove_reader(watcher.reader)
        bench.ingest.pause()
        bench.readers.set_retention("interest")
        first, second = Watcher(bench, "s.b"), Watcher(bench, "s.>")
        second.ack(1)
        bench.readers.remove_reader(first.reader)
        assert bench.readers.is_rechecking
        assert len(bench.contents()) == 3
        bench.ingest.resume()
        await eventually(lambda: not bench.readers.is_rechecking)
        assert bench.contents() == {2: "s.a", 3: "s.a"}


@pytest.mark.parametrize("change", ["remove", "filter"])
async def test_interest_that_ends_is_noticed(change: str, eventually: Eventually) -> None:
    async with memory_bench() as bench:
        bench.readers.set_retention("interest")
        keeper, leaver = Watcher(bench, "s.keep"), Watcher(bench, "s.>")
        for _ in range(700):
            bench.publish("s.leave")
        await bench.store_all("s.keep")
        if change == "remove":
            bench.readers.remove_reader(leaver.reader)
        else:
            change_filters(bench, leaver.reader, ["s.keep"])
        await eventually(lambda: not bench.readers.is_rechecking)
        assert bench.contents() == {701: "s.keep"}
        assert keeper.pending == {701}


async def test_what_nobody_asked_for_stays_when_retention_becomes_interest(
    eventually: Eventually,
) -> None:
    async with memory_bench() as bench:
        bench.readers.set_retention("limits")
        reader, other = Watcher(bench, "s.a"), Watcher(bench, "s.b")
        await bench.store_all("s.a", "s.b", "s.c", "s.a")
        reader.ack(1)
        bench.readers.set_retention("interest")
        await eventually(lambda: not bench.readers.is_rechecking)
        assert bench.contents() == {2: "s.b", 3: "s.c", 4: "s.a"}
        other.ack(2)
        bench.readers.recheck_soon()
        await eventually(lambda: not bench.readers.is_rechecking)
        assert bench.contents() == {3: "s.c", 4: "s.a"}
        bench.readers.remove_reader(other.reader)
        await eventually(lambda: not bench.readers.is_rechecking)
        assert bench.contents() == {4: "s.a"}


async def test_what_is_not_in_memory_is_fetched_to_be_removed(
    tmp_path: Path, eventually: Eventually
) -> None:
    async with file_bench(tmp_path, limits=Limits()) as bench:
        for number in range(100):
            bench.publish(f"s.{number % 3}", b"x" * 30)
        await bench.store_all("s.last")
    async with file_bench(tmp_path) as bench:
        watcher = Watcher.__new__(Watcher)
        watcher.acked, watcher.pending, watcher.calls = set(), set(), 0
        watcher.recount = lambda: None  # type: ignore[method-assign]  # nothing is in memory
        watcher.reader = CallbackReader(watcher)
        bench.readers.add_reader(watcher.reader, ["s.1"])
        bench.readers.set_retention("interest")
        bench.readers.recheck_soon()
        await eventually(lambda: not bench.readers.is_rechecking)
        left = range(2, 101, 3)
        log = bench.store.log
        assert [number for number in range(1, 102) if log.has(number)] == list(left)
        for sequence in left:
            watcher.ack(sequence)
        await eventually(lambda: not bench.readers.is_rechecking)
        assert bench.store.state().msgs == 0


subjects = st.sampled_from(["s.a.1", "s.a.2", "s.b.1", "s.b.2", "s.c"])
filters = st.lists(
    st.sampled_from(["s.a.*", "s.*.1", "s.b.>", "s.c", "s.a.2"]), min_size=0, max_size=2
)


@given(st.data())
@settings(max_examples=60, deadline=None)
async def test_readers_always_know_what_is_pending(data: st.DataObject) -> None:
    async with memory_bench(limits=Limits(max_msgs=20, max_msgs_per_subject=7)) as bench:
        watchers: list[Watcher] = []
        for _ in range(data.draw(st.integers(1, 25))):
            step = data.draw(st.sampled_from(["publish", "add", "change", "remove", "delete"]))
            if step == "publish":
                chosen = data.draw(st.lists(subjects, min_size=1, max_size=10))
                await bench.store_all(*chosen)
            elif step == "add":
                watchers.append(Watcher(bench, *data.draw(filters)))
            elif step == "delete":
                await bench.store.delete(data.draw(st.integers(1, 40)))
            elif watchers:
                watcher = data.draw(st.sampled_from(watchers))
                if step == "remove":
                    watchers.remove(watcher)
                    bench.readers.remove_reader(watcher.reader)
                else:
                    watcher.filters = tuple(data.draw(filters))
                    change_filters(bench, watcher.reader, watcher.filters)
                    watcher.recount()
            for watcher in watchers:
                if watcher.filters:
                    await eventually_within(partial(agrees, watcher))


def agrees(watcher: Watcher) -> bool:
    contents = watcher.bench.contents().items()
    return watcher.pending == {number for number, name in contents if watcher.wants(name)}
