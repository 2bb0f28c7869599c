"""Counters (ADR-49): sums, increments from sources, and totals that are not in memory.

The headers of sourced messages were recorded from nats-server 2.14.5.
"""

from __future__ import annotations

import errno
import json
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.jetstream.errors import ErrorId
from natsd.store.store import Limits
from tests.jetstream.clock import SECOND_NS
from tests.jetstream.stream.publishing import Bench, file_bench, header_block, memory_bench
from tests.store.faulty_disk import FaultyDisk

BROKEN = ErrorId.JSMessageCounterBrokenErr.err_code


async def value(bench: Bench, subject: str, change: str) -> Any:
    """Publish an increment and return the new total, or the error."""
    answer = await bench.ask(subject, Nats_Incr=change)
    return answer.get("val") or answer["error"]["err_code"]


def sourced(bench: Bench, subject: str, origin: str, total: str) -> tuple[bytes, ...]:
    """Return headers and payload stored for a sourced total, or the answer."""
    assert bench.ingest.counters is not None
    headers = header_block({"Nats-Incr": "0", "Nats-Stream-Source": origin})
    found = bench.ingest.counters.sourced(subject.encode(), headers, total.encode())
    if len(found) == 2:
        bench.store.append(subject, found[0], found[1], bench.clock.now_ns)
    return found


def said(total: str | int) -> str:
    return json.dumps({"val": str(total)}, separators=(",", ":"))


class TestSources:
    async def test_totals_of_others_are_added_here(self) -> None:
        async with memory_bench(counts=True) as bench:
            block, body = sourced(bench, "s.x", "A 1 a.> s.> a.x", said(5))
            assert body == b'{"val":"5"}'
            assert block == header_block(
                {
                    "Nats-Incr": "5",
                    "Nats-Stream-Source": "A 1 a.> s.> a.x",
                    "Nats-Counter-Sources": '{"A":{"a.x":"5"}}',
                }
            )
            block, body = sourced(bench, "s.x", "A 2 a.> s.> a.x", said(10))
            assert (b"\r\nNats-Incr: 5\r\n" in block, body) == (True, b'{"val":"10"}')
            block, body = sourced(bench, "s.x", "B 1 b.> s.> b.x", said(-3))
            assert (b"\r\nNats-Incr: -3\r\n" in block, body) == (True, b'{"val":"7"}')
            assert b'Nats-Counter-Sources: {"A":{"a.x":"10"},"B":{"b.x":"-3"}}\r\n' in block

    async def test_what_is_added_here_keeps_them(self) -> None:
        async with memory_bench(counts=True) as bench:
            sourced(bench, "s.x", "A 1 > > s.x", said(5))
            assert (await bench.ask("s.x", Nats_Incr="+100", Other="y"))["val"] == "105"
            stored = bench.store.load_cached(2)
            assert stored is not None
            assert stored.headers == header_block(
                {
                    "Nats-Incr": "+100",
                    "Other": "y",
                    "Nats-Counter-Sources": '{"A":{"s.x":"5"}}',
                }
            )
            assert sourced(bench, "s.x", "A 2 > > s.x", said(6))[1] == b'{"val":"106"}'

    async def test_brought_twice_it_counts_once(self) -> None:
        async with memory_bench(counts=True) as bench:
            for _ in range(2):
                assert sourced(bench, "s.x", "A 1 > > s.x", said(5))[1] == b'{"val":"5"}'

    async def test_through_a_stream_that_is_filled_by_others(self) -> None:
        """The sources of the intermediate stream are not repeated."""
        async with memory_bench(counts=True) as bench:
            assert bench.ingest.counters is not None
            block = header_block(
                {
                    "Nats-Incr": "3",
                    "Nats-Counter-Sources": '{"Z":{"z":"3"}}',
                    "Nats-Stream-Source": "A 1 > > s.<&",
                }
            )
            found = bench.ingest.counters.sourced(b"s.x", block, b'{"val":"3"}')
            assert b'Nats-Counter-Sources: {"A":{"s.\\u003c\\u0026":"3"}}\r\n' in found[0]
            assert b'"Z"' not in found[0]

    @pytest.mark.parametrize("body", ["", "x", "[]", "{}", '{"val":5}', said("five"), said("")])
    async def test_no_total_is_brought(self, body: str) -> None:
        async with memory_bench(counts=True) as bench:
            (answer,) = sourced(bench, "s.x", "A 1 > > s.x", body)
            assert json.loads(answer)["error"]["err_code"] == BROKEN

    @pytest.mark.parametrize("known", ["x", "[]", '{"A":1}', '{"A":{"s.x":5}}', '{"B":[]}'])
    async def test_what_is_known_of_sources_is_damaged(self, known: str) -> None:
        async with memory_bench(counts=True) as bench:
            block = header_block({"Nats-Counter-Sources": known})
            bench.store.append("s.x", block, b'{"val":"1"}', bench.clock.now_ns)
            (answer,) = sourced(bench, "s.x", "A 1 > > s.x", said(5))
            assert json.loads(answer)["error"]["err_code"] == BROKEN


class TestBroken:
    @pytest.mark.parametrize("body", [b"", b"x", b"{}", b'{"val":5}', b'{"val":"five"}', b"[1]"])
    async def test_the_last_message_is_no_total(self, body: bytes) -> None:
        """The counter refuses increments until that message is removed."""
        async with memory_bench(counts=True) as bench:
            assert await value(bench, "s.x", "7") == "7"
            broken = bench.store.append("s.x", None, body, bench.clock.now_ns)
            assert await value(bench, "s.x", "1") == BROKEN
            await bench.store.delete(broken)
            assert await value(bench, "s.x", "1") == "8"

    async def test_json_may_be_written_in_any_way(self) -> None:
        async with memory_bench(counts=True) as bench:
            body = b' {"other": [1], "val" : "\\u0037" } '
            bench.store.append("s.x", None, body, bench.clock.now_ns)
            assert await value(bench, "s.x", "1") == "8"


class TestNotInMemory:
    async def test_publishes_wait_and_keep_their_order(self, tmp_path: Path) -> None:
        async with file_bench(tmp_path, counts=True) as bench:
            for number in range(40):
                await bench.ask(f"s.{number}", Nats_Incr="1")
        async with file_bench(tmp_path, counts=True) as bench:
            replies = [
                bench.publish(f"s.{number}", Nats_Incr="1")
                for number in (0, 39, 0, 20, 40, 0)  # 39 is in memory, 40 is new
            ]
            answers = [json.loads(await bench.answer(reply)) for reply in replies]
            assert [answer["val"] for answer in answers] == ["2", "2", "3", "2", "1", "4"]
            assert [answer["seq"] for answer in answers] == [41, 42, 43, 44, 45, 46]

    async def test_more_than_may_wait_is_told_to_come_again(self, tmp_path: Path) -> None:
        async with file_bench(tmp_path, counts=True) as bench:
            for number in range(40):
                await bench.ask(f"s.{number}", Nats_Incr="1")
        async with file_bench(tmp_path, counts=True) as bench:
            first = bench.publish("s.0", Nats_Incr="1")
            large = [bench.publish("s.1", Nats_Incr="9" * 60_000) for _ in range(80)]
            answers = [json.loads(await bench.answer(reply)) for reply in large]
            codes = [answer.get("error", {}).get("err_code", 0) for answer in answers]
            assert codes == [0] * 69 + [10167] * 11
            assert json.loads(await bench.answer(first))["val"] == "2"

    async def test_a_block_that_cannot_be_read(self, tmp_path: Path) -> None:
        """The answer is an error, never a wrong sum."""
        disk = FaultyDisk(seed=1)
        async with file_bench(Path("/data"), disk=disk, counts=True) as bench:
            for number in range(40):
                await bench.ask(f"s.{number}", Nats_Incr="1")
        async with file_bench(Path("/data"), disk=disk, counts=True) as bench:
            disk.fail("pread", errno.EIO, path=".blk", times=1000)
            assert await value(bench, "s.0", "1") == 10172
            assert await value(bench, "s.39", "1") == "2"

    async def test_nothing_that_waits_is_taken_once_the_stream_ends(self, tmp_path: Path) -> None:
        async with file_bench(tmp_path, counts=True) as bench:
            for number in range(40):
                await bench.ask(f"s.{number}", Nats_Incr="1")
        async with file_bench(tmp_path, counts=True) as bench:
            bench.publish("s.0", Nats_Incr="1")
            bench.ingest.pause()
            await bench.store.synced()
            assert bench.store.log.last_sequence == 40


async def test_a_failed_commit_takes_its_sums_back() -> None:
    disk = FaultyDisk(seed=1)
    async with file_bench(Path("/data"), disk=disk, counts=True) as bench:
        assert await value(bench, "s.x", "5") == "5"
        disk.fail("pwrite", errno.ENOSPC, path=".blk")
        replies = [bench.publish("s.x", Nats_Incr="1") for _ in range(3)]
        for reply in replies:
            assert json.loads(await bench.answer(reply))["error"]["err_code"] == 10023
        while (found := await value(bench, "s.x", "1")) == 10023:
            pass
        assert found == "6"


CHANGES = st.integers(-(10**30), 10**30) | st.integers(-9, 9)
SUBJECTS = st.sampled_from(["s.a", "s.b", "s.c"])


async def compare(bench: Bench, data: st.DataObject, totals: dict[str, int]) -> None:
    """Run a random program against a dict of ints, without removals.

    The behaviour tests cover removals.
    """
    ids: set[str] = set()
    for _ in range(data.draw(st.integers(1, 20))):
        subject, change = data.draw(SUBJECTS), data.draw(CHANGES)
        message_id = data.draw(st.sampled_from(["", "", "one", "two"]))
        headers = {"Nats_Msg_Id": message_id} if message_id else {}
        answer = await bench.ask(subject, Nats_Incr=str(change), **headers)
        if message_id in ids:
            assert answer["duplicate"]
            continue
        ids |= {message_id} - {""}
        totals[subject] += change
        assert answer["val"] == str(totals[subject])


@given(st.data())
@settings(max_examples=40, deadline=None)
async def test_sums_are_those_of_a_dict(data: st.DataObject) -> None:
    limits = Limits(max_msgs_per_subject=data.draw(st.sampled_from([-1, 1, 3])))
    async with memory_bench(
        limits=limits, counts=True, duplicate_window_ns=60 * SECOND_NS
    ) as bench:
        await compare(bench, data, defaultdict(int))


@given(st.data())
@settings(max_examples=10, deadline=None)
async def test_sums_outlive_restarts(data: st.DataObject) -> None:
    totals: dict[str, int] = defaultdict(int)
    with TemporaryDirectory() as directory:
        for _ in range(3):
            async with file_bench(
                Path(directory), counts=True, duplicate_window_ns=60 * SECOND_NS
            ) as bench:
                await compare(bench, data, totals)


@given(st.lists(st.tuples(st.sampled_from("AB"), SUBJECTS, CHANGES), max_size=20))
@settings(max_examples=40, deadline=None)
async def test_sums_of_sources_are_those_of_a_dict(steps: list[tuple[str, str, int]]) -> None:
    """The total is the sum over all origins."""
    async with memory_bench(counts=True) as bench:
        origins: dict[tuple[str, str], int] = defaultdict(int)
        for number, (origin, subject, change) in enumerate(steps):
            origins[origin, subject] += change
            header = f"{origin} {number} > > {subject}"
            _, body = sourced(bench, subject, header, said(origins[origin, subject]))
            here = sum(total for (_, name), total in origins.items() if name == subject)
            assert body.decode() == said(here)
