"""Snapshots and restores with a clock, a failing disk, and streams with any history."""

from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natsd.jetstream.account import JetStreamAccount
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.jetstream.snapshot import restoring, sending
from natsd.store.codec.records import StoredMessage
from natsd.store.disk.real_disk import RealDisk
from tests.jetstream.serving import account_of, ask, create, publish, serving
from tests.waiting import DEADLINE_S, Eventually, eventually_within

Json = dict[str, Any]


async def request(jetstream: JetStream, subject: str, body: Any) -> Json:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    found = await ask(jetstream, f"$JS.API.{subject}", data)
    return dict(json.loads(found[0][1]))


async def take(jetstream: JetStream, **options: Any) -> tuple[Json, bytes]:
    """Take a snapshot and return the response and the snapshot."""
    client = account_of(jetstream).account.internal_client
    parts: list[bytes] = []
    ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def received(_subject: str, reply: str | None, headers: bytes, data: bytes) -> None:
        if reply is None:
            ended.set_result(headers)
            return
        parts.append(data)
        client.publish(reply)

    subscription = client.subscribe("chunks", received)
    response = await request(
        jetstream, "STREAM.SNAPSHOT.S", {"deliver_subject": "chunks", **options}
    )
    async with asyncio.timeout(DEADLINE_S):
        assert await ended == b"NATS/1.0 204\r\n\r\n"
    client.unsubscribe(subscription)
    return response, b"".join(parts)


async def restore(
    jetstream: JetStream, response: Json, data: bytes, size: int = 50_000, *, stream: str = "S"
) -> Json:
    body = {"config": response["config"], "state": response["state"]}
    subject = (await request(jetstream, f"STREAM.RESTORE.{stream}", body))["deliver_subject"]
    for at in range(0, len(data), size):
        ((_, answer),) = await ask(jetstream, subject, data[at : at + size])
        if answer:
            return dict(json.loads(answer))
    ((_, answer),) = await ask(jetstream, subject)
    return dict(json.loads(answer))


def snapshots_of(account: JetStreamAccount) -> list[Path]:
    return sorted(account.files.snapshots.glob("*"))


async def messages(jetstream: JetStream) -> list[tuple[Any, ...]]:
    store = account_of(jetstream).stream("S").store
    state = store.state()
    found: list[StoredMessage] = [
        await store.load(sequence)
        for sequence in range(state.first_sequence, state.last_sequence + 1)
        if store.log.has(sequence)
    ]
    return [(m.sequence, m.subject, m.headers, m.data, m.time_ns, m.expires_ns) for m in found]


async def change(jetstream: JetStream, seed: int) -> None:
    stream = account_of(jetstream).stream("S")
    last = stream.store.state().last_sequence
    match seed % 8:
        case 0 | 1 | 2 | 3:
            headers = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % seed if seed % 3 else b""
            await publish(jetstream, f"s.{seed % 5}", bytes(seed % 500), headers)
        case 4:
            if stream.store.log.has(1 + seed % (last + 1)):
                await stream.delete_message(1 + seed % (last + 1), erase=bool(seed % 3))
        case 5:
            await stream.purge(f"s.{seed % 5}", keep=seed % 2)
        case 6:
            await stream.purge(sequence=1 + seed % (last + 3))
        case 7:
            tracker = stream.consumer("C").store
            delivered = tracker.state().delivered
            if delivered.stream < last:
                tracker.update_delivered(delivered.consumer + 1, delivered.stream + 1, 1, seed)
                if seed % 3:
                    tracker.update_acks(delivered.consumer + 1, delivered.stream + 1)


@pytest.mark.parametrize("options", [{}, {"key": "a key"}], ids=["plain", "encrypted"])
@settings(max_examples=15, deadline=None)
@given(changes=st.lists(st.integers(0, 10_000), max_size=40))
def test_whatever_it_went_through_it_comes_back(
    options: dict[str, Any], changes: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Messages, sequences, gaps and consumers are restored on another server, encrypted or not."""

    async def run(root: Path) -> None:
        async with serving(root / "a") as jetstream:
            stream = await create(jetstream, "S", subjects=["s.*"])
            await stream.create_consumer(
                ConsumerConfig(durable_name="C", ack_policy=AckPolicy.EXPLICIT), ""
            )
            for seed in changes:
                await change(jetstream, seed)
            expected = await messages(jetstream)
            state = stream.store.state()
            consumer = stream.consumer("C").store.state()
            snapshot = await take(jetstream, chunk_size=1024)
        async with serving(root / "b", **options) as jetstream:
            assert "error" not in await restore(jetstream, *snapshot, size=5000)
            stream = account_of(jetstream).stream("S")
            assert await messages(jetstream) == expected
            assert stream.store.state().last_sequence == state.last_sequence
            restored = stream.consumer("C").store.state()
            assert restored.delivered == consumer.delivered
            present = {s: p for s, p in consumer.pending.items() if stream.store.log.has(s)}
            assert {s: restored.pending.get(s) for s in present} == present
            assert not snapshots_of(account_of(jetstream))

    asyncio.run(run(tmp_path_factory.mktemp("transfer")))


async def test_a_silent_client_is_waited_for_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """The restore of a silent client ends, and nothing is left of its data."""
    monkeypatch.setattr(restoring, "STALL_NS", 50_000_000)
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "S", subjects=["s"])
        response, data = await take(jetstream)
        account = account_of(jetstream)
        await account.delete_stream("S")
        body = {"config": response["config"], "state": response["state"]}
        subject = (await request(jetstream, "STREAM.RESTORE.S", body))["deliver_subject"]
        await ask(jetstream, subject, data[:20])
        assert len(snapshots_of(account)) == 1
        await eventually(lambda: not snapshots_of(account))
        assert not account.account.sublist.has_interest(subject)
        assert "error" not in await restore(jetstream, response, data)


async def test_who_never_listens_is_sent_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(sending, "INTEREST_TIMEOUT_NS", 50_000_000)
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "S", subjects=["s"])
        await request(jetstream, "STREAM.SNAPSHOT.S", {"deliver_subject": "nobody"})
        account = account_of(jetstream)
        await eventually(lambda: not account.transfers)
        assert not snapshots_of(account)


async def test_a_flood_of_chunks_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(restoring, "QUEUED_BYTES_MAX", 10_000)
    async with serving(tmp_path) as jetstream:
        account = account_of(jetstream)
        answer = await request(jetstream, "STREAM.RESTORE.S", {"config": {"name": "S"}})
        for _ in range(20):
            account.account.internal_client.publish(
                answer["deliver_subject"], bytes(1000), reply="x"
            )
        await eventually(lambda: not account.transfers)
        assert not snapshots_of(account)


async def test_no_place_for_what_comes(tmp_path: Path) -> None:
    """A full disk is answered 10072, a later failure of the disk 10062, and nothing is left."""

    class Failing(RealDisk):
        fails_below = ""

        def mkdir(self, path: Path) -> None:
            if self.fails_below and self.fails_below in str(path):
                raise OSError(errno.EIO, "Input/output error", str(path))
            super().mkdir(path)

    disk = Failing()
    async with serving(tmp_path, disk=disk) as jetstream:
        await create(jetstream, "S", subjects=["s"])
        response, data = await take(jetstream)
        await account_of(jetstream).delete_stream("S")
        disk.fails_below = "snapshots.new"
        body = {"config": response["config"], "state": response["state"]}
        answer = await request(jetstream, "STREAM.RESTORE.S", body)
        assert answer["error"]["err_code"] == 10072
        disk.fails_below = "msgs"
        answer = await restore(jetstream, response, data)
        assert answer["error"]["err_code"] == 10062
        disk.fails_below = ""
        assert not snapshots_of(account_of(jetstream))
        assert "error" not in await restore(jetstream, response, data)


@pytest.mark.parametrize(
    "settings",
    [
        {"allow_msg_schedules": True},
        {"allow_msg_counter": True},
        {"subject_delete_marker_ttl": 1_000_000_000, "max_age": 3600_000_000_000},
        {"discard": "new", "discard_new_per_subject": True, "max_msgs_per_subject": 3},
    ],
    ids=str,
)
async def test_a_sealed_stream_is_restored_sealed(tmp_path: Path, settings: Json) -> None:
    """Sealing sets options with which no stream may be created."""
    async with serving(tmp_path) as jetstream:
        config = {"name": "S", "subjects": ["s.>"], **settings}
        assert "error" not in await request(jetstream, "STREAM.CREATE.S", config)
        incr = b"NATS/1.0\r\nNats-Incr: 1\r\n\r\n" if "allow_msg_counter" in settings else b""
        await publish(jetstream, "s.1", headers=incr)
        sealed = await request(jetstream, "STREAM.UPDATE.S", {**config, "sealed": True})
        assert "error" not in sealed, sealed
        again = {**sealed["config"], "description": "closed"}
        assert "error" not in (updated := await request(jetstream, "STREAM.UPDATE.S", again))
        response, data = await take(jetstream)
        await request(jetstream, "STREAM.DELETE.S", b"")
        restored = await restore(jetstream, response, data)
        assert "error" not in restored, restored
        assert restored["config"] == updated["config"]
        assert restored["config"]["sealed"] and restored["state"]["messages"] == 1


async def test_a_snapshot_survives_the_end_of_its_stream_by_ending(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "S", subjects=["s"])
        for _ in range(10):
            await publish(jetstream, "s", bytes(range(256)) * 8)
        account = account_of(jetstream)
        account.account.internal_client.subscribe("chunks", lambda *_message: None)
        body = {"deliver_subject": "chunks", "chunk_size": 1024, "window_size": 1024}
        await request(jetstream, "STREAM.SNAPSHOT.S", body)
        assert account.transfers
        await account.delete_stream("S")
        await eventually_within(lambda: not account.transfers)
        assert not snapshots_of(account)
