"""Messages that wait for their `Nats-Delay`, through snapshots: none is lost, none comes twice."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from natsd.cli import main
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.snapshot import delayed
from natsd.store.backup.block_images import append_image, closed_bytes
from natsd.store.backup.snapshot_file import SnapshotReader, SnapshotWriter
from natsd.store.backup.snapshots import open_image
from natsd.store.codec.records import StoredMessage
from natsd.store.errors import StoreError
from natsd.store.file_store import FileStore
from natsd.store.mem_store import MemStore
from natsd.store.store import Limits
from tests.jetstream.serving import ACCOUNT, account_of, create, publish, serving
from tests.jetstream.snapshot.test_restoring import Json, request, restore, snapshots_of, take
from tests.jetstream.stream.publishing import header_block
from tests.store.damage import with_flipped_bit
from tests.waiting import eventually_within

SETTINGS: dict[str, Any] = {"subjects": ["s.>"], "allow_msg_schedules": True}


async def delay(jetstream: JetStream, subject: str, data: bytes, wait: str, **more: str) -> int:
    """Publish a message with a delay and return the sequence of its acknowledgement."""
    headers = header_block(
        {"Nats-Delay": wait, **{name.replace("_", "-"): text for name, text in more.items()}}
    )
    ack = await publish(jetstream, subject, data, headers)
    assert "error" not in ack, ack
    sequence: int = ack["seq"]
    return sequence


def entries_of(jetstream: JetStream) -> FileStore:
    scheduled = account_of(jetstream).stream("S").scheduled
    assert scheduled is not None
    store = scheduled.delays._store
    assert isinstance(store, FileStore)
    return store


async def waiting(jetstream: JetStream) -> list[tuple[Any, ...]]:
    """Return all waiting messages as they are on disk."""
    store, found = entries_of(jetstream), []
    for number in range(1, store.log.last_sequence + 1):
        if store.log.has(number):
            message = await store.load(number)
            found.append((number, *read(message)))
    return found


def read(message: StoredMessage) -> tuple[Any, ...]:
    return message.subject, message.headers, message.data, message.time_ns


async def messages(jetstream: JetStream) -> list[StoredMessage]:
    store = account_of(jetstream).stream("S").store
    last = store.state().last_sequence
    return [await store.load(n) for n in range(1, last + 1) if store.log.has(n)]


def parts_of(data: bytes) -> dict[str, bytes]:
    reader = SnapshotReader()
    entries = reader.feed(data)
    reader.finish()
    return dict(entries)


def messages_in(parts: dict[str, bytes], store: str) -> list[StoredMessage]:
    log, found = MemStore(Limits()).log, []
    for name, body in parts.items():
        if name.startswith(f"{store}/") and name.endswith(".blk"):
            for _ in append_image(log, open_image(body)):
                pass
    for number in range(1, log.last_sequence + 1):
        if log.has(number):
            message = log.load(number)
            assert message is not None
            found.append(message)
    return found


def acknowledged_as(message: StoredMessage) -> int:
    """Return the sequence with which a delayed message was acknowledged; 0: it was not delayed."""
    _, found, rest = (message.headers or b"").partition(b"Nats-Delayed: S ")
    return int(rest.partition(b"\r\n")[0]) if found else 0


@pytest.mark.parametrize("options", [{}, {"key": "a key"}], ids=["plain", "encrypted"])
async def test_what_waits_comes_back_as_it_was(tmp_path: Path, options: dict[str, Any]) -> None:
    """Waiting messages are restored with their bytes, ids and sequences on another server."""
    async with serving(tmp_path / "a") as jetstream:
        stream = await create(jetstream, "S", **SETTINGS)
        for number in range(20):
            await publish(jetstream, "s.now", b"%d" % number)
            await delay(
                jetstream, f"s.{number}", b"later %d" % number * 9, "1h", Nats_Msg_Id=f"{number}"
            )
        await stream.delete_message(6)
        expected = await waiting(jetstream)
        assert len(expected) == 19
        snapshot = await take(jetstream, chunk_size=1024)
    async with serving(tmp_path / "b", **options) as jetstream:
        assert "error" not in await restore(jetstream, *snapshot, size=5000)
        assert await waiting(jetstream) == expected
        assert not snapshots_of(account_of(jetstream))
        assert (await publish(jetstream, "s.now"))["seq"] == 41
    async with serving(tmp_path / "b", **options) as jetstream:
        stream = account_of(jetstream).stream("S")
        assert await waiting(jetstream) == expected
        again = await publish(jetstream, "s.7", b"", header_block({"Nats-Msg-Id": "7"}))
        assert (again["seq"], again["duplicate"]) == (16, True)
        await stream.delete_message(16)
        assert await waiting(jetstream) == [each for each in expected if each[1] != "s.7"]
        assert await stream.purge("s.8") == 1


async def test_what_became_due_meanwhile_comes_at_once(tmp_path: Path) -> None:
    """Messages that are overdue at the restore come in the order of their times.

    The stream's schedules publish as well.
    """
    async with serving(tmp_path / "a") as jetstream:
        await create(jetstream, "S", **SETTINGS)
        await delay(jetstream, "s.late", b"second", "2s")
        overdue_at_s = time.monotonic() + 2
        await delay(jetstream, "s.late", b"first", "500ms")
        await delay(jetstream, "s.late", b"last", "1h")
        plan = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "s.target"}
        await publish(jetstream, "s.plan", b"planned", header_block(plan))
        snapshot = await take(jetstream)
        await account_of(jetstream).delete_stream("S")
    await eventually_within(lambda: time.monotonic() > overdue_at_s)
    async with serving(tmp_path / "b") as jetstream:
        await restore(jetstream, *snapshot)
        store = account_of(jetstream).stream("S").store
        await eventually_within(lambda: store.log.msgs >= 4)
        found = [(m.subject, m.data) for m in await messages(jetstream) if m.subject != "s.plan"]
        assert [data for subject, data in found if subject == "s.late"] == [b"first", b"second"]
        assert ("s.target", b"planned") in found
        assert [data for _, _, _, data, _ in await waiting(jetstream)] == [b"last"]


async def test_a_stream_of_which_nothing_waits(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "S", **SETTINGS)
        _, data = await take(jetstream)
        assert not [name for name in parts_of(data) if name.startswith("delayed")]


async def test_one_that_becomes_due_is_in_one_part(tmp_path: Path) -> None:
    """Each sequence belongs to one message: a stored, a waiting or a delayed and published one.

    Snapshots follow one another while messages wait, are published and are taken back.
    """
    async with serving(tmp_path) as jetstream:
        stream = await create(jetstream, "S", **SETTINGS)
        is_ended, taken_back = False, set[int]()

        async def write() -> None:
            number = 0
            while not is_ended:
                number += 1
                sequence = await delay(jetstream, "s.x", b"%d" % number, f"{number % 37 + 1}ms")
                if number % 10 == 0:
                    taken_back.add(await delay(jetstream, "s.y", b"", "1h"))
                    await stream.delete_message(max(taken_back))
                elif number % 11 == 0:
                    await delay(jetstream, "s.z", b"%d" % sequence, "1h")

        writing = asyncio.create_task(write())
        snapshots = []
        for _ in range(25):
            snapshots.append(parts_of((await take(jetstream))[1]))
        is_ended = True
        await writing
    in_both = 0
    for parts in snapshots:
        last = json.loads(parts["msgs/state.json"])["last_sequence"]
        there, late = messages_in(parts, "msgs"), messages_in(parts, "delayed")
        found = [message.sequence for message in there]
        found += [acknowledged_as(message) for message in (*there, *late)]
        assert len(found) == len(set(found))
        assert set(range(1, last + 1)) - set(found) <= taken_back
        assert max(found) <= last
        in_both += bool(there and late)
    assert in_both


async def test_a_snapshot_that_fails_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a snapshot has failed, messages published meanwhile are removed from the waiting."""
    async with serving(tmp_path) as jetstream:
        stream = await create(jetstream, "S", **SETTINGS)
        await delay(jetstream, "s.x", b"", "1h")
        entries = entries_of(jetstream)

        async def fail(*_: object) -> None:
            await delay(jetstream, "s.y", b"", "1ms")
            await eventually_within(lambda: stream.store.log.msgs == 1)
            assert entries.log.msgs == 2
            raise StoreError("no")

        monkeypatch.setattr(entries, "freeze", fail)
        answer = await request(jetstream, "STREAM.SNAPSHOT.S", {"deliver_subject": "x"})
        assert answer["error"]["err_code"] == 10064
        assert not snapshots_of(account_of(jetstream))
        await eventually_within(lambda: entries.log.msgs == 1)


# Refused snapshots


def packed(parts: dict[str, bytes]) -> bytes:
    writer = SnapshotWriter()
    return b"".join(
        [writer.begin(), *(writer.entry(*each) for each in parts.items()), writer.end()]
    )


def entries(*headers: str) -> dict[str, bytes]:
    """Return the parts of a snapshot that holds waiting messages with these headers."""
    store = MemStore(Limits())
    for text in headers:
        store.append(b"s.x", f"NATS/1.0\r\n{text}\r\n\r\n".encode(), b"", 1)
    state = {"msgs": len(headers), "bytes": store.log.live_bytes, "last_sequence": len(headers)}
    (block,) = store.log.all_blocks
    body = json.dumps({**state, "last_time_ns": 1}).encode()
    return {"delayed/000001.blk": closed_bytes(block), "delayed/state.json": body}


GOOD = "Nats-Delay: 1h\r\nNats-Delayed: S 1"


@pytest.mark.parametrize(
    "headers",
    [
        [""],
        ["Nats-Delay: 1h"],
        ["Nats-Delayed: S 1"],
        ["Nats-Delay: soon\r\nNats-Delayed: S 1"],
        ["Nats-Delay: 1h\r\nNats-Delayed: T 1"],
        [f"Nats-Delay: 1h\r\nNats-Delayed: S {10**30}"],
        [GOOD, GOOD],
    ],
)
async def test_what_nobody_would_find_is_refused(tmp_path: Path, headers: list[str]) -> None:
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "S", **SETTINGS)
        response, data = await take(jetstream)
        await account_of(jetstream).delete_stream("S")
        meta, *rest = parts_of(data).items()
        for sample, text in ((headers, "never acknowledged"), ([GOOD], "")):
            snapshot = packed(dict([meta, *entries(*sample).items(), *rest]))
            answer = await restore(jetstream, response, snapshot)
            assert text in answer.get("error", {"description": ""})["description"]
        assert len(await waiting(jetstream)) == 1


async def test_more_than_may_wait_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delayed, "WAITING_MAX", 3)
    async with serving(tmp_path) as jetstream:
        response, data = await with_four(jetstream)
        answer = await restore(jetstream, response, data)
        assert "more messages wait" in answer["error"]["description"]


async def test_a_configuration_without_schedules_is_refused(tmp_path: Path) -> None:
    """Otherwise the waiting messages would be lost."""
    async with serving(tmp_path) as jetstream:
        response, data = await with_four(jetstream)
        config = {**response["config"], "allow_msg_schedules": False, "allow_rollup_hdrs": True}
        answer = await restore(jetstream, {**response, "config": config}, data)
        assert "takes allow_msg_schedules" in answer["error"]["description"]
        assert not snapshots_of(account_of(jetstream))


async def test_a_snapshot_without_the_end_of_what_waits_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        response, data = await with_four(jetstream)
        parts = parts_of(data)
        del parts["delayed/state.json"]
        answer = await restore(jetstream, response, packed(parts))
        assert "not whole" in answer["error"]["description"]


async def with_four(jetstream: JetStream) -> tuple[Json, bytes]:
    """Return a snapshot with four waiting messages, of a stream that is deleted."""
    await create(jetstream, "S", **SETTINGS)
    for number in range(4):
        await delay(jetstream, "s.x", b"%d" % number, "1h")
    snapshot = await take(jetstream)
    await account_of(jetstream).delete_stream("S")
    return snapshot


# Without a server


async def fill(root: Path, **options: Any) -> list[tuple[Any, ...]]:
    async with serving(root, **options) as jetstream:
        await create(jetstream, "S", **SETTINGS)
        await publish(jetstream, "s.now")
        for number in range(9):
            await delay(jetstream, f"s.{number}", b"%d later" % number * 100, "1h")
        return await waiting(jetstream)


async def found(root: Path, **options: Any) -> list[tuple[Any, ...]]:
    async with serving(root, **options) as jetstream:
        return await waiting(jetstream)


def directory_of(root: Path) -> Path:
    return root / "jetstream" / ACCOUNT / "streams" / "S"


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_offline(is_encrypted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"key": "a key"} if is_encrypted else {}
    (tmp_path / "key").write_text("a key")
    keys = ["--key-file", str(tmp_path / "key")] if is_encrypted else []
    expected = asyncio.run(fill(tmp_path / "a", **options))
    snapshot, target = tmp_path / "S.snapshot", tmp_path / "b" / "jetstream"
    assert main(["store", "snapshot", *keys, str(directory_of(tmp_path / "a")), str(snapshot)]) == 0
    told = capsys.readouterr().out
    assert told == f"S: 1 messages, 9 delayed, 0 consumers written to {snapshot}\n"
    target.mkdir(parents=True)
    assert main(["store", "restore", "--json", *keys, str(snapshot), str(target)]) == 0
    assert json.loads(capsys.readouterr().out)["delayed"] == 9
    assert main(["store", "check", *keys, str(target)]) == 0
    assert asyncio.run(found(tmp_path / "b", **options)) == expected


def test_damage_is_told_and_repaired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The damaged waiting message is lost, and the others still wait."""
    expected = asyncio.run(fill(tmp_path))
    root, (block,) = tmp_path / "jetstream", directory_of(tmp_path).glob("delayed/*.blk")
    data = block.read_bytes()
    block.write_bytes(with_flipped_bit(data, data.index(b"4 later") * 8))
    assert main(["store", "snapshot", str(directory_of(tmp_path)), str(tmp_path / "snapshot")]) == 1
    damage, summary = capsys.readouterr().out.splitlines()
    assert "delayed" in damage
    assert "8 delayed" in summary
    assert main(["store", "check", str(root)]) == 1
    assert str(block) in capsys.readouterr().out
    assert main(["store", "repair", str(root)]) == 0
    assert main(["store", "check", str(root)]) == 0
    assert asyncio.run(found(tmp_path)) == [each for each in expected if each[1] != "s.4"]
