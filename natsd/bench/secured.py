"""The runs that measure what users and their rules cost: on one server, with and without."""

import os
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from natsd.bench import setups, wire
from natsd.bench.access import Access
from natsd.bench.arms import BenchServer
from natsd.bench.config_file import write_config
from natsd.bench.measurement import Measurement
from natsd.bench.scenarios import PubSub
from natsd.bench.setups import RULED, USER
from natsd.bench.statistics import median

TURNS = 5
"""Comparisons in one run: short ones, between which a busy machine changes less."""
RELOAD_SECONDS_MAX = 60.0
POLL_SECONDS = 0.002


@dataclass(frozen=True)
class RuledPublish:
    """Publishing as a user with many rules, as a share of publishing as one without."""

    fresh: ClassVar[bool] = False
    setup: ClassVar[str] = "permissions"

    payload_bytes: int = 128

    @property
    def first_size(self) -> int:
        """The number of messages with which calibrating begins."""
        return self._load(USER).first_size

    def run(self, server: BenchServer, size: int) -> Measurement:
        """Publish as both users, in turns; return the median of the shares of the rates."""
        shares: list[float] = []
        seconds = 0.0
        for _ in range(TURNS):
            free = self._load(USER).run(server, max(1, size // TURNS))
            ruled = self._load(RULED).run(server, max(1, size // TURNS))
            seconds += free.seconds + ruled.seconds
            if not (free.counts and ruled.counts):
                return ruled if free.counts else free
            shares.append(100 * ruled.values["rate"] / free.values["rate"])
        return replace(ruled, values={"share": median(shares)}, seconds=seconds)

    def _load(self, access: Access) -> PubSub:
        return PubSub(1, 0, self.payload_bytes, publishing=access)


@dataclass(frozen=True)
class Reload:
    """The time from SIGHUP until a user that is new in the file can log in."""

    first_size: ClassVar[int | None] = None
    fresh: ClassVar[bool] = True
    setup: ClassVar[str] = "many-users"

    def run(self, server: BenchServer, size: int) -> Measurement:
        """Add a user to the file, have it read again, and wait for the user's login."""
        assert server.config is not None
        assert server.pid is not None
        if not _may_log_in(server, Access("user00000", "secret")):  # the first login costs more
            return Measurement(problem="a user of the file cannot log in")
        write_config(server.config, setups.many_users(Path(), more=1))
        began = time.perf_counter()
        os.kill(server.pid, signal.SIGHUP)
        newest = Access(f"user{setups.MANY_USERS:05d}", "secret")
        while not _may_log_in(server, newest):
            if time.perf_counter() - began > RELOAD_SECONDS_MAX:
                return Measurement(problem="the new user cannot log in")
            time.sleep(POLL_SECONDS)
        seconds = time.perf_counter() - began
        return Measurement({"reload_ms": seconds * 1e3}, seconds)


def _may_log_in(server: BenchServer, access: Access) -> bool:
    try:
        sock = wire.connect(server.host, server.port, access=access)
    except (OSError, wire.LoadError):
        return False
    wire.close_with_reset(sock)
    return True
