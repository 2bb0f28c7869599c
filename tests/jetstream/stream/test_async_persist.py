"""`persist_mode: async`: a PubAck means written, and soon on disk (docs/store.md)."""

from __future__ import annotations

import asyncio
import errno
import logging
import shutil
from pathlib import Path

import pytest

from natsd.accounts import Account
from natsd.jetstream.models.stream import PersistMode
from natsd.store.commit import committer
from tests.jetstream.serving import ACCOUNT, account_of, build, create, publish, serving
from tests.store.faulty_disk import FaultyDisk
from tests.store.test_file_store_model import end_other_tasks

ROOT = Path("/data")
DATA = b"x" * 600


async def publish_and_lose_power(disk: FaultyDisk, mode: PersistMode) -> None:
    """Publish fifty acknowledged messages; the power fails before the sync."""
    jetstream = build(ROOT, disk=disk)
    await jetstream.start([Account(ACCOUNT, jetstream.reactor)])
    await create(jetstream, "S", persist_mode=mode)
    for number in range(50):
        assert (await publish(jetstream, "S", DATA))["seq"] == number + 1
    assert account_of(jetstream).stream("S").readers.visible == 50
    await end_other_tasks()
    jetstream.scheduler.close()
    jetstream.reactor.close()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", PersistMode)
def test_with_the_power_any_of_the_last_messages_may_go(
    seed: int,
    mode: PersistMode,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A power failure may lose the last messages; the others are served, and publishing goes on."""
    monkeypatch.setattr(committer, "LATER_S", 3600.0)  # the power fails before the sync
    disk = FaultyDisk(seed=seed)
    asyncio.run(publish_and_lose_power(disk, mode))

    async def look() -> int:
        async with serving(ROOT, disk=disk.crash(seed=seed)) as jetstream:
            stream = account_of(jetstream).stream("S")
            state = (await stream.info()).state
            for sequence in filter(stream.store.log.has, range(1, 51)):
                assert (await stream.store.load(sequence)).data == DATA
            assert (await publish(jetstream, "S"))["seq"] == state.last_seq + 1
            return state.messages

    with caplog.at_level(logging.CRITICAL):  # losses are logged
        left = asyncio.run(look())
    assert left < 50 if mode is PersistMode.ASYNC else left == 50


async def test_with_the_process_nothing_goes(tmp_path: Path) -> None:
    """A killed process loses nothing: a copy of the files has all acknowledged messages."""
    async with serving(tmp_path / "here") as jetstream:
        await create(jetstream, "S", persist_mode=PersistMode.ASYNC)
        for _ in range(50):
            await publish(jetstream, "S", DATA)
        shutil.copytree(tmp_path / "here", tmp_path / "there")
    async with serving(tmp_path / "there") as jetstream:
        assert (await account_of(jetstream).stream("S").info()).state.messages == 50


async def test_a_failed_write_is_told_to_the_publisher() -> None:
    disk = FaultyDisk(seed=1)
    async with serving(ROOT, disk=disk) as jetstream:
        await create(jetstream, "S", persist_mode=PersistMode.ASYNC)
        assert (await publish(jetstream, "S"))["seq"] == 1
        disk.fail("pwrite", errno.ENOSPC, path=".blk")
        assert (await publish(jetstream, "S"))["error"]["err_code"] == 10023
        while "error" in (answer := await publish(jetstream, "S")):
            pass
        assert answer["seq"] == 2


async def test_said_in_its_configuration(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        stream = await create(jetstream, "S", persist_mode=PersistMode.ASYNC)
        config = (await stream.info()).config
        assert config.persist_mode is PersistMode.ASYNC
        assert config.metadata["_nats.req.level"] == "2"
