"""The cost of a request grows with its size, not with the square, and it delays no other request.

CPU time of this process is compared at one size and at four times that size, with room for a busy
machine. Memory is measured by tracemalloc, and the delay of others by the turns of the loop.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from natsd.jetstream.api.table import ROUTES, Route
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models import go_json
from natsd.jetstream.models.go_json import DEPTH_MAX, InvalidJson, decode
from natsd.jetstream.models.requests import StreamConfigRequest
from natsd.jetstream.names import (
    BACKOFF_MAX,
    FILTERS_MAX,
    GROUPS_MAX,
    SOURCES_MAX,
    TRANSFORMS_MAX,
)
from tests.jetstream.api.extremes import fields_of, with_value
from tests.jetstream.serving import account_of, ask, create, serving
from tests.store.crash import TORTURE

Json = dict[str, Any]
Request = tuple[str, Any]

GROWTH = 4
FACTOR = 10
"""Limit of the growth in cost at GROWTH times the size; quadratic growth would be 16."""
SMALL_CPU_S = 0.05
"""Smaller costs are not compared, because the clock's resolution would decide."""
MEMORY_FACTOR = 60
MEMORY_BYTES = 4 << 20
LONG_BYTES = 40_000 if TORTURE > 1 else 10_000
ALIKE = ("STREAM.UPDATE.*", "STREAM.RESTORE.*", "CONSUMER.CREATE.*", "CONSUMER.DURABLE.CREATE.*.*")
"""Requests whose fields also belong to others: one in four of their fields is tried."""
SMALL_TURN_S = 0.03
ATTEMPTS = 3
"""A busy machine is slower now and then."""
LONG_CPU_S = 2.0
TURN_S_MAX = 0.5
"""Limit of a turn of the loop on a busy machine; a request that held the loop took seconds."""


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    """Disable garbage collection: objects of other tests make each collection long."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
async def jetstream(tmp_path: Path) -> AsyncIterator[JetStream]:
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "S", subjects=["s.>"])
        await create(jetstream, "W", subjects=["w.>"], retention="workqueue")
        yield jetstream


async def request(jetstream: JetStream, subject: str, body: Any) -> Json:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    ((_, answer),) = await ask(jetstream, f"$JS.API.{subject}", data)
    return dict(json.loads(answer))


def stream(name: str, **config: Any) -> Request:
    return f"STREAM.CREATE.{name}", {"name": name, **config}


def consumer(name: str, of: str = "S", **config: Any) -> Request:
    config = {"durable_name": name, "ack_policy": "explicit", "mem_storage": True, **config}
    return f"CONSUMER.CREATE.{of}.{name}", {"stream_name": of, "config": config}


def transforms(count: int, pattern: str) -> list[Json]:
    return [{"src": pattern % n, "dest": f"t.{n}"} for n in range(count)]


LARGE: dict[str, tuple[int, Callable[[int], Request]]] = {
    "literal filters": (2_500, lambda n: consumer(f"L{n}", filter_subjects=names(n, "s.%d"))),
    "wild filters": (2_500, lambda n: consumer(f"P{n}", filter_subjects=names(n, "s.%d.*"))),
    "filters that meet": (
        1_000,
        lambda n: consumer(
            f"M{n}", filter_subjects=names(n // 2, "s.%d.*") + names(n // 2, "s.*.%d")
        ),
    ),
    "covered filters": (
        2_500,
        lambda n: consumer(f"C{n}", filter_subjects=[*names(n, "s.%d.*"), "s.7.x"]),
    ),
    "filters of a work queue": (
        2_500,
        lambda n: consumer(f"Q{n}", "W", filter_subjects=names(n, f"w.{n}.%d.*")),
    ),
    "backoff": (50_000, lambda n: consumer("B", backoff=[10**9] * n)),
    "groups": (
        25_000,
        lambda n: consumer(
            "G", priority_policy="overflow", priority_groups=names(n, "g%d"), filter_subject="s.a"
        ),
    ),
    "literal subjects": (5_000, lambda n: stream(f"LS{n}", subjects=names(n, f"ls{n}.%d"))),
    "wild subjects": (5_000, lambda n: stream(f"WS{n}", subjects=names(n, f"ws{n}.%d.*"))),
    "subjects that are numbers": (100_000, lambda n: stream("N", subjects=[1] * n)),
    "sources": (250, lambda n: stream(f"SO{n}", sources=[{"name": f"O{i}"} for i in range(n)])),
    "too many sources": (5_000, lambda n: stream("TS", sources=[{"name": "O"}] * n)),
    "sources that are numbers": (100_000, lambda n: stream("SN", sources=[1] * n)),
    "transforms": (
        250,
        lambda n: stream(
            f"TR{n}", sources=[{"name": "O", "subject_transforms": transforms(n, "t.%d.>")}]
        ),
    ),
    "too many transforms": (
        5_000,
        lambda n: stream("TT", mirror={"name": "O", "subject_transforms": transforms(n, "x.%d")}),
    ),
    "metadata": (5_000, lambda n: stream("MD", metadata={f"key {i}": "v" for i in range(n)})),
    "metadata that is numbers": (
        20_000,
        lambda n: stream("MN", metadata={f"key {i}": i for i in range(n)}),
    ),
    "unknown fields": (20_000, lambda n: stream("U", **{f"field{i}": i for i in range(n)})),
    "tags": (50_000, lambda n: stream("TG", placement={"tags": names(n, "t%d")})),
    "blanks": (200_000, lambda n: ("STREAM.CREATE.E", b" " * n)),
    "brackets": (200_000, lambda n: ("STREAM.CREATE.E", b"[" * n)),
    "escapes": (50_000, lambda n: ("STREAM.CREATE.E", b'{"name":"' + b"\\ud800" * n + b'"}')),
    "digits": (200_000, lambda n: ("STREAM.CREATE.E", b'{"max_msgs":' + b"9" * n + b"}")),
    "state of a restore": (
        50_000,
        lambda n: (
            "STREAM.RESTORE.R",
            {"config": {"name": "R"}, "state": {"deleted": [*range(1, n)]}},
        ),
    ),
    "last of many": (
        2_500,
        lambda n: ("STREAM.MSG.GET.S", {"multi_last": names(n, "s.%d.*")}),
    ),
}


def names(count: int, pattern: str) -> list[str]:
    return [pattern % number for number in range(count)]


class Bystander:
    """A counter of the loop's turns, which also measures the CPU time of the longest turn."""

    def __init__(self) -> None:
        self.turns = 0
        self.longest_s = 0.0
        self._task = asyncio.create_task(self._count())

    async def _count(self) -> None:
        while True:
            began_s = time.thread_time()
            await asyncio.sleep(0)
            self.longest_s = max(self.longest_s, time.thread_time() - began_s)
            self.turns += 1

    def stop(self) -> None:
        self._task.cancel()


@pytest.mark.parametrize("kind", LARGE)
async def test_cost_grows_with_the_size(jetstream: JetStream, kind: str) -> None:
    """At four times the size the cost is less than quadratic, and no turn of the loop is long."""
    size, make = LARGE[kind]
    for less in range(ATTEMPTS):  # other sizes, so that other assets are made
        small_s = await cpu_s(jetstream, make, size - less)
        large_s = await cpu_s(jetstream, make, size * GROWTH - less)
        if large_s < max(FACTOR * small_s, SMALL_CPU_S):
            return
    pytest.fail(f"it took {small_s} s, then {large_s} s")


async def cpu_s(jetstream: JetStream, make: Callable[[int], Request], count: int) -> float:
    """Return the CPU time of a request of that size."""
    subject, body = make(count)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    bystander = Bystander()
    await asyncio.sleep(0)
    began_s = time.process_time()
    answer = await request(jetstream, subject, data)
    spent_s = time.process_time() - began_s
    bystander.stop()
    assert "internal error" not in str(answer.get("error"))
    assert bystander.longest_s < TURN_S_MAX, (count, bystander.longest_s)
    await account_of(jetstream).end_transfers()
    return spent_s


@pytest.mark.parametrize("kind", LARGE)
async def test_memory_is_bounded_by_the_size(jetstream: JetStream, kind: str) -> None:
    size, make = LARGE[kind]
    subject, body = make(size * 2)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    tracemalloc.start()
    try:
        await request(jetstream, subject, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_FACTOR * len(data) + MEMORY_BYTES, (peak, len(data))


async def consumer_of_many_filters(jetstream: JetStream, size: int) -> None:
    """Create a consumer with many filters, then change, reset, query and delete it."""
    for pattern in ("s.a%d.*", "s.b%d.*"):
        for more in ({}, {"deliver_policy": "last_per_subject"}):
            subject, body = consumer("F", filter_subjects=names(size, pattern), **more)
            await request(jetstream, subject, body)
            await request(jetstream, "CONSUMER.RESET.S.F", b"")
            await request(jetstream, "CONSUMER.LIST.S", b"")
        await request(jetstream, "STREAM.PURGE.S", {"filter": "s.none"})
    await request(jetstream, "CONSUMER.DELETE.S.F", b"")


async def stream_of_many_sources(jetstream: JetStream, size: int) -> None:
    """Create a stream with sources that do not exist, then change its sources and delete it."""
    for prefix in ("X", "Y"):
        sources = [{"name": f"{prefix}{number}"} for number in range(size // 20)]
        verb = "CREATE" if prefix == "X" else "UPDATE"
        await request(jetstream, f"STREAM.{verb}.Z", {"name": "Z", "sources": sources})
        for _ in range(size // 4):
            await asyncio.sleep(0)
        await request(jetstream, "STREAM.INFO.Z", b"")
        await request(jetstream, "STREAM.LIST", b"")
    await request(jetstream, "STREAM.DELETE.Z", b"")


@pytest.mark.parametrize("work", [consumer_of_many_filters, stream_of_many_sources])
async def test_turns_do_not_grow_with_the_size(
    jetstream: JetStream, work: Callable[[JetStream, int], Awaitable[None]]
) -> None:
    """Long work runs in steps: eight times the size takes more turns, not longer ones."""
    gc.collect()
    gc.disable()
    try:
        for _ in range(ATTEMPTS):
            small_s = await longest_turn_s(jetstream, work, FILTERS_MAX // 8)
            large_s = await longest_turn_s(jetstream, work, FILTERS_MAX)
            if large_s < max(4 * small_s, SMALL_TURN_S):
                return
    finally:
        gc.enable()
    pytest.fail(f"the longest turn took {small_s} s, then {large_s} s")


async def longest_turn_s(
    jetstream: JetStream, work: Callable[[JetStream, int], Awaitable[None]], size: int
) -> float:
    bystander = Bystander()
    await asyncio.sleep(0)
    await work(jetstream, size)
    for _ in range(200):
        await asyncio.sleep(0)
    bystander.stop()
    return bystander.longest_s


def long_values(kind: Any) -> Iterator[Any]:
    """Yield about LONG_BYTES of values that fit such a field, and of values that do not."""
    yield "a" * LONG_BYTES
    yield {f"k{number}": "v" for number in range(LONG_BYTES // 12)}
    for item in ("a", 1, None, {}, []):
        yield [item] * (LONG_BYTES // 4)
    if "str" in str(kind):
        yield names(LONG_BYTES // 8, "a.%d")
        yield ".".join(["*"] * (LONG_BYTES // 2))


@pytest.mark.parametrize(
    "route",
    [each for each in ROUTES if each.handler and not each.needs_cluster],
    ids=lambda route: route.subject,
)
async def test_any_field_of_any_request_may_be_long(jetstream: JetStream, route: Route) -> None:
    """The cost of every field is bounded by its length, and it delays no other request."""
    tokens = iter(("S", "C"))
    subject = ".".join(next(tokens) if t in "*>" else t for t in route.subject.split("."))
    base = {"name": "S"} if "STREAM" in route.subject else {"stream_name": "S"}
    fields = [*fields_of(route.request)]
    for path, kind in fields[::4] if route.subject in ALIKE else fields:
        for value in long_values(kind):
            data = json.dumps(with_value(base, path, value)).encode()
            bystander = Bystander()
            await asyncio.sleep(0)
            began_s = time.process_time()
            if "ACCOUNT" not in subject:  # requests with ACCOUNT belong to the system account
                await request(jetstream, subject, data)
            spent_s = time.process_time() - began_s
            bystander.stop()
            assert spent_s < LONG_CPU_S, (path, str(value)[:40], spent_s)
            assert bystander.longest_s < TURN_S_MAX, (path, str(value)[:40])
            await account_of(jetstream).end_transfers()


async def test_as_many_as_there_may_be(jetstream: JetStream) -> None:
    """As many filters as the limit are accepted; one more is refused, as in other lists."""
    assert "error" not in await request(
        jetstream, *consumer("F", filter_subjects=names(FILTERS_MAX, "s.%d"))
    )
    for body in (
        consumer("X", filter_subjects=names(FILTERS_MAX + 1, "s.%d")),
        consumer("X", backoff=[1] * (BACKOFF_MAX + 1)),
        consumer("X", priority_policy="overflow", priority_groups=names(GROUPS_MAX + 1, "g%d")),
        stream("X", sources=[{"name": f"O{i}"} for i in range(SOURCES_MAX + 1)]),
        stream(
            "X",
            sources=[{"name": "O", "subject_transforms": transforms(TRANSFORMS_MAX + 1, "x.%d")}],
        ),
    ):
        error = (await request(jetstream, *body))["error"]
        assert error["err_code"] == 10052 and "too many" in error["description"], error


def test_depth() -> None:
    """Deep nesting is refused; 600 arrays with an escape once raised RecursionError."""
    for depth in (DEPTH_MAX - 1, DEPTH_MAX, 600, 5_000, 100_000):
        body = b'{"subjects":' + b"[" * depth + b'"\\ud800"' + b"]" * depth + b"}"
        with pytest.raises(InvalidJson) as raised:
            decode(StreamConfigRequest, body)
        is_deep = depth >= DEPTH_MAX
        assert ("exceeded max depth" in str(raised.value)) is is_deep


def test_the_first_error_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of half a million errors ends the reading and is the answer."""
    found: list[int] = []
    why = go_json._why

    def counting(model: Any, error: Any) -> str:
        found.append(error.error_count())
        return why(model, error)

    monkeypatch.setattr(go_json, "_why", counting)
    for field in ("subjects", "sources"):
        with pytest.raises(InvalidJson, match="cannot unmarshal number"):
            decode(StreamConfigRequest, json.dumps({field: [1] * 500_000}).encode())
    metadata = {str(n): n for n in range(100_000)}
    with pytest.raises(InvalidJson, match="cannot unmarshal number"):
        decode(StreamConfigRequest, json.dumps({"metadata": metadata}).encode())
    assert found == [1, 1, 1]
