"""Three processes, one of which is killed every second, while clients read and write registers.

What all clients saw must be linearizable. `make torture` goes on for a minute and longer.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from natsd.local_cluster.plan import free_ports
from tests.raft.kill.member import KEYS
from tests.sim.linearizability import FOREVER, Operation, is_linearizable
from tests.store.crash import ROOT, TORTURE

SERVERS = (1, 2, 3)
CLIENTS = 4
PATIENCE_S = 2.0
START_S_MAX = 30.0
KINDS = ("read", "write", "cas")
KILLS = 8 if TORTURE == 1 else 60

pytestmark = [pytest.mark.torture, pytest.mark.timeout(600)]


class Processes:
    """The members, by server."""

    def __init__(self, directory: Path) -> None:
        ports = free_ports("127.0.0.1", 2 * len(SERVERS))
        self.directory = directory
        self.ports = dict(zip(SERVERS, ports, strict=False))
        self.client_ports = dict(zip(SERVERS, ports[len(SERVERS) :], strict=True))
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.restarts = 0

    def start(self, server: int) -> None:
        settings = {
            "server": server,
            "ports": self.ports,
            "client_port": self.client_ports[server],
            "directory": str(self.directory / str(server)),
        }
        inherited = filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)])
        self.running[server] = subprocess.Popen(
            [sys.executable, "-m", "tests.raft.kill.member", json.dumps(settings)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(inherited)},
        )

    def kill(self, server: int) -> None:
        process = self.running[server]
        assert process.poll() is None, "a member ended by itself"
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.restarts += 1

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()

    async def until_serving(self, server: int) -> None:
        give_up_at = time.monotonic() + START_S_MAX
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.client_ports[server])
            except OSError:
                assert time.monotonic() < give_up_at, "a member does not start"
                await asyncio.sleep(0.05)
                continue
            writer.close()
            return


class Histories:
    """What all clients did and saw, by key; written values are unique."""

    def __init__(self) -> None:
        self.operations: list[list[Operation]] = [[] for _ in range(KEYS)]
        self.next_value = 0
        self.last_seen = [0] * KEYS

    @property
    def finished(self) -> int:
        return sum(o.returned_at != FOREVER for each in self.operations for o in each)


class Client:
    """Asks one thing at a time, of any member."""

    def __init__(self, processes: Processes, histories: Histories, seed: int) -> None:
        self.processes, self.histories = processes, histories
        self.chance = random.Random(seed)
        self.server = self.chance.choice(SERVERS)
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self, until: asyncio.Event) -> None:
        while not until.is_set():
            if not await self.operate():
                self.move()
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.005)
        self.move()

    def move(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
        self.streams, self.server = None, self.chance.choice(SERVERS)

    async def operate(self) -> bool:
        """Do one operation; return whether this member answers."""
        histories, chance = self.histories, self.chance
        key, kind = chance.randrange(KEYS), chance.choice((0, 0, 1, 2))
        expected = histories.last_seen[key] if kind == 2 else 0
        value = 0
        if kind:
            histories.next_value += 1
            value = histories.next_value
        called_at = time.monotonic_ns()
        said = await self.ask(f"{kind} {key} {expected} {value}\n".encode())
        returned_at = time.monotonic_ns()
        if said == "no":
            return False
        seen = int(said.split()[1]) if said.startswith("ok") else None
        if seen is not None:
            histories.last_seen[key] = seen if kind == 0 else value
        if kind or seen is not None:
            histories.operations[key].append(
                Operation(
                    called_at,
                    FOREVER if seen is None else returned_at,
                    KINDS[kind],
                    expected,
                    (seen or 0) if kind == 0 else value,
                    (seen or 0) if kind == 2 else 0,
                )
            )
        return seen is not None

    async def ask(self, line: bytes) -> str:
        """Return the answer; "no" if the question did not leave, "unknown" if none came."""
        try:
            if self.streams is None:
                port = self.processes.client_ports[self.server]
                self.streams = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return "no"
        reader, writer = self.streams
        try:
            writer.write(line)
            async with asyncio.timeout(PATIENCE_S):
                said = (await reader.readline()).decode().strip()
        except (OSError, TimeoutError):
            return "unknown"
        return said or "unknown"


async def test_registers_are_linearizable_while_members_are_killed(tmp_path: Path) -> None:
    processes, histories = Processes(tmp_path), Histories()
    seed = int.from_bytes(os.urandom(4), "big")
    chance, end = random.Random(seed), asyncio.Event()
    for server in SERVERS:
        processes.start(server)
    try:
        for server in SERVERS:
            await processes.until_serving(server)
        clients = [Client(processes, histories, seed + n) for n in range(CLIENTS)]
        running = [asyncio.ensure_future(client.run(end)) for client in clients]
        await until_finished(histories, 20)
        for _ in range(KILLS):
            began = time.monotonic()
            server = chance.choice(SERVERS)
            processes.kill(server)
            await asyncio.sleep(chance.random() * 0.3)
            processes.start(server)
            await processes.until_serving(server)
            await asyncio.sleep(max(0.0, 1.0 - (time.monotonic() - began)))
        await until_finished(histories, histories.finished + 50)
        end.set()
        await asyncio.gather(*running)
    finally:
        processes.end()
    for history in histories.operations:
        assert is_linearizable(history, 0), f"seed {seed}: {history}"


async def until_finished(histories: Histories, count: int) -> None:
    """Wait until the clients have finished so many operations."""
    give_up_at = time.monotonic() + START_S_MAX
    while histories.finished < count:
        assert time.monotonic() < give_up_at, "the group makes no progress"
        await asyncio.sleep(0.05)
