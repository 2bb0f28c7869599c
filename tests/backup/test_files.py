"""`natsd backup` and `natsd restore` with the files of a stopped server (docs/backup.md)."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from natsd.backup.directory import MARKER, BackupDirectory
from natsd.cli import main
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.store.disk.real_disk import RealDisk
from tests.jetstream.serving import ACCOUNT, account_of, create, publish, serving

BODY = bytes(range(256)) * 8


async def fill(root: Path, first: int, last: int, **options: Any) -> None:
    """Publish messages to two streams, `S` and `T`, and delete some; the streams may exist."""
    async with serving(root, **options) as jetstream:
        for name in "ST":
            if name not in account_of(jetstream).streams:
                await create(jetstream, name, subjects=[f"{name}.>"])
        for number in range(first, last):
            for name in "ST":
                await publish(jetstream, f"{name}.{number % 7}", BODY + b"%d" % number)
        stream = account_of(jetstream).stream("S")
        await stream.delete_message(stream.store.log.last_sequence - 1)
        if "C" not in stream.consumers:
            await stream.create_consumer(
                ConsumerConfig(durable_name="C", ack_policy=AckPolicy.EXPLICIT), ""
            )


async def contents(root: Path, **options: Any) -> dict[str, Any]:
    """Return all messages and consumers of all streams."""
    found: dict[str, Any] = {}
    async with serving(root, **options) as jetstream:
        for name, stream in account_of(jetstream).streams.items():
            log = stream.store.log
            sequences = [n for n in range(1, log.last_sequence + 1) if log.has(n)]
            found[name] = (
                [await stream.store.load(n) for n in sequences],
                log.last_sequence,
                stream.config,
                {each: one.store.tracker.encode() for each, one in stream.consumers.items()},
            )
    return found


def run(*arguments: object) -> int:
    return main([str(each) for each in arguments])


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(capsys.readouterr().out))


def store_of(root: Path) -> Path:
    return root / "jetstream"


def piece_files(backups: Path) -> list[Path]:
    return sorted((backups / "pieces").glob("*/*"))


def back_up(tmp_path: Path, *more: object) -> int:
    return run("backup", tmp_path / "backups", "--store", store_of(tmp_path / "a"), *more)


def test_each_backup_is_restored_as_the_store_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second backup stores what is new, and both can be restored."""
    asyncio.run(fill(tmp_path / "a", 0, 300))
    before = asyncio.run(contents(tmp_path / "a"))
    assert back_up(tmp_path, "--json") == 0
    first = told(capsys)
    assert (first["streams"], first["messages"], first["consumers"]) == (2, 599, 1)
    assert first["verified"] is True
    asyncio.run(fill(tmp_path / "a", 300, 400))
    after = asyncio.run(contents(tmp_path / "a"))
    assert back_up(tmp_path, "--json") == 0
    second = told(capsys)
    assert back_up(tmp_path, "--json") == 0
    assert told(capsys)["written_bytes"] == 0  # nothing has changed
    for backup, expected in ((first, before), (second, after)):
        target = tmp_path / backup["id"]
        assert (
            run("restore", tmp_path / "backups", "--at", backup["id"], "--store", store_of(target))
            == 0
        )
        assert asyncio.run(contents(target)) == expected


def test_a_backup_of_one_stream_forgets_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next backup of all streams still knows what the backups before have."""
    asyncio.run(fill(tmp_path / "a", 0, 100))
    assert back_up(tmp_path) == 0
    assert back_up(tmp_path, "--stream", "S") == 0
    capsys.readouterr()
    assert back_up(tmp_path, "--json") == 0
    shown = told(capsys)
    assert (shown["streams"], shown["written_bytes"]) == (2, 0)
    assert shown["received_bytes"] < len(BODY)


def test_a_stream_that_exists_is_replaced_only_if_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(fill(tmp_path / "a", 0, 10))
    before = asyncio.run(contents(tmp_path / "a"))
    assert back_up(tmp_path) == 0
    asyncio.run(fill(tmp_path / "a", 10, 20))
    restore = (
        "restore",
        tmp_path / "backups",
        "--store",
        store_of(tmp_path / "a"),
        "--stream",
        "S",
    )
    capsys.readouterr()
    assert run(*restore) == 1
    assert "exists; --overwrite replaces it" in capsys.readouterr().out
    assert run(*restore, "--overwrite") == 0
    found = asyncio.run(contents(tmp_path / "a"))
    assert found["S"] == before["S"]
    assert found["T"] != before["T"]


def test_a_stream_gets_another_name_and_account(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path / "a", 0, 10))
    before = asyncio.run(contents(tmp_path / "a"))
    assert back_up(tmp_path) == 0
    restore = ("restore", tmp_path / "backups", "--store", store_of(tmp_path / "b"))
    assert run(*restore, "--stream", "S", "--as", f"{ACCOUNT}/OTHER") == 0
    found = asyncio.run(contents(tmp_path / "b"))
    assert found["OTHER"][0] == before["S"][0]
    assert run(*restore, "--as", "X") == 2  # two streams


def test_encrypted_stores_and_backups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The store and the backups have keys of their own; neither shows a message without its key."""
    asyncio.run(fill(tmp_path / "a", 0, 300, key="store"))
    expected = asyncio.run(contents(tmp_path / "a", key="store"))
    keys = {}
    for name in ("store", "backup", "wrong"):
        keys[name] = tmp_path / name
        keys[name].write_text(f"{name}\n")
    backup_key = ("--key-file", keys["backup"])
    assert back_up(tmp_path, "--store-key-file", keys["store"], *backup_key) == 0
    assert back_up(tmp_path, "--store-key-file", keys["store"], *backup_key, "--json") == 0
    capsys.readouterr()
    for path in [*piece_files(tmp_path / "backups"), *(tmp_path / "backups/backups").iterdir()]:
        assert BODY[:32] not in path.read_bytes()
        assert path.stat().st_mode & 0o777 == 0o600
    restore = ("restore", tmp_path / "backups", "--store", store_of(tmp_path / "b"))
    assert run(*restore) == 2
    assert run(*restore, "--key-file", keys["wrong"]) == 2
    assert "the key is wrong" in capsys.readouterr().err
    assert run(*restore, *backup_key) == 0
    assert asyncio.run(contents(tmp_path / "b")) == expected


@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "empty"])
def test_each_damaged_piece_is_named(
    harm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Streams without damage are restored all the same; another backup mends what is cut."""
    asyncio.run(fill(tmp_path / "a", 0, 300))
    assert back_up(tmp_path) == 0
    backups = tmp_path / "backups"
    assert run("backup", "verify", backups) == 0
    pieces = piece_files(backups)
    assert len(pieces) >= 2
    for number, path in enumerate(pieces):
        kept = path.read_bytes()
        damage(path, harm)
        capsys.readouterr()
        assert run("backup", "verify", backups) == 1
        lines = capsys.readouterr().out.splitlines()
        assert str(path) in lines[0]
        target = tmp_path / f"{number}"
        assert run("restore", backups, "--store", store_of(target)) == 1
        told = capsys.readouterr().out
        assert "it is not restored" in told
        assert "1 streams, " in told
        if harm != "flip":
            assert back_up(tmp_path) == 0
            assert path.read_bytes() == kept
        path.write_bytes(kept)
        assert run("backup", "verify", backups) == 0


def damage(path: Path, harm: str) -> None:
    data = bytearray(path.read_bytes())
    if harm == "remove":
        path.unlink()
        return
    middle = len(data) // 2
    if harm == "flip":  # one bit may leave a compressed piece with the same content
        data[middle : middle + 8] = bytes(each ^ 0xFF for each in data[middle : middle + 8])
    path.write_bytes({"flip": bytes(data), "cut": bytes(data[:-1]), "empty": b""}[harm])


def test_a_damaged_manifest_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(fill(tmp_path / "a", 0, 10))
    assert back_up(tmp_path) == 0
    (manifest,) = (tmp_path / "backups/backups").iterdir()
    damage(manifest, "flip")
    capsys.readouterr()
    assert run("backup", "verify", tmp_path / "backups") == 1
    assert str(manifest) in capsys.readouterr().out
    assert run("backup", "prune", tmp_path / "backups", "--keep", 1) == 2
    assert back_up(tmp_path) == 0


def test_pruned_backups_are_gone_and_the_others_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        asyncio.run(fill(tmp_path / "a", number * 100, number * 100 + 100))
        assert back_up(tmp_path) == 0
    backups = tmp_path / "backups"
    stray = backups / "pieces" / "00" / "00stray"
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"left by an interrupted backup")
    before = len(piece_files(backups))
    capsys.readouterr()
    assert run("backup", "prune", backups, "--keep", 1, "--json") == 0
    pruned = told(capsys)
    assert len(pruned["removed"]) == 2
    assert len(piece_files(backups)) == before - pruned["pieces"]
    assert not stray.exists()
    assert run("backup", "verify", backups) == 0
    assert run("restore", backups, "--store", store_of(tmp_path / "b")) == 0
    expected = asyncio.run(contents(tmp_path / "a"))
    assert asyncio.run(contents(tmp_path / "b")) == expected


def test_refusals_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(fill(tmp_path / "a", 0, 10))
    assert back_up(tmp_path) == 0
    backups, foreign, newer = tmp_path / "backups", tmp_path / "foreign", tmp_path / "newer"
    foreign.mkdir()
    (foreign / "a file").write_text("of somebody else")
    newer.mkdir()
    marker = json.loads((backups / MARKER).read_text())
    (newer / MARKER).write_text(json.dumps({**marker, "version": 2}))
    key = tmp_path / "key"
    key.write_text("a key")
    store = ("--store", store_of(tmp_path / "a"))
    capsys.readouterr()
    for arguments, text in (
        (("backup", foreign, *store), "is not a directory of backups"),
        (("backup", newer, *store), "version 2"),
        (("backup", "list", tmp_path / "none"), "is not a directory of backups"),
        (("backup", backups, "--store", foreign), "is no store directory"),
        (("backup", backups, *store, "--key-file", key), "is not encrypted"),
        (("backup", backups, "-s", "127.0.0.1:1"), "127.0.0.1:1: "),
        (("backup", backups, "--account", "A"), "--account needs --all-accounts"),
        (("restore", backups, *store, "--at", "2001"), "no backup 2001"),
        (("restore", backups, *store, "--stream", "X"), "no such stream"),
    ):
        assert run(*arguments) == 2
        line = capsys.readouterr().err
        assert text in line
        assert line.startswith("natsd: ")
        assert line.count("\n") == 1


def test_two_at_once_and_a_store_in_use_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(fill(tmp_path / "a", 0, 10))
    assert back_up(tmp_path) == 0
    with BackupDirectory.open(tmp_path / "backups", None).locked():
        assert back_up(tmp_path) == 2
    assert f"another backup runs (process {os.getpid()})" in capsys.readouterr().err
    lock = RealDisk().lock(store_of(tmp_path / "a") / "natsd.lock")
    try:
        assert back_up(tmp_path) == 2
    finally:
        lock.release()
    assert "is in use by process" in capsys.readouterr().err


def test_damage_of_the_store_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The backup has the other messages, and says each time which stream lacks some."""
    asyncio.run(fill(tmp_path / "a", 0, 100))
    (block,) = (store_of(tmp_path / "a") / ACCOUNT / "streams/S/msgs").glob("*.blk")
    data = bytearray(block.read_bytes())
    data[data.index(BODY + b"50")] ^= 1
    block.write_bytes(data)
    capsys.readouterr()
    for _ in range(2):
        assert back_up(tmp_path, "--json") == 1
        shown = told(capsys)
        assert shown["messages"] == 198
        assert any("message 51" in line for line in shown["problems"])


def test_the_configuration_is_added_with_a_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(fill(tmp_path / "a", 0, 2))
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/users..conf").write_text("authorization { user: a, password: secret }\n")
    (tmp_path / "main.conf").write_text("port: 4333\ninclude parts/users..conf\n")
    assert back_up(tmp_path) == 0
    out = tmp_path / "out"
    assert run("restore", tmp_path / "backups", "--files", out) == 0
    assert not out.exists()
    assert back_up(tmp_path, "--config", tmp_path / "main.conf") == 0
    assert run("restore", tmp_path / "backups", "--files", out) == 0
    for name in ("main.conf", "parts/users..conf"):
        assert (out / "config" / name).read_text() == (tmp_path / name).read_text()
        assert (out / "config" / name).stat().st_mode & 0o777 == 0o600
    capsys.readouterr()
    assert run("restore", tmp_path / "backups", "--files", out) == 2
    assert "exists" in capsys.readouterr().err
