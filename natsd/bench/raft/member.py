"""One server with one member of each group; it is told what to do in lines on stdin.

{"server": 1, "ports": {"1": …}, "directory": …, "groups": 1}     first line
load SECONDS SIZE WINDOW      the leader proposes; answer: a line with the result
cpu SECONDS                   answer: a line with the CPU seconds that were used meanwhile
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from natsd.bench.raft.routed_server import start_server
from natsd.raft.entry import Entry
from natsd.raft.group import RaftGroup
from natsd.raft.host import HostOptions, RaftHost
from natsd.raft.state_machine import StateMachine
from natsd.raft.storage.raft_logs import RaftLogs
from natsd.raft.transport import member_id
from natsd.store.disk.real_disk import RealDisk

LATENCY_EVERY = 64
CHUNK = 1024  # proposals in a turn, so that members work on some while the next ones are made


class Counter(StateMachine):
    """A state machine that counts commands."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """Count the commands."""
        self.count += len(entries)
        return [None] * len(entries)

    def snapshot(self) -> bytes:
        """Return the count."""
        return b"%d" % self.count

    def restore(self, data: bytes) -> None:
        """Take the count of a snapshot."""
        self.count = int(data or b"0")


class Load:
    """Proposals of one group, so many of them under way at any time."""

    def __init__(self, group: RaftGroup, size: int, window: int) -> None:
        self._group = group
        self._data = os.urandom(size)
        self._window = window
        self._loop = asyncio.get_running_loop()
        self._is_due = False
        self._ended = self._loop.create_future()
        self._is_over = False
        self.count = 0
        self.submitted = 0
        self._began_ns: dict[int, int] = {}
        self.latencies_ns: list[int] = []

    async def run(self, seconds: float) -> dict[str, float]:
        """Propose for so long; return the rate and latencies."""
        began = time.monotonic()
        self._loop.call_later(seconds, self._end)
        self._refill()
        await self._ended
        elapsed = time.monotonic() - began
        self.latencies_ns.sort()
        count = len(self.latencies_ns)
        return {
            "rate": self.count / elapsed,
            "p50_us": self.latencies_ns[count // 2] / 1e3 if count else 0.0,
            "p99_us": self.latencies_ns[count * 99 // 100] / 1e3 if count else 0.0,
        }

    def _end(self) -> None:
        self._is_over = True

    def _refill(self) -> None:
        self._is_due = False
        if self._is_over:
            if self.count == self.submitted and not self._ended.done():
                self._ended.set_result(None)
            return
        submit, data, done = self._group.submit, self._data, self._done
        wanted = self.count + self._window
        until = min(wanted, self.submitted + CHUNK)
        for number in range(self.submitted, until):
            if number % LATENCY_EVERY == 0:
                self._began_ns[number] = time.monotonic_ns()
            submit(data, done)
        self.submitted = until
        if until < wanted:
            self._is_due = True
            self._loop.call_soon(self._refill)

    def _done(self, result: object) -> None:
        if result is not None:
            raise RuntimeError(f"a proposal failed: {result}")
        if self.count % LATENCY_EVERY == 0:
            self.latencies_ns.append(time.monotonic_ns() - self._began_ns.pop(self.count))
        self.count += 1
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._refill)


async def serve(settings: dict[str, Any]) -> None:
    """Run the member until stdin ends."""
    server: int = settings["server"]
    ports = {int(key): port for key, port in settings["ports"].items()}
    logs = RaftLogs.open(RealDisk(), Path(settings["directory"]), os.urandom)
    natsd, transport = await start_server(server, ports)
    loop = asyncio.get_running_loop()
    options = HostOptions(quiesce_ticks=settings.get("quiesce_ticks", 20))
    host = RaftHost(server, logs, transport, random.SystemRandom().randrange, options, loop)
    host.start()
    voters = [member_id(each) for each in ports]
    for number in range(settings["groups"]):
        await host.start_group(f"g{number}", member_id(server), Counter(), first_voters=voters)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        command, *values = line.decode().split()
        answer = await answer_to(host, command, [float(value) for value in values])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    await host.close()
    await natsd.stop()
    logs.close()


async def answer_to(host: RaftHost, command: str, values: list[float]) -> dict[str, float]:
    """Do what one line asks for."""
    group = host.groups["g0"]
    if command == "leads":
        led = sum(each.is_leader for each in host.groups.values())
        resting = sum(each.node.is_quiescent for each in host.groups.values())
        return {"leads": float(group.is_leader), "led": led, "resting": resting}
    before = time.process_time()
    if command == "load":
        seconds, size, window = values
        result = await Load(group, int(size), int(window)).run(seconds)
    else:
        await asyncio.sleep(values[0])
        result = {}
    return {**result, "cpu_s": time.process_time() - before}


if __name__ == "__main__":
    logging.getLogger("natsd").setLevel(logging.CRITICAL)  # that others are not up yet is no news
    uvloop.run(serve(json.loads(sys.argv[1])))
