"""The daemon where the system gives it few descriptors: it takes all it may have, clients do not
take the last ones, and many durable consumers need few (issue 13, section 2.4)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest

from tests.waiting import eventually_within

SOFT, HARD = 100, 200
CONSUMERS = 220
LIMITED = "clients can connect, not max_connections (65536)"
LIMITS = Path("/proc/self/limits")

pytestmark = pytest.mark.skipif(not LIMITS.exists(), reason="needs Linux's /proc")


@contextlib.asynccontextmanager
async def daemon(directory: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, list[str]]]:
    """A daemon of few descriptors, and the lines of its log."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "natsd", "-a", "127.0.0.1", "-p", "-1", "-m", "-1",
        "--ports_file_dir", str(directory), "-js", "-sd", str(directory / "data"),
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, HARD)),
    )  # fmt: skip
    lines: list[str] = []

    async def read() -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            lines.append(line.decode())

    reading = asyncio.create_task(read())
    try:
        await eventually_within(lambda: any("Server is ready" in line for line in lines))
        yield process, lines
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        await reading


def ports(directory: Path) -> tuple[str, str]:
    """Where clients connect, and monitoring answers."""
    path = next(directory.glob("*.ports"))
    found = json.loads(path.read_text())
    path.unlink()  # the next daemon writes another
    return found["nats"][0], found["monitoring"][0]


def open_files_limit(process: asyncio.subprocess.Process) -> int:
    limits = Path(f"/proc/{process.pid}/limits").read_text()
    return int(limits.partition("Max open files")[2].split()[0])


def open_descriptors(process: asyncio.subprocess.Process) -> int:
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


async def test_few_descriptors(tmp_path: Path) -> None:
    for restart in range(2):
        async with daemon(tmp_path) as (process, lines):
            assert open_files_limit(process) == HARD
            await eventually_within(lambda: any(LIMITED in each for each in lines))
            url, monitoring = ports(tmp_path)
            nc = await nats.connect(url)
            js = nc.jetstream()
            if restart:
                assert (await js.stream_info("S")).state.consumer_count == CONSUMERS
            else:
                await js.add_stream(name="S", subjects=["s"])
                for number in range(CONSUMERS):
                    await js.add_consumer("S", durable_name=f"c{number}", ack_policy="explicit")
            for number in (0, CONSUMERS - 1):
                await js.publish("s", b"x")
                pull = await js.pull_subscribe_bind(f"c{number}", "S")
                (message,) = await pull.fetch(1, timeout=20)
                await message.ack_sync(timeout=20)
            await idle_clients_take_the_rest(nc, url, lines)
            await eventually_within(lambda: open_descriptors(process) < HARD * 3 // 4)
            await (await nats.connect(url)).close()
            answer = await asyncio.to_thread(urllib.request.urlopen, f"{monitoring}/healthz")
            assert answer.status == 200
            await nc.close()


async def idle_clients_take_the_rest(nc: nats.NATS, url: str, lines: list[str]) -> None:
    """They are refused in time for the store, which goes on; the log tells it once."""
    host, _, port = url.removeprefix("nats://").partition(":")
    writers, refused = [], 0
    for _ in range(HARD):
        reader, writer = await asyncio.open_connection(host, int(port))
        writers.append(writer)
        assert (await reader.readline()).startswith(b"INFO ")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01 if refused == 0 else 20):
                refused += await reader.readline() == b"-ERR 'maximum connections exceeded'\r\n"
    assert refused >= HARD // 4
    js = nc.jetstream()
    await js.add_stream(name="T", subjects=["t"])
    for _ in range(10):
        await js.publish("t", b"x" * 1000)
    await js.delete_stream("T")
    assert sum("refused" in line for line in lines) == 1
    assert any("ulimit -n" in line for line in lines)
    for writer in writers:
        writer.close()
