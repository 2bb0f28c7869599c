"""`natsd backup` of a real nats-server's account, restored by nats-server and by natsd."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
from nats.js.errors import NotFoundError

from natsd import Server
from natsd.cli import main
from tests.clients.target import ProcessTarget, go_config

NATS_SERVER = shutil.which("nats-server")

pytestmark = pytest.mark.skipif(NATS_SERVER is None, reason="no nats-server on PATH")


def start(directory: Path) -> ProcessTarget:
    store = {"store_dir": str(directory)}
    options = {"host": "127.0.0.1", "port": -1, "jetstream": store}
    directory.mkdir()
    config = directory / "server.conf"
    config.write_text(go_config(options))
    return ProcessTarget([str(NATS_SERVER), "-c", str(config)], options)


@contextlib.asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[ProcessTarget]:
    server = await asyncio.to_thread(start, directory)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.stop)


async def contents(nc: nats.NATS, stream: str) -> dict[int | None, tuple[str | None, bytes | None]]:
    """Return subject and data of each message of a stream that begins with sequence 1."""
    last = (await nc.jetstream().stream_info(stream)).state.last_seq
    found = {}
    for sequence in range(1, last + 1):
        with contextlib.suppress(NotFoundError):
            message = await nc.jetstream().get_msg(stream, sequence)
            found[message.seq] = message.subject, message.data
    return found


async def test_a_stream_of_nats_server_returns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backups = str(tmp_path / "backups")
    async with serving(tmp_path / "a") as server:
        nc = await nats.connect(server.url)
        await nc.jetstream().add_stream(name="S", subjects=["s"])
        for number in range(100):
            await nc.jetstream().publish("s", b"%d" % number)
        await nc.jetstream().delete_msg("S", 50)
        await nc.jetstream().pull_subscribe("s", "C")
        await nc.close()
        for _ in range(2):
            assert await asyncio.to_thread(main, ["backup", backups, "-s", server.url]) == 0
    assert await asyncio.to_thread(main, ["backup", "verify", backups]) == 0
    async with serving(tmp_path / "b") as server:
        arguments = ["restore", backups, "-s", server.url]
        assert await asyncio.to_thread(main, arguments) == 0
        nc = await nats.connect(server.url)
        info = await nc.jetstream().stream_info("S")
        assert (info.state.messages, info.state.last_seq, info.state.consumer_count) == (99, 100, 1)
        expected = await contents(nc, "S")
        assert len(expected) == 99
        await nc.close()
        capsys.readouterr()
        assert await asyncio.to_thread(main, arguments) == 1
        assert "the stream exists" in capsys.readouterr().out
    store = ["--store", str(tmp_path / "c" / "jetstream"), "--as", "$G/S"]
    assert await asyncio.to_thread(main, ["restore", backups, *store]) == 0
    for directory in (tmp_path / "c", tmp_path / "d"):
        async with Server(port=-1, jetstream=True, store_dir=directory) as natsd:
            nc = await nats.connect(natsd.client_url)
            if directory.name == "d":
                arguments = ["restore", backups, "-s", natsd.client_url]
                assert await asyncio.to_thread(main, arguments) == 0
            assert await contents(nc, "S") == expected
            await nc.close()
