"""`natsd cluster`: what it prints, and its exit code; tests/local_cluster tests what it does."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from natsd.cli import main
from natsd.cli.cluster_table import HEADS
from natsd.local_cluster.cluster import LocalCluster
from natsd.local_cluster.process import NATSD
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
