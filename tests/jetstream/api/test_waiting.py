"""Waiting requests: a bounded number at once, each asset's in order, none behind 10,000 others."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.jetstream.api.waiting import Asset, WaitingRequests
from tests.waiting import Eventually, eventually_within

STREAM = ("$G", "S")
OTHER = ("$G", "T")
CONSUMER = ("$G", "S", "C")
ANOTHER = ("$G", "S", "D")


class Bench:
    """Requests that end when the test tells them to."""

    def __init__(self, limit: int = 100, at_once: int = 3) -> None:
        self.dropped: list[tuple[str, int]] = []
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.at_once_most = 0
        self._ends: dict[str, asyncio.Event] = {}
        self.requests = WaitingRequests(
            limit, at_once, lambda account, count: self.dropped.append((account, count))
        )

    def add(self, name: str, asset: Asset = (), account: str = "$G") -> None:
        self._ends[name] = asyncio.Event()

        async def work() -> None:
            self.begun.append(name)
            self.at_once_most = max(self.at_once_most, len(self.begun) - len(self.ended))
            await self._ends[name].wait()
            self.ended.append(name)

        self.requests.add(account, asset, work)

    def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()

    def end_all(self) -> None:
        self.end(*self._ends)


async def test_so_many_at_once(eventually: Eventually) -> None:
    bench = Bench(at_once=2)
    for name in "abc":
        bench.add(name)
    await eventually(lambda: bench.begun == ["a", "b"])
    assert len(bench.requests) == 1
    bench.end("b")
    await eventually(lambda: bench.begun == ["a", "b", "c"])
    bench.end_all()
    await bench.requests.close()


async def test_a_stream_waits_for_its_consumers_and_they_for_it(eventually: Eventually) -> None:
    bench = Bench(at_once=9)
    bench.add("consumer", CONSUMER)
    bench.add("another", ANOTHER)
    bench.add("stream", STREAM)
    bench.add("behind", CONSUMER)
    bench.add("elsewhere", OTHER)
    bench.add("free")
    await eventually(lambda: len(bench.begun) == 4)
    assert set(bench.begun) == {"consumer", "another", "elsewhere", "free"}
    bench.end("consumer")
    await eventually(lambda: bench.ended == ["consumer"])
    assert "stream" not in bench.begun
    bench.end("another")
    await eventually(lambda: "stream" in bench.begun)
    assert "behind" not in bench.begun
    bench.end("stream")
    await eventually(lambda: "behind" in bench.begun)
    bench.end_all()
    await bench.requests.close()


async def test_too_many_are_dropped_together(eventually: Eventually) -> None:
    """An overflow drops the whole queue, as in nats-server's `apiDispatch`; begun ones go on."""
    bench = Bench(limit=3, at_once=1)
    bench.add("first")
    for name in "abc":
        bench.add(name)
    assert bench.dropped == [("$G", 3)]
    assert len(bench.requests) == 0
    bench.add("later")
    bench.end_all()
    await eventually(lambda: bench.ended == ["first", "later"])
    await bench.requests.close()


async def test_closed(eventually: Eventually) -> None:
    bench = Bench(at_once=1)
    bench.add("begun")
    bench.add("waiting")
    await eventually(lambda: bench.begun == ["begun"])
    closing = asyncio.ensure_future(bench.requests.close())
    await asyncio.sleep(0)
    assert not closing.done()
    bench.end("begun")
    await closing
    bench.add("too late")
    assert bench.begun == ["begun"]


ASSETS = st.sampled_from([(), STREAM, OTHER, CONSUMER, ANOTHER])


@settings(max_examples=50)
@given(st.lists(ASSETS, max_size=12), st.integers(1, 4))
def test_all_are_carried_out_in_order(assets: list[Asset], at_once: int) -> None:
    """Requests about one asset, or about its whole stream, are carried out in order."""

    async def run() -> list[str]:
        bench = Bench(at_once=at_once)
        for number, asset in enumerate(assets):
            bench.add(str(number), asset)
        bench.end_all()
        await eventually_within(lambda: len(bench.ended) == len(assets))
        await bench.requests.close()
        assert bench.at_once_most <= at_once
        return bench.begun

    begun = [int(name) for name in asyncio.run(run())]
    assert sorted(begun) == list(range(len(assets)))
    for earlier, one in enumerate(assets):
        for later, other in enumerate(assets[earlier + 1 :], earlier + 1):
            shared = min(len(one), len(other))
            if shared and one[:shared] == other[:shared]:
                assert begun.index(earlier) < begun.index(later)


async def test_accounts_take_turns(eventually: Eventually) -> None:
    """An account that floods does not delay the others by more than its running requests."""
    bench = Bench(at_once=2)
    for name in ("f1", "f2", "f3", "f4", "f5"):
        bench.add(name, account="FLOOD")
    bench.add("one", account="ONE")
    await eventually(lambda: bench.begun == ["f1", "f2", "one"])  # a place of its own
    for name in ("two", "three"):
        bench.add(name, account="ONE")
    bench.end("f1", "f2", "one")
    await eventually(lambda: bench.begun[3:] == ["f3", "two"])
    bench.end("f3", "two")
    await eventually(lambda: bench.begun[5:] == ["f4", "three"])
    bench.end_all()
    await eventually(lambda: len(bench.ended) == 8)
    await bench.requests.close()


async def test_the_account_that_floods_loses_its_requests(eventually: Eventually) -> None:
    bench = Bench(limit=6, at_once=1)
    bench.add("running", account="FLOOD")
    bench.add("first", account="ONE")
    for name in ("second", "third"):
        bench.add(name, account="ONE")
    for number in range(4):
        bench.add(f"f{number}", account="FLOOD")
    assert bench.dropped == [("FLOOD", 4)]
    assert len(bench.requests) == 2
    bench.end_all()
    await eventually(lambda: bench.ended == ["running", "first", "second", "third"])
    await bench.requests.close()


async def test_settled_is_what_ran(eventually: Eventually) -> None:
    """Waiting requests, and those of other accounts, are not awaited."""
    bench = Bench(at_once=1)
    bench.add("runs", account="A")
    bench.add("waits", account="A")
    bench.add("other", account="B")
    settling = asyncio.create_task(bench.requests.settle("A"))
    await eventually(lambda: bench.begun == ["runs", "other"])
    assert not settling.done()
    bench.end("runs")
    await settling
    await bench.requests.settle("nobody")
    bench.end_all()
    await bench.requests.close()
