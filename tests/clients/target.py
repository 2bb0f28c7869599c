"""The server under test: natsd, or the nats-server binary that NATSD_TEST_SERVER names.

Every behaviour test runs against either. natsd runs inside the test's process: on the test's event
loop (`natsd.server.Server(...)`), or on a loop in a thread (`thread=True`). Where the test measures
the server's memory, natsd runs in its own process. The Go server always runs in its own process,
with a generated config file. Options have the config file's names; durations are in seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

GO_SERVER = os.environ.get("NATSD_TEST_SERVER", "")

READY_DEADLINE_S = 30.0
STOP_DEADLINE_S = 30.0

Options = Mapping[str, Any]


class Target(Protocol):
    """A running server, as a client sees it."""

    host: str
    port: int
    options: Options

    @property
    def address(self) -> tuple[str, int]: ...
    @property
    def url(self) -> str: ...


class _Address:
    host = "127.0.0.1"
    port = 0

    @property
    def address(self) -> tuple[str, int]:
        return (self.host, self.port)

    @property
    def url(self) -> str:
        return f"nats://{self.host}:{self.port}"


class ProcessTarget(_Address):
    """A server in its own process: its log lines are collected, its pid can be measured."""

    READY = "Server is ready"
    LISTENING = re.compile(r"Listening for client connections on \S+:(\d+)")
    MONITORING = re.compile(r"Starting http monitor on \S+:(\d+)")

    def __init__(self, command: list[str], options: Options, directory: Any = None) -> None:
        self.options = options
        self.http_port = 0
        self.log: list[str] = []
        self._directory = directory
        self._ready = threading.Event()
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        ready = self._ready.wait(READY_DEADLINE_S)
        if not ready or self.process.poll() is not None:
            self.stop()
            raise RuntimeError("server did not start:\n" + "\n".join(self.log))

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        """End the process and wait for it; a second call does nothing."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._reader.join(STOP_DEADLINE_S)
        if self._directory is not None:
            self._directory.cleanup()

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for raw in stream:
                line = raw.decode(errors="replace").rstrip()
                self.log.append(line)
                if match := self.LISTENING.search(line):
                    self.port = int(match[1])
                if match := self.MONITORING.search(line):
                    self.http_port = int(match[1])
                if self.READY in line:
                    self._ready.set()
        self._ready.set()


def start_go(options: Options) -> ProcessTarget:
    """Start the nats-server binary of NATSD_TEST_SERVER with these options."""
    directory = tempfile.TemporaryDirectory(prefix="nats-server-")
    config = Path(directory.name, "server.conf")
    config.write_text(go_config({"host": "127.0.0.1", "port": -1, **options}))
    return ProcessTarget([GO_SERVER, "-c", str(config)], options, directory)


def start_natsd_process(options: Options) -> ProcessTarget:
    """Start natsd in its own process, for tests that measure it."""
    settings = json.dumps({"host": "127.0.0.1", "port": -1, **options})
    return ProcessTarget([sys.executable, "-m", "tests.clients.serve", settings], options)


AUTHORIZATION = {
    "user": "user",
    "password": "password",
    "token": "token",
    "auth_timeout": "timeout",
}
DURATIONS = {"ping_interval", "write_deadline"}


def go_config(options: Options) -> str:
    """Return the options as a nats-server config file."""
    lines = []
    authorization = []
    for name, value in options.items():
        if name in AUTHORIZATION:
            authorization.append(f"  {AUTHORIZATION[name]}: {json.dumps(value)}")
        elif name in DURATIONS:
            lines.append(f'{name}: "{round(value * 1000)}ms"')
        else:
            lines.append(f"{name}: {json.dumps(value)}")
    if authorization:
        lines += ["authorization {", *authorization, "}"]
    return "\n".join(lines) + "\n"


class NatsdTarget(_Address):
    """natsd inside this process, on the running event loop or in its own thread."""

    def __init__(self, options: Options, *, thread: bool = False) -> None:
        from natsd.server import Server

        self.options = options
        self.server = Server(thread=thread, **{"host": self.host, "port": -1, **options})

    def started(self) -> NatsdTarget:
        self.port = self.server.client_port
        return self


def start_threaded(options: Options) -> ProcessTarget | NatsdTarget:
    """Start the server under test for a synchronous test; `stop_threaded` ends it."""
    if GO_SERVER:
        return start_go(options)
    target = NatsdTarget(options, thread=True)
    target.server.__enter__()
    return target.started()


def stop_threaded(target: ProcessTarget | NatsdTarget) -> None:
    if isinstance(target, ProcessTarget):
        target.stop()
    else:
        target.server.__exit__(None, None, None)


def start_process(options: Options) -> ProcessTarget:
    """Start the server under test in its own process."""
    return start_go(options) if GO_SERVER else start_natsd_process(options)


async def start_on_loop(options: Options) -> ProcessTarget | NatsdTarget:
    """Start the server under test for an asynchronous test: natsd shares the test's loop."""
    if GO_SERVER:
        return await asyncio.to_thread(start_go, options)
    target = NatsdTarget(options)
    await target.server.start()
    return target.started()


async def stop_on_loop(target: ProcessTarget | NatsdTarget) -> None:
    if isinstance(target, ProcessTarget):
        await asyncio.to_thread(target.stop)
    else:
        await target.server.stop()
