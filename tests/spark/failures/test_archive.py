"""A stream is archived while it is filled; the query and the server are killed repeatedly.

    publisher ─▶ ORDERS ─▶ natsd pipeline archive ─▶ Delta ──▶ natsd pipeline replay ─▶ AGAIN
                 ✗ kill -9       ✗ kill -9                          ✗ kill -9

- The table holds each sequence of the stream once, as the stream has it.
- The replayed stream holds the same messages: subjects, payloads, headers, and the order within
  each subject.
- The store is clean for `natsd pipeline audit`, even right after a kill; the audit reports a
  flipped byte in a block with the message's sequence.

`make torture` uses two million messages, ten kills of the query and two of the server.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from natsd.spark.wire.client import NatsClient
from tests.spark.conftest import RunJob
from tests.spark.failures.commands import Command
from tests.spark.failures.held import (
    archived_to,
    check_once,
    check_order,
    count_in,
    header,
    in_archive,
    in_stream,
)
from tests.spark.failures.machine import Machine
from tests.spark.failures.messages import FILLING, Publisher
from tests.spark.failures.waiting import bounded, pause, wait_until
from tests.spark.servers import JetStreamServer
from tests.spark.serving import create, options
from tests.store.crash import TORTURE

pytestmark = [pytest.mark.torture, bounded]


@dataclass(frozen=True)
class Size:
    """The size of a run; in rounds of `servers_killed` the server is killed too."""

    messages: int
    queries_killed: int
    servers_killed: frozenset[int]
    per_second: int


CARRIED = {"Kind": "Kind", "Note": "Note", "Nats-Original-Msg-Id": "Nats-Msg-Id"}
"""Headers of a replayed message, and their names in the original message."""

SMALL = Size(20_000, 2, frozenset({1}), per_second=4_000)
FULL = Size(2_000_000, 10, frozenset({3, 6}), per_second=20_000)
SIZE = FULL if TORTURE > 1 else SMALL


@dataclass
class Archiving:
    """Runs of `natsd pipeline`, one after the other."""

    machine: Machine
    directory: Path
    server: JetStreamServer
    random: random.Random
    failures: list[str] = field(default_factory=list)
    started: list[Command] = field(default_factory=list)

    @property
    def table(self) -> Path:
        return self.directory / "table"

    def command(self, job: str, *arguments: str) -> Command:
        self.started.append(Command(self.machine, self.directory / "commands", job, *arguments))
        return self.started[-1]

    def archive(self, *arguments: str) -> Command:
        server = ("-s", self.server.url)
        return self.command("archive", "ORDERS", str(self.table), *server, *arguments)

    def round(self, number: int) -> None:
        """Publish messages, run the query until the table has grown or it ends, and kill it."""
        first, last = (SIZE.messages * at // SIZE.queries_killed for at in (number, number + 1))
        with Publisher(self.server.url, "orders", first, last, per_second=SIZE.per_second):
            self.kill_in_between(number)

    def kill_in_between(self, number: int) -> None:
        before = archived_to(self.table, "ORDERS")
        query = self.archive(
            *(("--follow", "--interval", "500 milliseconds") if number % 2 == 0 else ())
        )
        try:
            wait_until(lambda: not query.is_running or archived_to(self.table, "ORDERS") > before)
            if number in SIZE.servers_killed:
                self.server.kill()
                self.server.start()
            pause(self.random.random())
        finally:
            if self.random.random() < 0.5:
                query.kill_python()
            else:
                query.kill()
        ended = query.wait()
        if ended.code > 0:
            self.failures.append(ended.stderr)


@pytest.fixture(scope="module")
def archiving(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archiving]:
    """Yield the state that the tests of this file share; each continues the one before."""
    directory = tmp_path_factory.mktemp("archiving")
    server = JetStreamServer(directory)
    with NatsClient(options(server.url)) as client:
        create(client, "ORDERS", "orders.>")
        create(client, "AGAIN", "again.>", duplicate_window=100_000_000)
    result = Archiving(machine, directory, server, random.Random(SIZE.messages))
    yield result
    for command in result.started:
        command.kill()
    server.stop()


def test_1_archived_through_all_kills(archiving: Archiving) -> None:
    for number in range(SIZE.queries_killed):
        archiving.round(number)
    for said in archiving.failures:  # only the kill of the server may end a query
        assert_one_line(said, "natsd pipeline archive: ")
    assert len(archiving.failures) <= len(SIZE.servers_killed), archiving.failures

    done = archiving.archive("--json").wait().outcome
    assert done["rows"] == SIZE.messages
    archived = in_archive(archiving.table)
    check_once(archived, "orders", SIZE.messages)
    assert archived.equals(in_stream(archiving.server.url, "ORDERS"))


def test_2_replayed_through_a_kill(archiving: Archiving, run_job: RunJob) -> None:
    given = [str(archiving.table), "--stream", "AGAIN", "--map", "orders.>=again.orders.>"]
    given += ["-s", archiving.server.url]
    killed = archiving.command("replay", *given)
    with NatsClient(options(archiving.server.url)) as client:
        wait_until(lambda: count_in(client, "AGAIN") > 0 or not killed.is_running)
    killed.kill()
    done = run_job("replay", *given, "--json").outcome
    assert done["sent"] + done["there_before"] == SIZE.messages
    source = in_stream(archiving.server.url, "ORDERS")
    check_replayed(in_stream(archiving.server.url, "AGAIN"), source)


def test_3_audited_as_a_kill_left_it(archiving: Archiving, run_job: RunJob) -> None:
    source = in_stream(archiving.server.url, "ORDERS")
    archiving.server.kill()
    store = archiving.server.store_dir
    audited = run_job("audit", str(store / "jetstream"))
    assert audited.code == 0, audited.stdout + audited.stderr
    assert audited.stdout.rstrip().endswith("clean")
    sequence = flip_a_payload(store, source, archiving.random)
    damaged = run_job("audit", str(store / "jetstream"), "--json")
    assert damaged.code == 1, damaged.stdout + damaged.stderr
    named = [(one["kind"], one["stream"], one["first"]) for one in damaged.json["findings"]]
    assert named == [("damage", "ORDERS", sequence)]


def check_replayed(replayed: pa.Table, source: pa.Table) -> None:
    """Check that both streams have the same messages, and that copies name their origin."""
    check_once(replayed, "again.orders", SIZE.messages)
    check_order(replayed)
    origin = header(replayed, "Nats-Original-Sequence")
    sequences = pc.cast(pc.list_element(origin, 0), pa.int64())
    ordered = replayed.append_column("origin", sequences).sort_by("origin")
    assert ordered["origin"].equals(source["seq"])
    assert ordered["data"].equals(source["data"])
    for name, before in CARRIED.items():
        assert header(ordered, name).equals(header(source, before)), name


def flip_a_payload(store: Path, source: pa.Table, chosen: random.Random) -> int:
    """Flip a byte of a payload in a block, as a worn disk does; return the message's sequence."""
    row = chosen.randrange(source.num_rows)
    payload = source["data"][row].as_py()
    for path in sorted(store.glob("jetstream/$G/streams/ORDERS/**/*")):
        if path.is_file() and (
            found := re.search(rb"(?<!\d)" + re.escape(payload), path.read_bytes())
        ):
            damaged = bytearray(path.read_bytes())
            damaged[found.end() - len(FILLING)] ^= 0x10
            path.write_bytes(damaged)
            return int(source["seq"][row].as_py())
    raise AssertionError(f"{payload!r} is in no file of {store}")


def assert_one_line(said: str, prefix: str) -> None:
    """Check that the error is one readable line, apart from the output of Spark's start."""
    lines = [line for line in said.splitlines() if line.startswith(prefix)]
    assert len(lines) == 1, said
    assert said.rstrip().endswith(lines[0]), said
