"""The servers of the JetStream rows: each with a store of its own, and told when to sync.

`Sync` is what a row asks for:

    DEFAULT   each as it comes: natsd syncs before it acknowledges, nats-server every two minutes
    ALWAYS    both before they acknowledge
    INTERVAL  both every two minutes

nats-server before 2.10 knows no `sync_interval`: it is measured where it does what the row says
anyway, and void elsewhere.
"""

import enum
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from natsd.bench.arms import HOST, Arm, ArmError, Server

SERVED = "natsd.bench.jetstream.served"


class Sync(enum.Enum):
    """When file streams are synced; the value is nats-server's, empty for the default."""

    DEFAULT = ""
    ALWAYS = "always"
    INTERVAL = "2m"


@dataclass
class JetStreamServer(Server):
    """A running server that can be started again on the same store."""

    unsupported: str = ""
    arm: Arm | None = None
    stack: ExitStack = field(default_factory=ExitStack)
    store_dir: Path = Path()

    @classmethod
    def started(cls, arm: Arm, stack: ExitStack, store_dir: Path) -> Self:
        """Start the arm; the stack ends it."""
        now = stack.enter_context(arm.running())
        return cls(
            now.host, now.port, now.info, now.pid, now.start_seconds, "", arm, stack, store_dir
        )

    def restart(self, *, kill: bool) -> float:
        """End the server and start it again; seconds from its start to its INFO."""
        if kill and self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
        self.stop()
        return self.start()

    def stop(self) -> None:
        """A second call does nothing."""
        self.stack.close()
        self.pid = None

    def start(self) -> float:
        """After `stop`; seconds from its start to its INFO."""
        assert self.arm is not None
        assert self.pid is None
        now = self.stack.enter_context(self.arm.running())
        self.port, self.info, self.pid = now.port, now.info, now.pid
        assert now.start_seconds is not None
        return now.start_seconds


@dataclass(frozen=True)
class JetStreamArm:
    """A server with JetStream; `program` is empty for natsd."""

    name: str
    program: str
    sync: Sync
    directory: Path | None = None
    cores: frozenset[int] | None = None
    note: str = ""

    @contextmanager
    def running(self) -> Iterator[JetStreamServer]:
        """Start it on an empty store, which goes afterwards."""
        place = Path(tempfile.mkdtemp(prefix="natsd-bench-", dir=self.directory))
        try:
            arm = Arm(self.name, self._command(place), cores=self.cores)
            with ExitStack() as stack:
                if reason := self._refusal(place):
                    yield JetStreamServer("", 0, {"version": "?"}, unsupported=reason)
                else:
                    yield JetStreamServer.started(arm, stack, place)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def confined(self, cores: frozenset[int]) -> "JetStreamArm":
        """The same server on these cores."""
        return replace(self, cores=cores)

    def _command(self, place: Path) -> tuple[str, ...]:
        if not self.program:
            settings: dict[str, object] = {"store_dir": str(place)}
            if self.sync.value:
                settings["sync_interval"] = self.sync.value
            options = {"host": HOST, "port": "{port}", "jetstream": settings}
            return (sys.executable, "-m", SERVED, json.dumps(options))
        config = place / "server.conf"
        sync = f', sync_interval: "{self.sync.value}"' if self._says_when() else ""
        config.write_text(f'jetstream {{ store_dir: "{place}"{sync} }}\n')
        return (self.program, "-a", HOST, "-p", "{port}", "-c", str(config))

    def _says_when(self) -> bool:
        """Whether it must be told when to sync: two minutes is nats-server's default."""
        return self.sync is Sync.ALWAYS

    def _refusal(self, place: Path) -> str:
        """Why the row cannot be had from this server; empty: it can."""
        if not self.program or not self._says_when():
            return ""
        tried = subprocess.run(
            [self.program, "-t", "-c", str(place / "server.conf")],
            capture_output=True,
            text=True,
            check=False,
        )
        return "" if tried.returncode == 0 else f"it has no sync_interval: {self.sync.value}"


def jetstream_arms(programs: list[str], sync: Sync, directory: Path | None) -> list[JetStreamArm]:
    """One for each program; `natsd` is this one."""
    return [_arm(program, sync, directory) for program in programs]


def _arm(program: str, sync: Sync, directory: Path | None) -> JetStreamArm:
    if program == "natsd":
        return JetStreamArm("natsd", "", sync, directory)
    found = shutil.which(program)
    if found is None:
        raise ArmError(f"no such program: {program}")
    return JetStreamArm(Path(program).name, found, sync, directory)
