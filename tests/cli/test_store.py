"""`natsd store`: what it prints, and its exit code; what it finds is tests/store's business."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from natsd.cli import main
from natsd.store.commit.volume import Volume
from natsd.store.consumer.consumer_state import ConsumerOptions
from natsd.store.consumer.consumer_store import ConsumerStore
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.disk.real_disk import RealDisk
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.store import Limits

STREAM = "A/streams/S"


async def make_volume(root: Path, options: FileOptions) -> None:
    volume = Volume.open(RealDisk(), root, os.urandom, loop=asyncio.get_running_loop())
    store = await FileStore.open(volume, root / STREAM, Limits(), os.urandom, options)
    for number in range(1, 4):
        store.append("orders", None, b"data", number)
        await store.synced()
    consumer = await ConsumerStore.create(
        volume, root / STREAM / "obs" / "c", ConsumerOptions(), os.urandom
    )
    await consumer.close()
    await store.close()
    await volume.close()


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_check_finds_repair_repairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(make_volume(tmp_path, FileOptions()))
    arguments = [str(tmp_path)]
    assert main(["store", "check", *arguments]) == 0
    whole = "1 streams, 1 blocks, 3 messages, 1 consumers: no damage\n"
    assert capsys.readouterr().out == whole
    path = tmp_path / STREAM / "000001.blk"
    flip(path, 64 + 40)
    assert main(["store", "check", *arguments]) == 1
    line, summary = capsys.readouterr().out.splitlines()
    assert line == f"{path}: record damaged at byte 64 (50 bytes), message 1"
    assert summary == "1 streams, 1 blocks, 2 messages, 1 consumers: 1 damaged"
    assert main(["store", "check", "--json", *arguments]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["clean"] is False
    assert told["findings"] == [
        {
            "file": str(path),
            "offset": 64,
            "length": 50,
            "what": "record damaged",
            "first_sequence": 1,
            "last_sequence": 1,
        }
    ]
    assert main(["store", "repair", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    aside = tmp_path / STREAM / "damaged" / "000001.blk.64"
    assert lines[0] == f"{line}; kept as {aside}"
    assert lines[1] == f"{path}: written anew with 2 messages"
    assert lines[-1] == "1 streams, 1 blocks, 2 messages, 1 consumers: no damage"
    assert main(["store", "repair", "--json", *arguments]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["done"], told["unrepaired"], told["check"]["clean"]) == ([], [], True)


def test_keys_come_from_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "volume"
    options = FileOptions(keys=OperatorKeys(b"secret"), context=STREAM)
    asyncio.run(make_volume(root, options))
    key_file = tmp_path / "key"
    key_file.write_text("secret\n")
    assert main(["store", "check", "--key-file", str(key_file), str(root)]) == 0
    assert "3 messages" in capsys.readouterr().out
    assert main(["store", "check", str(root)]) == 1
    path = root / STREAM / "key.db"
    expected = f"not checked: {path} says that the store is encrypted, but no key is given"
    assert capsys.readouterr().out.startswith(expected)


def test_refusals_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing"
    assert main(["store", "check", str(missing)]) == 1
    assert capsys.readouterr().err == f"natsd: {missing} is not a directory\n"
    volume = Volume.open(RealDisk(), tmp_path, os.urandom)
    for action in ("check", "repair"):
        assert main(["store", action, str(tmp_path)]) == 1
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith(f"natsd: {tmp_path} is in use by process {os.getpid()}")
        assert told.err.count("\n") == 1
    volume.close_now()
    key_file = tmp_path / "no.key"
    assert main(["store", "check", "--key-file", str(key_file), str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"natsd: {key_file}: No such file or directory\n"
