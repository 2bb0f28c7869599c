"""`natsd store snapshot` and `restore`: snapshots in the server's format, without a server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from natsd.cli import main
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.store.disk.places import SUPERSEDED
from tests.jetstream.serving import ACCOUNT, account_of, create, publish, serving

KEYS: dict[str, Any] = {"key": "a key"}


async def fill(root: Path, **options: Any) -> list[tuple[int, bytes]]:
    async with serving(root, **options) as jetstream:
        stream = await create(
            jetstream, "S", subjects=["s"], description="as it was", allow_msg_schedules=True
        )
        for number in range(100):
            await publish(jetstream, "s", b"%d" % number * 20)
        for sequence in (1, 50, 100):
            await stream.delete_message(sequence)
        await stream.create_consumer(
            ConsumerConfig(durable_name="C", ack_policy=AckPolicy.EXPLICIT), ""
        )
        return await messages(jetstream)


async def messages(jetstream: JetStream) -> list[tuple[int, bytes]]:
    stream = account_of(jetstream).stream("S")
    assert stream.config.description == "as it was"
    assert stream.consumer("C").info().num_pending == 97
    store = stream.store
    found = [await store.load(s) for s in range(1, 101) if store.log.has(s)]
    return [(message.sequence, message.data) for message in found]


async def serve(root: Path, **options: Any) -> list[tuple[int, bytes]]:
    async with serving(root, **options) as jetstream:
        found = await messages(jetstream)
        assert (await publish(jetstream, "s"))["seq"] == 101
        return found


def contents(root: Path) -> dict[Path, bytes]:
    files = [path for path in root.rglob("*") if path.is_file() and path.name != "natsd.lock"]
    return {path: path.read_bytes() for path in files}


def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("a key\n")
    return path


def directory_of(root: Path) -> Path:
    return root / "jetstream" / ACCOUNT / "streams" / "S"


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_from_one_directory_to_another(
    is_encrypted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The two directories may have different keys, or none."""
    expected = asyncio.run(fill(tmp_path / "a", **(KEYS if is_encrypted else {})))
    keys = ["--key-file", str(key_file(tmp_path))]
    before, snapshot = contents(tmp_path / "a"), tmp_path / "S.snapshot"
    arguments = [*(keys if is_encrypted else []), str(directory_of(tmp_path / "a")), str(snapshot)]
    assert main(["store", "snapshot", *arguments]) == 0
    told = capsys.readouterr().out
    assert told == f"S: 97 messages, 1 consumers written to {snapshot}\n"
    assert contents(tmp_path / "a") == before
    target = tmp_path / "b" / "jetstream"
    target.mkdir(parents=True)
    keys = [] if is_encrypted else keys
    assert main(["store", "restore", "--json", *keys, str(snapshot), str(target)]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary == {"stream": "S", "messages": 97, "consumers": 1, "delayed": 0, "damage": []}
    assert asyncio.run(serve(tmp_path / "b", **({} if is_encrypted else KEYS))) == expected


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_from_a_replica_that_was_set_aside(
    is_encrypted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its files, which are bound to the place that they had, are no damage where they are now."""
    asyncio.run(fill(tmp_path, **(KEYS if is_encrypted else {})))
    directory = directory_of(tmp_path)
    superseded = directory.parent.parent / SUPERSEDED / "S.S-R3F-a5j28QLV"
    superseded.parent.mkdir()
    directory.rename(superseded)
    keys = ["--key-file", str(key_file(tmp_path))] if is_encrypted else []
    assert main(["store", "check", *keys, str(tmp_path / "jetstream")]) == 0
    assert "97 messages, 1 consumers: no damage" in capsys.readouterr().out
    assert main(["store", "snapshot", *keys, str(superseded), str(tmp_path / "S.snapshot")]) == 0
    assert capsys.readouterr().out.startswith("S: 97 messages, 1 consumers written")


def test_refusals_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(fill(tmp_path))
    root, directory, snapshot = (
        tmp_path / "jetstream",
        directory_of(tmp_path),
        tmp_path / "snapshot",
    )
    assert main(["store", "snapshot", str(directory), str(snapshot)]) == 0
    cut = tmp_path / "cut"
    cut.write_bytes(snapshot.read_bytes()[:-100])
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"\xff\x06\x00\x00S2sTwO" + bytes(100))
    before = contents(root)
    capsys.readouterr()
    other = tmp_path / "other"
    other.mkdir()
    for arguments, text in (
        (["snapshot", str(tmp_path), str(snapshot)], "is in no store directory"),
        (["snapshot", str(root / ACCOUNT), str(snapshot)], "meta.json"),
        (["snapshot", str(directory), str(tmp_path / "none" / "x")], "No such file"),
        (["restore", str(snapshot), str(root)], "exists"),
        (["restore", str(cut), str(other)], "the snapshot"),
        (["restore", str(foreign), str(other)], "the snapshot"),
        (["restore", str(tmp_path / "none"), str(other)], "No such file"),
    ):
        assert main(["store", *arguments]) == 1
        told = capsys.readouterr().err
        assert text in told
        assert told.startswith("natsd: ")
        assert told.count("\n") == 1
    assert contents(root) == before
    assert not [path for path in other.rglob("*") if path.is_file() and path.name != "natsd.lock"]


async def test_a_directory_in_use_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "S", subjects=["s"])
        arguments = ["store", "snapshot", str(directory_of(tmp_path)), str(tmp_path / "snapshot")]
        assert await asyncio.to_thread(main, arguments) == 1
    assert "is in use by process" in capsys.readouterr().err


def test_damage_is_told_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(fill(tmp_path))
    (block,) = directory_of(tmp_path).rglob("000001.blk")
    data = bytearray(block.read_bytes())
    data[data.index(b"77" * 20)] ^= 1
    block.write_bytes(data)
    snapshot = tmp_path / "snapshot"
    assert main(["store", "snapshot", str(directory_of(tmp_path)), str(snapshot)]) == 1
    damage, summary = capsys.readouterr().out.splitlines()
    assert "message 78" in damage
    assert summary == f"S: 96 messages, 1 consumers written to {snapshot}"
    (tmp_path / "b").mkdir()
    assert main(["store", "restore", str(snapshot), str(tmp_path / "b")]) == 0
