"""Snapshots that nats-server made, restored by a server and by `natsd store restore`."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.cli import main
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.nats_server.snapshot_reader import TarReader
from natsd.store.backup.snappy_frames import S2_IDENTIFIER
from natsd.store.crypto.keys import Cipher
from natsd.store.errors import DamagedEncoding
from tests.jetstream.nats_server.test_export import export, fill
from tests.jetstream.nats_server.test_import import (
    RECORDED,
    compare_consumer,
    compare_messages,
    compare_settings,
    digest,
    served,
)
from tests.jetstream.serving import ACCOUNT, account_of, serving
from tests.jetstream.snapshot.test_restoring import restore, snapshots_of
from tests.store.nats_server.writing import Message, Written, write_stream

SNAPSHOTS = sorted((RECORDED[0].parent / "snapshots").glob("*.tar.xz"))
Json = dict[str, Any]


def unpacked(recorded: Path, directory: Path) -> Json:
    """Unpack what `nats stream backup` saved; return what nats-server served, by stream."""
    with tarfile.open(recorded) as archive:
        archive.extractall(directory, filter="data")
    return dict(json.loads((directory / "expected.json").read_text()))


async def restore_saved(jetstream: JetStream, saved: Path, size: int = 50_000) -> Json:
    """Send a saved snapshot in chunks, as `nats stream restore` does; return the answer."""
    body = json.loads((saved / "backup.json").read_text())
    data = (saved / "stream.tar.s2").read_bytes()
    return await restore(jetstream, body, data, size, stream=saved.name)


async def check_served(jetstream: JetStream, expected: Json) -> None:
    for name, stream in expected.items():
        await compare_messages(jetstream, name, stream)
        compare_settings(jetstream, name, stream)
        for consumer in stream["consumers"] or ():
            compare_consumer(jetstream, name, consumer)


# Snapshots that nats-server made


@pytest.mark.parametrize("size", [50_000, 7], ids=["in one chunk", "in chunks of seven bytes"])
@pytest.mark.parametrize("recorded", SNAPSHOTS, ids=lambda path: path.name)
async def test_a_server_restores_what_a_nats_server_served(
    recorded: Path, size: int, tmp_path: Path
) -> None:
    expected = unpacked(recorded, tmp_path / "saved")
    async with serving(tmp_path) as jetstream:
        for name in expected:
            answer = await restore_saved(jetstream, tmp_path / "saved" / name, size)
            assert answer["config"]["name"] == name
        await check_served(jetstream, expected)
        assert snapshots_of(account_of(jetstream)) == []
    async with serving(tmp_path) as jetstream:
        await check_served(jetstream, expected)


@pytest.mark.parametrize("recorded", SNAPSHOTS, ids=lambda path: path.name)
def test_the_command_restores_it_without_a_server(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = unpacked(recorded, tmp_path / "saved")
    store = tmp_path / "jetstream"
    store.mkdir()
    for name, stream in expected.items():
        snapshot = tmp_path / "saved" / name / "stream.tar.s2"
        assert main(["store", "restore", str(snapshot), str(store)]) == 0
        told = f"{ACCOUNT}/{name}: {stream['state']['messages']} messages, "
        assert capsys.readouterr().out.startswith(told)
    before = digest(store)
    assert main(["store", "restore", str(snapshot), str(store)]) == 1
    assert capsys.readouterr().out.endswith(f"{store / ACCOUNT / 'streams' / name} exists\n")
    assert digest(store).keys() == before.keys()

    async def check() -> None:
        async with serving(tmp_path) as jetstream:
            await check_served(jetstream, expected)

    asyncio.run(check())


async def test_what_natsd_exports_it_restores(tmp_path: Path) -> None:
    expected = await asyncio.to_thread(asyncio.run, fill(tmp_path / "a"))
    assert await asyncio.to_thread(export, tmp_path / "a", tmp_path / "out") == 0
    async with serving(tmp_path / "b") as jetstream:
        await restore_saved(jetstream, tmp_path / "out" / ACCOUNT / "S")
        assert await served(jetstream, "S") == expected


# Snapshots written here


def frames(content: bytes) -> bytes:
    """Return S2 frames: those of snappy are valid, without its identifier."""
    return bytes(cramjam.snappy.compress(content))[len(S2_IDENTIFIER) :]


def tar_of(directory: Path, **more: bytes) -> bytes:
    """Return a tar file in nats-server's order: the configuration comes first."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                tar.add(path, str(path.relative_to(directory)))
        for name, body in more.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    return file.getvalue()


def written(directory: Path, **settings: Any) -> Path:
    """Write a stream of twenty messages; return its directory."""
    messages = [Message(number, b"s.1", b"data %d" % number) for number in range(1, 21)]
    return write_stream(directory / ACCOUNT, "S", Written(messages, per_block=5, **settings))


def packed(tar: bytes) -> bytes:
    return S2_IDENTIFIER + frames(tar)


REQUEST = {"config": {"name": "S", "subjects": ["s.>"], "storage": "file"}, "state": {}}


async def refusal(directory: Path, data: bytes, **limits: int) -> str:
    """Send a snapshot that must be refused, check that nothing stays, and return the error."""
    async with serving(directory, **limits) as jetstream:
        answer = await restore(jetstream, REQUEST, data)
        account = account_of(jetstream)
        assert account.streams == {}
        assert snapshots_of(account) == []
    return str(answer["error"]["description"])


def without(name: str) -> Callable[[Path], bytes]:
    def change(directory: Path) -> bytes:
        (directory / name).unlink()
        return tar_of(directory)

    return change


def flipped(name: str, at: int) -> Callable[[Path], bytes]:
    def change(directory: Path) -> bytes:
        data = bytearray((directory / name).read_bytes())
        data[at] ^= 0xFF
        (directory / name).write_bytes(data)
        return tar_of(directory)

    return change


def with_file(name: str, body: bytes = b"x") -> Callable[[Path], bytes]:
    return lambda directory: tar_of(directory, **{name: body})


def linked(directory: Path) -> bytes:
    (directory / "msgs" / "9.blk").symlink_to("/etc/passwd")
    return tar_of(directory)


def cut(directory: Path) -> bytes:
    return tar_of(directory)[:-12_000]


DAMAGE = {
    "no configuration": (without("meta.inf"), "names no stream"),
    "no checksum": (without("meta.sum"), "meta.sum: No such file"),
    "changed configuration": (flipped("meta.inf", -2), "the snapshot"),
    "changed block": (flipped("msgs/2.blk", 40), "msgs/2.blk"),
    "unknown file": (with_file("msgs/x.blk"), "holds 'msgs/x.blk', which is not known here"),
    "file above": (with_file("../x"), "holds '../x', which is not known here"),
    "file above by a consumer": (with_file("obs/../meta.inf"), "which is not known here"),
    "absolute file": (with_file("/tmp/x"), "which is not known here"),
    "a name twice": (with_file("meta.inf"), "holds 'meta.inf', which is not known here"),
    "a link": (linked, "'msgs/9.blk' is no file of one"),
    "an end too early": (cut, "the snapshot is not whole"),
    "told by nats-server": (with_file("errors.txt", b"disk"), "could not complete the snapshot"),
}


@pytest.mark.parametrize("case", DAMAGE)
async def test_damage_is_refused_as_a_whole(case: str, tmp_path: Path) -> None:
    change, expected = DAMAGE[case]
    data = packed(change(written(tmp_path / "source")))
    error = await refusal(tmp_path, data)
    assert error.startswith("restore failed: ")
    assert expected in error
    assert str(tmp_path) not in error


async def test_another_streams_snapshot_is_refused(tmp_path: Path) -> None:
    source = write_stream(tmp_path / "source" / ACCOUNT, "T", Written())
    assert "stream names do not match" in await refusal(tmp_path, packed(tar_of(source)))


async def test_an_encrypted_block_is_not_taken_for_messages(tmp_path: Path) -> None:
    """nats-server decrypts what it sends; files that were packed by hand may be encrypted."""
    source = written(tmp_path / "source", cipher=Cipher.AES_256_GCM)
    assert "which is not known here" in await refusal(tmp_path, packed(tar_of(source)))


async def test_frames_that_unpack_to_gigabytes_are_refused_early(tmp_path: Path) -> None:
    """Each frame of 64 KiB zeros takes 3 KiB; a tar file may hold a block of 256 MiB at most."""
    info = tarfile.TarInfo("msgs/1.blk")
    info.size = 1 << 34
    header = info.tobuf(tarfile.GNU_FORMAT)
    error = await refusal(tmp_path, packed(header) + frames(bytes(65536)) * 1000)
    assert "'msgs/1.blk' is no file of one" in error


async def test_what_is_over_the_limit_is_refused_as_it_comes(tmp_path: Path) -> None:
    blocks = {f"msgs/{number}.blk": bytes(1 << 20) for number in range(10, 40)}
    data = packed(tar_of(written(tmp_path / "source"), **blocks))
    error = await refusal(tmp_path, data, max_file_store=1 << 20)
    assert error == "insufficient storage resources available"


# The tar file


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0\n"), min_size=1, max_size=300)
FILES = st.lists(st.tuples(NAMES, st.binary(max_size=2000)), max_size=5)


@given(FILES, st.lists(st.integers(1, 4000)))
def test_a_tar_file_is_read_however_it_is_cut(
    files: list[tuple[str, bytes]], cuts: list[int]
) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, body in files:
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    data, reader, found = file.getvalue(), TarReader(), list[tuple[str, bytes]]()
    for size in cuts:
        found += reader.feed(data[:size])
        data = data[size:]
    found += reader.feed(data)
    assert [body for _, body in found] == [body for _, body in files]
    assert [name.rstrip("/") for name, _ in found] == [name.rstrip("/") for name, _ in files]
    assert reader.is_ended


@given(st.binary(min_size=512, max_size=2000))
def test_what_is_no_tar_file_is_refused(data: bytes) -> None:
    reader = TarReader()
    try:
        list(reader.feed(b"x" + data))
    except DamagedEncoding:
        return
    raise AssertionError("it was taken")


def test_a_size_in_an_extended_header_counts() -> None:
    """nats-server writes pax headers, whose records replace what the header says."""
    records = b"".join(
        b"%d %s" % (len(each) + 3, each) for each in (b"path=meta.inf\n", b"size=5\n")
    )
    extended = tarfile.TarInfo("PaxHeaders.0/x")
    extended.type, extended.size = tarfile.XHDTYPE, len(records)
    plain = tarfile.TarInfo("x")
    data = (
        extended.tobuf(tarfile.USTAR_FORMAT)
        + records.ljust(512, b"\0")
        + plain.tobuf(tarfile.USTAR_FORMAT)
        + b"hello".ljust(512, b"\0")
    )
    assert list(TarReader().feed(data)) == [("meta.inf", b"hello")]
