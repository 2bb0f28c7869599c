"""natsd as a service of systemd: what it tells the socket of NOTIFY_SOCKET, and when."""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from natsd.cli.systemd import ServiceManager
from tests.cli.daemon import DEADLINE_S, Start, running_daemons
from tests.waiting import eventually_within


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts daemons on free ports of the loopback; none outlives the test."""
    with running_daemons() as start_one:
        yield start_one


class Listener:
    """The socket of a service manager."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(DEADLINE_S)
        self.socket.bind("\0" + path[1:] if path.startswith("@") else path)

    def read(self, *beginnings: str) -> str:
        """The next message that begins with one of the texts."""
        while not (text := self.socket.recv(65536).decode()).startswith(beginnings):
            assert text.startswith(("STATUS=", "EXTEND_TIMEOUT_USEC=", "WATCHDOG=1")), text
        return text


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listener]:
    """A service manager's socket, which daemons of the test find in their environment."""
    path = str(tmp_path / "n") if request.param == "path" else f"@natsd-{secrets.token_hex(8)}"
    made = Listener(path)
    with closing(made.socket):
        yield made


def test_a_service_is_ready_reloads_and_stops(
    listener: Listener, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", listener.path)
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    config = tmp_path / "natsd.conf"
    config.write_text("max_payload: 1000\n")
    daemon = start("-c", str(config))
    assert listener.read("EXTEND") == "EXTEND_TIMEOUT_USEC=30000000"
    assert listener.read("READY") == "READY=1\nSTATUS=Ready"
    daemon.read_until("Server is ready")
    assert [listener.read("WATCHDOG") for _ in range(3)] == ["WATCHDOG=1"] * 3
    began_us = time.monotonic_ns() // 1000
    daemon.process.send_signal(signal.SIGHUP)
    name, at, status = listener.read("RELOADING").split("\n")
    assert (name, status) == ("RELOADING=1", "STATUS=Reloading the configuration")
    assert began_us <= int(at.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000
    assert listener.read("READY") == "READY=1\nSTATUS=Ready"
    config.write_text("max_payload: x\n")
    daemon.process.send_signal(signal.SIGHUP)
    listener.read("RELOADING")
    assert listener.read("READY").startswith(
        f"READY=1\nSTATUS=Ready; the last reload failed: {config}:1:1: max_payload"
    )
    daemon.process.send_signal(signal.SIGTERM)
    assert listener.read("STOPPING") == "STOPPING=1\nSTATUS=Stopping"
    assert daemon.wait() == 0


def test_a_lame_duck_is_stopping(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = Listener(str(tmp_path / "n"))
    monkeypatch.setenv("NOTIFY_SOCKET", listener.path)
    with closing(listener.socket):
        daemon = start()
        daemon.read_until("Server is ready")
        listener.read("READY")
        daemon.process.send_signal(signal.SIGUSR2)
        text = listener.read("STOPPING")
        assert text == "STOPPING=1\nSTATUS=Lame duck mode: clients move to other servers"
        assert daemon.wait() == 0


def test_a_start_that_fails_says_why(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = Listener(str(tmp_path / "n"))
    monkeypatch.setenv("NOTIFY_SOCKET", listener.path)
    with closing(listener.socket):
        assert start("-P", str(tmp_path / "none" / "pid")).wait() == 1
        assert "Could not write pidfile" in listener.read("STATUS=Could")


async def test_the_variables_are_taken(tmp_path: Path) -> None:
    with closing(Listener(str(tmp_path / "n")).socket):
        for pid, interval_s in ((str(os.getpid()), 2.0), ("", 2.0), ("1", 0.0)):
            environment = {
                "NOTIFY_SOCKET": str(tmp_path / "n"),
                "WATCHDOG_USEC": "2000000",
                "WATCHDOG_PID": pid,
                "PATH": "/bin",
            }
            manager = ServiceManager.of(environment)
            assert manager is not None
            assert manager._watchdog_s == interval_s
            assert environment == {"PATH": "/bin"}
            manager.close()
    for path in ("", "@", "/", "relative", "vsock:2:1"):
        assert ServiceManager.of({"NOTIFY_SOCKET": path}) is None


async def test_messages_wait_for_a_manager_that_is_slow(tmp_path: Path) -> None:
    listener = Listener(str(tmp_path / "n"))
    with closing(listener.socket):
        manager = ServiceManager(listener.path)
        sent = 0
        while not manager._waiting:  # until the socket is full
            manager.failed(str(sent))
            sent += 1
        got = [listener.socket.recv(1024).decode()]
        await eventually_within(lambda: not manager._waiting)
        got += [listener.socket.recv(1024).decode() for _ in range(sent - 1)]
        assert got == [f"STATUS={index}" for index in range(sent)]
        manager.close()


async def test_a_status_cannot_assign_anything_else(tmp_path: Path) -> None:
    listener = Listener(str(tmp_path / "n"))
    with closing(listener.socket):
        manager = ServiceManager(listener.path)
        manager.failed("\ud800 open a\nREADY=1\r\n: " + "x" * (1 << 20))
        assert re.fullmatch(
            r"STATUS=\? open a READY=1 : x{400,500}", listener.socket.recv(1 << 20).decode()
        )
        manager.close()


async def test_a_manager_that_is_gone_costs_nothing(tmp_path: Path) -> None:
    manager = ServiceManager(str(tmp_path / "gone"))
    manager.ready("Ready")
    assert not manager._waiting
    manager.close()


HANGING_START = """
import asyncio, sys
from natsd.cli import main
from natsd.server import Server

async def hang(self, listener):
    print("hanging", file=sys.stderr, flush=True)
    await asyncio.Event().wait()

Server._start_parts = hang
sys.exit(main(["-a", "127.0.0.1", "-p", "-1"]))
"""


def test_the_signal_for_lame_duck_mode_ends_a_start() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HANGING_START], stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stderr is not None
        while "hanging" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGUSR2)
        assert process.wait(DEADLINE_S) == 0
