"""Directories of backups that somebody has made to do harm: nothing outside of them is touched."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from natsd.backup.directory import BackupDirectory
from natsd.backup.errors import DamagedPiece
from natsd.backup.manifest import Body, Entry, StreamCopy, StreamRecord, encode
from natsd.backup.pieces import ENTRY, PieceKey
from natsd.store.backup.snapshot_file import SnapshotWriter
from tests.backup.test_files import back_up, fill, run, store_of

Forge = Callable[[StreamRecord], StreamRecord]


def backed_up(tmp_path: Path) -> BackupDirectory:
    """Return a directory with a backup of the streams `S` and `T`."""
    asyncio.run(fill(tmp_path / "a", 0, 50))
    assert back_up(tmp_path) == 0
    return BackupDirectory.open(tmp_path / "backups", None)


def rewrite(directory: BackupDirectory, **changes: Any) -> None:
    """Write the backup again with changes to the copy of `S`; `record` is a function of it."""
    manifest = directory.find(None)
    forged: Forge | None = changes.pop("forged", None)
    streams: list[StreamCopy] = []
    for copy in manifest.streams:
        if copy.stream == "S":
            if forged is not None:
                piece = directory.pieces.put(encode(forged(directory.record(copy.record))))
                copy = msgspec.structs.replace(copy, record=Body(piece=piece.name, stored=piece[1]))
            copy = msgspec.structs.replace(copy, **changes)
        streams.append(copy)
    directory.write(msgspec.structs.replace(manifest, streams=tuple(streams)))


def named(name: str) -> Forge:
    """Return the forging of a record's name, in both places that have it."""

    def forge(record: StreamRecord) -> StreamRecord:
        config = {**json.loads(record.config), "name": name}
        entries: list[Entry] = []
        for entry in record.entries:
            if entry.body.inline.startswith(b"{") and b'"config"' in entry.body.inline:
                asset = {**json.loads(entry.body.inline), "config": config}
                body = Body(json.dumps(asset).encode())
                entry = msgspec.structs.replace(entry, body=body)
            entries.append(entry)
        return msgspec.structs.replace(
            record, config=json.dumps(config).encode(), entries=tuple(entries)
        )

    return forge


@pytest.mark.parametrize("name", ["../../../../victim", "S 0\r\n\r\nPUB x", "..", "", "a.b"])
@pytest.mark.parametrize("is_forged", [False, True], ids=["manifest", "record"])
def test_a_stream_of_an_impossible_name_is_refused(
    tmp_path: Path, name: str, *, is_forged: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --overwrite the directory of the stream is removed: it must be one of a stream."""
    directory = backed_up(tmp_path)
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/kept").write_text("precious")
    more: dict[str, Any] = {"forged": named(name)} if is_forged else {}
    rewrite(directory, stream=name, **more)
    target = store_of(tmp_path / "b")
    capsys.readouterr()
    assert run("restore", directory.path, "--store", target, "--overwrite") == 1
    told = capsys.readouterr().out
    assert "it is not restored" in told
    assert told.count("\n") == 2  # the problem, and what was restored
    assert (tmp_path / "victim/kept").read_text() == "precious"
    assert [each.name for each in sorted(target.glob("*/streams/*"))] == ["T"]


def test_a_record_of_another_stream_is_refused(tmp_path: Path) -> None:
    """What the manifest calls `S` cannot replace the stream `U`."""
    directory = backed_up(tmp_path)
    rewrite(directory, forged=named("U"))
    target = store_of(tmp_path / "b")
    assert run("restore", directory.path, "--store", target) == 1
    assert [each.name for each in sorted(target.glob("*/streams/*"))] == ["T"]


@pytest.mark.parametrize("config", [b"", b"[]", b"{}", b'{"name": 7}'])
def test_a_record_without_a_configuration_is_damage(tmp_path: Path, config: bytes) -> None:
    directory = backed_up(tmp_path)
    rewrite(directory, forged=lambda record: msgspec.structs.replace(record, config=config))
    assert run("backup", "verify", directory.path) == 1
    assert run("restore", directory.path, "--store", store_of(tmp_path / "b")) == 1


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["/dev/zero", "../../../a", "A" * 40, "0" * 39])
def test_a_piece_of_an_impossible_name_is_damage(
    tmp_path: Path, piece: str, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = backed_up(tmp_path)
    rewrite(directory, record=Body(piece=piece, stored=0))
    journal = Entry("", Body(piece=piece, stored=0), b"key", 1, 1)
    (directory.path / "unfinished").write_bytes(encode(journal) + b"\n")
    assert run("backup", "verify", directory.path) == 1
    assert run("restore", directory.path, "--store", store_of(tmp_path / "b")) == 1
    assert "is no name of a piece" in capsys.readouterr().out
    assert back_up(tmp_path) == 0  # whose blocks are all there


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["fifo", "device", "directory", "long"])
def test_a_piece_that_is_no_piece_is_damage(tmp_path: Path, kind: str) -> None:
    """Neither a pipe that never ends nor a file without end stops a verification."""
    directory = backed_up(tmp_path)
    path = directory.pieces.path(directory.find(None).streams[0].record.piece)
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "directory":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)
    assert run("backup", "verify", directory.path) == 1


def test_a_small_piece_that_unpacks_to_much_is_refused_early() -> None:
    """The entries after the second one are not unpacked."""
    writer = SnapshotWriter()
    data = writer.begin()
    data += b"".join(writer.entry(ENTRY, bytes(16 << 20)) for _ in range(40))  # 640 MiB in 30
    data += writer.end()
    tracemalloc.start()
    try:
        with pytest.raises(DamagedPiece, match="something else"):
            PieceKey(None, b"").unpack(data, "")
        assert tracemalloc.get_traced_memory()[1] < 150 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["[red]S", "[link=x]"])
def test_a_name_is_no_markup_of_the_progress_bar(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = backed_up(tmp_path)
    rewrite(directory, stream=name, forged=named(name))
    capsys.readouterr()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    run("restore", directory.path, "--store", store_of(tmp_path / "b"))
    assert name in capsys.readouterr().err


@pytest.mark.parametrize("name", ["natsd-backup.new", "unfinished", "lock"])
def test_no_file_is_written_through_a_link(tmp_path: Path, name: str) -> None:
    """Whoever may write to the directory cannot have the user's other files overwritten."""
    (tmp_path / "kept").write_text("precious")
    (tmp_path / "backups").mkdir()
    asyncio.run(fill(tmp_path / "a", 0, 5))
    if name != "natsd-backup.new":
        assert back_up(tmp_path) == 0
        (tmp_path / "backups" / name).unlink(missing_ok=True)
    (tmp_path / "backups" / name).symlink_to(tmp_path / "kept")
    assert back_up(tmp_path) == 2
    assert (tmp_path / "kept").read_text() == "precious"


def test_only_the_user_may_look_into_the_directories(tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir(mode=0o755)
    directory = backed_up(tmp_path)
    below = [path for path in directory.path.rglob("*") if path.is_dir()]
    assert below
    assert {path.stat().st_mode & 0o777 for path in below} == {0o700}


def test_other_files_among_the_backups_are_no_backups(tmp_path: Path) -> None:
    """A file that some program leaves there neither stops a command nor names the next backup."""
    directory = backed_up(tmp_path)
    for name in (".DS_Store", "zzz", "20261123T225557.123456Z~"):
        (directory.path / "backups" / name).write_text("")
    assert run("backup", "list", directory.path) == 0
    assert back_up(tmp_path) == 0
    assert run("backup", "verify", directory.path) == 0
    assert len(directory.ids()) == 2


def test_what_a_backup_tells_reaches_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = backed_up(tmp_path)
    directory.write(msgspec.structs.replace(directory.find(None), source="files\x1b[2J"))
    rewrite(directory, account="A\x1b[31m", record=Body(piece="0" * 40))
    capsys.readouterr()
    for command in (("backup", "list"), ("backup", "verify"), ("restore",)):
        more = ["--store", store_of(tmp_path / "b")] if command == ("restore",) else []
        run(*command, directory.path, *more)
        out, error = capsys.readouterr()
        assert out
        assert "\x1b" not in out + error
