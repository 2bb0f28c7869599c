"""Leftovers of a server in its process: descriptors, threads, tasks, timers, objects.

    before = leftovers()
    …                                              a server starts and ends
    assert not leftovers().new_since(before)       nothing is there that was not there before

What has vanished since is no leftover. A process that runs many tests has things of other tests,
which end when they want to: a connection that lingers in a server of another thread, for instance.
So things are compared one by one, never by their number: what vanishes hides nothing that is new.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import TypeVar

from natsd import Server
from natsd.accounts import Account, InternalClient
from natsd.clients import Client
from natsd.core.network import Reactor
from natsd.core.routing import SubList, Subscription

OURS = (Account, Client, InternalClient, Reactor, Server, SubList, Subscription)
DESCRIPTORS = Path("/proc/self/fd" if sys.platform == "linux" else "/dev/fd")
IMPORT_S = 20.0
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Leftovers:
    """What is in the process at one moment; false if that is nothing.

    It holds the objects, so that no later one gets the identity of one that has vanished.
    """

    descriptors: frozenset[str]
    threads: tuple[threading.Thread, ...]
    tasks: tuple[asyncio.Task[object], ...]
    timers: tuple[asyncio.TimerHandle, ...]
    objects: tuple[object, ...]

    def __bool__(self) -> bool:
        return any((self.descriptors, self.threads, self.tasks, self.timers, self.objects))

    def new_since(self, before: Leftovers) -> Leftovers:
        """Return what was not there before."""
        return Leftovers(
            self.descriptors - before.descriptors,
            _without(before.threads, self.threads),
            _without(before.tasks, self.tasks),
            _without(before.timers, self.timers),
            _without(before.objects, self.objects),
        )


def leftovers() -> Leftovers:
    """Return what is in the process; in a coroutine also the tasks and timers of its loop."""
    for _ in range(3):
        gc.collect()
    return Leftovers(
        frozenset(settled_descriptors()),
        tuple(thread for thread in threading.enumerate() if not is_loops_own(thread)),
        *loop_leftovers(),
        tuple(each for each in gc.get_objects() if isinstance(each, OURS)),
    )


def settled_descriptors() -> list[str]:
    """Return the open descriptors once no module is being imported.

    Servers import some modules in a thread, which goes on if a start is cancelled, and which
    opens and closes files at any time.
    """
    give_up_at = time.monotonic() + IMPORT_S
    while any(map(is_module, found := open_descriptors())) and time.monotonic() < give_up_at:
        time.sleep(0.001)
    return found


def open_descriptors() -> list[str]:
    """Return number and target of each open descriptor, such as `7 socket:[81233]`."""
    found = []
    for name in os.listdir(DESCRIPTORS):
        try:
            found.append(f"{name} {os.readlink(DESCRIPTORS / name)}")
        except OSError:  # the descriptor that listdir used, or of another thread
            continue
    return found


def is_module(descriptor: str) -> bool:
    return descriptor.endswith(tuple(all_suffixes()))


def is_loops_own(thread: threading.Thread) -> bool:
    """Return whether the thread is a worker of a loop's executor, which ends with the loop."""
    return thread.name.startswith(("asyncio_", "uvloop_"))


def loop_leftovers() -> tuple[tuple[asyncio.Task[object], ...], tuple[asyncio.TimerHandle, ...]]:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return (), ()
    timers = getattr(loop, "_scheduled", ())  # uvloop has no such attribute
    return tuple(asyncio.all_tasks(loop)), tuple(each for each in timers if not each.cancelled())


def _without(before: Iterable[T], now: Iterable[T]) -> tuple[T, ...]:
    known = set(map(id, before))
    return tuple(each for each in now if id(each) not in known)
