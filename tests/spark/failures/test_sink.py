"""A streaming query copies a stream into another; the query and the server are killed repeatedly.

    publisher ─▶ SOURCE ─▶ natsd pipeline transform ─▶ TARGET (duplicate_window 100 ms)
                 ✗ kill -9           ✗ kill -9         ✗ kill -9, the same server

Each message of the source is in the target once, at whatever point of a batch a process is killed:
the target forgets message ids long before a query runs again. Sometimes only the query's Python is
killed, so that its JVM and their workers live on for a moment beside the next query.

`make torture` does this twenty times.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from natsd.spark.errors import ClientError
from natsd.spark.wire.client import NatsClient
from tests.spark.conftest import StartServer
from tests.spark.failures.commands import Command
from tests.spark.failures.held import check_once, count_in, in_stream
from tests.spark.failures.machine import Machine
from tests.spark.failures.messages import Publisher
from tests.spark.failures.waiting import bounded, pause, wait_until
from tests.spark.servers import JetStreamServer
from tests.spark.serving import create, options
from tests.store.crash import TORTURE

pytestmark = [pytest.mark.torture, bounded]

ROUNDS = 20 if TORTURE > 1 else 1
MESSAGES_PER_ROUND = 8_000
PUBLISHED_PER_SECOND = 4_000
AT_ONCE = 3_000
FUNCTION = """
def copied(rows):
    return rows.selectExpr("concat('copy.', subject) AS subject", "data", "headers")
"""


class Copying:
    """The query, which is started repeatedly on one checkpoint."""

    def __init__(self, machine: Machine, directory: Path, server: JetStreamServer) -> None:
        self.server = server
        self._machine = machine
        self._directory = directory
        self._function = directory / "copied.py"
        self._function.write_text(FUNCTION)

    def start(self, *arguments: str) -> Command:
        return Command(
            self._machine,
            self._directory / "commands",
            "transform",
            *("--from", "SOURCE", "--to", "TARGET", "--function", f"{self._function}:copied"),
            *("--checkpoint", str(self._directory / "checkpoint"), "-s", self.server.url),
            *("-o", f"maxMsgsPerTrigger={AT_ONCE}", "-o", "minPartitions=2"),
            *arguments,
        )

    def copied(self) -> int:
        """Return the number of messages in the target; 0 if the server is away."""
        try:
            with NatsClient(options(self.server.url)) as client:
                return count_in(client, "TARGET")
        except ClientError:
            return 0


def kill_something(query: Command, server: JetStreamServer, chosen: random.Random) -> None:
    """Kill the query, its Python alone, or the server and later the query."""
    what = chosen.choice(["query", "python", "server"])
    pause(chosen.random())
    if what == "server":
        server.kill()
        server.start()
        pause(2 * chosen.random())
    if what == "python":
        query.kill_python()
    else:
        query.kill()


def test_each_message_is_copied_once(
    machine: Machine, tmp_path: Path, start_server: StartServer
) -> None:
    chosen = random.Random(ROUNDS)
    server = start_server()
    copying = Copying(machine, tmp_path, server)
    with NatsClient(options(server.url)) as client:
        create(client, "SOURCE", "orders.>")
        create(client, "TARGET", "copy.orders.>", duplicate_window=100_000_000)
    killed = []
    for number in range(ROUNDS):
        killed.append(killed_in_between(copying, number, chosen))
    done = copying.start("--json").wait().outcome
    assert done["target"] == "TARGET"
    for query in killed:
        query.wait()  # no process of it is left
    check_once(in_stream(server.url, "TARGET"), "copy.orders", ROUNDS * MESSAGES_PER_ROUND)


def killed_in_between(copying: Copying, number: int, chosen: random.Random) -> Command:
    """Run one round: publish messages, let the query copy some, and kill something."""
    first = number * MESSAGES_PER_ROUND
    last = first + MESSAGES_PER_ROUND
    before = copying.copied()
    query = copying.start("--follow", "--interval", "100 milliseconds")
    url = copying.server.url
    with Publisher(url, "orders", first, last, per_second=PUBLISHED_PER_SECOND):
        try:
            wait_until(lambda: copying.copied() > before or not query.is_running)
            assert query.is_running, query.stderr
        finally:
            kill_something(query, copying.server, chosen)
    return query
