"""Leftovers of a server in its process: descriptors, threads, tasks, timers, objects."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from natsd import Server
from natsd.accounts import Account, InternalClient
from natsd.clients import Client
from natsd.core.network import Reactor
from natsd.core.routing import SubList, Subscription

OURS = (Account, Client, InternalClient, Reactor, Server, SubList, Subscription)
DESCRIPTORS = Path("/proc/self/fd" if sys.platform == "linux" else "/dev/fd")


@dataclass(frozen=True)
class Leftovers:
    """A snapshot; equal snapshots before and after a server mean that nothing was left behind."""

    descriptors: frozenset[str]
    threads: frozenset[str]
    tasks: frozenset[str]
    timers: int
    objects: frozenset[tuple[str, int]]


def leftovers() -> Leftovers:
    """Return a snapshot of the process; in a coroutine also of its loop's tasks and timers."""
    for _ in range(3):
        gc.collect()
    return Leftovers(
        frozenset(open_descriptors()),
        frozenset(str(thread) for thread in threading.enumerate() if not is_loops_own(thread)),
        *loop_leftovers(),
        frozenset(
            Counter(type(o).__name__ for o in gc.get_objects() if isinstance(o, OURS)).items()
        ),
    )


def open_descriptors() -> list[str]:
    """Return number and target of each open descriptor, such as `7 socket:[81233]`."""
    found = []
    for name in os.listdir(DESCRIPTORS):
        try:
            found.append(f"{name} {os.readlink(DESCRIPTORS / name)}")
        except OSError:  # the descriptor that listdir used
            continue
    return found


def is_loops_own(thread: threading.Thread) -> bool:
    """Return whether the thread is a worker of a loop's executor, which ends with the loop."""
    return thread.name.startswith(("asyncio_", "uvloop_"))


def loop_leftovers() -> tuple[frozenset[str], int]:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return frozenset(), 0
    tasks = frozenset(task.get_name() for task in asyncio.all_tasks(loop))
    timers = getattr(loop, "_scheduled", ())  # uvloop has no such attribute
    return tasks, sum(not timer.cancelled() for timer in timers)
