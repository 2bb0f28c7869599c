"""`natsd backup` and `natsd restore` with running servers, under load and interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerConfig, StorageType

from natsd import Server
from natsd.cli import main
from tests.jetstream.serve import kill, serve_files
from tests.server.accounts import SYSTEM, log_in, server_with, settings_of

ACCOUNTS: dict[str, dict[str, Any]] = {name: {"jetstream": True} for name in ("A", "B", "Z.1%>")}
BODY = bytes(1000)
BIG = random.Random(1).randbytes(60_000)


@contextlib.asynccontextmanager
async def served(directory: Path) -> AsyncIterator[Server]:
    server = server_with(ACCOUNTS, jetstream={"store_dir": str(directory)})
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def run(*arguments: object) -> int:
    return await asyncio.to_thread(main, [str(each) for each in arguments])


def login(url: str, user: str = SYSTEM) -> list[str]:
    return ["-s", url, "--user", user, "--password", "-"]


async def back_up(url: str, backups: Path, *more: object) -> int:
    return await run("backup", backups, "--all-accounts", *login(url), *more)


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(capsys.readouterr().out))


async def fill(
    nc: Client, stream: str, first: int, count: int, body: bytes = BODY, **config: Any
) -> None:
    js = nc.jetstream()
    if first == 0:
        await js.add_stream(name=stream, subjects=[f"{stream}.>"], **config)
    for at in range(first, first + count, 100):
        numbers = range(at, min(at + 100, first + count))
        await asyncio.gather(
            *[await js.publish_async(f"{stream}.{n % 7}", body + b"%d" % n) for n in numbers]
        )


async def messages(nc: Client, stream: str) -> list[tuple[int, str, bytes]]:
    """Return all messages of a stream."""
    js = nc.jetstream()
    state = (await js.stream_info(stream)).state
    subscription = await js.subscribe(f"{stream}.>", stream=stream, ordered_consumer=True)
    found = []
    for _ in range(state.messages):
        message = await subscription.next_msg(20)
        found.append((message.metadata.sequence.stream, message.subject, message.data))
    await subscription.unsubscribe()
    return found


async def test_all_accounts_are_restored_on_another_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An account's name may have bytes that a subject cannot hold."""
    expected = {}
    async with served(tmp_path / "a") as server:
        for number, account in enumerate(ACCOUNTS):
            nc = await log_in(server, account)
            await fill(nc, "S", 0, 100 + number)
            await nc.jetstream().pull_subscribe("S.>", "C")
            await nc.jetstream().delete_msg("S", 50)
            expected[account] = await messages(nc, "S")
            await nc.close()
        assert await back_up(server.client_url, tmp_path / "backups", "--json") == 0
    shown = told(capsys)
    assert (shown["accounts"], shown["streams"], shown["consumers"]) == (3, 3, 3)
    async with served(tmp_path / "b") as server:
        restore = ("restore", tmp_path / "backups", *login(server.client_url))
        assert await run(*restore, "--all-accounts") == 0
        for account in ACCOUNTS:
            nc = await log_in(server, account)
            assert [each.name for each in await nc.jetstream().consumers_info("S")] == ["C"]
            assert await messages(nc, "S") == expected[account]
            await nc.close()
        capsys.readouterr()
        assert await run(*restore, "--all-accounts") == 1
        assert capsys.readouterr().out.count("exists; --overwrite replaces it") == 3
        assert await run(*restore, "--all-accounts", "--overwrite") == 0
        assert await run(*restore) == 2  # the system account has no streams


async def test_only_the_system_account_reaches_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with served(tmp_path / "a") as server:
        nc = await log_in(server, "A")
        await fill(nc, "S", 0, 1)
        subject = "$SYS.REQ.ACCOUNT.A.JS.API.STREAM.NAMES"
        with pytest.raises(Exception, match="no responders"):
            await nc.request(subject, b"{}")
        url = server.client_url
        arguments = ("backup", tmp_path / "backups", "--all-accounts", *login(url, "A"))
        assert await run(*arguments) == 2
        assert "not those of natsd's system account" in capsys.readouterr().err
        system = await log_in(server, SYSTEM)
        assert json.loads((await system.request(subject, b"{}")).data)["streams"] == ["S"]
        unknown = "$SYS.REQ.ACCOUNT.X.JS.API.STREAM.NAMES"
        assert json.loads((await system.request(unknown, b"{}")).data)["error"]["err_code"] == 10039
        with pytest.raises(Exception, match="no responders"):
            await system.request("$SYS.REQ.ACCOUNT.A.JS.API.STREAM.PURGE.S", b"")
        for client in (nc, system):
            await client.close()


async def test_an_account_backs_up_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with served(tmp_path / "a") as server:
        nc = await log_in(server, "A")
        await fill(nc, "S", 0, 100)
        expected = await messages(nc, "S")
        own = login(server.client_url, "A")
        assert await run("backup", tmp_path / "backups", *own) == 0
        await fill(nc, "S", 100, 1)
        capsys.readouterr()
        assert await run("backup", tmp_path / "backups", *own, "--json") == 0
        assert told(capsys)["messages"] == 101
        await nc.jetstream().delete_stream("S")
        first = (await asyncio.to_thread(ids, tmp_path / "backups"))[0]
        assert await run("restore", tmp_path / "backups", "--at", first, *own) == 0
        assert await messages(nc, "S") == expected
        await nc.close()


def ids(backups: Path) -> list[str]:
    return sorted(path.name for path in (backups / "backups").iterdir())


async def test_a_stream_in_memory_has_its_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with served(tmp_path / "a") as server:
        nc = await log_in(server, "A")
        await fill(nc, "M", 0, 10, storage=StorageType.MEMORY)
        assert await back_up(server.client_url, tmp_path / "backups") == 1
        assert "A > M: in memory, so only its configuration" in capsys.readouterr().out
        await nc.jetstream().delete_stream("M")
        arguments = ("--all-accounts", *login(server.client_url))
        assert await run("restore", tmp_path / "backups", *arguments) == 0
        info = await nc.jetstream().stream_info("M")
        assert (info.config.storage, info.state.messages) == (StorageType.MEMORY, 0)
        await nc.close()


@dataclass
class Load:
    """Publishers and a consumer that acknowledges, until `stop`."""

    nc: Client
    published: int = 0
    acknowledged: int = 0
    is_over: bool = False
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def start(self) -> None:
        js = self.nc.jetstream()
        await js.add_stream(name="S", subjects=["S.>"])
        config = ConsumerConfig(max_ack_pending=1000)
        self.consumer = await js.pull_subscribe("S.>", "C", config=config)
        self.tasks = [asyncio.create_task(self._publish()), asyncio.create_task(self._consume())]

    async def stop(self) -> None:
        self.is_over = True
        await asyncio.gather(*self.tasks)

    async def _publish(self) -> None:
        js = self.nc.jetstream()
        while not self.is_over:
            numbers = range(self.published + 1, self.published + 51)
            await asyncio.gather(
                *[await js.publish_async("S.x", BODY + b"%d" % number) for number in numbers]
            )
            self.published += 50

    async def _consume(self) -> None:
        while not self.is_over:
            for message in await self.consumer.fetch(20, timeout=20):
                await message.ack_sync(timeout=20)
                self.acknowledged = message.metadata.sequence.stream


async def test_under_load_a_backup_is_the_stream_at_one_moment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All messages up to the moment are there, none later; the consumer fits them."""
    before, after = [], []
    async with served(tmp_path / "a") as server:
        load = Load(await log_in(server, "A"))
        await load.start()
        for _ in range(3):
            before.append((load.published, load.acknowledged))
            assert await back_up(server.client_url, tmp_path / "backups", "--json") == 0
            after.append((load.published + 50, load.acknowledged + 20))
        await load.stop()
        await load.nc.close()
    for at, backup in enumerate(await asyncio.to_thread(ids, tmp_path / "backups")):
        async with served(tmp_path / backup) as server:
            arguments = ("--all-accounts", "--at", backup, *login(server.client_url))
            assert await run("restore", tmp_path / "backups", *arguments) == 0
            nc = await log_in(server, "A")
            found = await messages(nc, "S")
            assert found == [
                (number, "S.x", BODY + b"%d" % number) for number in range(1, len(found) + 1)
            ]
            assert before[at][0] <= len(found) <= after[at][0]
            info = await nc.jetstream().consumer_info("S", "C")
            assert info.delivered is not None
            assert info.ack_floor is not None
            assert before[at][1] <= info.ack_floor.stream_seq <= info.delivered.stream_seq
            assert info.delivered.stream_seq <= len(found)
            assert info.ack_floor.stream_seq <= after[at][1]
            await nc.close()


def start_backup(url: str, backups: Path) -> subprocess.Popen[bytes]:
    arguments = ["backup", str(backups), "--all-accounts", *login(url)]
    return subprocess.Popen(
        [sys.executable, "-m", "natsd", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def wait_for_pieces(process: subprocess.Popen[bytes], backups: Path, count: int) -> None:
    """Wait until the directory has more pieces, or the process has ended."""
    while process.poll() is None and len(list(backups.glob("pieces/*/*"))) < count:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.005)


async def test_a_killed_backup_is_continued(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The backups before it stay whole, and what it stored is not sent again."""
    chance, backups = random.Random(16), tmp_path / "backups"
    async with served(tmp_path / "a") as server:
        nc = await log_in(server, "A")
        await fill(nc, "FIRST", 0, 100)
        assert await back_up(server.client_url, backups) == 0
        for stream in ("S1", "S2", "S3"):
            await fill(nc, stream, 0, 400, BIG)
        expected = await messages(nc, "S2")
        for _ in range(2):
            process = await asyncio.to_thread(start_backup, server.client_url, backups)
            count = len(list(backups.glob("pieces/*/*"))) + chance.randint(1, 3)
            await asyncio.to_thread(wait_for_pieces, process, backups, count)
            process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(process.communicate)
            assert len(ids(backups)) == 1
            assert await run("backup", "verify", backups) == 0
        stored = sum(path.stat().st_size for path in backups.glob("pieces/*/*"))
        capsys.readouterr()
        assert await back_up(server.client_url, backups, "--json") == 0
        shown = told(capsys)
        assert 0 < shown["received_bytes"] < 1200 * len(BIG) - stored // 2
        assert await run("backup", "verify", backups) == 0
        await nc.jetstream().delete_stream("S2")
        arguments = ("--all-accounts", "--stream", "S2", *login(server.client_url))
        assert await run("restore", backups, *arguments) == 0
        assert await messages(nc, "S2") == expected
        await nc.close()


async def test_a_server_is_killed_in_the_middle(tmp_path: Path) -> None:
    """The backup ends with one line; after a restart the next one is whole."""
    backups, settings = tmp_path / "backups", settings_of(ACCOUNTS)
    server = await asyncio.to_thread(serve_files, tmp_path / "a", server=settings)
    nc = await log_in(server.url, "A", allow_reconnect=False)
    for stream in ("S1", "S2"):
        await fill(nc, stream, 0, 400, BIG)
    await nc.close()
    process = await asyncio.to_thread(start_backup, server.url, backups)
    await asyncio.to_thread(wait_for_pieces, process, backups, 2)
    await asyncio.to_thread(kill, server)
    _, error = await asyncio.to_thread(process.communicate)
    assert process.returncode == 2
    assert error.startswith(b"natsd: ")
    assert error.count(b"\n") == 1
    server = await asyncio.to_thread(serve_files, tmp_path / "a", server=settings)
    try:
        assert await back_up(server.url, backups) == 0
        assert await run("backup", "verify", backups) == 0
    finally:
        await asyncio.to_thread(server.stop)


async def test_a_silent_receiver_ends_its_snapshot(tmp_path: Path) -> None:
    """A receiver that chooses no blocks is given up, and the stream can be deleted."""
    async with served(tmp_path / "a") as server:
        nc = await log_in(server, "A")
        await fill(nc, "S", 0, 100)
        inbox = await nc.subscribe("chunks")
        body = json.dumps({"deliver_subject": "chunks"}).encode()
        headers = {"Natsd-Choose-Blocks": "1"}
        await nc.request("$JS.API.STREAM.SNAPSHOT.S", body, headers=headers)
        plan = await inbox.next_msg(20)
        assert plan.data
        await plan.respond(b"")
        end = await inbox.next_msg(20)
        assert (end.data, (end.headers or {})["Status"]) == (b"", "408")
        await nc.jetstream().delete_stream("S")
        await nc.close()
