"""A purge removes a stream's messages and its waiting ones, or neither."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from dataclasses import dataclass
from typing import Any

import pytest

from natsd.jetstream.jetstream import JetStream
from natsd.store.errors import StoreReadOnly
from tests.jetstream.power import ROOT, run_until_off
from tests.jetstream.serving import account_of, ask, create, publish, serving
from tests.store.crash import TORTURE
from tests.store.faulty_disk import ANY_CALL, FaultyDisk
from tests.store.machine import AtOnce
from tests.waiting import eventually_within

pytestmark = pytest.mark.torture

CALLS_MAX = 400
STEP = 1 if TORTURE > 1 else 3
LATER = b"NATS/1.0\r\nNats-Delay: 1h\r\n\r\n"
ALL, NONE = (3, 2), (0, 0)


@pytest.fixture(autouse=True)
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("natsd.store.commit.volume.ThreadPoolExecutor", lambda *_, **__: AtOnce())
    monkeypatch.setattr("natsd.jetstream.schedules.scheduled_messages.RETRY_S", 0.2)


@dataclass
class Purging:
    """A program that purges a stream with stored and waiting messages.

    `calls` calls of the disk after the request, the power fails; or, with `number`, calls fail with
    that errno.
    """

    disk: FaultyDisk
    calls: int
    number: int = 0
    is_purged: bool | None = None

    async def run(self, jetstream: JetStream) -> None:
        await create(jetstream, "S", subjects=["s.>"], allow_msg_schedules=True)
        for subject in ("s.1", "s.2", "s.3"):
            assert "error" not in await publish(jetstream, subject)
        for subject in ("s.4", "s.5"):
            assert "error" not in await publish(jetstream, subject, headers=LATER)
        store: Any = account_of(jetstream).stream("S").store
        await eventually_within(lambda: store._jobs._task is None)
        if self.number:
            self.disk.fail(ANY_CALL, self.number, after=self.calls)
        else:
            self.disk.power_fails_at = self.calls
        ((_, answer),) = await ask(jetstream, "$JS.API.STREAM.PURGE.S")
        self.is_purged = "error" not in json.loads(answer)
        self.disk.heal()


async def found(jetstream: JetStream) -> tuple[int, int]:
    """Return the number of stored and of waiting messages."""
    stream = account_of(jetstream).stream("S")
    scheduled: Any = stream.scheduled
    await scheduled.delays.found_all()
    return stream.store.log.msgs, len(scheduled.delays)


async def after_start(disk: FaultyDisk) -> tuple[int, int]:
    async with serving(ROOT, disk=disk) as jetstream:
        return await found(jetstream)


def test_killed_at_any_call() -> None:
    seen = set()
    for calls in range(0, CALLS_MAX, STEP):
        disk = FaultyDisk(calls)
        purging = Purging(disk, calls)
        asyncio.run(run_until_off(disk, purging))
        there = asyncio.run(after_start(disk.kill() if calls % 2 else disk.crash(calls)))
        assert there in (ALL, NONE), calls
        assert there == NONE or not purging.is_purged
        seen.add(there)
        if not disk.is_off or purging.is_purged:
            assert seen == {ALL, NONE}
            return
    raise AssertionError("the purge makes more calls than that")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EIO])
def test_a_call_fails(number: int, caplog: pytest.LogCaptureFixture) -> None:
    """A refused purge has removed nothing, also after a restart."""

    async def scenario(calls: int) -> bool:
        disk = FaultyDisk(calls)
        purging = Purging(disk, calls, number)
        async with serving(ROOT, disk=disk) as jetstream:
            await purging.run(jetstream)
            wanted = [NONE if purging.is_purged else ALL]
            stream: Any = account_of(jetstream).stream("S")
            errors = stream.store.write_error, stream.scheduled.delays.write_error
            if any(isinstance(error, StoreReadOnly) for error in errors):
                wanted = [ALL, NONE]  # the outcome is unknown, but all or nothing
            else:
                assert await found(jetstream) in wanted, calls
        assert await after_start(disk) in wanted, calls
        return disk.has_failed_one

    with caplog.at_level(logging.CRITICAL):
        for calls in range(0, CALLS_MAX, STEP):
            if not asyncio.run(scenario(calls)):
                return
    raise AssertionError("the purge makes more calls than that")
