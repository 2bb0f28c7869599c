"""A whole stream on its way to another server: windows, refusals, failures."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.accounts import Account
from natsd.accounts.internal_client import InternalClient
from natsd.core.network import Reactor
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.replicas import frames, transfer
from natsd.jetstream.replicas.frames import (
    BEGINS,
    ENDS,
    FRAME_BYTES,
    HEAD,
    LAST,
    TransferFailed,
    frames_of,
    read_frame,
)
from natsd.jetstream.replicas.manifest import Manifest, decode_manifest, encode_manifest
from natsd.jetstream.replicas.transfer import ALL, ANSWER, REQUEST, StreamTransfer
from natsd.jetstream.stream.stream import Stream
from tests.jetstream.commands.replay import state_of
from tests.jetstream.serving import create, publish, serving
from tests.waiting import eventually_within

SUBJECT = transfer.SUBJECT.format("g")


@given(st.text(max_size=20), st.binary(max_size=50), st.integers(0, 100))
def test_frames_are_read_as_they_were_made(name: str, body: bytes, first: int) -> None:
    with patch.object(frames, "FRAME_BYTES", 7):
        read = [read_frame(each) for each in frames_of(name, body, first)]
    assert read[0].name == name
    assert b"".join(each.part for each in read) == body
    assert [each.number for each in read] == list(range(first, first + len(read)))
    assert [bool(each.kind & BEGINS) for each in read] == [True] + [False] * (len(read) - 1)
    assert [bool(each.kind & ENDS) for each in read] == [False] * (len(read) - 1) + [True]


@given(st.binary(max_size=20))
def test_other_bytes_raise_nothing_else(data: bytes) -> None:
    with contextlib.suppress(TransferFailed):
        read_frame(data)


@asynccontextmanager
async def system() -> AsyncIterator[InternalClient]:
    """Yield the client of an account that both servers have."""
    reactor = Reactor(asyncio.get_running_loop(), print)
    account = Account("$SYS", reactor)
    yield account.internal_client
    account.close()
    reactor.close()


@asynccontextmanager
async def two_servers(
    tmp_path: Path, storage: str = "file", **settings: Any
) -> AsyncIterator[tuple[Stream, Stream]]:
    """Yield a stream with a few large messages, and an empty one of another server."""
    settings |= {"subjects": ["s.>"], "max_msgs": 40, "storage": storage}
    async with serving(tmp_path / "a") as one, serving(tmp_path / "b") as other:
        source = await create(one, "S", **settings)
        for number in range(60):
            await publish(one, f"s.{number % 3}", b"%d" % number + bytes(100_000))
        yield source, await create(other, "S", **settings)


def transfers(client: InternalClient) -> list[StreamTransfer]:
    """Return the transfers of a replica that sends, and of one that fetches."""
    return [StreamTransfer(client, "g", os.urandom) for _ in range(2)]


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_a_stream_arrives_whole_in_a_small_window(tmp_path: Path, storage: str) -> None:
    async with system() as client, two_servers(tmp_path, storage) as (source, target):
        await source.create_consumer(ConsumerConfig(durable_name="C"), "create")
        sender, fetcher = transfers(client)
        sender.offer(1, lambda _: source)
        with (
            patch.object(frames, "FRAME_BYTES", 10_000),
            patch.object(frames, "WINDOW_BYTES", 50_000),
        ):
            built = await fetcher.fetch(target, 0)
        await sender.withdraw()
        arrived = await built.install(target)
        state = await state_of(source)
        assert await state_of(arrived) == state
        assert len(state["messages"]) == 40
        assert list(state["consumers"]) == ["C"]


async def test_a_stream_in_memory_changes_while_it_is_sent(tmp_path: Path) -> None:
    """What is sent is not newer than its beginning, but for what is removed meanwhile."""
    async with system() as client, two_servers(tmp_path, "memory") as (source, target):
        sender, fetcher = transfers(client)
        sender.offer(1, lambda _: source)
        with (
            patch.object(frames, "FRAME_BYTES", 10_000),
            patch.object(frames, "WINDOW_BYTES", 10_000),
        ):
            fetching = asyncio.create_task(fetcher.fetch(target, 0))
            await eventually_within(lambda: sender._sending)
            await asyncio.sleep(0)
            assert not fetching.done()
            await source.purge(keep=1)
            source.ingest.skip(3)
            built = await fetching
        await sender.withdraw()
        arrived = await built.install(target)
        log = arrived.readers.log
        assert log.last_sequence == 60
        assert 1 <= log.msgs <= 40
        assert (await arrived.store.load(60)).data == b"59" + bytes(100_000)


async def test_delayed_messages_in_memory_arrive(tmp_path: Path) -> None:
    settings = {"allow_msg_schedules": True}
    async with system() as client, two_servers(tmp_path, "memory", **settings) as (source, target):
        for number in range(3):
            headers = b"NATS/1.0\r\nNats-Delay: 1h\r\n\r\n"
            jetstream = source.account
            account = jetstream.account.internal_client
            account.publish("s.later", b"%d" % number, headers=headers)
        assert source.scheduled is not None
        delays = source.scheduled.delays
        await eventually_within(lambda: len(delays) == 3)
        await delays.cancel(62)
        sender, fetcher = transfers(client)
        sender.offer(1, lambda _: source)
        arrived = await (await fetcher.fetch(target, 0)).install(target)
        await sender.withdraw()
        assert await state_of(arrived) == await state_of(source)
        assert arrived.scheduled is not None
        assert len(arrived.scheduled.delays) == 2


async def test_the_replica_that_has_enough_is_asked(tmp_path: Path) -> None:
    async with system() as client, two_servers(tmp_path) as (source, target):
        behind, sender = transfers(client)
        fetcher = StreamTransfer(client, "g", os.urandom)
        behind.offer(1, lambda applied: source if applied <= 5 else None)
        sender.offer(2, lambda applied: source if applied <= 7 else None)
        fetcher.offer(3, lambda applied: None)
        with patch.object(transfer, "ASK_S", 0.1):
            assert await fetcher.ask(7) == {1: False, 2: True}
            assert await sender.ask(7) == {1: False, 3: False}
            await (await fetcher.fetch(target, 7)).install(target)
            with patch.object(transfer, "ASKED_TIMES", 2), pytest.raises(TransferFailed):
                await fetcher.fetch(target, 8)
        for each in (behind, sender, fetcher):
            await each.withdraw()


async def test_nobody_sends(tmp_path: Path) -> None:
    async with system() as client, two_servers(tmp_path) as (_, target):
        client.subscribe(SUBJECT, partial(has_it, client))
        with (
            patch.object(frames, "SILENCE_S", 0.05),
            pytest.raises(TransferFailed, match="sends nothing more"),
        ):
            await StreamTransfer(client, "g", os.urandom).fetch(target, 0)
        assert not any(target.account.files.snapshots.glob("*"))


def has_it(
    client: InternalClient, _subject: str, inbox: str | None, _headers: bytes, data: bytes
) -> bool:
    """Say that a member has the stream, and return whether it is to send it."""
    assert inbox is not None
    _, member = REQUEST.unpack(data)
    if member == ALL:
        client.publish(inbox, ANSWER.pack(1, True))
    return bool(member)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ([b"\0"], "not the bytes of a frame"),
        ([HEAD.pack(1, LAST)], "frame 0 is missing"),
        ([HEAD.pack(0, frames.FAILED) + b"why not"], "why not"),
    ],
)
async def test_what_is_not_right_ends_it(tmp_path: Path, sent: list[bytes], said: str) -> None:
    async with system() as client, two_servers(tmp_path) as (_, target):

        def asked(subject: str, inbox: str | None, headers: bytes, data: bytes) -> None:
            if has_it(client, subject, inbox, headers, data):
                for frame in sent:
                    client.publish(inbox or "", frame)

        client.subscribe(SUBJECT, asked)
        with pytest.raises(TransferFailed, match=said):
            await StreamTransfer(client, "g", os.urandom).fetch(target, 0)
        assert not any(target.account.files.snapshots.glob("*"))


async def test_a_stream_that_begins_to_change_is_not_sent(tmp_path: Path) -> None:
    """While it begins to lead, it is not known yet which of its consumers are committed."""
    async with system() as client, two_servers(tmp_path) as (source, target):
        sender, fetcher = transfers(client)
        is_asked: list[bool] = []

        def asked(_subject: str, _reply: str | None, _headers: bytes, data: bytes) -> None:
            _, member = REQUEST.unpack(data)
            is_asked.extend([True] * (member == 1))

        client.subscribe(SUBJECT, asked)  # before the sender: it begins when this is known
        sender.offer(1, lambda _: None if is_asked else source)
        with pytest.raises(TransferFailed, match="it has the stream no more"):
            await fetcher.fetch(target, 0)
        await sender.withdraw()


async def test_a_sender_that_is_interrupted_says_so(tmp_path: Path) -> None:
    async with system() as client, two_servers(tmp_path) as (source, target):
        sender, fetcher = transfers(client)
        sender.offer(1, lambda _: source)
        with patch.object(frames, "WINDOW_BYTES", 1):
            fetching = asyncio.create_task(fetcher.fetch(target, 0))
            await eventually_within(lambda: sender._sending)
            await sender.interrupt()
            with pytest.raises(TransferFailed, match="the stream changes"):
                await fetching
        await sender.withdraw()


async def test_a_sender_that_is_interrupted_before_its_first_step_says_so(tmp_path: Path) -> None:
    """The replica that fetches need not wait until it has heard nothing for a long time."""
    async with system() as client, two_servers(tmp_path) as (source, _):
        sender = StreamTransfer(client, "g", os.urandom)
        sender.offer(1, lambda _: source)
        received: list[bytes] = []
        client.subscribe("inbox", lambda _s, _r, _h, data: received.append(data))
        sender._asked(SUBJECT, "inbox", b"", REQUEST.pack(0, 1))
        await sender.interrupt()
        await eventually_within(lambda: received)
        assert [read_frame(each).part for each in received] == [b"the stream changes"]
        await sender.withdraw()


async def test_transfers_at_once_are_bounded(tmp_path: Path) -> None:
    async with system() as client, two_servers(tmp_path) as (source, _):
        sender = StreamTransfer(client, "g", os.urandom)
        sender.offer(1, lambda _: source)
        answers: dict[str, list[bytes]] = {f"inbox.{number}": [] for number in range(3)}
        for inbox, found in answers.items():
            client.subscribe(inbox, lambda _s, _r, _h, data, found=found: found.append(data))
            client.publish(SUBJECT, REQUEST.pack(0, 1), reply=inbox)
        await eventually_within(lambda: all(answers.values()))
        assert b"too many transfers" in answers["inbox.2"][0]
        assert all(len(each) < FRAME_BYTES * 2 for each in answers["inbox.0"])
        await sender.withdraw()


@given(st.binary(max_size=20), st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=20))))
def test_a_manifest_is_read_as_it_was_made(data: bytes, image: list[tuple[str, bytes]]) -> None:
    applied = int.from_bytes(data[:8])
    manifest = Manifest(applied, applied // 2, tuple(image))
    assert decode_manifest(encode_manifest(manifest)) == manifest


def test_a_new_group_has_no_manifest() -> None:
    assert decode_manifest(b"") == Manifest(0, 0, ())
