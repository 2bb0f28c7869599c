"""Servers with JetStream in their own processes: natsd, and nats-server if it is on PATH."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from tests.clients.target import ProcessTarget, go_config, start_natsd_process

GO_WITH_BATCHED_GETS: Final = (2, 11)


class JetStreamServer:
    """A started server; after `kill()`, `start()` starts it again on the same port."""

    def __init__(self, directory: Path, command: list[str] | None = None, **options: Any) -> None:
        self.store_dir = directory / "store"
        self.command = command
        self.options = {
            "host": "127.0.0.1",
            "port": -1,
            "jetstream": {"enabled": True, "store_dir": str(self.store_dir)},
            **options,
        }
        self._config = directory / "server.conf"
        self._config.parent.mkdir(parents=True, exist_ok=True)
        self.start()

    def start(self) -> None:
        if self.command is None:
            self.process = start_natsd_process(self.options)
        else:
            self._config.write_text(go_config(self.options))
            self.process = ProcessTarget([*self.command, "-c", str(self._config)], self.options)
        self.options["port"] = self.process.port

    def stop(self) -> None:
        self.process.stop()

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.process.process.kill()
        self.process.stop()

    @property
    def port(self) -> int:
        return self.process.port

    @property
    def url(self) -> str:
        return self.process.url


def go_servers() -> list[str]:
    """Return the paths of all nats-server binaries on PATH, in its order."""
    directories = dict.fromkeys(os.environ.get("PATH", "").split(os.pathsep))
    found = [shutil.which("nats-server", path=directory) for directory in directories]
    return [path for path in found if path is not None]


def version_of(go_server: str) -> tuple[int, ...]:
    said = subprocess.run([go_server, "--version"], capture_output=True, text=True).stdout
    match = re.search(r"v(\d+)\.(\d+)\.(\d+)", said)
    return tuple(map(int, match.groups())) if match else (0,)


def find_go_server(*, batched_gets: bool = True) -> str | None:
    """Return the first nats-server with (or without) batched direct get, which 2.11 added.

    None: there is none.
    """
    for path in go_servers():
        if (version_of(path) >= GO_WITH_BATCHED_GETS) == batched_gets:
            return path
    return None
