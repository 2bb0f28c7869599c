"""kill -9 while streams are restored, snapshotted and encrypted.

- A stream under restore is there whole, or is not there and can be restored again.
- Snapshots that were running leave no files behind, and remove nothing from their stream.
- After an interrupted key rotation, one more start opens everything.

`make torture` runs tens of rounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

import pytest
from nats.errors import Error

from tests.clients.target import GO_SERVER, ProcessTarget
from tests.jetstream.behaviour.api import Api
from tests.jetstream.behaviour.transfer import Snapshot, begin, finish, send, take
from tests.jetstream.serve import connect, kill, serve_files
from tests.store.crash import TORTURE

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(bool(GO_SERVER), reason="natsd's files"),
]

ROUNDS = 4
MESSAGES = 300


async def restore_until_killed(server: ProcessTarget, snapshot: Snapshot, after_s: float) -> None:
    """Begin a snapshot and a restore, and kill the server after `after_s` seconds."""
    nc = await connect(server)
    api = Api(nc)

    async def transfer() -> None:
        with contextlib.suppress(Error, OSError):
            await nc.subscribe("chunks")
            await api.ok("STREAM.SNAPSHOT.KEPT", {"deliver_subject": "chunks", "chunk_size": 1024})
            subject = await begin(api, "S", snapshot)
            await send(api, subject, snapshot.data, 8192)
            await finish(api, subject)

    transferring = asyncio.create_task(transfer())
    await asyncio.sleep(after_s)
    await asyncio.to_thread(kill, server)
    transferring.cancel()
    await asyncio.gather(transferring, return_exceptions=True)
    await nc.close()


async def names(api: Api) -> list[str]:
    return (await api.ok("STREAM.NAMES"))["streams"] or []


@pytest.mark.timeout(120 * TORTURE)
async def test_restores_are_whole_or_nothing(tmp_path: Path) -> None:
    chance = random.Random(7)
    server = await asyncio.to_thread(serve_files, tmp_path, key="0")
    nc = await connect(server)
    api = Api(nc)
    for name in ("S", "KEPT"):
        await api.create_stream(name, storage="file", subjects=[f"{name}.>"])
        await api.create_consumer(name, "C")
        payload = chance.randbytes(2000)
        await asyncio.gather(*(api.publish(f"{name}.x", payload) for _ in range(MESSAGES)))
    snapshot = await take(api, "S")
    await api.ok("STREAM.DELETE.S")
    await nc.close()
    for number in range(1, ROUNDS * TORTURE):
        await restore_until_killed(server, snapshot, chance.uniform(0, 0.25))
        keys = {"key": str(number), "prev_key": str(number - 1)}
        server = await asyncio.to_thread(serve_files, tmp_path, **keys)
        nc = await connect(server)
        api = Api(nc)
        assert not [*tmp_path.rglob("snapshots.new/*")]  # noqa: ASYNC240 - a test may block
        found = await names(api)
        assert "KEPT" in found
        for name in found:
            state = await api.stream_state(name)
            assert (state["messages"], state["last_seq"]) == (MESSAGES, MESSAGES)
            assert (await api.consumer_info(name, "C"))["num_pending"] == MESSAGES
        if "S" in found:
            await api.ok("STREAM.DELETE.S")
        await nc.close()
    await asyncio.to_thread(kill, server)
