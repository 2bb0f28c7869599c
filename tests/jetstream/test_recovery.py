"""What a start finds, and what it makes of it (reference §11.1; "Durability" of the design)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from pathlib import Path

import pytest

from natsd.jetstream.asset_file import ASSET_FILE, DELETED_FILE, MAGIC, read_asset, write_asset
from natsd.jetstream.consumer.files import ConsumerAsset, consumer_directory
from natsd.jetstream.errors import ApiError, ErrorId
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.jetstream.models.go_json import encode
from natsd.jetstream.models.requests import StreamMsgGetRequest
from natsd.jetstream.models.stream import Retention, Storage
from natsd.jetstream.stream.duplicates_file import DUPLICATES_FILE
from natsd.jetstream.stream.files import StreamAsset
from natsd.store.disk import RealDisk
from natsd.store.doubled_file import replace_doubled
from natsd.store.errors import KeyWrong
from natsd.store.vault import Vault
from tests.jetstream.serving import ACCOUNT, account_of, ask, create, publish, serving, update
from tests.waiting import DEADLINE_S, Eventually

disk = RealDisk()


def directory_of(root: Path, stream: str) -> Path:
    return root / "jetstream" / ACCOUNT / "streams" / stream


def vault_of(root: Path) -> Vault:
    return Vault(disk, root / "jetstream", os.urandom)


async def test_streams_come_back_as_they_were(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        stream = await create(jetstream, "S", subjects=["s.*"], max_msgs=100, max_bytes=100_000)
        for number in range(3):
            await publish(jetstream, f"s.{number}", b"x", b"NATS/1.0\r\nA: b\r\n\r\n")
        await stream.delete_message(2)
        await update(stream, description="changed")
        before = (await stream.info()).model_dump(exclude={"ts"})
        used = account_of(jetstream).info()
    async with serving(tmp_path) as jetstream:
        stream = account_of(jetstream).stream("S")
        assert (await stream.info()).model_dump(exclude={"ts"}) == before
        assert account_of(jetstream).info() == used
        message = await stream.get_message(StreamMsgGetRequest(seq=3))
        assert message.hdrs == b"NATS/1.0\r\nA: b\r\n\r\n"
        assert (await publish(jetstream, "s.new", b"x"))["seq"] == 4
        with pytest.raises(ApiError) as error:
            await create(jetstream, "T", subjects=["s.new"])
        assert error.value.error_id is ErrorId.JSStreamSubjectOverlapErr


async def test_memory_streams_do_not_come_back(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "M", subjects=["m"], storage=Storage.MEMORY)
        await publish(jetstream, "m", b"x")
    assert not (tmp_path / "jetstream" / ACCOUNT).exists()
    async with serving(tmp_path) as jetstream:
        assert account_of(jetstream).streams == {}


async def test_message_ids_are_remembered(tmp_path: Path) -> None:
    headers = b"NATS/1.0\r\nNats-Msg-Id: 17\r\n\r\n"
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "S", subjects=["s"])
        await publish(jetstream, "s", b"x", headers)
    async with serving(tmp_path) as jetstream:
        answer = await publish(jetstream, "s", b"x", headers)
        assert answer == {"stream": "S", "seq": 1, "duplicate": True}


async def test_ids_of_removed_messages_are_remembered_after_a_clean_stop(tmp_path: Path) -> None:
    headers = b"NATS/1.0\r\nNats-Msg-Id: 17\r\n\r\n"
    async with serving(tmp_path) as jetstream:
        stream = await create(jetstream, "S", subjects=["s"])
        await publish(jetstream, "s", b"x", headers)
        await stream.purge()
    left = directory_of(tmp_path, "S") / DUPLICATES_FILE
    assert left.exists()
    async with serving(tmp_path) as jetstream:
        assert not left.exists()  # believed once
        answer = await publish(jetstream, "s", b"x", headers)
        assert answer == {"stream": "S", "seq": 1, "duplicate": True}


async def test_damaged_ids_are_no_obstacle(tmp_path: Path) -> None:
    headers = b"NATS/1.0\r\nNats-Msg-Id: 17\r\n\r\n"
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "S", subjects=["s"])
        await publish(jetstream, "s", b"x", headers)
    (directory_of(tmp_path, "S") / DUPLICATES_FILE).write_bytes(b"nonsense")
    async with serving(tmp_path) as jetstream:
        answer = await publish(jetstream, "s", b"x", headers)
        assert answer == {"stream": "S", "seq": 1, "duplicate": True}


async def test_what_became_too_old_meanwhile_is_gone(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        stream = await create(jetstream, "S", subjects=["s"])
        await publish(jetstream, "s", b"x")
        asset = StreamAsset(
            config=stream.config.model_copy(update={"max_age": 1}), created=stream.created_ns
        )
    write_asset(vault_of(tmp_path), directory_of(tmp_path, "S"), asset)
    async with serving(tmp_path) as jetstream:
        state = (await account_of(jetstream).stream("S").info()).state
        assert (state.messages, state.last_seq) == (0, 1)


async def test_a_delete_is_finished(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "S", subjects=["s"])
        await publish(jetstream, "s", b"x")
    directory = directory_of(tmp_path, "S")
    (directory / ASSET_FILE).rename(directory / DELETED_FILE)
    async with serving(tmp_path) as jetstream:
        assert account_of(jetstream).streams == {}
        assert not directory.exists()


async def test_a_create_is_undone(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, "S")
    directory.mkdir(parents=True)
    (directory / f"{ASSET_FILE}.new").write_bytes(b"half")
    async with serving(tmp_path) as jetstream:
        assert not directory.exists()
        await create(jetstream, "S")


async def test_damage_costs_one_stream_and_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as jetstream:
        for name in ("A", "B", "C"):
            await create(jetstream, name)
            await publish(jetstream, name, b"x")
    (directory_of(tmp_path, "B") / ASSET_FILE).write_bytes(b"garbage")
    (directory_of(tmp_path, "C") / ASSET_FILE).unlink()
    with caplog.at_level(logging.ERROR):
        async with serving(tmp_path) as jetstream:
            assert list(account_of(jetstream).streams) == ["A"]
            await create(jetstream, "B")
    aside = tmp_path / "jetstream" / ACCOUNT / "damaged"
    assert sorted(path.name for path in aside.iterdir()) == ["B", "C"]
    assert (aside / "B" / ASSET_FILE).read_bytes() == b"garbage"
    assert list((aside / "C" / "msgs").iterdir())
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert all("set aside" in line for line in lines)


async def test_damage_a_second_time_is_set_aside_too(tmp_path: Path) -> None:
    for _ in range(2):
        async with serving(tmp_path) as jetstream:
            await create(jetstream, "S")
        (directory_of(tmp_path, "S") / ASSET_FILE).write_bytes(b"garbage")
    async with serving(tmp_path):
        aside = tmp_path / "jetstream" / ACCOUNT / "damaged"
        assert sorted(path.name for path in aside.iterdir()) == ["S", "S.1"]


async def test_a_later_versions_stream_is_offline(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "S", subjects=["s"])
    directory = directory_of(tmp_path, "S")
    asset = read_asset(vault_of(tmp_path), directory, StreamAsset)
    config = asset.config.model_copy(update={"metadata": {"_nats.req.level": "99"}})
    write_asset(vault_of(tmp_path), directory, asset.model_copy(update={"config": config}))
    async with serving(tmp_path) as jetstream:
        account = account_of(jetstream)
        with pytest.raises(ApiError, match=r"unsupported - required API level: 99") as error:
            account.stream("S")
        assert error.value.error_id is ErrorId.JSStreamOfflineReasonErrF
        with pytest.raises(ApiError) as error:
            await create(jetstream, "S", subjects=["s"])
        assert error.value.error_id is ErrorId.JSStreamNameExistErr
        await account.delete_stream("S")
        assert not directory.exists()
        await create(jetstream, "S", subjects=["s"])


async def test_a_stream_that_cannot_be_opened_is_offline(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "S", subjects=["s"])
    messages = directory_of(tmp_path, "S") / "msgs"
    for path in messages.iterdir():
        path.unlink()
    messages.rmdir()
    messages.write_bytes(b"a file")
    async with serving(tmp_path) as jetstream:
        assert list(account_of(jetstream).offline) == ["S"]
        assert messages.read_bytes() == b"a file"


async def test_a_key_that_opens_nothing_stops_the_start(tmp_path: Path) -> None:
    async with serving(tmp_path, key="one") as jetstream:
        await create(jetstream, "S", subjects=["s"])
        await publish(jetstream, "s", b"secret")
    with pytest.raises(KeyWrong):
        async with serving(tmp_path, key="other"):
            pass
    async with serving(tmp_path, key="other", prev_key="one") as jetstream:
        message = await account_of(jetstream).stream("S").get_message(StreamMsgGetRequest(seq=1))
        assert message.data == b"secret"


# Consumers and retention (§6.4)


async def take(jetstream: JetStream, count: int) -> None:
    """Consumer C of stream S gets so many messages, and acknowledges them; on disk on return."""
    client, replies = account_of(jetstream).account.internal_client, list[str]()
    enough = asyncio.Event()

    def received(_subject: str, reply: str | None, _headers: bytes, _data: bytes) -> None:
        replies.append(reply or "")
        if len(replies) == count:
            enough.set()

    subscription = client.subscribe("_INBOX.take", received)
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", str(count).encode(), reply="_INBOX.take")
    async with asyncio.timeout(DEADLINE_S):
        await enough.wait()
    client.unsubscribe(subscription)
    for reply in replies:
        await ask(jetstream, reply, b"+ACK")


@pytest.mark.parametrize("retention", [Retention.WORKQUEUE, Retention.INTEREST])
async def test_what_was_acknowledged_goes_though_its_removal_was_lost(
    tmp_path: Path, retention: Retention, eventually: Eventually
) -> None:
    """A crash may take back that a message was removed, but not that it was acknowledged."""
    async with serving(tmp_path) as jetstream:
        stream = await create(jetstream, "S", subjects=["s"], retention=retention)
        await stream.create_consumer(
            ConsumerConfig(durable_name="C", ack_policy=AckPolicy.EXPLICIT), ""
        )
        for _ in range(3):
            await publish(jetstream, "s", b"x")
    messages, kept = directory_of(tmp_path, "S") / "msgs", tmp_path / "kept"
    shutil.copytree(messages, kept)
    async with serving(tmp_path) as jetstream:
        await take(jetstream, 2)
        stream = account_of(jetstream).stream("S")
        await eventually(lambda: stream.store.state().msgs == 1)
    shutil.rmtree(messages)
    kept.rename(messages)
    async with serving(tmp_path) as jetstream:
        stream = account_of(jetstream).stream("S")
        await eventually(lambda: stream.store.state().msgs == 1)
        assert stream.store.state().first_sequence == 3
        assert (await publish(jetstream, "s", b"x"))["seq"] == 4
        await take(jetstream, 2)
        await eventually(lambda: stream.store.state().msgs == 0)


@pytest.mark.parametrize("later", ["level", "field"])
async def test_a_later_versions_consumer_takes_its_stream_offline(
    tmp_path: Path, later: str
) -> None:
    """What waits for it is not to be lost: nothing of the stream or the consumer is touched."""
    async with serving(tmp_path) as jetstream:
        stream = await create(jetstream, "S", subjects=["s"], retention=Retention.INTEREST)
        for name in "CD":
            await stream.create_consumer(
                ConsumerConfig(durable_name=name, ack_policy=AckPolicy.EXPLICIT), ""
            )
        await publish(jetstream, "s", b"x")
    directory = consumer_directory(directory_of(tmp_path, "S"), "C")
    asset = read_asset(vault_of(tmp_path), directory, ConsumerAsset)
    if later == "level":
        config = asset.config.model_copy(update={"metadata": {"_nats.req.level": "99"}})
        write_asset(vault_of(tmp_path), directory, asset.model_copy(update={"config": config}))
        reason = "unsupported - required API level: 99, current API level: 4"
    else:
        text = encode(asset)[:-1] + b',"quantum":1}'
        replace_doubled(disk, directory / ASSET_FILE, MAGIC, text)
        reason = f'{directory / ASSET_FILE} is not understood: json: unknown field "quantum"'
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    async with serving(tmp_path) as jetstream:
        answer = json.loads((await ask(jetstream, "$JS.API.STREAM.INFO.S"))[0][1])
        assert answer["error"]["err_code"] == ErrorId.JSStreamOfflineReasonErrF.err_code
        offline = 'stream is offline: stopped - unsupported consumer "C"'
        assert answer["error"]["description"] == offline
        answer = json.loads((await ask(jetstream, "$JS.API.CONSUMER.INFO.S.C"))[0][1])
        assert answer["error"] == {
            "code": 500,
            "err_code": ErrorId.JSConsumerOfflineReasonErrF.err_code,
            "description": f"consumer is offline: {reason}",
        }
    assert before == {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    write_asset(vault_of(tmp_path), directory, asset)
    async with serving(tmp_path) as jetstream:
        await take(jetstream, 1)


async def test_interest_that_is_not_served_yet_keeps_messages(tmp_path: Path) -> None:
    """Consumers come back before anything is judged unneeded."""
    async with serving(tmp_path) as jetstream:
        stream = await create(jetstream, "S", subjects=["s"], retention=Retention.INTEREST)
        await stream.create_consumer(
            ConsumerConfig(durable_name="C", ack_policy=AckPolicy.EXPLICIT), ""
        )
        for _ in range(3):
            await publish(jetstream, "s", b"x")
    async with serving(tmp_path) as jetstream:
        await publish(jetstream, "s", b"x")
        assert (await account_of(jetstream).stream("S").info()).state.messages == 4
        await take(jetstream, 4)
