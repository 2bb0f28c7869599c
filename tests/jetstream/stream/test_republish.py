"""A stored message is republished when it is durable (ADR-28)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from natsd.jetstream.stream.settings import Mapping, RepublishSettings
from natsd.store.store import Limits
from tests.jetstream.stream.publishing import Bench, Received, file_bench, memory_bench
from tests.waiting import Eventually

ALL = RepublishSettings(Mapping("s.>", "out.>"))


def republished(bench: Bench) -> list[Received]:
    return [message for message in bench.received if message.subject.startswith("out.")]


async def test_headers_say_where_it_is(eventually: Eventually) -> None:
    async with memory_bench(republish=ALL) as bench:
        await bench.store_all("s.a", "s.b")
        await bench.ask("s.a", b"data", Color="red")
        await eventually(lambda: len(republished(bench)) == 3)
        assert republished(bench)[2] == Received(
            "out.a",
            b"NATS/1.0\r\nColor: red\r\nNats-Stream: S\r\nNats-Subject: s.a\r\nNats-Sequence: 3\r\n"
            b"Nats-Time-Stamp: 2023-11-14T22:13:20Z\r\nNats-Last-Sequence: 1\r\n\r\n",
            b"data",
        )
        assert republished(bench)[1].headers == (
            b"NATS/1.0\r\nNats-Stream: S\r\nNats-Subject: s.b\r\nNats-Sequence: 2\r\n"
            b"Nats-Time-Stamp: 2023-11-14T22:13:20Z\r\nNats-Last-Sequence: 0\r\n\r\n"
        )


async def test_headers_only(eventually: Eventually) -> None:
    settings = RepublishSettings(Mapping("s.*.x", "out.$1"), headers_only=True)
    async with memory_bench(republish=settings) as bench:
        await bench.ask("s.one.y", b"data")
        await bench.ask("s.one.x", b"data")
        await eventually(lambda: len(republished(bench)) == 1)
        (message,) = republished(bench)
        assert (message.subject, message.data) == ("out.one", b"")
        assert message.headers.endswith(b"Nats-Last-Sequence: 0\r\nNats-Msg-Size: 4\r\n\r\n")


async def test_the_last_one_of_a_subject_may_be_gone_already(eventually: Eventually) -> None:
    async with memory_bench(republish=ALL, limits=Limits(max_msgs_per_subject=1)) as bench:
        await bench.store_all("s.a", "s.a")
        await eventually(lambda: len(republished(bench)) == 2)
        assert b"\r\nNats-Last-Sequence: 1\r\n" in republished(bench)[1].headers


async def test_in_order_and_not_before_it_is_durable(
    tmp_path: Path, eventually: Eventually
) -> None:
    async with file_bench(tmp_path, republish=ALL) as bench:
        for number in range(500):
            bench.publish(f"s.{number}", b"x" * 50)
        assert republished(bench) == []
        await eventually(lambda: len(republished(bench)) == 500)
        assert [message.subject for message in republished(bench)] == [
            f"out.{number}" for number in range(500)
        ]


async def test_a_stream_without_it_republishes_nothing(eventually: Eventually) -> None:
    async with memory_bench(republish=ALL) as bench:
        await bench.store_all("s.a")
        await eventually(lambda: len(republished(bench)) == 1)
        changed: dict[str, Any] = {"name": "S", "is_memory": True}
        bench.ingest.configure(type(bench.ingest.settings)(**changed))
        await bench.store_all("s.a")
        assert len(republished(bench)) == 1


async def test_subjects_are_mapped_on_the_way_in() -> None:
    async with memory_bench(subject_transform=Mapping("s.*.in", "kept.$1")) as bench:
        await bench.store_all("s.a.in", "s.b.out")
        assert bench.contents() == {1: "kept.a", 2: "s.b.out"}
        again = await bench.ask("s.a.in", Nats_Expected_Last_Subject_Sequence="1")
        assert again == {"stream": "S", "seq": 3}
