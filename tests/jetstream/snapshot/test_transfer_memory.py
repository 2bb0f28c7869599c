"""The memory of snapshots and restores: bounded in sum, and freed at the end of each."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from natsd.jetstream.api import snapshots
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.snapshot import restoring
from natsd.jetstream.snapshot.restoring import Restoring
from natsd.jetstream.snapshot.sending import SnapshotSending
from natsd.jetstream.snapshot.transfer_memory import PACE_BYTES, PACE_NS, Pace, TransferMemory
from natsd.store.backup.snapshot_file import SnapshotWriter
from tests.jetstream.serving import account_of, ask, create, publish, serving
from tests.jetstream.snapshot.test_restoring import request
from tests.waiting import Eventually

ENTRY_BYTES = 3 << 20


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """Disable garbage collection, so that only objects without references are freed."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def transfers(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Any]]:
    """Return a list of weak references to all snapshots and restores that begin from now on."""
    begun: list[weakref.ref[Any]] = []

    class Remembered(Restoring):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            begun.extend((weakref.ref(self), weakref.ref(self._reader)))

    class RememberedSending(SnapshotSending):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            begun.append(weakref.ref(self))

    monkeypatch.setattr(snapshots, "Restoring", Remembered)
    monkeypatch.setattr(snapshots, "SnapshotSending", RememberedSending)
    return begun


def part_of_a_snapshot() -> bytes:
    """Return the first entry of a snapshot and a large entry whose end is missing."""
    writer = SnapshotWriter()
    return (writer.begin() + writer.entry("msgs/000001.blk", bytes(ENTRY_BYTES)))[:-600]


async def begin_restore(jetstream: JetStream, name: str) -> str:
    body = {"config": {"name": name, "subjects": [name]}, "state": {}}
    answer = await request(jetstream, f"STREAM.RESTORE.{name}", body)
    return str(answer["deliver_subject"])


async def test_an_aborted_restore_is_freed_at_once(
    tmp_path: Path,
    no_garbage_collection: None,
    transfers: list[weakref.ref[Any]],
    eventually: Eventually,
) -> None:
    """The memory is freed at once; three rounds of 32 once left 12 GB to garbage collection."""
    async with serving(tmp_path) as jetstream:
        client = account_of(jetstream).account.internal_client
        for number in range(4):
            subject = await begin_restore(jetstream, f"S{number}")
            await ask(jetstream, subject, part_of_a_snapshot())
            assert jetstream.transfer_memory.held_bytes > ENTRY_BYTES // 2
            client.publish(subject, b"a chunk without a reply subject ends it")
            await eventually(lambda: not account_of(jetstream).transfers)
            assert jetstream.transfer_memory.held_bytes == 0
        await eventually(lambda: not any(each() for each in transfers))
        assert len(transfers) == 8


async def test_a_refused_restore_is_freed_at_once(
    tmp_path: Path,
    no_garbage_collection: None,
    transfers: list[weakref.ref[Any]],
    eventually: Eventually,
) -> None:
    async with serving(tmp_path) as jetstream:
        subject = await begin_restore(jetstream, "S")
        await ask(jetstream, subject, b"no snapshot")
        await eventually(lambda: not any(each() for each in transfers))
        assert jetstream.transfer_memory.held_bytes == 0


async def test_a_snapshot_is_freed_at_once(
    tmp_path: Path,
    no_garbage_collection: None,
    transfers: list[weakref.ref[Any]],
    eventually: Eventually,
) -> None:
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "S", subjects=["s"])
        await publish(jetstream, "s", bytes(100_000))
        client = account_of(jetstream).account.internal_client
        subscription = client.subscribe("chunks", lambda *_: None)
        await request(jetstream, "STREAM.SNAPSHOT.S", {"deliver_subject": "chunks"})
        assert jetstream.transfer_memory.held_bytes > 0
        client.unsubscribe(subscription)
        await eventually(lambda: not account_of(jetstream).transfers)
        await eventually(lambda: not any(each() for each in transfers))
        assert jetstream.transfer_memory.held_bytes == 0


async def test_all_together_hold_no_more_than_their_limit(
    tmp_path: Path, eventually: Eventually
) -> None:
    """A transfer that exceeds the common limit ends with 10023; the others go on."""
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "S", subjects=["s"])
        await publish(jetstream, "s", bytes(100_000))
        memory = jetstream.transfer_memory
        memory.limit_bytes = ENTRY_BYTES * 3 // 2
        first, second = [await begin_restore(jetstream, name) for name in ("A", "B")]
        for subject in (first, second):
            ((_, answer),) = await ask(jetstream, subject, part_of_a_snapshot())
        assert b'"err_code":10023' in answer
        await eventually(lambda: len(account_of(jetstream).transfers) == 1)
        memory.limit_bytes = memory.held_bytes
        body = {"deliver_subject": "chunks"}
        answered = await request(jetstream, "STREAM.SNAPSHOT.S", body)
        assert answered["error"]["err_code"] == 10023
        assert memory.held_bytes == memory.limit_bytes
        ((_, answer),) = await ask(jetstream, first, b"one more chunk")
        assert b'"err_code":10023' in answer
        await eventually(lambda: not account_of(jetstream).transfers)
        assert memory.held_bytes == 0


async def test_a_client_that_sends_next_to_nothing_is_stalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """A client that sends little, and never stops for long, is ended too."""
    monkeypatch.setattr(restoring, "Pace", lambda now_ns: Pace(now_ns - PACE_NS))
    async with serving(tmp_path) as jetstream:
        subject = await begin_restore(jetstream, "S")
        account_of(jetstream).account.internal_client.publish(subject, b"\xff", reply="nobody")
        await eventually(lambda: not account_of(jetstream).transfers)


def test_a_pace_is_asked_for_over_a_while() -> None:
    pace = Pace(0)
    assert all(pace.moved(1, second) for second in range(0, PACE_NS, PACE_NS // 10))
    assert not pace.moved(1, PACE_NS)
    assert pace.moved(PACE_BYTES, 2 * PACE_NS)
    assert not pace.moved(0, 3 * PACE_NS)


def test_a_share_that_is_closed_holds_nothing() -> None:
    memory = TransferMemory(10)
    one, other = memory.share(), memory.share()
    assert one.hold(6) and other.hold(4) and not other.hold(5)
    assert memory.held_bytes == 10
    assert one.hold(3) and other.hold(7)
    one.close()
    assert memory.held_bytes == 7
    assert not one.hold(1)
    one.close()
    assert memory.held_bytes == 7


async def test_transfers_that_end_with_the_server_hold_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        subject = await begin_restore(jetstream, "S")
        await ask(jetstream, subject, part_of_a_snapshot())
        await asyncio.sleep(0)
    assert jetstream.transfer_memory.held_bytes == 0
