"""Profiles over HTTP and over NATS, read by a decoder of pprof's format and by pprof itself."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import re
import shutil
import subprocess
import threading
import time
import tracemalloc
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import aiohttp
import nats
import pytest

from natsd import Server
from natsd.clients.listener import ListenError
from natsd.monitor.profiling.cpu import Sampler, cpu_profile
from natsd.monitor.profiling.pprof import Frame, encode_profile
from tests.waiting import eventually_within

SYSTEM: dict[str, Any] = {
    "accounts": {"$SYS": {"users": [{"user": "sys", "password": "sys"}]}},
    "host": "127.0.0.1",
    "port": -1,
}


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(**SYSTEM, prof_port=-1) as running:
        yield running


def url(server: Server, path: str) -> str:
    profiling = server.files._profiling
    assert profiling is not None
    return f"http://127.0.0.1:{profiling.port}{path}"


async def fetch(server: Server, path: str) -> tuple[int, bytes]:
    async with aiohttp.ClientSession() as session, session.get(url(server, path)) as answer:
        return answer.status, await answer.read()


async def ask(server: Server, **options: object) -> dict[str, Any]:
    client = await nats.connect(server.client_url, user="sys", password="sys")
    try:
        subject = f"$SYS.REQ.SERVER.{server.id}.PROFILEZ"
        reply = await client.request(subject, json.dumps(options).encode(), timeout=20)
        data: dict[str, Any] = json.loads(reply.data)["data"]
        return data
    finally:
        await client.close()


# ---- the format


def fields(message: bytes) -> dict[int, list[Any]]:
    """The fields of a protocol buffer message: numbers, and bytes."""
    found: dict[int, list[Any]] = defaultdict(list)
    at = 0

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte = message[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            found[key >> 3].append(varint())
        else:
            length = varint()
            found[key >> 3].append(message[at : at + length])
            at += length
    return found


def numbers(packed: bytes) -> list[int]:
    """Packed varints, as the field of a message has them."""
    found, number, shift = [], 0, 0
    for byte in packed:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(number)
            number = shift = 0
    return found


class Profile:
    """A decoded profile: `samples` are pairs of function names and values."""

    def __init__(self, packed: bytes) -> None:
        self.fields = fields(gzip.decompress(packed))
        strings = [text.decode() for text in self.fields[6]]
        functions = {}
        for each in map(fields, self.fields[5]):
            functions[each[1][0]] = strings[each[2][0]], strings[each[4][0]]
        places = {}
        for each in map(fields, self.fields[4]):
            line = fields(each[4][0])
            places[each[1][0]] = Frame(*functions[line[1][0]], line[2][0])
        self.kinds = [
            (strings[kind[1][0]], strings[kind[2][0]]) for kind in map(fields, self.fields[1])
        ]
        self.samples = [
            (tuple(places[each] for each in numbers(sample[1][0])), tuple(numbers(sample[2][0])))
            for sample in map(fields, self.fields[2])
        ]

    def functions(self) -> set[str]:
        return {frame.name for stack, _ in self.samples for frame in stack}


def test_a_profile_has_what_was_sampled() -> None:
    inner, outer = Frame("inner", "a.py", 300), Frame("öuter", "b.py", 7)
    samples = {(inner, outer): (1, 1 << 40), (outer,): (128, 0)}
    kinds = [("samples", "count"), ("cpu", "nanoseconds")]
    profile = Profile(encode_profile(kinds, samples, time_ns=1 << 60, duration_ns=5, period=10))
    assert profile.kinds == kinds
    assert profile.samples == list(samples.items())
    assert (profile.fields[9], profile.fields[10], profile.fields[12]) == ([1 << 60], [5], [10])


BURNT_NS = 100_000_000


def burn(until: threading.Event, used: list[int]) -> None:
    """Compute until told not to, and note how much processor time that took."""
    while not until.is_set():
        sum(range(1000))
    used.append(time.thread_time_ns())


def burnt_ns(samples: Iterable[tuple[tuple[Frame, ...], int]]) -> int:
    """Return the processor time of `burn` in a profile."""
    return sum(
        used_ns
        for stack, used_ns in samples
        if any(frame.name == "burn" and frame.file == __file__ for frame in stack)
    )


async def test_a_thread_that_computes_is_seen_and_one_that_waits_is_not() -> None:
    over, used = threading.Event(), list[int]()
    threads = [
        threading.Thread(target=burn, args=(over, used)),
        threading.Thread(target=over.wait),
    ]
    for thread in threads:
        thread.start()
    sampler = Sampler()
    sampler.start()
    try:
        await eventually_within(lambda: burnt_ns(list(sampler._values.items())) >= BURNT_NS)
    finally:
        over.set()
        sampler.stop()
    profile = Profile(sampler.encoded())
    for thread in threads:
        thread.join()
    assert profile.kinds == [("samples", "count"), ("cpu", "nanoseconds")]
    assert BURNT_NS <= burnt_ns((stack, values[1]) for stack, values in profile.samples) <= used[0]
    assert "Event.wait" not in {stack[0].name for stack, _ in profile.samples}


# ---- over HTTP


async def test_the_processor_profile(server: Server) -> None:
    taking = asyncio.create_task(fetch(server, "/debug/pprof/profile?seconds=1"))
    await eventually_within(
        lambda: "natsd-profiler" in {each.name for each in threading.enumerate()}
    )
    status, text = await fetch(server, "/debug/pprof/profile?seconds=1")
    assert (status, text) == (500, b"Could not enable profiling: cpu profiling already in use\n")
    status, body = await taking
    assert status == 200
    assert Profile(body).kinds[-1] == ("cpu", "nanoseconds")
    await eventually_within(
        lambda: "natsd-profiler" not in {each.name for each in threading.enumerate()}
    )


@pytest.mark.parametrize("seconds", ["-1", "301", "x", "9" * 40])
async def test_the_duration_is_bounded(server: Server, seconds: str) -> None:
    for kind in ("profile", "heap"):
        status, _ = await fetch(server, f"/debug/pprof/{kind}?seconds={seconds}")
        assert status == 400


async def test_stacks_of_threads_and_tasks(server: Server) -> None:
    _, body = await fetch(server, "/debug/pprof/goroutine")
    profile = Profile(body)
    assert profile.kinds == [("goroutine", "count")]
    assert {"thread MainThread", "_thread_stacks"} <= profile.functions()
    assert any(name.startswith("task ") for name in profile.functions())
    _, text = await fetch(server, "/debug/pprof/goroutine?debug=1")
    assert re.match(rb"goroutine profile: total \d+ \(threads and tasks\)\n\n\d+ @\n#\t", text)
    _, text = await fetch(server, "/debug/pprof/goroutine?debug=2")
    assert b"thread " in text
    assert b"File " in text


async def test_the_heap_profile_shows_who_allocates(server: Server) -> None:
    kept = []
    taking = asyncio.create_task(fetch(server, "/debug/pprof/heap?seconds=1"))
    await eventually_within(tracemalloc.is_tracing)
    kept.append(bytearray(10_000_000))
    status, body = await taking
    profile = Profile(body)
    assert (status, profile.kinds[-1]) == (200, ("inuse_space", "bytes"))
    largest = max(profile.samples, key=lambda sample: sample[1][1])
    assert (largest[0][0].file, largest[1][1] >= 10_000_000) == (__file__, True)
    assert not tracemalloc.is_tracing()
    assert kept


async def test_pages_and_what_there_is_not(server: Server) -> None:
    status, page = await fetch(server, "/debug/pprof/")
    assert (status, b'<a href="profile">' in page) == (200, True)
    assert (await fetch(server, "/debug/pprof/cmdline"))[0] == 200
    assert (await fetch(server, "/debug/pprof/symbol"))[1] == b"num_symbols: 0\n"
    for path in ("/", "/varz", "/debug/pprof/mutex", "/debug/pprof/../varz", "/debug/pprof/%00"):
        status, text = await fetch(server, path)
        assert (status, text.startswith(b"Unknown profile\n")) == (404, True)


async def test_a_client_that_leaves_ends_nothing_else(server: Server) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await fetch(server, "/debug/pprof/profile?seconds=300")
    await eventually_within(
        lambda: "natsd-profiler" not in {each.name for each in threading.enumerate()}
    )
    assert len(await cpu_profile(0.01)) > 0


async def test_a_port_in_use_is_one_line(server: Server) -> None:
    profiling = server.files._profiling
    assert profiling is not None
    text = f"^error starting profiler: listen tcp 127.0.0.1:{profiling.port}: bind: "
    with pytest.raises(ListenError, match=text):
        async with Server(**SYSTEM, prof_port=profiling.port):
            pass


# ---- over NATS


async def test_profilez(server: Server) -> None:
    reply = await ask(server, name="cpu", duration=200_000_000)
    assert reply["error"] == ""
    assert Profile(base64.b64decode(reply["profile"])).kinds[-1] == ("cpu", "nanoseconds")
    for name in ("heap", "allocs"):
        reply = await ask(server, name=name, duration=10_000_000)
        assert Profile(base64.b64decode(reply["profile"])).kinds[-1] == ("inuse_space", "bytes")
    reply = await ask(server, name="goroutine", debug=1)
    assert base64.b64decode(reply["profile"]).startswith(b"goroutine profile: total ")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, "Profile name not specified"),
        ({"name": "mutex"}, 'Profile "mutex" not found'),
        ({"name": "cpu"}, "Duration 0s should be between 0s and 15s"),
        ({"name": "cpu", "duration": 16 * 10**9}, "Duration 16s should be between 0s and 15s"),
        ({"name": "heap", "duration": -1}, "Duration -1ns should be between 0s and 15s"),
    ],
)
async def test_profilez_refuses(server: Server, options: dict[str, Any], error: str) -> None:
    assert await ask(server, **options) == {"profile": None, "error": error}


async def test_other_requests_do_not_wait_for_a_profile(server: Server) -> None:
    client = await nats.connect(server.client_url, user="sys", password="sys")
    prefix = f"$SYS.REQ.SERVER.{server.id}"
    cpu = json.dumps({"name": "cpu", "duration": 15 * 10**9}).encode()
    profile = asyncio.create_task(client.request(f"{prefix}.PROFILEZ", cpu, timeout=20))
    await eventually_within(
        lambda: "natsd-profiler" in {each.name for each in threading.enumerate()}
    )
    second = await client.request(f"{prefix}.PROFILEZ", cpu, timeout=10)
    said = json.loads(second.data)["data"]["error"]
    assert said == "Failed to start CPU profile: cpu profiling already in use"
    await client.request(f"{prefix}.VARZ", b"", timeout=10)
    assert not profile.done()
    profile.cancel()
    await client.close()


# ---- with pprof

GO = shutil.which("go")


@pytest.mark.skipif(GO is None, reason="needs go, for go tool pprof")
def test_pprof_reads_it(tmp_path: Path) -> None:
    samples = {(Frame("inner", "a.py", 3), Frame("outer", "b.py", 7)): (2, 20_000_000)}
    kinds = [("samples", "count"), ("cpu", "nanoseconds")]
    path = tmp_path / "profile"
    path.write_bytes(encode_profile(kinds, samples, time_ns=1, duration_ns=10**9, period=10**7))
    assert GO is not None
    command = [GO, "tool", "pprof", "-top", path]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, timeout=40, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("go is still building pprof")
    assert re.search(r"20ms\s+100%\s+100%\s+20ms\s+100%\s+inner", shown.stdout), shown
