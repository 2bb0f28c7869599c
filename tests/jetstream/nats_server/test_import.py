"""`natsd store import`: stores that nats-server wrote, and stores written as it would."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from natsd.cli import main
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.go_json import encode, encoded
from natsd.jetstream.models.stream import ReturnedMessage
from natsd.jetstream.models.times import format_time
from natsd.jetstream.nats_server.store_import import ImportReport, Selection, import_store
from natsd.jetstream.nats_server.stream_import import read_stream
from natsd.jetstream.nats_server.survey import Survey, survey
from natsd.jetstream.snapshot.offline import NotPossible
from natsd.store.block.blocks import MsgBlock
from natsd.store.consumer.consumer_state import ConsumerState, Pending, SequencePair
from natsd.store.crypto.keys import Cipher, OperatorKeys
from natsd.store.disk.real_disk import RealDisk
from natsd.store.log.message_log import MessageLog
from natsd.store.nats_server.encryption import Encryption
from natsd.store.nats_server.stream_files import StreamFiles, Unusable
from tests.jetstream.serving import ACCOUNT, account_of, serving
from tests.store.nats_server.writing import KEY, Message, Written, write_stream

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.tar.xz"))


def imported(source: Path, root: Path, **selection: Any) -> ImportReport:
    root.mkdir(parents=True, exist_ok=True)
    chosen = Selection(source, (KEY,), **selection)
    return import_store(RealDisk(), chosen, root, OperatorKeys(), os.urandom, lambda *_: None)


async def served(jetstream: JetStream, name: str) -> dict[int, Message]:
    store = account_of(jetstream).stream(name).store
    found = {}
    for sequence in range(store.log.first_sequence, store.log.last_sequence + 1):
        if not store.log.has(sequence):
            continue
        message = await store.load(sequence)
        assert message is not None
        found[sequence] = Message(
            sequence,
            message.subject.encode(),
            message.data,
            message.headers or b"",
            message.time_ns,
        )
    return found


def unpacked(recorded: Path, directory: Path) -> tuple[Path, dict[str, Any]]:
    with tarfile.open(recorded) as archive:
        archive.extractall(directory, filter="data")
    return directory / "jetstream", json.loads((directory / "expected.json").read_text())


def digest(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(directory)): (
            hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b"",
            path.stat().st_mtime_ns,
        )
        for path in sorted(directory.rglob("*"))
    }


# Stores that nats-server wrote


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.name)
async def test_what_a_nats_server_served_is_served(recorded: Path, tmp_path: Path) -> None:
    source, expected = unpacked(recorded, tmp_path / "source")
    before = digest(source)
    report = await asyncio.to_thread(imported, source, tmp_path / "jetstream")
    assert digest(source) == before
    assert report.is_complete
    async with serving(tmp_path) as jetstream:
        for name, stream in expected.items():
            await compare_messages(jetstream, name, stream)
            compare_settings(jetstream, name, stream)
            for consumer in stream["consumers"] or ():
                compare_consumer(jetstream, name, consumer)


async def compare_messages(jetstream: JetStream, name: str, stream: dict[str, Any]) -> None:
    found = await served(jetstream, name)
    shown = [
        ReturnedMessage(
            subject=each.subject.decode(),
            seq=each.sequence,
            hdrs=each.headers,
            data=each.data,
            time=each.time_ns,
        )
        for each in found.values()
    ]
    assert [json.loads(encode(each)) for each in shown] == stream["messages"]
    state = account_of(jetstream).stream(name).store.state()
    assert state.first_sequence == stream["state"]["first_seq"]
    assert state.last_sequence == stream["state"]["last_seq"]


def compare_settings(jetstream: JetStream, name: str, stream: dict[str, Any]) -> None:
    config = json.loads(encode(account_of(jetstream).stream(name).config))
    config.pop("metadata")
    expected = stream["config"]
    assert {key: value for key, value in config.items() if key in expected} == {
        key: value for key, value in expected.items() if key != "metadata"
    }
    assert format_time(account_of(jetstream).stream(name).created_ns) == stream["created"]


def compare_consumer(jetstream: JetStream, name: str, expected: dict[str, Any]) -> None:
    consumer = account_of(jetstream).stream(name).consumer(expected["name"])
    info = json.loads(encode(consumer.info(encoded(consumer.config))))
    for key in ("delivered", "ack_floor"):
        for part in ("consumer_seq", "stream_seq"):
            assert info[key][part] == expected[key][part], (expected["name"], key)
    for key in ("num_ack_pending", "num_redelivered", "num_pending"):
        assert info[key] == expected[key], (expected["name"], key)
    assert info["config"]["ack_policy"] == expected["config"]["ack_policy"]


# Stores as nats-server would write them


@st.composite
def streams(draw: st.DrawFn) -> Written:
    sequences = sorted(draw(st.sets(st.integers(1, 60), max_size=30)))
    headers = st.sampled_from((b"", b"NATS/1.0\r\nA: b\r\n\r\n"))
    messages = [
        Message(
            sequence,
            draw(st.sampled_from((b"s.a", b"s.b.c", b"other"))),
            draw(st.binary(max_size=40)),
            draw(headers),
            1_000 + sequence,
        )
        for sequence in sequences
    ]
    some = st.lists(st.sampled_from(sequences), unique=True) if sequences else st.just([])
    return Written(
        messages,
        erased=draw(some),
        tombstones=draw(some),
        per_block=draw(st.integers(1, 12)),
        is_compressed=draw(st.booleans()),
        cipher=draw(st.sampled_from((None, *Cipher))),
        torn=draw(st.sampled_from((b"", b"\x40\x00\x00\x00half", bytes(9)))),
    )


def expected_of(stream: Written) -> dict[int, Message]:
    gone = {*stream.erased, *stream.tombstones}
    return {each.sequence: each for each in stream.messages if each.sequence not in gone}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stream=streams())
def test_any_stream_is_imported_as_it_is(
    stream: Written, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("store")
    write_stream(directory / "source" / ACCOUNT, "S", stream)
    before = digest(directory / "source")
    report = imported(directory / "source", directory / "jetstream")
    assert digest(directory / "source") == before
    assert report.is_complete, report

    async def check() -> None:
        async with serving(directory) as jetstream:
            assert await served(jetstream, "S") == expected_of(stream)
            log = account_of(jetstream).stream("S").store.log
            assert log.last_sequence == max((each.sequence for each in stream.messages), default=0)

    asyncio.run(check())
    shutil.rmtree(directory)


SMALL = Written(
    [Message(n, b"s.%d" % n, b"data %d" % n, b"", n) for n in range(1, 7)],
    erased={2},
    tombstones=[4],
    per_block=3,
    consumers={
        "c": (
            {"durable_name": "c", "ack_policy": "explicit"},
            ConsumerState(
                SequencePair(5, 5), SequencePair(1, 1), {3: Pending(3, 1)}, redelivered={3: 2}
            ),
        )
    },
)


async def test_a_consumer_goes_on_where_it_was(tmp_path: Path) -> None:
    write_stream(tmp_path / "source" / ACCOUNT, "S", SMALL)
    report = await asyncio.to_thread(imported, tmp_path / "source", tmp_path / "jetstream")
    assert (report.is_complete, report.streams[0].consumers) == (True, 1)
    async with serving(tmp_path) as jetstream:
        state = account_of(jetstream).stream("S").consumer("c").store.tracker.state()
    assert (state.delivered, state.ack_floor.consumer) == (SequencePair(5, 5), 1)
    assert (state.pending, state.redelivered) == ({3: Pending(3, 1_000_000_000 * 0)}, {3: 2})


@pytest.mark.parametrize("kind", ["plain", "compressed", "encrypted"])
def test_no_flipped_byte_invents_a_message(kind: str, tmp_path: Path) -> None:
    """Each byte of each file: what is imported was there, and what is missing is told.

    Two bytes per record are spared: no checksum covers the length of a subject without headers.
    """
    cipher = Cipher.CHACHA20_POLY1305 if kind == "encrypted" else None
    stream = replace(SMALL, cipher=cipher, is_compressed=kind == "compressed")
    directory = write_stream(tmp_path / ACCOUNT, "S", stream)
    spared = subject_lengths(stream)
    if stream.is_compressed:
        del spared["1.blk"]  # its frames have checksums of all bytes
    expected = expected_of(stream)
    for path in sorted(each for each in directory.rglob("*") if each.is_file()):
        whole = path.read_bytes()
        for at in range(0, len(whole), 1 if path.suffix == ".blk" else 5):
            if at in spared.get(path.name, ()):
                continue
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
            check_damaged(directory, expected, f"{path.name} {at}")
        path.write_bytes(whole)


def subject_lengths(stream: Written) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for number, first in enumerate(range(0, len(stream.messages), stream.per_block), 1):
        at, spared = 0, set[int]()
        for each in stream.messages[first : first + stream.per_block]:
            spared |= {at + 20, at + 21}
            is_erased = each.sequence in stream.erased
            at += 30 + (9 if is_erased else len(each.subject) + len(each.data))
        found[f"{number}.blk"] = spared | {at + 20, at + 21}
    return found


def check_damaged(directory: Path, expected: dict[int, Message], where: str) -> None:
    files = StreamFiles(directory, Encryption(directory.parent.parent.name, (KEY,)))
    try:
        left_out = read_stream(files).not_taken
        surveyed = survey(files, lambda _: None)
    except (NotPossible, Unusable):
        return
    found = {each.sequence: each for each in copied(files, surveyed)}
    for sequence, message in found.items():
        if sequence in (2, 4):  # a tombstone or the mark of an erased message was hit
            assert surveyed.damage or surveyed.notes, where
        else:
            assert message == expected[sequence], where
    if len(found) < len(expected):
        assert surveyed.damage or surveyed.notes or left_out, where


def copied(files: StreamFiles, surveyed: Survey) -> list[Message]:
    log = MessageLog(None, lambda first: MsgBlock(first, 0, first, 1 << 20))
    for verified in surveyed.blocks:
        block = files.load(*verified).file
        last = surveyed.last_sequence
        block.append_to(log, surveyed.removed, last, 0, 1 << 30, surveyed.subjects, None, [])
    loaded = [log.load(n) for n in range(1, log.last_sequence + 1) if log.has(n)]
    return [
        Message(each.sequence, each.subject.encode(), each.data, each.headers or b"", each.time_ns)
        for each in loaded
        if each is not None
    ]


def test_lost_messages_are_told(tmp_path: Path) -> None:
    directory = write_stream(tmp_path / "source" / ACCOUNT, "S", SMALL)
    block = directory / "msgs" / "1.blk"
    data = bytearray(block.read_bytes())
    data[25] ^= 1
    block.write_bytes(data)
    (line,) = imported(tmp_path / "source", tmp_path / "jetstream").streams
    assert line.damage == [f"{block}: records damaged at byte 0 (39 bytes), message 1"]
    assert (line.messages, line.reason) == (3, "")


# The command


def run(*arguments: object) -> int:
    return main(["store", "import", *map(str, arguments)])


def test_the_command_tells_what_it_took(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write_stream(source / "jetstream" / "A", "S", replace(SMALL, cipher=Cipher.AES_256_GCM))
    write_stream(source / "jetstream" / "B", "T", replace(SMALL, config={"num_replicas": 3}))
    (source / "jetstream" / "$SYS" / "_js_" / "_meta_").mkdir(parents=True)
    key = tmp_path / "key"
    key.write_bytes(KEY + b"\n")
    arguments = (source, target, "--source-key-file", key)
    assert run(*arguments, "--dry-run") == 0
    assert "would be imported" in capsys.readouterr().out
    assert not target.exists()
    assert run(*arguments) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"not taken: {source}/jetstream/$SYS/_js_: RAFT groups, which one server does not need",
        "A/S: 4 messages, 1 consumers",
        f"note: {source}/jetstream/B/streams/T: 3 replicas become one",
        "B/T: 4 messages, 1 consumers",
        f"2 of 2 streams, 8 messages, 2 consumers imported to {target}",
    ]
    assert run(*arguments, "--stream", "S", "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert [each["reason"] for each in told["streams"]] == [f"{target}/A/streams/S exists"]
    assert run(source, tmp_path / "other", "--account", "A") == 1
    assert "no key of the source is given" in capsys.readouterr().out


def test_a_refusal_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source"
    directory = write_stream(source / "A", "S", SMALL)
    for arguments, text in (
        ((tmp_path / "none", tmp_path / "x"), "is not a directory"),
        ((source, tmp_path / "x", "--stream", "T"), "no such stream"),
    ):
        assert run(*arguments) == 1
        told = capsys.readouterr().err
        assert text in told
        assert told.count("\n") == 1
    with (directory / "msgs" / "1.blk").open("rb") as held:
        holder = subprocess.Popen(["sleep", "60"], stdin=held)
    try:
        if Path("/proc/self/fd").is_dir():
            assert run(source, tmp_path / "x") == 1
            assert f"is in use by process {holder.pid}" in capsys.readouterr().err
    finally:
        holder.kill()
        holder.wait()
    assert run(tmp_path / "source", tmp_path / "store") == 0
    assert run(tmp_path / "store", tmp_path / "again") == 1
    assert "is a store of natsd" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"retention": "other"}, "not understood"),
        ({"unknown_setting": 1}, "not understood"),
        ({"metadata": {"_nats.req.level": "99"}}, "required API level: 99"),
        ({"name": "T"}, "says that its name is 'T'"),
    ],
)
def test_a_stream_that_cannot_be_served_is_not_taken(
    config: dict[str, Any], text: str, tmp_path: Path
) -> None:
    write_stream(tmp_path / "source" / "A", "S", replace(SMALL, config=config))
    (line,) = imported(tmp_path / "source", tmp_path / "jetstream").streams
    assert text in line.reason


@pytest.mark.timeout(60)
@pytest.mark.parametrize("place", ["meta.inf", "msgs/2.blk", "msgs/index.db", "elsewhere"])
@pytest.mark.parametrize("kind", ["pipe", "device", "nothing"])
def test_what_is_no_file_is_not_read(tmp_path: Path, place: str, kind: str) -> None:
    """A source may come from anybody: a pipe or a file without end does not stop the import."""
    path = write_stream(tmp_path / "source" / "A", "S", SMALL) / place
    write_stream(tmp_path / "source" / "A", "T", SMALL)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else "/nowhere/at/all")
    changed, other = imported(tmp_path / "source", tmp_path / "jetstream").streams
    assert (other.messages, other.reason) == (4, "")
    assert changed.reason or changed.messages == 4 or changed.damage


def test_a_consumer_that_cannot_be_taken(tmp_path: Path) -> None:
    """It is told; but its stream is not taken if messages wait for the interest of consumers."""
    bad = {"bad": ({"ack_policy": "explicit", "later": 1}, None)}
    write_stream(tmp_path / "source" / "A", "S", replace(SMALL, consumers=bad))
    interest = {"retention": "interest"}
    write_stream(tmp_path / "source" / "A", "T", replace(SMALL, consumers=bad, config=interest))
    limits, interest_line = imported(tmp_path / "source", tmp_path / "jetstream").streams
    assert "consumer 'bad'" in limits.not_taken[0]
    assert (limits.messages, limits.reason) == (4, "")
    assert "needs all of its consumers" in interest_line.reason
