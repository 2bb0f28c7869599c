"""`natsd pipeline` as a user calls it: output, exit codes, Ctrl-C.

The audit's findings and exit code 1 are tested in tests/spark/failures/test_archive.py.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.parquet import write_table

from natsd.cli import pipeline
from natsd.spark import session
from natsd.spark.java import ADVICE, JavaMissing
from natsd.spark.wire.client import NatsClient
from tests.spark.conftest import RunJob
from tests.spark.failures.commands import Command, Ended
from tests.spark.failures.held import archived_to, count_in, in_archive, in_stream
from tests.spark.failures.machine import Machine
from tests.spark.failures.messages import Publisher
from tests.spark.failures.waiting import bounded, wait_until
from tests.spark.servers import JetStreamServer
from tests.spark.serving import create

Names = Callable[[], str]
StartCommand = Callable[..., Command]

MESSAGES = 500
SQL = "SELECT concat('big.', subject) AS subject, data FROM messages WHERE seq % 2 = 0"


def assert_refused(ended: Ended, job: str, reason: str) -> None:
    """Check exit code 2, an empty standard output, and one line after Spark's own lines."""
    assert ended.code == 2, ended.stderr
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr, ended.stderr
    assert "\tat " not in ended.stderr, ended.stderr
    last = ended.stderr.rstrip().splitlines()[-1]
    assert last.startswith(f"natsd pipeline {job}: "), ended.stderr
    assert re.search(reason, last), last


@pytest.fixture
def start(machine: Machine, tmp_path: Path) -> Iterator[StartCommand]:
    """Yield a function that starts a command: `start("archive", "ORDERS", …)`.

    No process of it is left after the test.
    """
    started: list[Command] = []

    def start_command(job: str, *arguments: str) -> Command:
        started.append(Command(machine, tmp_path / "commands", job, *arguments))
        return started[-1]

    yield start_command
    for command in started:
        command.kill()


@pytest.fixture
def stream(shared_server: JetStreamServer, client: NatsClient, names: Names) -> str:
    """Return the name of a stream with messages."""
    name = names()
    create(client, name, f"{name}.>")
    with Publisher(shared_server.url, name, 0, MESSAGES):
        return name


@bounded
def test_archived_replayed_transformed_and_reported(
    start: StartCommand,
    run_job: RunJob,
    tmp_path: Path,
    shared_server: JetStreamServer,
    client: NatsClient,
    stream: str,
    names: Names,
) -> None:
    server = ("-s", shared_server.url)
    table, page = tmp_path / "table", tmp_path / "page.html"
    query = tmp_path / "big.sql"
    query.write_text(SQL)
    again, big = names(), names()
    create(client, again, f"{again}.>")
    create(client, big, "big.>")

    archived = start("archive", stream, str(table), "--token", "region=2", *server).wait()
    assert (archived.code, "natsd" in archived.stderr) == (0, False), archived.stderr
    assert re.fullmatch(
        rf"{stream}: 500 messages, sequences 1 to 500\n"
        r"500 messages in \d+\.\d s \([\d,]+/s\)\n"
        rf"file:{table}: 500 messages, 3 files, \d+\.\d KiB\n",
        archived.stdout,
    ), archived.stdout

    checkpoint = ("--checkpoint", str(tmp_path / "checkpoint"))
    transformed = run_job(
        *("transform", "--from", stream, "--to", big, "--sql", str(query)),
        *(*checkpoint, "--json", *server),
    )
    assert transformed.outcome["read"] == MESSAGES
    assert count_in(client, big) == MESSAGES // 2

    mapping = f"{stream}.>={again}.>"
    replayed = run_job("replay", str(table), "--stream", again, "--map", mapping, *server)
    sent = r"500 messages, [\d,]+ bytes of payload sent to %s in \d+\.\d s \([\d,]+/s\)\n"
    assert re.fullmatch(sent % again, replayed.stdout), replayed
    assert in_stream(shared_server.url, again).num_rows == MESSAGES

    reported = run_job("report", stream, str(page), *server)
    assert reported.code == 0, reported.stderr
    assert reported.stdout.startswith(f"{stream}: 500 messages, ")
    assert reported.stdout.rstrip().splitlines()[-1].startswith(f"{page} (")
    assert f"<title>{stream}" in page.read_text()


@bounded
def test_one_line_says_why_not(
    start: StartCommand,
    run_job: RunJob,
    tmp_path: Path,
    shared_server: JetStreamServer,
    stream: str,
) -> None:
    server = ("-s", shared_server.url)
    there_is_none = start("archive", "NONE", str(tmp_path / "table"), *server).wait()
    assert_refused(there_is_none, "archive", 'there is no stream "NONE"')
    unreachable = run_job("report", stream, str(tmp_path / "page.html"), "-s", "nats://127.0.0.1:1")
    assert_refused(unreachable, "report", r"127\.0\.0\.1:1\b")
    (tmp_path / "files").mkdir()
    write_table(pa.table({"seq": [1]}), tmp_path / "files" / "part.parquet")
    no_messages = run_job("replay", str(tmp_path / "files"), "--stream", stream, *server)
    assert_refused(no_messages, "replay", "no column stream; replay needs stream, ")


@bounded
@pytest.mark.parametrize("by", ["Ctrl-C", "SIGTERM"])
def test_following_ends_when_it_is_told_to(
    by: str, start: StartCommand, tmp_path: Path, shared_server: JetStreamServer, stream: str
) -> None:
    table = tmp_path / "table"
    following = ("--follow", "--interval", "100 milliseconds", "-s", shared_server.url)
    command = start("archive", stream, str(table), *following)
    wait_until(lambda: archived_to(table, stream) > 0)
    if by == "Ctrl-C":
        command.interrupt()
    else:
        command.terminate()
    assert_refused(command.wait(), "archive", "stopped; run it again to go on")
    assert in_archive(table).num_rows == MESSAGES


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "the following arguments are required: JOB"),
        (("bake",), "invalid choice: 'bake'"),
        (("archive", "ORDERS"), "the following arguments are required: TABLE"),
        (("transform", "--from", "A", "--to", "B"), "required: --checkpoint"),
    ],
)
def test_a_mistake_on_the_command_line(
    arguments: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        pipeline.main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert reason in said.err.splitlines()[-1]


def test_a_mistake_is_told_before_spark_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert pipeline.main(("report", "S", "page.html", "--conf", "nothing")) == 2
    assert capsys.readouterr().err == (
        "natsd pipeline report: --conf nothing: write it as NAME=VALUE\n"
    )


def test_no_java(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing() -> None:
        raise JavaMissing(ADVICE)

    monkeypatch.setattr(session, "ensure_java", missing)
    assert pipeline.main(("archive", "S", "table")) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"natsd pipeline archive: {ADVICE}\n")


def test_a_python_that_only_executors_have(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    assert pipeline.main(("archive", "S", "table")) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(
        r"natsd pipeline archive: PYSPARK_PYTHON is ./environment/bin/python, and this machine has "
        r"none: .* unpack the archive of the Python environment here as well\n",
        said.err,
    )


def test_no_pyspark(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.errors", None)
    assert pipeline.main(("archive", "S", "table")) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"natsd pipeline archive: {pipeline.NO_SPARK}\n")
