"""Passing faults of the disk and unreadable pages under a complete JetStream.

Consumers go on, no loop spins, the log stays short, and a stream that could not be opened is opened
later without a restart (docs/store.md).
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

import pytest

from natsd.accounts import Account
from natsd.jetstream.errors import ApiError
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.requests import StreamMsgGetRequest
from natsd.store.disk.holes import PAGE_BYTES
from natsd.store.file_store import FileStore
from tests.jetstream.power import ROOT
from tests.jetstream.serving import ACCOUNT, account_of, ask, build, create, publish, serving
from tests.store.faulty_disk import FaultyDisk
from tests.store.test_file_store_model import end_other_tasks
from tests.store.test_passing_faults import short_pauses
from tests.waiting import DEADLINE_S, eventually_within

DIRECTORY = ROOT / "jetstream" / "$G" / "streams" / "S"
MESSAGES = DIRECTORY / "msgs"
COUNT = 60
SMALL_BLOCKS = {"max_bytes": 120_000}  # in blocks of 32,000 bytes


async def stored(disk: FaultyDisk) -> FaultyDisk:
    """Create a stream of three blocks and a consumer, and stop the server."""
    async with serving(ROOT, disk=disk) as jetstream:
        stream = await create(jetstream, "S", subjects=["s.*"], **SMALL_BLOCKS)
        await consumer(jetstream)
        for number in range(1, COUNT + 1):
            await publish(jetstream, f"s.{number}", b"%d" % number * 500)
        assert len(stream.store.log.all_blocks) >= 3
    return disk


def forget_blocks(jetstream: JetStream) -> None:
    """Drop everything from memory that can be read again from disk."""
    for budget in (jetstream.volume.cache, jetstream.volume.arrays):
        limit = budget.limit_bytes
        budget.resize(0)
        budget.resize(limit)


async def consumer(jetstream: JetStream, name: str = "C", **fields: Any) -> None:
    given = {"durable_name": name, "ack_policy": "explicit"} | fields
    stream = account_of(jetstream).stream("S")
    await stream.create_consumer(ConsumerConfig.model_validate(given), "")


class Puller:
    """A client that requests all messages and keeps the received ones."""

    def __init__(self, jetstream: JetStream) -> None:
        self.received: list[int] = []
        self.client = account_of(jetstream).account.internal_client
        self.client.subscribe("inbox", self._take)
        body = json.dumps({"batch": 2 * COUNT, "expires": 60_000_000_000}).encode()
        self.client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", body, reply="inbox")

    def _take(self, subject: str, reply: str | None, _headers: bytes, _data: bytes) -> None:
        if reply is not None:
            self.received.append(int(subject.removeprefix("s.")))
            self.client.publish(reply, b"+ACK")


async def test_a_consumer_passes_what_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    """A page of a block is lost at run time: its messages are skipped and reported once."""
    disk = await stored(FaultyDisk())
    async with serving(ROOT, disk=disk) as jetstream:
        damage = account_of(jetstream).stream("S").damage
        assert damage == []
        forget_blocks(jetstream)
        disk.spoil(MESSAGES / "000001.blk", offset=PAGE_BYTES, length=PAGE_BYTES)
        puller = Puller(jetstream)
        await eventually_within(lambda: COUNT in puller.received)

        lost = set(range(1, COUNT + 1)) - set(puller.received)
        assert 0 < len(lost) <= PAGE_BYTES // 500 + 2
        assert puller.received == sorted(puller.received)
        assert lost == {n for n in lost if any(each.covers(n) for each in damage)}
        with pytest.raises(ApiError, match="no message found"):
            await account_of(jetstream).stream("S").get_message(StreamMsgGetRequest(seq=min(lost)))
    assert len([r for r in caplog.records if "damaged" in r.message]) == len(damage)


@pytest.mark.parametrize(
    ("call", "number"), [("open", errno.EMFILE), ("pread", errno.ENOMEM), ("pread", errno.EACCES)]
)
async def test_a_consumer_waits_for_what_cannot_be_read_now(
    call: str, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer neither spins nor fills the log, and goes on when the messages can be read."""
    disk = await stored(FaultyDisk())
    async with serving(ROOT, disk=disk) as jetstream:
        forget_blocks(jetstream)
        disk.fail(call, number, path="000001.blk", times=1 << 30)
        caplog.clear()
        calls = len(disk.calls)
        puller = Puller(jetstream)
        await eventually_within(lambda: disk.has_failed_one)
        await asyncio.sleep(0.5)  # a spinning consumer makes thousands of calls in this time

        assert len(disk.calls) - calls < 40
        assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1
        assert puller.received == []
        disk.heal()
        await eventually_within(lambda: len(puller.received) == COUNT)
        assert puller.received == list(range(1, COUNT + 1))


async def test_a_request_for_what_cannot_be_read_now_is_answered() -> None:
    disk = await stored(FaultyDisk())
    async with serving(ROOT, disk=disk) as jetstream:
        forget_blocks(jetstream)
        disk.fail("open", errno.EMFILE, path="000001.blk", times=1 << 30)
        _, body = (await ask(jetstream, "$JS.API.STREAM.MSG.GET.S", b'{"seq":1}'))[0]
        error = json.loads(body)["error"]
        assert "store cannot be read at the moment" in error["description"]
        disk.heal()
        _, body = (await ask(jetstream, "$JS.API.STREAM.MSG.GET.S", b'{"seq":1}'))[0]
        assert json.loads(body)["message"]["seq"] == 1


# A start


@pytest.mark.parametrize("retention", ["limits", "interest", "workqueue"])
@pytest.mark.parametrize(
    "path", ["000003.blk", "index.db", "meta.json", "state.db", "000001.log", "obs"]
)
async def test_a_stream_that_cannot_be_opened_now_comes_back(
    path: str, retention: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream is opened with all consumers: without one it would remove that one's messages."""
    caplog.set_level(logging.INFO)
    disk = FaultyDisk()
    with mock.patch("natsd.jetstream.recovery.RETRY_S", 0.01):
        async with serving(ROOT, disk=disk) as jetstream:
            await create(jetstream, "S", subjects=["s.*"], retention=retention, **SMALL_BLOCKS)
            await consumer(jetstream)
            for number in range(1, COUNT + 1):
                await publish(jetstream, f"s.{number}", b"%d" % number * 500)
        call = "listdir" if path == "obs" else "open"
        # The first listing belongs to the volume, which does not open without it.
        disk.fail(call, errno.EMFILE, path=path, times=4, after=int(path == "obs"))

        async with serving(ROOT, disk=disk) as jetstream:
            account = account_of(jetstream)
            if disk.has_failed_one and "S" in account.offline:
                assert "it is tried again" in account.offline["S"]
                with pytest.raises(ApiError):
                    await create(jetstream, "T", subjects=["s.*"])
            await eventually_within(lambda: "S" in account.streams)
            assert account.offline == {}
            assert "C" in account.stream("S").consumers
            assert account.stream("S").store.state().msgs == COUNT
            assert (await publish(jetstream, "s.1"))["seq"] == COUNT + 1
    told = Counter(r.message for r in caplog.records if r.levelno >= logging.WARNING)
    assert not told or max(told.values()) == 1


async def test_a_stream_that_is_deleted_meanwhile_does_not_come_back() -> None:
    disk = await stored(FaultyDisk())
    with mock.patch("natsd.jetstream.recovery.RETRY_S", 0.01):
        disk.fail("open", errno.EMFILE, path="000003.blk", times=1 << 30)
        async with serving(ROOT, disk=disk) as jetstream:
            account = account_of(jetstream)
            await account.delete_stream("S")
            disk.heal()
            await create(jetstream, "T", subjects=["s.*"])
            await eventually_within(lambda: not account._returning)
            assert (set(account.streams), account.offline) == ({"T"}, {})


@pytest.mark.parametrize("retention", ["limits", "interest"])
async def test_a_full_disk_at_a_start(retention: str, caplog: pytest.LogCaptureFixture) -> None:
    """After a crash there is no room for a commit mark, so that new messages are refused.

    The stored messages are served. When there is space, new messages are taken without a restart.
    """

    async def fill(jetstream: JetStream) -> None:
        await create(jetstream, "S", subjects=["s.*"], retention=retention, **SMALL_BLOCKS)
        await consumer(jetstream)
        for number in range(1, COUNT + 1):
            await publish(jetstream, f"s.{number}", b"%d" % number * 500)

    disk = await killed(FaultyDisk(), fill)
    disk.capacity_bytes = 0

    with short_pauses():
        async with serving(ROOT, disk=disk) as jetstream:
            stream = account_of(jetstream).stream("S")
            message = await stream.get_message(StreamMsgGetRequest(seq=1))
            assert message.data == b"1" * 500
            puller = Puller(jetstream)
            await eventually_within(lambda: len(puller.received) == COUNT)
            assert "error" in await publish(jetstream, "s.1", b"x" * 5000)

            disk.capacity_bytes = None
            await taken(jetstream, "s.1")
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) < 10


async def killed(
    disk: FaultyDisk, fill: Callable[[JetStream], Awaitable[None]], **options: Any
) -> FaultyDisk:
    """Return the disk in the state in which a process leaves it that is killed after `fill`."""
    jetstream = build(ROOT, disk=disk, **options)
    await jetstream.start([Account(ACCOUNT, jetstream.reactor)])
    await fill(jetstream)
    after = disk.kill()
    for account in jetstream.accounts.values():
        for stream in account.streams.values():
            if isinstance(stream.store, FileStore):
                stream.store._jobs.is_closing = True  # its timers find nothing to do
    await end_other_tasks()
    jetstream.scheduler.close()
    jetstream.reactor.close()
    jetstream.volume._let_go()
    return after


async def taken(jetstream: JetStream, subject: str) -> int:
    """Publish until the message is stored, and return its sequence."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            answer = await publish(jetstream, subject, b"at last")
            if "error" not in answer:
                return int(answer["seq"])
            await asyncio.sleep(0.005)


async def test_a_default_limit_grows_with_the_room_on_the_disk() -> None:
    """The default limit of a server that started on a full disk grows when space is freed."""
    disk = await stored(FaultyDisk())
    disk.capacity_bytes = 1
    with mock.patch("natsd.jetstream.jetstream.ROOM_EVERY_S", 0.01):
        async with serving(
            ROOT, disk=disk, has_default_room=True, max_file_store=10_000
        ) as jetstream:
            assert jetstream.usage.file_limit < jetstream.usage.file_used
            assert "error" in await publish(jetstream, "s.1", b"x")
            disk.capacity_bytes = 1 << 30
            await eventually_within(lambda: jetstream.usage.file_limit > 1 << 28)
            await taken(jetstream, "s.1")
