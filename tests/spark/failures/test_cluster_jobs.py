"""Jobs on a cluster whose executor or worker is killed in the middle.

They are every job of `natsd pipeline`, and a program that reads and writes streams.

The driver and the workers are machines of their own (machine.py). They share one directory, as they
would share HDFS or S3: it has the checkpoints, the tables, and the store directories of the audit.
What a job writes is there once, and what it finds is what an undisturbed run on one machine finds.

Only `make torture` runs these tests; test_cluster.py is the short one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from natsd.spark.wire.client import NatsClient
from tests.spark.failures.cluster import StandaloneCluster
from tests.spark.failures.commands import Command, Ended
from tests.spark.failures.held import (
    archived_to,
    check_once,
    check_order,
    count_in,
    in_archive,
    in_stream,
    in_table,
)
from tests.spark.failures.machine import Machine
from tests.spark.failures.messages import FILLING, Publisher, message
from tests.spark.failures.waiting import bounded, wait_until
from tests.spark.servers import JetStreamServer
from tests.spark.serving import create, options
from tests.store.crash import TORTURE

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(TORTURE == 1, reason="`make torture` runs it"),
    bounded,
]

MESSAGES: Final = 40_000
AT_ONCE: Final = 4_000
LOGGED: Final = {
    "spark.log.level": "INFO",
    "spark.python.worker.faulthandler.enabled": "true",  # a crash names its line
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}
TASKS: Final = ("-o", "minPartitions=8")
FUNCTION: Final = """
from pyspark.sql import functions as F

@F.udf("string", useArrow=False)
def copied(subject):
    return "TARGET." + subject

def copy(rows):
    return rows.select(copied("subject").alias("subject"), "data", "headers")
"""
PROGRAM: Final = """
import argparse
import json

from pyspark.sql import SparkSession

parser = argparse.ArgumentParser()
for name in ("source", "target", "servers", "master"):
    parser.add_argument(f"--{name}")
parser.add_argument("--conf", action="append")
given, _ = parser.parse_known_args()
builder = SparkSession.builder.master(given.master)
for setting in given.conf:
    builder = builder.config(*setting.split("=", 1))
spark = builder.getOrCreate()

rows = spark.read.format("jetstream").options(servers=given.servers, stream=given.source)
rows = rows.option("minPartitions", 8).load()
copied = rows.selectExpr(f"concat('{given.target}.', subject) AS subject", "data", "headers")
writer = copied.write.format("jetstream").options(servers=given.servers, maxInFlight=64)
writer.mode("append").save()
print(json.dumps({"read": rows.count()}))
"""
ONLY_OF_A_RUN: Final = ("seconds", "page")


@dataclass
class Running:
    """Runs of `natsd pipeline` on the cluster, in which something is killed."""

    cluster: StandaloneCluster
    driver: Machine
    directory: Path
    url: str
    victim: str

    def start(self, job: str, *arguments: str) -> Command:
        where = self.directory / "commands"
        master = self.cluster.url
        return Command(self.driver, where, job, *arguments, master=master, settings=LOGGED)

    def disturb(self, command: Command, is_under_way: Callable[[], object]) -> None:
        """Kill the victim once the command has begun its work, and the victim a task of it."""
        wait_until(
            lambda: not command.is_running or (self.cluster.tasks_begun(0) and is_under_way())
        )
        assert command.is_running, command.stderr[-8_000:]
        if self.victim == "worker":
            self.cluster.workers[0].kill()
        else:
            self.cluster.kill_executor(0)

    def run(self, job: str, *arguments: str, is_under_way: Callable[[], object]) -> Ended:
        """Run a command to its end, with a kill; check that Spark noticed the kill."""
        command = self.start(job, *arguments, "--json")
        try:
            self.disturb(command, is_under_way)
            ended = command.wait()
        finally:
            command.kill()
        assert "Lost executor" in ended.stderr, self.cluster.logs()
        return ended

    def has_tasks(self) -> bool:
        """Return whether the first worker has begun more than its first task."""
        return self.cluster.tasks_begun(0) > 1


@pytest.fixture(params=["worker", "executor"])
def running(
    request: pytest.FixtureRequest,
    machine: Machine,
    workers: list[Machine],
    tmp_path: Path,
    shared_server: JetStreamServer,
) -> Iterator[Running]:
    with StandaloneCluster(tmp_path / "cluster", workers) as cluster:
        yield Running(cluster, machine, tmp_path, shared_server.url, request.param)


@pytest.fixture(scope="module")
def source(shared_server: JetStreamServer) -> str:
    """Return the name of a stream with messages 0 to MESSAGES - 1."""
    with NatsClient(options(shared_server.url)) as client:
        create(client, "JOBS", "jobs.>")
    with Publisher(shared_server.url, "jobs", 0, MESSAGES):
        return "JOBS"


@pytest.fixture
def target(client: NatsClient, names: Callable[[], str]) -> str:
    """Return the name of an empty stream that forgets message ids long before a task is retried.

    Its subjects begin with its name.
    """
    name = names()
    create(client, name, f"{name}.>", duplicate_window=100_000_000)
    return name


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return two store directories, in one of which a message is damaged."""
    directory = tmp_path_factory.mktemp("shared")
    server = JetStreamServer(directory / "one")
    with NatsClient(options(server.url)) as client:
        create(client, "JOBS", "jobs.>")
    with Publisher(server.url, "jobs", 0, MESSAGES):
        pass
    server.stop()
    shutil.copytree(directory / "one" / "store", directory / "two" / "store")
    payload = message(MESSAGES // 2, "jobs")[2]
    (block,) = (path for path in directory.glob("two/**/*.blk") if payload in path.read_bytes())
    data = bytearray(block.read_bytes())
    data[data.index(payload) + len(payload) - len(FILLING)] ^= 0x10
    block.write_bytes(data)
    return [str(directory / name / "store" / "jetstream") for name in ("one", "two")]


def alone(machine: Machine, directory: Path, job: str, *arguments: str) -> Ended:
    """Run a command undisturbed, on one machine."""
    return Command(machine, directory / "alone", job, *arguments, "--json").wait()


def found_by(ended: Ended) -> dict[str, Any]:
    """Return what a command printed, without what differs from run to run."""
    return {name: value for name, value in ended.json.items() if name not in ONLY_OF_A_RUN}


def test_a_program(running: Running, source: str, target: str) -> None:
    program = running.directory / "program.py"
    program.write_text(PROGRAM)
    with NatsClient(options(running.url)) as client:
        ended = running.run(
            *(str(program), "--source", source, "--target", target, "--servers", running.url),
            is_under_way=lambda: count_in(client, target),
        )
    assert ended.outcome["read"] == MESSAGES
    check_once(in_stream(running.url, target), f"{target}.jobs", MESSAGES)


def test_transform_into_a_stream(running: Running, source: str, target: str) -> None:
    function = running.directory / "copy.py"
    function.write_text(FUNCTION.replace("TARGET", target))
    with NatsClient(options(running.url)) as client:
        ended = running.run(
            *("transform", "--from", source, "--to", target, "-s", running.url),
            *("--function", f"{function}:copy", "-o", f"maxMsgsPerTrigger={AT_ONCE}", *TASKS),
            *("--checkpoint", str(running.directory / "checkpoint")),
            is_under_way=lambda: count_in(client, target) > AT_ONCE,
        )
    assert ended.outcome["read"] == MESSAGES
    check_once(in_stream(running.url, target), f"{target}.jobs", MESSAGES)


def test_transform_into_a_table(running: Running, source: str) -> None:
    query = running.directory / "all.sql"
    query.write_text("SELECT seq, subject, data FROM messages")
    table = running.driver.work / f"table-{running.victim}"  # below the driver's directory
    ended = running.run(
        *("transform", "--from", source, "--table", table.name, "-s", running.url),
        *("--sql", str(query), "-o", f"maxMsgsPerTrigger={AT_ONCE}", *TASKS),
        *("--checkpoint", str(running.directory / "checkpoint")),
        is_under_way=lambda: (table / "_spark_metadata" / "1").exists(),
    )
    assert ended.outcome["read"] == MESSAGES
    check_once(in_table(table), "jobs", MESSAGES)


def test_archive(running: Running, source: str) -> None:
    table = running.directory / "table"
    ended = running.run(
        *("archive", source, str(table), "--token", "region=2", "-s", running.url),
        *("-o", f"maxMsgsPerTrigger={AT_ONCE}", *TASKS),
        is_under_way=lambda: archived_to(table, source),
    )
    assert ended.outcome["added"] == MESSAGES
    assert in_archive(table).equals(in_stream(running.url, source))


def test_archive_that_follows(running: Running, client: NatsClient) -> None:
    create(client, f"LIVE_{running.victim}", f"live-{running.victim}.>")
    stream, prefix = f"LIVE_{running.victim}", f"live-{running.victim}"
    table = running.directory / "table"
    with Publisher(running.url, prefix, 0, MESSAGES, per_second=4_000):
        command = running.start(
            *("archive", stream, str(table), "-s", running.url, *TASKS),
            *("--follow", "--interval", "500 milliseconds"),
        )
        try:
            running.disturb(command, lambda: archived_to(table, stream))
            wait_until(lambda: not command.is_running or archived_to(table, stream) == MESSAGES)
            command.terminate()
            ended = command.wait()
        finally:
            command.kill()
    assert ended.code == 2, ended.stderr[-8_000:]
    assert "Lost executor" in ended.stderr
    assert in_archive(table).equals(in_stream(running.url, stream))


def test_replay(running: Running, source: str, target: str) -> None:
    table = running.directory / "table"
    archived = alone(
        running.driver, running.directory, "archive", source, str(table), "-s", running.url
    )
    assert archived.outcome["added"] == MESSAGES
    with NatsClient(options(running.url)) as client:
        ended = running.run(
            *("replay", str(table), "--stream", target, "--map", f"jobs.>={target}.jobs.>"),
            *("--tasks", "4", "-s", running.url, "-o", "maxInFlight=64"),
            is_under_way=lambda: count_in(client, target),
        )
    assert (ended.outcome["sent"], ended.outcome["there_before"]) == (MESSAGES, 0)
    copied = in_stream(running.url, target)
    check_once(copied, f"{target}.jobs", MESSAGES)
    check_order(copied)


def test_audit(running: Running, replicas: list[str]) -> None:
    ended = running.run("audit", *replicas, is_under_way=running.has_tasks)
    undisturbed = alone(running.driver, running.directory, "audit", *replicas)
    assert (ended.code, undisturbed.code) == (1, 1), ended.stderr[-8_000:]
    assert found_by(ended) == found_by(undisturbed)
    assert {one["kind"] for one in ended.json["findings"]} == {"damage", "only in some"}


@pytest.mark.parametrize("rows", ["stream", "store"])
def test_report(running: Running, source: str, replicas: list[str], rows: str) -> None:
    where = ("-s", running.url) if rows == "stream" else ("--store", replicas[0])
    page = running.directory / "page.html"
    given = ("report", source, str(page), *where, *TASKS)
    ended = running.run(*given, is_under_way=running.has_tasks)
    assert page.exists()
    assert ended.outcome["totals"][0]["messages"] == MESSAGES
    undisturbed = alone(running.driver, running.directory, *given)
    assert found_by(ended) == found_by(undisturbed)
