"""When a commit fails, the lost messages are requested from the origin again."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from natsd.jetstream.models.stream import Storage, StreamSource
from tests.jetstream.serving import create, publish, serving
from tests.store.faulty_disk import FaultyDisk
from tests.waiting import eventually_within

FAILURES = 2
PUBLISHED = 20


@pytest.mark.parametrize("kind", ["mirror", "source"])
async def test_what_was_lost_comes_again_once(kind: str) -> None:
    disk, origin = FaultyDisk(seed=1), StreamSource(name="O")
    async with serving(Path("/data"), disk=disk) as jetstream:
        await create(jetstream, "O", subjects=["o"], storage=Storage.MEMORY)
        filled = {"mirror": origin} if kind == "mirror" else {"sources": [origin]}
        copy = await create(jetstream, "C", **filled)
        published = 0
        for _ in range(FAILURES):
            rollbacks = copy.readers.rollbacks
            disk.fail("pwrite", errno.ENOSPC, path=".blk")
            for _ in range(PUBLISHED):
                published += 1
                await publish(jetstream, "o", b"%d" % published)
            await eventually_within(lambda before=rollbacks: copy.readers.rollbacks > before)
            await eventually_within(lambda last=published: copy.readers.visible == last, 20)
        messages = [await copy.store.load(at) for at in range(1, published + 1)]
        assert [message.data for message in messages] == [
            b"%d" % number for number in range(1, published + 1)
        ]
        await asyncio.sleep(0)
        assert copy.readers.log.last_sequence == published
