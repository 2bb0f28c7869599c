"""Encryption at rest: nothing is stored in clear; changed keys and wrong keys."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.jetstream.models.stream import Compression, StreamSource
from natsd.store.errors import EncryptionError, KeyMissing, KeyWrong
from tests.jetstream.serving import account_of, create, publish, serving, update
from tests.jetstream.stream.publishing import header_block
from tests.waiting import eventually_within

SECRET = "Planted7Secret"
OLD: dict[str, Any] = {"key": "old key"}
NEW: dict[str, Any] = {"key": "new key"}
ROTATING: dict[str, Any] = {"key": "new key", "prev_key": "old key"}


async def fill(jetstream: JetStream) -> None:
    """Create streams with the secret in everything that is stored, except names of directories."""
    subject = f"s.{SECRET}"
    stream = await create(
        jetstream,
        "S",
        subjects=["s.*"],
        description=SECRET,
        metadata={"owner": SECRET},
        max_msgs_per_subject=1000,
    )
    for number in range(50):
        headers = f"NATS/1.0\r\nNats-Msg-Id: {SECRET}-{number}\r\n\r\n".encode()
        await publish(jetstream, subject, SECRET.encode() * 20, headers)
    await stream.delete_message(3)
    await stream.create_consumer(
        ConsumerConfig(durable_name="C", filter_subject=subject, ack_policy=AckPolicy.EXPLICIT), ""
    )
    await update(stream, description=f"{SECRET} anew", max_bytes=1 << 20)
    await create(jetstream, "LATER", subjects=["later.*"], allow_msg_schedules=True)
    target = f"later.{SECRET}"
    waits = header_block({"Nats-Delay": "1h", "Owner": SECRET})
    assert "seq" in await publish(jetstream, target, SECRET.encode() * 20, waits)
    plan = header_block({"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": target})
    assert "seq" in await publish(jetstream, f"{target}-plan", SECRET.encode(), plan)
    source = StreamSource(name="S", filter_subject=subject)
    copy = await create(jetstream, "COPY", sources=[source])
    await eventually_within(lambda: copy.readers.visible >= 49)


def in_clear(directory: Path) -> list[Path]:
    """Return the files that contain the secret; a file may be removed during the search."""
    found = {}
    for place, _, names in os.walk(directory):
        for path in [Path(place) / name for name in names]:
            with contextlib.suppress(FileNotFoundError):
                found[path] = SECRET.encode() in path.read_bytes()
    assert found
    return [path for path, is_in_clear in found.items() if is_in_clear]


async def check(jetstream: JetStream) -> None:
    """Check that everything that `fill` stored is there."""
    stream = account_of(jetstream).stream("S")
    assert stream.config.description == f"{SECRET} anew"
    assert stream.store.state().msgs == 49
    assert (await stream.store.load(5)).data == SECRET.encode() * 20
    assert stream.consumer("C").config.filter_subject == f"s.{SECRET}"
    headers = f"NATS/1.0\r\nNats-Msg-Id: {SECRET}-7\r\n\r\n".encode()
    assert (await publish(jetstream, f"s.{SECRET}", b"", headers))["duplicate"]
    later = account_of(jetstream).stream("LATER").scheduled
    assert later is not None
    await eventually_within(lambda: len(later.delays) == 1)
    await eventually_within(lambda: len(later.schedules) == 1)
    assert account_of(jetstream).stream("COPY").store.state().msgs == 49


@pytest.mark.parametrize("cipher", ["chachapoly", "aes"])
@pytest.mark.parametrize("compression", Compression)
async def test_nothing_is_in_clear(tmp_path: Path, cipher: str, compression: Compression) -> None:
    """No file holds the secret while the server runs, after its stop, and after the next start."""
    async with serving(tmp_path, cipher=cipher, **OLD) as jetstream:
        await fill(jetstream)
        await update(account_of(jetstream).stream("S"), compression=compression)
        assert in_clear(tmp_path) == []
    assert in_clear(tmp_path) == []
    async with serving(tmp_path, cipher=cipher, **OLD) as jetstream:
        await check(jetstream)
        assert in_clear(tmp_path) == []


async def test_without_a_key_it_would_be_seen(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        await fill(jetstream)
    names = {path.name for path in in_clear(tmp_path)}
    assert names >= {"meta.json", "000001.blk", "duplicates.db", "schedules.db", "sources.db"}
    assert "delayed" in {path.parent.name for path in in_clear(tmp_path)}


async def test_a_plain_store_is_encrypted_at_a_start(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        await fill(jetstream)
    async with serving(tmp_path, **NEW) as jetstream:
        await check(jetstream)
        await eventually_within(lambda: in_clear(tmp_path) == [])
    async with serving(tmp_path, **NEW) as jetstream:
        await check(jetstream)
    with pytest.raises(KeyMissing):
        async with serving(tmp_path):
            pass


async def test_keys_are_rotated_at_a_start(tmp_path: Path) -> None:
    """After the rotation the old key opens nothing, and is not needed any more."""
    async with serving(tmp_path, **OLD) as jetstream:
        await fill(jetstream)
    async with serving(tmp_path, **ROTATING) as jetstream:
        await check(jetstream)
    async with serving(tmp_path, **NEW) as jetstream:
        await check(jetstream)
    with pytest.raises(KeyWrong):
        async with serving(tmp_path, **OLD):
            pass


@pytest.mark.parametrize("options", [{}, {"key": "wrong"}, {"key": "x", "prev_key": "y"}])
async def test_a_wrong_key_stops_the_start_and_touches_nothing(
    tmp_path: Path, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, **OLD) as jetstream:
        await fill(jetstream)
    before = contents(tmp_path)
    caplog.set_level(logging.INFO)
    with pytest.raises(EncryptionError) as refusal:
        async with serving(tmp_path, **options):
            pass
    assert "meta.json" in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert contents(tmp_path) == before


def contents(directory: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "natsd.lock"
    }


async def test_compression_is_the_streams_and_can_change(tmp_path: Path) -> None:
    """A new compression applies to blocks that become full later; all blocks can be read."""
    async with serving(tmp_path) as jetstream:
        stream = await create(
            jetstream, "S", subjects=["s"], max_bytes=1 << 17, compression=Compression.S2
        )
        for _ in range(200):
            await publish(jetstream, "s", bytes(1000))
        await stream.store.settle()
        assert (await stream.info()).config.compression is Compression.S2
        assert (await stream.store.load(stream.store.state().first_sequence)).data == bytes(1000)
        await update(stream, compression=Compression.NONE)
        assert (await stream.info()).config.compression is Compression.NONE
        for _ in range(200):
            await publish(jetstream, "s", bytes(1000))
        assert (await stream.store.load(stream.store.state().first_sequence)).data == bytes(1000)
