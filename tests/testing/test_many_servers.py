"""Servers that come and go leave nothing: a thousand of each kind in `make torture`, else a few."""

import gc
import os
import socket
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from natsd import testing
from natsd.testing import process_host
from tests.server.leftovers import open_descriptors
from tests.store.crash import TORTURE

WARM_UP = 10
ROUNDS = 20 if TORTURE == 1 else 50 * TORTURE
BLOCKS_MAX = 3_000
"""Blocks of memory that Python may have more at the end: those of its caches, however many rounds.
The size of the process is no measure: glibc keeps an arena for some threads that have ended."""

pytestmark = [pytest.mark.torture, pytest.mark.timeout(300 * TORTURE)]


@dataclass(frozen=True)
class Held:
    """What this process, or another one, holds of the system."""

    descriptors: frozenset[str]
    threads: int
    blocks: int

    @classmethod
    def now(cls) -> "Held":
        for _ in range(3):
            gc.collect()
        return cls(
            frozenset(open_descriptors()), threading.active_count(), sys.getallocatedblocks()
        )


def come_and_go(directory: Path, **options: Any) -> None:
    with testing.server(parent=directory, **options) as server:
        host, port = server.client_url.removeprefix("nats://").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            assert connection.recv(4) == b"INFO"


def children_of(pid: int) -> int:
    """Return how many processes have that parent."""
    stats = [path.read_text() for path in Path("/proc").glob("[0-9]*/stat") if path.exists()]
    return sum(int(stat.rpartition(")")[2].split()[1]) == pid for stat in stats)


@pytest.mark.parametrize(
    "options",
    [{}, {"jetstream": True}, {"process": True}],
    ids=["core", "jetstream", "process"],
)
def test_servers_leave_nothing(tmp_path: Path, options: dict[str, Any]) -> None:
    for _ in range(WARM_UP):
        come_and_go(tmp_path, **options)
    before = Held.now()
    for _ in range(ROUNDS):
        come_and_go(tmp_path, **options)
    after = Held.now()
    assert not after.descriptors - before.descriptors
    assert after.threads <= before.threads
    assert after.blocks - before.blocks < BLOCKS_MAX
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="counts in /proc")
def test_the_fork_server_keeps_nothing_of_its_servers(tmp_path: Path) -> None:
    come_and_go(tmp_path, process=True)
    forking = process_host._fork_server._process
    assert forking is not None
    before = sorted(os.listdir(f"/proc/{forking.pid}/fd"))
    for _ in range(ROUNDS // 4):
        come_and_go(tmp_path, process=True)
    assert sorted(os.listdir(f"/proc/{forking.pid}/fd")) == before
    assert children_of(forking.pid) == 0
