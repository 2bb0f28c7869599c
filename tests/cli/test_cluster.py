"""`natsd cluster`: what it prints, and its exit code; tests/local_cluster tests what it does."""

import asyncio
import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.errors import APIError

from natsd.cli import main
from natsd.cli.cluster_table import HEADS, table
from natsd.local_cluster.cluster import LocalCluster
from natsd.local_cluster.member import STORE
from natsd.local_cluster.plan import FREE, Plan
from natsd.local_cluster.process import NATSD, ProcessState
from natsd.local_cluster.seen import Seen
from tests.local_cluster.running import PROGRAMS, none_left

DEADLINE_S = 60.0
ROW = re.compile(
    r"n\d +running +(?P<pid>\d+)  (?P<clients>nats://127\.0\.0\.1:\d+) +"
    r"http://127\.0\.0\.1:\d+ +(?P<routes>\d of \d) +\d\S+ +(?P<log>\S+)"
)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    with none_left(tmp_path / "cluster") as path:
        yield path


def run(directory: Path, action: str, *arguments: str) -> int:
    return main(["cluster", action, "--dir", str(directory), *arguments])


def flags_of(program: Sequence[str]) -> list[str]:
    return [] if program == NATSD else ["--program", *program]


@PROGRAMS
def test_a_day_in_the_life(
    directory: Path, program: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = flags_of(program)
    assert run(directory, "up", "3", "--port", "-1", *flags) == 0
    head, _, heads, *rows, _, nats, nats_py = capsys.readouterr().out.splitlines()
    assert head == f"cluster local in {directory}: 3 of 3 servers run, full mesh"
    assert tuple(heads.split()) == HEADS
    found = [ROW.fullmatch(row) for row in rows]
    urls = [match["clients"] for match in found if match]
    assert [match["routes"] for match in found if match] == ["2 of 2"] * 3
    assert nats == f"nats --server {','.join(urls)} sub '>'"
    assert nats_py == f"nats.connect({json.dumps(urls)})"

    assert run(directory, "kill", "n2") == 0
    assert run(directory, "pause", "n3") == 0
    assert run(directory, "status") == 1
    shown = capsys.readouterr().out
    assert "1 of 3 servers run" in shown
    assert re.search(r"^n2 +stopped +–", shown, re.MULTILINE)
    assert re.search(r"^n3 +paused +\d", shown, re.MULTILINE)

    assert run(directory, "up", *flags) == 0
    assert "3 of 3 servers run, full mesh" in capsys.readouterr().out
    assert run(directory, "restart", "n1", "n3", *flags) == 0
    assert re.fullmatch(
        r"n1 is running, pid \d+\nn3 is running, pid \d+\n", capsys.readouterr().out
    )
    assert run(directory, "status", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["full_mesh"], told["missing"]) == ("local", True, [])
    assert [server["state"] for server in told["servers"]] == ["running"] * 3
    assert set(told["servers"][0]["routes"]) == {"n2", "n3"}

    assert run(directory, "logs", "n1", "-n", "1000") == 0
    assert "n1 | [" in capsys.readouterr().out
    assert run(directory, "down") == 0
    assert run(directory, "down") == 0
    assert capsys.readouterr().out == "stopped n1, n2, n3\nlocal is not running\n"
    assert run(directory, "status") == 1
    assert ": not running\n" in capsys.readouterr().out


def test_down_with_kill(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(directory, "up", "1", "--port", "-1") == 0
    assert run(directory, "pause", "n1") == 0
    capsys.readouterr()
    assert run(directory, "down", "--kill") == 0
    assert capsys.readouterr().out == "stopped n1\n"


def test_a_cluster_grows(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = directory.parent / "common.conf"
    common.write_text("max_payload: 4321\n")
    include = ["--include", str(common)]
    assert run(directory, "up", "1", "--port", "-1", "--name", "lab", *include) == 0
    assert run(directory, "up", "2") == 0
    assert f"cluster lab in {directory}: 2 of 2 servers run, full mesh" in capsys.readouterr().out
    first, second = LocalCluster.open(directory).members
    assert (first.options.max_payload, second.options.max_payload) == (4321, 1 << 20)


async def add_stream(url: str) -> None:
    client = await nats.connect(url)
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with contextlib.suppress(nats.errors.Error, APIError):  # the servers found their group
                await client.jetstream().add_stream(name="S", subjects=["s"], num_replicas=3)
                break
            await asyncio.sleep(0.1)
    await client.close()


def rescues_in(directory: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    run(directory, "status", "--json")
    servers = json.loads(capsys.readouterr().out)["servers"]
    assert [each["name"] for each in servers if each["rescues"]] in ([], ["n3"])
    return [rescue for each in servers for rescue in each["rescues"]]


@pytest.mark.timeout(180)  # six starts of a server
def test_status_shows_what_was_rescued(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(directory, "up", "3", "--port", "-1") == 0
    assert "rescued" not in capsys.readouterr().out
    first, second, left = LocalCluster.open(directory).members
    asyncio.run(add_stream(left.client_url))
    assert run(directory, "down", "--kill") == 0
    for lost in (first, second):
        shutil.rmtree(lost.config.parent / STORE)
    rescue = ["rescue", "-c", str(left.config), "--lost", "n1,n2", "--yes"]
    assert main(["cluster", *rescue]) == 0
    assert run(directory, "up") == 0
    capsys.readouterr()
    give_up_at = time.monotonic() + DEADLINE_S
    while not (found := rescues_in(directory, capsys)):
        assert time.monotonic() < give_up_at
        time.sleep(0.1)
    [rescued] = found
    assert rescued["lost_servers"] == ["n1", "n2"]
    assert run(directory, "status") == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index(
        f"rescued by n3 at {rescued['time']}, ordered by {rescued['by']}; lost for good: n1, n2"
    )
    meta, stream = lines[at + 1 : at + 3]
    assert meta.startswith("  the meta group: may be lost: streams created, changed or deleted")
    assert stream.startswith("  stream '$G > S': may be lost: messages beyond sequence 0, and")


def test_a_group_that_was_not_rescued_is_shown_with_the_reason(directory: Path) -> None:
    cluster = LocalCluster.create(directory, Plan(port=FREE), 1)
    [member] = cluster.members
    group = {"what": "stream 'A > S'", "skipped": "the stream was deleted"}
    rescue = {"time": "T2", "by": "root@n1", "lost_servers": ["n2", "n3"], "groups": [group]}
    seen = Seen(member, ProcessState.STOPPED, None, rescues=[rescue])
    assert table(cluster, [seen]).splitlines()[-2:] == [
        "rescued by n1 at T2, ordered by root@n1; lost for good: n2, n3",
        "  stream 'A > S': not rescued: the stream was deleted",
    ]


@pytest.fixture
def stopped(directory: Path) -> Path:
    """Return the directory of a cluster of two servers that do not run."""
    assert run(directory, "up", "2", "--port", "-1", "--program", "false") == 1
    assert run(directory, "down", "--kill") == 0
    return directory


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["up", "3", "--program", "no-such"], "natsd: no-such: No such file or directory"),
        (["up", "1"], "natsd: local has 2 servers, not 1"),
        (["up", "--name", "lab"], "natsd: {} has the cluster local; use --dir"),
        (["up", "--include", "no-such"], "natsd: no-such is not a file"),
        (["kill", "n1"], "natsd: n1 is not running"),
        (["pause", "n1"], "natsd: n1 is not running"),
        (["resume", "n2"], "natsd: n2 is not running"),
        (["kill", "n3"], 'natsd: there is no server "n3"; there are n1, n2'),
        (["restart", "x"], 'natsd: there is no server "x"; there are n1, n2'),
        (["logs", "n7"], 'natsd: there is no server "n7"; there are n1, n2'),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_is_one_line(
    stopped: Path, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run(stopped, *arguments) == 1
    assert capsys.readouterr() == ("", told.format(stopped) + "\n")


@pytest.mark.parametrize(
    "arguments", [["status"], ["down"], ["restart", "n1"], ["kill", "n1"], ["logs"]], ids=str
)
def test_without_a_cluster(
    directory: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(directory, *arguments) == 1
    told = f"natsd: there is no cluster in {directory}; `natsd cluster up` makes one\n"
    assert capsys.readouterr() == ("", told)


def test_a_cluster_without_servers(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(directory, "up", "0") == 1
    assert capsys.readouterr() == ("", "natsd: a cluster has at least one server\n")


def test_a_port_that_is_taken(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        if port > 61000:
            pytest.skip("the system chose a high port")
        assert run(directory, "up", "--port", str(port)) == 1
    assert capsys.readouterr().err == (
        f"natsd: n1 cannot listen on 127.0.0.1:{port}: address already in use; "
        "a new cluster can have other ports: --port, -1 for free ones\n"
    )
    assert not LocalCluster.is_in(directory)


def wait_for(process: "subprocess.Popen[str]", lines: list[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line.rstrip())
        if text in line:
            return
    raise AssertionError(lines)


@contextlib.contextmanager
def foreground(directory: Path) -> "Iterator[subprocess.Popen[str]]":
    command = ["-m", "natsd", "cluster", "up", "2", "--port", "-1", "--foreground"]
    with subprocess.Popen(
        [sys.executable, *command, "--dir", str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_foreground_shows_the_logs_and_stops_all(
    directory: Path, number: signal.Signals
) -> None:
    lines: list[str] = []
    with foreground(directory) as process:
        wait_for(process, lines, "full mesh")
        wait_for(process, lines, "nats.connect")
        wait_for(process, lines, "Server is ready")
        process.send_signal(number)
        rest, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert any(line.startswith("n1 | [") for line in lines)
    assert "Server Exiting.." in rest
    assert all(member.process.pid is None for member in LocalCluster.open(directory).members)


def test_the_foreground_ends_with_the_servers(directory: Path) -> None:
    with foreground(directory) as process:
        wait_for(process, [], "nats.connect")
        assert run(directory, "down") == 0
        assert process.wait(DEADLINE_S) == 0


def test_logs_are_followed(directory: Path) -> None:
    assert run(directory, "up", "1", "--port", "-1") == 0
    [member] = LocalCluster.open(directory).members
    command = [sys.executable, "-m", "natsd", "cluster", "logs", "--dir", str(directory), "-f"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines: list[str] = []
        wait_for(process, lines, "Server is ready")
        with member.log.open("a") as log:
            log.write("a line\nhalf a")
            log.flush()
            wait_for(process, lines, "a line")
            log.write(" line\n")
        wait_for(process, lines, "half a line")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
    assert lines[-2:] == ["n1 | a line", "n1 | half a line"]
