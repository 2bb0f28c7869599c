"""`natsd store export`: what it writes is read back by the import, and by a nats-server."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import nats
import pytest

from natsd.cli import main
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.store.consumer.consumer_state import ConsumerState, Pending, SequencePair
from natsd.store.nats_server.blocks import unpack_frames
from tests.jetstream.nats_server.test_import import digest, imported, served
from tests.jetstream.serving import ACCOUNT, account_of, create, publish, serving
from tests.spark.serving import go_server, go_serving
from tests.store.nats_server.writing import Message

SECOND_NS = 1_000_000_000
STATE = ConsumerState(
    SequencePair(4, 5), SequencePair(1, 2), {3: Pending(2, 7 * SECOND_NS)}, redelivered={}
)


async def fill(root: Path) -> dict[int, Message]:
    async with serving(root) as jetstream:
        stream = await create(jetstream, "S", subjects=["s.>"], description="kept")
        await create(jetstream, "EMPTY", subjects=["e"])
        for number in range(1, 11):
            await publish(jetstream, f"s.{number % 3}", b"data %d" % number)
            await publish(jetstream, "e")
        for sequence in (2, 10):
            await stream.delete_message(sequence)
        await account_of(jetstream).stream("EMPTY").purge()
        config = ConsumerConfig(durable_name="C", ack_policy=AckPolicy.EXPLICIT)
        consumer = await stream.create_consumer(config, "")
        tracker = consumer.store.tracker
        for delivery, sequence in ((1, 1), (2, 3), (3, 4), (4, 5)):
            tracker.update_delivered(delivery, sequence, 1, 7 * SECOND_NS)
        for delivery, sequence in ((1, 1), (3, 4), (4, 5)):
            tracker.update_acks(delivery, sequence)
        return await served(jetstream, "S")


def export(root: Path, target: Path, *arguments: str) -> int:
    return main(["store", "export", str(root / "jetstream"), str(target), *arguments])


def unpacked(exported: Path, directory: Path) -> None:
    content, damaged = unpack_frames((exported / "stream.tar.s2").read_bytes())
    assert damaged == 0
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(directory, filter="data")


def test_an_export_is_imported_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = asyncio.run(fill(tmp_path / "a"))
    before = digest(tmp_path / "a" / "jetstream" / ACCOUNT)
    assert export(tmp_path / "a", tmp_path / "out") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{ACCOUNT}/EMPTY: 0 messages, 0 consumers",
        f"{ACCOUNT}/S: 8 messages, 1 consumers",
        f"2 of 2 streams exported to {tmp_path / 'out'}",
    ]
    assert digest(tmp_path / "a" / "jetstream" / ACCOUNT) == before
    backup = json.loads((tmp_path / "out" / ACCOUNT / "S" / "backup.json").read_text())
    assert backup["config"]["description"] == "kept"
    assert (backup["state"]["messages"], backup["state"]["last_seq"]) == (8, 10)
    for name in ("S", "EMPTY"):
        directory = tmp_path / "source" / ACCOUNT / "streams" / name
        unpacked(tmp_path / "out" / ACCOUNT / name, directory)
    assert imported(tmp_path / "source", tmp_path / "b" / "jetstream").is_complete

    async def check() -> None:
        async with serving(tmp_path / "b") as jetstream:
            assert await served(jetstream, "S") == expected
            assert account_of(jetstream).stream("S").store.log.last_sequence == 10
            assert account_of(jetstream).stream("EMPTY").store.log.last_sequence == 10
            state = account_of(jetstream).stream("S").consumer("C").store.tracker.state()
            assert state == STATE

    asyncio.run(check())


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(fill(tmp_path))
    target = tmp_path / "out"
    assert export(tmp_path, target, "--stream", "T") == 1
    assert "no such stream" in capsys.readouterr().err
    assert export(tmp_path, target, "--stream", "S") == 0
    capsys.readouterr()
    assert export(tmp_path, target, "--stream", "S", "--json") == 1
    (line,) = json.loads(capsys.readouterr().out)["streams"]
    assert line["reason"] == f"{target / ACCOUNT / 'S'} exists"
    assert main(["store", "export", str(target), str(tmp_path / "x")]) == 1
    assert "is no store directory" in capsys.readouterr().err


@pytest.mark.skipif(go_server() is None, reason="no nats-server on PATH")
def test_a_nats_server_serves_what_was_exported_and_gives_it_back(tmp_path: Path) -> None:
    """There and back: an export is put into a nats-server's store, changed there, and imported."""
    expected = asyncio.run(fill(tmp_path / "a"))
    assert export(tmp_path / "a", tmp_path / "out") == 0
    store = tmp_path / "go"
    for name in ("S", "EMPTY"):
        directory = store / "jetstream" / ACCOUNT / "streams" / name
        unpacked(tmp_path / "out" / ACCOUNT / name, directory)
    with go_serving(store) as url:
        info, messages = asyncio.run(served_by_nats_server(url))
    assert {each["seq"]: each["subject"] for each in messages} == {
        each.sequence: each.subject.decode() for each in expected.values()
    }
    assert (info["state"]["last_seq"], info["state"]["messages"]) == (10, 8)
    assert imported(store, tmp_path / "b" / "jetstream").is_complete

    async def check() -> None:
        async with serving(tmp_path / "b") as jetstream:
            found = await served(jetstream, "S")
            assert found == {key: each for key, each in expected.items() if key != 4}

    asyncio.run(check())


async def served_by_nats_server(url: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the stream's info and all messages; then remove message 4."""
    client = await nats.connect(url)

    async def request(subject: str, **body: object) -> dict[str, Any]:
        answer = await client.request(f"$JS.API.{subject}", json.dumps(body).encode(), timeout=20)
        decoded: dict[str, Any] = json.loads(answer.data)
        return decoded

    info = await request("STREAM.INFO.S")
    answers = [await request("STREAM.MSG.GET.S", seq=number) for number in range(1, 11)]
    assert (await request("STREAM.MSG.DELETE.S", seq=4))["success"]
    await client.close()
    return info, [each["message"] for each in answers if "message" in each]
