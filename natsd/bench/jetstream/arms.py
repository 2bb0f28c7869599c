"""The servers of the JetStream rows: each has its own store and is told when to sync.

`SyncSetting` is the sync setting of a row:

    DEFAULT   the defaults: natsd syncs before it acknowledges, nats-server every two minutes
    ALWAYS    both sync before they acknowledge
    INTERVAL  both sync every two minutes

nats-server before 2.10 has no `sync_interval`: it is measured in the rows whose setting is its
default behaviour, and void in the others.
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

from natsd.bench.arms import HOST, Arm, ArmError, BenchServer

SERVED = "natsd.bench.jetstream.served"


class SyncSetting(enum.Enum):
    """The time at which file streams are synced; values as in nats-server's `sync_interval`.

    The empty value leaves the server's default.
    """

    DEFAULT = ""
    ALWAYS = "always"
    INTERVAL = "2m"


@dataclass
class JetStreamServer(BenchServer):
    """A running server that can be started again on the same store."""

    arm: Arm | None = None
    stack: ExitStack = field(default_factory=ExitStack)
    store_dir: Path = Path()

    @classmethod
    def started(cls, arm: Arm, stack: ExitStack, store_dir: Path) -> Self:
        """Start the arm and return its server; closing the stack stops it."""
        now = stack.enter_context(arm.running())
        return cls(
            now.host,
            now.port,
            now.info,
            now.pid,
            now.start_seconds,
            arm=arm,
            stack=stack,
            store_dir=store_dir,
        )

    def restart(self, *, kill: bool) -> float:
        """Stop or kill the server and start it again.

        Returns the seconds from the start of the process to its INFO.
        """
        if kill and self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
        self.stop()
        return self.start()

    def stop(self) -> None:
        """Stop the server; does nothing if it is stopped already."""
        self.stack.close()
        self.pid = None

    def start(self) -> float:
        """Start the server after `stop`; return the seconds from the start to its INFO."""
        assert self.arm is not None
        assert self.pid is None
        now = self.stack.enter_context(self.arm.running())
        self.port, self.info, self.pid = now.port, now.info, now.pid
        assert now.start_seconds is not None
        return now.start_seconds


@dataclass(frozen=True)
class JetStreamArm:
    """A server with JetStream; `program` is its path, empty for natsd."""

    name: str
    program: str
    sync: SyncSetting
    directory: Path | None = None
    cores: frozenset[int] | None = None
    note: str = ""

    @contextmanager
    def running(self) -> Iterator[JetStreamServer]:
        """Start the server on an empty store, which is removed after the `with`."""
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
        """Return the same server, limited to these cores."""
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
        """Return whether the configuration must name a sync interval for nats-server.

        Two minutes is its default and need not be named.
        """
        return self.sync is SyncSetting.ALWAYS

    def _refusal(self, place: Path) -> str:
        """Return why this server cannot run the row; empty: it can."""
        if not self.program or not self._says_when():
            return ""
        tried = subprocess.run(
            [self.program, "-t", "-c", str(place / "server.conf")],
            capture_output=True,
            text=True,
            check=False,
        )
        return "" if tried.returncode == 0 else f"it has no sync_interval: {self.sync.value}"


def jetstream_arms(
    programs: list[str], sync: SyncSetting, directory: Path | None
) -> list[JetStreamArm]:
    """Return one arm for each program; `natsd` is this natsd.

    Raises ArmError if a program does not exist.
    """
    return [_arm(program, sync, directory) for program in programs]


def _arm(program: str, sync: SyncSetting, directory: Path | None) -> JetStreamArm:
    if program == "natsd":
        return JetStreamArm("natsd", "", sync, directory)
    found = shutil.which(program)
    if found is None:
        raise ArmError(f"no such program: {program}")
    return JetStreamArm(Path(program).name, found, sync, directory)
