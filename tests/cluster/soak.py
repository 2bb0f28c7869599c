"""Three servers under churn: memory must stay flat, and no interest must be left over.

    python -m tests.cluster.soak [--minutes 30]

Clients of three server processes come and go, subscribe, unsubscribe and publish, in two accounts
of which one imports a stream of the other. Two of the servers are restarted in turn, one by SIGTERM
and one by SIGKILL; the memory of the third is watched. Messages of a publisher must arrive in
order, and none twice. In the end all clients leave; then each server must know exactly the interest
that the others have.
"""

import argparse
import asyncio
import contextlib
import json
import random
import signal
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import uvloop

from natsd.local_cluster.plan import free_ports
from tests.accounts.shared import Got
from tests.cluster.raw_client import RawClient, join_port

CLIENTS = 30
SUBSCRIPTIONS_MAX = 60
"""Of one client; it unsubscribes beyond them."""
PAUSE_S = 0.02
"""Between two actions of a client."""
ANSWER_S = 300.0
"""Within which a server starts and answers, on a machine that has other work."""
RESTART_S = 20.0
SAMPLE_S = 5.0
WARM_UP = 0.2
"""Part of the time in which memory may grow."""
GROWTH_MAX_KIB_PER_MINUTE = 64.0
LOOKS = 300
LOOK_S = 0.2
"""Between two looks at whether the servers agree in the end."""
SUBJECTS = [f"{root}.{number}" for root in ("news", "work", "chat") for number in range(40)]
PATTERNS = [*SUBJECTS, "news.*", "work.>", "chat.*", "from.news.*", ">"]


def say(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class ServerProcess:
    """One server, which may be started again on the same ports."""

    def __init__(self, name: str, port: int, route_port: int) -> None:
        self.name = name
        self.port = port
        self.route_port = route_port
        self.others: list[int] = []
        self.process: asyncio.subprocess.Process | None = None
        self.starts = 0

    async def start(self) -> None:
        ports = map(str, (self.port, self.route_port, *self.others))
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.cluster.soak_server", self.name, *ports),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 26,
        )
        self.starts += 1
        await self.report()

    async def stop(self, by: signal.Signals = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(by)
        await self.process.wait()

    async def report(self) -> dict[str, Any]:
        """Return what the server says of itself (soak_server.py)."""
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"\n")
        async with asyncio.timeout(ANSWER_S):
            found: dict[str, Any] = json.loads(await self.process.stdout.readline())
        return found

    @property
    def memory_kib(self) -> int:
        """Resident memory."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line[:6] == "VmRSS:").split()[1])


class Soak:
    """The run: servers, clients, and what was seen."""

    def __init__(self, minutes: float, seed: int) -> None:
        self.duration_s = minutes * 60
        self.random = random.Random(seed)
        ports = free_ports("127.0.0.1", 6)
        self.servers = [ServerProcess(f"S{at}", ports[at], ports[3 + at]) for at in range(3)]
        for server in self.servers:
            server.others = [each.route_port for each in self.servers if each is not server]
        self.samples: list[tuple[float, int]] = []
        self.received = self.published = self.reconnects = 0
        self.is_over = False
        self.began_s = 0.0

    # ---- clients

    async def client(self, number: int) -> None:
        """Be one client after another, until the end."""
        while not self.is_over:
            server = self.random.choice(self.servers)
            with contextlib.suppress(OSError, TimeoutError):
                connection = await join_port(
                    server.port, user=self.random.choice("ab"), **{"pass": "-"}
                )
                try:
                    await self.churn(connection, f"{number}.{self.reconnects}")
                finally:
                    connection.close()
            self.reconnects += 1
            await asyncio.sleep(PAUSE_S)

    async def churn(self, connection: RawClient, name: str) -> None:
        """Subscribe, unsubscribe and publish for a while."""
        listed: list[str] = []
        last: dict[tuple[str, str], int] = defaultdict(lambda: -1)
        sequence = 0
        for sid in range(1, self.random.randrange(20, 2000)):
            if self.is_over or connection.is_closed:
                break
            if self.random.random() < 0.4:
                queue = self.random.choice(["", "", "q1", "q2"])
                pattern = self.random.choice(PATTERNS)
                connection.send(f"SUB {pattern} {queue} {queue}{sid}\r\n".encode())
                listed.append(f"{queue}{sid}")
            if len(listed) > SUBSCRIPTIONS_MAX or (listed and self.random.random() < 0.2):
                gone = listed.pop(self.random.randrange(len(listed)))
                connection.send(f"UNSUB {gone}\r\n".encode())
            for _ in range(self.random.randrange(5)):
                subject, size = self.random.choice(SUBJECTS), self.random.choice([0, 100, 5000])
                connection.publish(subject, f"{name} {sequence} ".encode() + bytes(size))
                sequence += 1
                self.published += 1
            for got in connection.take():
                self.check(got, last)
            await asyncio.sleep(PAUSE_S)

    def check(self, got: Got, last: dict[tuple[str, str], int]) -> None:
        """Check that a plain subscription has a publisher's messages in order, and each once."""
        self.received += 1
        if got.sid.startswith("q"):
            return
        publisher, number, _ = got.data.split(b" ", 2)
        key = (got.sid, publisher.decode())
        assert int(number) > last[key], (got.subject, key, int(number), last[key])
        last[key] = int(number)

    # ---- servers

    async def restart(self) -> None:
        """Restart the second and the third server in turn."""
        turn = 0
        while not self.is_over:
            await asyncio.sleep(RESTART_S)
            if self.is_over:
                return
            server = self.servers[1 + turn % 2]
            await server.stop(signal.SIGKILL if turn % 4 > 1 else signal.SIGTERM)
            await asyncio.sleep(self.random.random())
            await server.start()
            turn += 1

    async def sample(self) -> None:
        """Note the memory of the first server, and print a line in each minute."""
        while not self.is_over:
            at_s = time.monotonic() - self.began_s
            self.samples.append((at_s, self.servers[0].memory_kib))
            if len(self.samples) % int(60 / SAMPLE_S) == 0:
                self.show(at_s)
            await asyncio.sleep(SAMPLE_S)

    def show(self, at_s: float) -> None:
        restarts = sum(server.starts - 1 for server in self.servers)
        say(
            f"{at_s / 60:5.1f} min  {self.samples[-1][1] / 1024:7.1f} MiB  "
            f"{self.published:,} published  {self.received:,} received  "
            f"{restarts} restarts  {self.reconnects:,} connections"
        )

    async def run(self) -> list[str]:
        """Run; return what is wrong in the end."""
        self.began_s = time.monotonic()
        for server in self.servers:
            await server.start()
        clients = [asyncio.create_task(self.client(number)) for number in range(CLIENTS)]
        others = [asyncio.create_task(self.restart()), asyncio.create_task(self.sample())]
        try:
            tasks = [*clients, *others]
            done, _ = await asyncio.wait(
                tasks, timeout=self.duration_s, return_when=asyncio.FIRST_EXCEPTION
            )
            for task in done:
                task.result()
            self.is_over = True
            await asyncio.gather(*tasks)
            return await self.remains()
        finally:
            for server in self.servers:
                await server.stop()

    # ---- the end

    async def remains(self) -> list[str]:
        """Return which interest is missing or left over, and whether memory has grown."""
        found: list[str] = []
        for _ in range(LOOKS):
            found = differences({each.name: await each.report() for each in self.servers})
            if not found:
                break
            await asyncio.sleep(LOOK_S)
        slope = self.slope_kib_per_minute()
        say(f"memory of S0: {slope:+.1f} KiB a minute after the warm-up")
        if slope > GROWTH_MAX_KIB_PER_MINUTE:
            found.append(f"memory grows by {slope:.1f} KiB a minute")
        return found

    def slope_kib_per_minute(self) -> float:
        """Return by how much memory grew, by the median of pairs of samples (Theil, Sen).

        The pairs are a sixth to a third of the time apart: so one step, by buffers that a busy
        moment of the machine needed, moves less than half of them.
        """
        warm_s = WARM_UP * self.duration_s
        samples = [each for each in self.samples if each[0] >= warm_s]
        spans_s = [(1 - WARM_UP) * self.duration_s / part for part in (6, 3)]
        slopes = [
            60 * (later[1] - earlier[1]) / (later[0] - earlier[0])
            for at, earlier in enumerate(samples)
            for later in samples[at + 1 :]
            if spans_s[0] <= later[0] - earlier[0] <= spans_s[1]
        ]
        return statistics.median(slopes) if slopes else 0.0


def differences(reports: dict[str, dict[str, Any]]) -> list[str]:
    """Return where servers do not know the interest of the others as it is."""
    found = []
    for name, report in reports.items():
        if report["clients"]:
            found.append(f"{name} has {report['clients']} clients")
        for other, of_other in reports.items():
            if other == name:
                continue
            for account, local in of_other["local"].items():
                known = report["known"].get(other, {}).get(account, {})
                if known != local:
                    wrong = dict(known.items() ^ local.items())
                    found.append(f"{name} of {other}, {account}: {wrong}")
    return found


def main() -> int:
    """Run the soak; return 1 if something is wrong in the end."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    arguments = parser.parse_args()
    say(f"seed {arguments.seed}")
    soak = Soak(arguments.minutes, arguments.seed)
    found = uvloop.run(soak.run())
    soak.show(time.monotonic() - soak.began_s)
    for line in found:
        say(line)
    say("FAILED" if found else "no interest is left over, none is missing")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
