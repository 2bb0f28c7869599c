"""The daemon as a process: start-up lines, files, signals, and what keeps it from starting."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from natsd.cli.signals import send_signal
from tests.cli.daemon import DEADLINE_S, Daemon, Start, running_daemons


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts daemons on free ports of the loopback; none outlives the test."""
    with running_daemons() as start_one:
        yield start_one


@contextmanager
def taken_port() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield listener.getsockname()[1]


def connect(daemon: Daemon) -> socket.socket:
    line = daemon.read_until("Listening for client connections on 127.0.0.1:")
    return socket.create_connection(("127.0.0.1", int(line.rpartition(":")[2])), DEADLINE_S)


def test_the_lines_of_a_start_and_of_an_end(start: Start) -> None:
    daemon = start("-n", "first")
    daemon.read_until("Server is ready")
    assert daemon.end(signal.SIGINT) == 0
    patterns = (
        r"INF Starting natsd",
        r"INF   Version:  \S+ \(NATS 2\.14\.5\)",
        r"INF   Git:      \[not set\]",
        r"INF   Name:     first",
        r"INF   ID:       N[A-Z2-7]{55}",
        r"INF Listening for client connections on 127\.0\.0\.1:\d+",
        r"INF Server is ready",
        r'INF Trapped "interrupt" signal',
        r"INF Initiating Shutdown\.\.\.",
        r"INF Server Exiting\.\.",
    )
    assert len(daemon.texts) == len(patterns)
    for pattern, text in zip(patterns, daemon.texts, strict=True):
        assert re.fullmatch(pattern, text)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lets it be set")
def test_a_daemon_has_the_name_that_signals_look_for(start: Start) -> None:
    """Also as `python -m natsd`: `natsd -sl quit` finds it."""
    daemon = start()
    daemon.read_until("Server is ready")
    assert Path(f"/proc/{daemon.process.pid}/comm").read_text() == "natsd\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_in_order(start: Start, number: signal.Signals) -> None:
    daemon = start()
    with connect(daemon) as client:
        assert client.recv(5).startswith(b"INFO")
        daemon.read_until("Server is ready")
        assert daemon.end(number) == 0
    assert daemon.texts[-1] == "INF Server Exiting.."


HEAVY = (
    "aiohttp",
    "pydantic",
    "rich",
    "lark",
    "cryptography",
    "prometheus_client",
    "natsd.bench",
    "natsd.monitor.endpoints",
)
"""What each takes to import is a good part of the 0.25 s in which natsd accepts connections."""


def test_a_start_imports_nothing_heavy() -> None:
    program = (
        "import asyncio, sys\n"
        "from natsd.server import Server\n"
        "async def serve():\n"
        "    async with Server(host='127.0.0.1', port=-1):\n"
        f"        return [name for name in {HEAVY!r} if name in sys.modules]\n"
        "print(asyncio.run(serve()))\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "[]"


def test_monitoring_answers_and_does_not_delay_clients(start: Start) -> None:
    daemon = start("-m", "-1")
    line = daemon.read_until("Starting http monitor on 127.0.0.1:")
    port = int(line.rpartition(":")[2])
    with connect(daemon) as client:
        assert client.recv(5) == b"INFO "
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/varz", timeout=DEADLINE_S) as answer:
        varz = json.load(answer)
    assert varz["http_port"] == port
    assert daemon.end() == 0


def test_pid_file_and_ports_file_come_and_go(start: Start, tmp_path: Path) -> None:
    pid_file = tmp_path / "natsd.pid"
    daemon = start("-P", str(pid_file), "--ports_file_dir", str(tmp_path), "-m", "-1")
    daemon.read_until("Server is ready")
    assert pid_file.read_text() == str(daemon.process.pid)
    ports = json.loads((tmp_path / f"natsd_{daemon.process.pid}.ports").read_text())
    assert ports.keys() == {"nats", "monitoring"}
    host, _, port = ports["nats"][0].removeprefix("nats://").rpartition(":")
    socket.create_connection((host, int(port)), DEADLINE_S).close()
    assert daemon.end() == 0
    assert list(tmp_path.iterdir()) == []


def test_the_log_goes_to_a_file_and_follows_it(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "natsd.log"
    daemon = start("-l", str(log), "-T=false")
    wait_for(lambda: log.exists() and "Server is ready" in log.read_text())
    log.rename(tmp_path / "natsd.log.1")
    daemon.process.send_signal(signal.SIGUSR1)
    wait_for(lambda: log.exists() and "File log re-opened" in log.read_text())
    assert daemon.end() == 0
    assert daemon.lines == []
    assert log.read_text().splitlines()[-1] == f"[{daemon.process.pid}] [INF] Server Exiting.."


def test_a_signal_for_what_is_not_there_yet_is_answered(start: Start) -> None:
    daemon = start()
    daemon.read_until("Server is ready")
    daemon.process.send_signal(signal.SIGHUP)
    daemon.read_until("Failed to reload server configuration")
    assert daemon.end() == 0


def test_a_lame_duck_without_clients_ends(start: Start) -> None:
    daemon = start()
    daemon.read_until("Server is ready")
    send_signal(f"ldm={daemon.process.pid}")
    assert daemon.wait() == 0
    assert daemon.texts[-4:] == [
        'INF Trapped "user defined signal 2" signal',
        "INF Entering lame duck mode, stop accepting new clients",
        "INF Initiating Shutdown...",
        "INF Server Exiting..",
    ]


def test_a_lame_duck_is_not_hurried_by_sigterm_but_by_sigint(start: Start) -> None:
    daemon = start()
    with connect(daemon) as client:
        daemon.read_until("Server is ready")
        client.sendall(b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
        lines = client.makefile("rb")
        while lines.readline() != b"PONG\r\n":
            pass
        daemon.process.send_signal(signal.SIGUSR2)
        while b'"ldm":true' not in lines.readline():
            pass
        daemon.process.send_signal(signal.SIGTERM)
        daemon.read_until('Trapped "terminated" signal')
        client.sendall(b"PING\r\n")
        while lines.readline() != b"PONG\r\n":
            pass
        assert daemon.end(signal.SIGINT) == 0
    assert daemon.texts[-1] == "INF Server Exiting.."


def test_sigquit_shows_the_stacks_and_ends_it_with_2(start: Start) -> None:
    daemon = start()
    daemon.read_until("Server is ready")
    assert daemon.end(signal.SIGQUIT) == 2
    assert any("most recent call first" in line for line in daemon.lines)


def test_debug_and_trace(start: Start) -> None:
    daemon = start("-DV")
    with connect(daemon) as client:
        client.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        daemon.read_until("<<- [PING]")
    assert daemon.end() == 0
    assert {text[:3] for text in daemon.texts} == {"INF", "DBG", "TRC"}


def fails_to_start(daemon: Daemon) -> str:
    """The one line at the end that says why."""
    assert daemon.wait() == 1
    assert not any("Traceback" in line for line in daemon.lines)
    return daemon.lines[-1]


def test_a_port_in_use_is_one_line(start: Start) -> None:
    with taken_port() as port:
        line = fails_to_start(start("-p", str(port)))
    assert line.endswith(
        f"[FTL] Error listening on port: 127.0.0.1:{port}, "
        f'"listen tcp 127.0.0.1:{port}: bind: address already in use"'
    )


def test_a_monitoring_port_in_use_is_one_line_and_leaves_nothing(
    start: Start, tmp_path: Path
) -> None:
    with taken_port() as port:
        line = fails_to_start(start("-m", str(port), "-P", str(tmp_path / "pid")))
    assert line.endswith(
        "[FTL] Can't start monitoring: can't listen to the monitor port: "
        f"listen tcp 127.0.0.1:{port}: bind: address already in use"
    )
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_host_is_one_line(start: Start) -> None:
    line = fails_to_start(start("-a", "no-such-host.invalid"))
    assert '[FTL] Error listening on port: no-such-host.invalid:0, "listen tcp: lookup' in line


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("-P", "[FTL] Could not write pidfile: open {path}: no such file or directory"),
        ("-l", "natsd: error opening log file: open {path}: no such file or directory"),
        ("--ports_file_dir", "[FTL] Error writing ports file ({path}/natsd_"),
    ],
)
def test_an_unwritable_file_is_one_line(start: Start, tmp_path: Path, flag: str, said: str) -> None:
    path = tmp_path / "missing" / "x"
    assert said.format(path=path) in fails_to_start(start(flag, str(path)))


def test_what_goes_wrong_is_shown_even_when_the_log_is_a_file(start: Start, tmp_path: Path) -> None:
    with taken_port() as port:
        daemon = start("-p", str(port), "-l", str(tmp_path / "log"))
        assert fails_to_start(daemon).startswith("natsd: Error listening on port: 127.0.0.1:")
    assert len(daemon.lines) == 1


def test_a_second_signal_ends_a_stop_that_hangs(start: Start) -> None:
    daemon = start()
    daemon.read_until("Server is ready")
    daemon.process.send_signal(signal.SIGINT)
    daemon.process.send_signal(signal.SIGINT)
    assert daemon.wait() in (0, -signal.SIGINT)
    assert not any("Traceback" in line for line in daemon.lines)


def wait_for(condition: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.005)
