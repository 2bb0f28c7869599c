"""Recovery: the files that a start may find, and its result (docs/store.md)."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import shutil
from pathlib import Path

import pytest

from natsd.jetstream.asset_file import ASSET_FILE, MAGIC, read_asset, write_asset
from natsd.jetstream.consumer.files import ConsumerAsset, consumer_directory
from natsd.jetstream.errors import ApiError, ErrorId
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig
from natsd.jetstream.models.go_json import encode
from natsd.jetstream.models.requests import StreamMsgGetRequest
from natsd.jetstream.models.stream import Retention, Storage
from natsd.jetstream.stream.duplicates_file import DUPLICATES_FILE
from natsd.jetstream.stream.files import StreamAsset
from natsd.jetstream.stream.stream import Stream
from natsd.store.crypto.keys import KEY_FILE
from natsd.store.crypto.vault import Vault
from natsd.store.disk.disk import REMOVED_SUFFIX
from natsd.store.disk.real_disk import RealDisk
from natsd.store.disk.twin_file import copy_of, remove_twins
from natsd.store.errors import KeyWrong
from tests.jetstream.serving import ACCOUNT, account_of, ask, create, publish, serving, update
from tests.store.faulty_disk import FaultyDisk
from tests.waiting import DEADLINE_S, Eventually, eventually_within

ROOT = Path("/store")
disk = RealDisk()


def directory_of(root: Path, stream: str) -> Path:
    return root / "jetstream" / ACCOUNT / "streams" / stream


def damage(path: Path) -> None:
    """Damage both copies of the file."""
    for each in (path, copy_of(path)):
        each.write_bytes(b"garbage")


def contents(root: Path) -> dict[Path, bytes]:
    """Return the files of the streams B and C."""
    found = [path for name in "BC" for path in directory_of(root, name).rglob("*")]
    return {path: path.read_bytes() for path in found if path.is_file()}


def power_cut(disk: FaultyDisk) -> FaultyDisk:
    """Return the disk as it would be if the power failed now; the server goes on."""
    after = disk.kill().crash(1)
    disk.is_off = False
    return after


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
        answer = await publish(jetstream, "s", b"x", headers)
        assert answer == {"stream": "S", "seq": 1, "duplicate": True}


async def test_kept_ids_and_those_of_later_messages_are_known_after_a_crash(tmp_path: Path) -> None:
    """Ids that were stored at a stop are valid for that moment, also after a later crash."""

    def headers(number: int) -> bytes:
        return b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number

    disk = FaultyDisk(seed=1)
    async with serving(ROOT, disk=disk) as jetstream:
        stream = await create(jetstream, "S", subjects=["s"])
        await publish(jetstream, "s", b"x", headers(1))
        await stream.purge()
    async with serving(ROOT, disk=disk) as jetstream:
        await publish(jetstream, "s", b"x", headers(2))
        after = power_cut(disk)
    async with serving(ROOT, disk=after) as jetstream:
        for number in (1, 2):
            answer = await publish(jetstream, "s", b"x", headers(number))
            assert answer == {"stream": "S", "seq": number, "duplicate": True}
        assert (await publish(jetstream, "s", b"x", headers(3)))["seq"] == 3


async def test_that_no_ids_are_left_is_kept_too(tmp_path: Path) -> None:
    """The stored file is that of the last stop, even if no ids were left then."""
    headers = b"NATS/1.0\r\nNats-Msg-Id: 17\r\n\r\n"
    window = 100_000_000
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "S", subjects=["s"], duplicate_window=window)
        await publish(jetstream, "s", b"x", headers)
    async with serving(tmp_path) as jetstream:
        ids = account_of(jetstream).stream("S").ingest.message_ids
        await eventually_within(lambda: len(ids) == 0)
    async with serving(tmp_path) as jetstream:
        assert (await publish(jetstream, "s", b"x", headers))["seq"] == 2


async def test_damaged_ids_are_no_obstacle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    headers = b"NATS/1.0\r\nNats-Msg-Id: 17\r\n\r\n"
    async with serving(tmp_path) as jetstream:
        await create(jetstream, "S", subjects=["s"])
        await publish(jetstream, "s", b"x", headers)
    path = directory_of(tmp_path, "S") / DUPLICATES_FILE
    damage(path)
    async with serving(tmp_path) as jetstream:
        answer = await publish(jetstream, "s", b"x", headers)
        assert answer == {"stream": "S", "seq": 1, "duplicate": True}
    text = f"{path} is damaged: no copy of it verifies; message ids are found in the messages"
    assert caplog.messages.count(text) == 1


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
    directory.rename(directory.with_name(f"S{REMOVED_SUFFIX}"))
    async with serving(tmp_path) as jetstream:
        assert account_of(jetstream).streams == {}
        assert list(directory.parent.iterdir()) == []


async def test_a_delete_of_a_consumer_is_finished(tmp_path: Path) -> None:
    async with serving(tmp_path) as jetstream:
        stream = await create(jetstream, "S", subjects=["s"])
        await stream.create_consumer(ConsumerConfig(durable_name="C"), "")
        await stream.create_consumer(ConsumerConfig(durable_name="D"), "")
    directory = consumer_directory(directory_of(tmp_path, "S"), "C")
    directory.rename(directory.with_name(f"C{REMOVED_SUFFIX}"))
    async with serving(tmp_path) as jetstream:
        assert list(account_of(jetstream).stream("S").consumers) == ["D"]
        assert [path.name for path in directory.parent.iterdir()] == ["D"]


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
    damage(directory_of(tmp_path, "B") / ASSET_FILE)
    remove_twins(disk, directory_of(tmp_path, "C") / ASSET_FILE)
    before = contents(tmp_path)
    with caplog.at_level(logging.ERROR):
        async with serving(tmp_path) as jetstream:
            assert list(account_of(jetstream).streams) == ["A"]
            assert sorted(account_of(jetstream).offline) == ["B", "C"]
    assert contents(tmp_path) == before
    lines = [line for line in caplog.messages if "is offline" in line]
    assert len(lines) == 2
    async with serving(tmp_path) as jetstream:
        for name in ("B", "C"):
            await account_of(jetstream).delete_stream(name)
            assert not directory_of(tmp_path, name).exists()
            await create(jetstream, name)


@pytest.mark.parametrize("lost", ["meta.json", "meta.json.copy"])
async def test_either_file_of_a_configuration_is_enough(
    tmp_path: Path, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as jetstream:
        stream = await create(jetstream, "S", subjects=["s"], retention=Retention.INTEREST)
        await stream.create_consumer(
            ConsumerConfig(durable_name="C", ack_policy=AckPolicy.EXPLICIT), ""
        )
        await publish(jetstream, "s", b"x")
    directory = directory_of(tmp_path, "S")
    paths = [directory / lost, consumer_directory(directory, "C") / lost]
    for path in paths:
        path.unlink()
    async with serving(tmp_path) as jetstream:
        await take(jetstream, 1)
    assert sorted(caplog.messages) == sorted(f"{path}: is missing; written anew" for path in paths)


async def test_an_unexpected_error_costs_one_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An unexpected exception at a stream's start puts it offline and leaves no file open."""
    begin = Stream.begin

    async def begin_or_fail(stream: Stream) -> None:
        if stream.name == "B":
            raise ValueError("a configuration that cannot be built")
        await begin(stream)

    async with serving(tmp_path) as jetstream:
        for name in ("A", "B"):
            await create(jetstream, name, subjects=[name], max_bytes=1 << 20)
            await publish(jetstream, name, b"x")
    with monkeypatch.context() as patched:
        patched.setattr(Stream, "begin", begin_or_fail)
        async with serving(tmp_path) as jetstream:
            account = account_of(jetstream)
            assert list(account.streams) == ["A"]
            assert "a configuration that cannot be built" in account.offline["B"]
            assert account.info().reserved_storage == 1 << 20
            assert account.claims.owners("B") == set()
            answer = json.loads((await ask(jetstream, "$JS.API.STREAM.INFO.B"))[0][1])
            assert answer["error"]["err_code"] == ErrorId.JSStreamOfflineReasonErrF.err_code
    assert len([line for line in caplog.messages if "is offline" in line]) == 1
    async with serving(tmp_path) as jetstream:
        assert account_of(jetstream).stream("B").store.state().msgs == 1


async def test_a_lost_key_file_concerns_one_stream(tmp_path: Path) -> None:
    async with serving(tmp_path, key="one") as jetstream:
        for name in ("A", "B"):
            await create(jetstream, name)
            await publish(jetstream, name, b"x")
    remove_twins(disk, directory_of(tmp_path, "B") / "msgs" / KEY_FILE)
    async with serving(tmp_path, key="one") as jetstream:
        account = account_of(jetstream)
        assert list(account.streams) == ["A"]
        assert "is encrypted, but key.db is missing" in account.offline["B"]


async def test_an_update_that_fails_is_not_in_force_after_a_restart(tmp_path: Path) -> None:
    """The update is undone although the new file was renamed before its directory's sync failed."""
    faulty = FaultyDisk(seed=1)
    async with serving(ROOT, disk=faulty) as jetstream:
        stream = await create(jetstream, "S", subjects=["s"], description="before")
        await stream.store.synced()
        faulty.fail("sync_dir", errno.EIO, path=str(directory_of(ROOT, "S")))
        with pytest.raises(ApiError):
            await update(stream, description="refused")
        assert stream.config.description == "before"
        after = power_cut(faulty)
    async with serving(ROOT, disk=after) as jetstream:
        assert account_of(jetstream).stream("S").config.description == "before"


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


# Consumers and retention (docs/store.md)


async def take(jetstream: JetStream, count: int) -> None:
    """Deliver `count` messages to consumer C and acknowledge them; on disk on return."""
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
    """A crash may undo the removal of a message, but not its acknowledgement."""
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
    """The stream and the consumer are not touched, so that no pending message is lost."""
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
        vault_of(tmp_path).write(directory / ASSET_FILE, MAGIC, text)
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
    """All consumers are recovered before any message is judged unneeded."""
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
