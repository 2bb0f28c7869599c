"""Snapshot and restore over the wire (nats-server's `jsStreamSnapshotRequest`)."""

from __future__ import annotations

import asyncio
from hashlib import shake_128
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from tests.jetstream.behaviour.api import Api, Json, error_text
from tests.jetstream.behaviour.conftest import AnyTarget, Connect, StartJetStream
from tests.jetstream.behaviour.transfer import Snapshot, begin, finish, restore, send, take

natsd_only = pytest.mark.natsd_only


async def orders(api: Api, count: int = 100, size: int = 200, **config: Any) -> None:
    """Create a stream in which every tenth message and the last one are deleted."""
    await api.create_stream("S", storage="file", subjects=["s.>"], **config)
    for number in range(1, count + 1):
        headers = {"Nats_Msg_Id": f"id-{number}"} if number % 2 else {}
        await api.publish(f"s.{number % 7}", b"%d" % number * (size // 3), **headers)
    for sequence in [*range(10, count, 10), count]:
        await api.ok("STREAM.MSG.DELETE.S", {"seq": sequence})


async def everything(api: Api, stream: str = "S") -> list[Json]:
    """Return all messages, as read one by one."""
    state = await api.stream_state(stream)
    found = []
    for sequence in range(state["first_seq"], state["last_seq"] + 1):
        response = await api.request(f"STREAM.MSG.GET.{stream}", {"seq": sequence})
        found.append(response.get("message", {"seq": sequence}))
    return found


class TestRoundTrip:
    async def test_messages_come_back_as_they_were(self, api: Api) -> None:
        await orders(api)
        before, state = await everything(api), await api.stream_state("S")
        snapshot = await take(api, "S", chunk_size=1024)
        assert snapshot.status == "204"
        assert set(snapshot.chunks[:-1]) <= {1024}
        await api.ok("STREAM.DELETE.S")
        answer = await restore(api, "S", snapshot)
        assert answer["state"]["messages"] == state["messages"]
        assert await everything(api) == before
        after = await api.stream_state("S")
        shown = ("messages", "first_seq", "first_ts", "last_seq", "num_subjects", "num_deleted")
        assert {field: after[field] for field in shown} == {field: state[field] for field in shown}
        assert (await api.publish("s.new", b""))["seq"] == state["last_seq"] + 1

    async def test_created_and_configuration_too(self, api: Api) -> None:
        await orders(api, 3, description="as it was", max_msgs=50, metadata={"owner": "me"})
        before = await api.ok("STREAM.INFO.S")
        snapshot = await take(api, "S")
        await api.ok("STREAM.DELETE.S")
        answer = await restore(api, "S", snapshot)
        assert answer["created"] == before["created"]
        assert answer["config"] == before["config"]
        assert (await api.ok("STREAM.INFO.S"))["config"] == before["config"]

    async def test_consumers_go_on_where_they_were(self, api: Api, nc: Client) -> None:
        await orders(api)
        await api.create_consumer("S", "C", ack_wait=3600 * 10**9, filter_subject="s.1")
        await api.create_consumer("S", "FRESH")
        js = nc.jetstream()
        pulled = await js.pull_subscribe_bind("C", "S")
        messages = await pulled.fetch(5)
        for message in messages[:2]:
            await message.ack_sync()
        await messages[3].ack_sync()
        before = await api.consumer_info("S", "C")
        snapshot = await take(api, "S")
        await api.ok("STREAM.DELETE.S")
        await restore(api, "S", snapshot)
        after = await api.consumer_info("S", "C")
        for field in ("num_ack_pending", "num_pending", "created", "config"):
            assert after[field] == before[field], field
        for field in ("delivered", "ack_floor"):
            for counter in ("stream_seq", "consumer_seq"):
                assert after[field][counter] == before[field][counter], field
        following = await (await js.pull_subscribe_bind("C", "S")).fetch(1)
        assert following[0].metadata.sequence.stream > messages[-1].metadata.sequence.stream
        assert (await api.ok("CONSUMER.NAMES.S"))["consumers"] == ["C", "FRESH"]

    async def test_no_consumers_if_so_asked(self, api: Api) -> None:
        await orders(api, 3)
        await api.create_consumer("S", "C")
        snapshot = await take(api, "S", no_consumers=True)
        await api.ok("STREAM.DELETE.S")
        await restore(api, "S", snapshot)
        assert (await api.ok("CONSUMER.NAMES.S"))["total"] == 0

    async def test_message_ids_are_known_again(self, api: Api) -> None:
        await orders(api, 20)
        snapshot = await take(api, "S")
        await api.ok("STREAM.DELETE.S")
        await restore(api, "S", snapshot)
        assert (await api.publish("s.1", b"", Nats_Msg_Id="id-11"))["duplicate"]

    async def test_of_another_server(
        self, api: Api, start_jetstream: StartJetStream, connect: Connect, tmp_path: Path
    ) -> None:
        """The snapshot is of a server with other streams and its own keys."""
        await orders(api)
        before = await everything(api)
        snapshot = await take(api, "S")
        other = Api(await connect(await start_jetstream(store_dir=str(tmp_path / "other"))))
        await restore(other, "S", snapshot)
        assert await everything(other) == before

    async def test_an_empty_stream_that_was_full_goes_on_behind(self, api: Api) -> None:
        await orders(api, 5)
        await api.ok("STREAM.PURGE.S")
        snapshot = await take(api, "S")
        await api.ok("STREAM.DELETE.S")
        await restore(api, "S", snapshot)
        assert (await api.publish("s.1"))["seq"] == 6

    async def test_a_stream_that_never_had_a_message(self, api: Api) -> None:
        await api.create_stream("S", storage="file", subjects=["s.>"], first_seq=100)
        snapshot = await take(api, "S")
        await api.ok("STREAM.DELETE.S")
        await restore(api, "S", snapshot)
        assert (await api.publish("s.1"))["seq"] == 100

    async def test_the_request_decides_the_configuration(self, api: Api) -> None:
        """The request's configuration applies; messages beyond its limits are removed."""
        await orders(api, 20)
        snapshot = await take(api, "S")
        await api.ok("STREAM.DELETE.S")
        answer = await restore(api, "S", snapshot, max_msgs=5, subjects=["t.>"])
        assert answer["config"]["subjects"] == ["t.>"]
        state = await api.stream_state("S")
        assert (state["messages"], state["last_seq"]) == (5, 20)
        assert (await api.publish("t.1"))["seq"] == 21

    async def test_it_is_told_as_a_stream_that_is_created(self, api: Api, nc: Client) -> None:
        """The advisory for a created stream is sent before the end of the restore."""
        await orders(api, 3)
        snapshot = await take(api, "S")
        await api.ok("STREAM.DELETE.S")
        told = await nc.subscribe("$JS.EVENT.ADVISORY.STREAM.*.S")
        await restore(api, "S", snapshot)
        kinds = [(await told.next_msg(5)).subject.split(".")[4] for _ in range(3)]
        assert sorted(kinds) == ["CREATED", "RESTORE_COMPLETE", "RESTORE_CREATE"]

    @natsd_only
    async def test_it_is_there_after_a_restart(
        self, api: Api, start_jetstream: StartJetStream, connect: Connect
    ) -> None:
        await orders(api)
        await api.create_consumer("S", "C")
        snapshot = await take(api, "S")
        await api.ok("STREAM.DELETE.S")
        await restore(api, "S", snapshot)
        before = await everything(api)
        again = Api(await connect(await start_jetstream()))
        assert await everything(again) == before
        assert (await again.consumer_info("S", "C"))["num_pending"] == len(
            [message for message in before if "subject" in message]
        )


class TestFlow:
    async def test_no_more_than_the_window_is_under_way(self, api: Api, nc: Client) -> None:
        await orders(api, 60, 3000)
        received: list[str] = []
        more = asyncio.Event()

        async def note(message: Any) -> None:
            received.append(message.reply)
            more.set()

        inbox = nc.new_inbox()
        await nc.subscribe(inbox, cb=note)
        request = {"deliver_subject": inbox, "chunk_size": 1024, "window_size": 4096}
        await api.ok("STREAM.SNAPSHOT.S", request)
        while len(received) < 4:
            more.clear()
            await asyncio.wait_for(more.wait(), 5)
        await nc.flush()
        await api.ok("STREAM.INFO.S")
        assert len(received) == 4
        assert received[0].startswith("$JS.SNAPSHOT.ACK.S.")
        assert [reply.split(".")[-2:] for reply in received] == [
            ["1024", str(number)] for number in range(1, 5)
        ]
        await nc.publish(received[0])
        while len(received) < 5:
            more.clear()
            await asyncio.wait_for(more.wait(), 5)

    async def test_who_acknowledges_nothing_gets_no_more(self, api: Api) -> None:
        """A client that acknowledges no chunk gets no more after five seconds."""
        await orders(api, 60, 3000)
        snapshot = await take(api, "S", acknowledges=False, chunk_size=1024, window_size=2048)
        assert snapshot.status == "408 No Flow Response"
        assert len(snapshot.chunks) == 2

    async def test_who_has_gone_gets_no_more(self, api: Api, nc: Client) -> None:
        """The snapshot of a disconnected client ends, and the stream is unchanged."""
        await orders(api, 60, 3000)
        inbox = nc.new_inbox()
        subscription = await nc.subscribe(inbox)
        request = {"deliver_subject": inbox, "chunk_size": 1024, "window_size": 2048}
        await api.ok("STREAM.SNAPSHOT.S", request)
        await subscription.next_msg(5)
        await subscription.unsubscribe()
        assert (await take(api, "S", chunk_size=1024)).status == "204"

    async def test_sizes_out_of_bounds_are_put_into_them(self, api: Api) -> None:
        await orders(api, 60, 3000)
        assert (await take(api, "S", chunk_size=1, window_size=1)).chunks[0] == 1024
        assert max((await take(api, "S", chunk_size=1 << 30)).chunks) <= 1 << 20

    async def test_writers_are_not_waited_for(self, api: Api) -> None:
        """A snapshot is of one moment: all messages up to a sequence, and none behind it."""
        await orders(api, 60, 3000)
        writing = asyncio.create_task(api.fill("s.more", 200))
        snapshot = await take(api, "S")
        await writing
        expected = snapshot.response["state"]
        await api.ok("STREAM.DELETE.S")
        answer = await restore(api, "S", snapshot)
        for field in ("messages", "first_seq", "last_seq"):
            assert answer["state"][field] == expected[field], field

    @natsd_only
    async def test_what_is_removed_meanwhile_is_in_it(self, api: Api, nc: Client) -> None:
        await orders(api, 60, 3000)
        before = await everything(api)
        inbox = nc.new_inbox()
        subscription = await nc.subscribe(inbox)
        request = {"deliver_subject": inbox, "chunk_size": 1024, "window_size": 1024}
        response = await api.ok("STREAM.SNAPSHOT.S", request)
        data = []
        while (message := await subscription.next_msg(5)).data:
            if not data:
                await api.ok("STREAM.MSG.DELETE.S", {"seq": 41})
                await api.ok("STREAM.PURGE.S")
            data.append(message.data)
            await nc.publish(message.reply)
        await api.ok("STREAM.DELETE.S")
        await restore(api, "S", Snapshot(response, b"".join(data), "204", []))
        assert await everything(api) == before


class TestRefusals:
    async def test_of_snapshots(self, api: Api) -> None:
        await api.create_stream("M")
        await api.create_stream("S", storage="file")
        await api.fails("STREAM.SNAPSHOT.NONE", 10059, {"deliver_subject": "x"})
        await api.fails("STREAM.SNAPSHOT.S", 10003)
        await api.fails("STREAM.SNAPSHOT.S", 10015, {"deliver_subject": "not.*"})
        await api.fails("STREAM.SNAPSHOT.S", 10015, {"no_consumers": True})
        text = await api.fails("STREAM.SNAPSHOT.M", 10064, {"deliver_subject": "x"})
        assert text == "snapshot failed: no impl"

    async def test_of_restores(self, api: Api) -> None:
        await orders(api, 3)
        snapshot = await take(api, "S")
        await api.fails("STREAM.RESTORE.S", 10003)
        await api.fails("STREAM.RESTORE.S", 10130, snapshot.request)
        await api.fails("STREAM.RESTORE.T", 10056, snapshot.request)

    @natsd_only
    async def test_what_could_not_be_created_is_refused_at_once(self, api: Api) -> None:
        await orders(api, 3)
        snapshot = await take(api, "S")
        config = {**snapshot.request["config"], "num_replicas": 3}
        await api.ok("STREAM.DELETE.S")
        await api.fails("STREAM.RESTORE.S", 10074, {**snapshot.request, "config": config})

    @natsd_only
    async def test_a_name_that_came_meanwhile(self, api: Api) -> None:
        await orders(api, 3)
        snapshot = await take(api, "S")
        await api.ok("STREAM.DELETE.S")
        subject = await begin(api, "S", snapshot)
        await send(api, subject, snapshot.data)
        await api.create_stream("S", storage="file")
        answer = await finish(api, subject)
        error_text(answer["error"], 10130)
        assert (await api.stream_state("S"))["messages"] == 0

    async def test_another_streams_snapshot(self, api: Api) -> None:
        await orders(api, 3)
        snapshot = await take(api, "S")
        answer = await restore_as(api, "T", snapshot, subjects=["t"])
        assert "stream names do not match" in error_text(answer["error"], 10062)
        await api.fails("STREAM.INFO.T", 10059)

    async def test_damaged_and_cut_snapshots(self, api: Api) -> None:
        """Nothing of a damaged snapshot is kept, and the next attempt succeeds.

        The messages cannot be compressed, so that the flipped bit is one of theirs, and no other
        bytes that unpack to the same data.
        """
        await api.create_stream("S", storage="file", subjects=["s.>"])
        for number in range(60):
            await api.publish("s.1", shake_128(b"%d" % number).digest(3000))
        snapshot = await take(api, "S")
        await api.ok("STREAM.DELETE.S")
        for data in (
            snapshot.data[: len(snapshot.data) // 2],
            snapshot.data[:-1],
            b"no snapshot at all",
            flipped(snapshot.data, len(snapshot.data) // 2),
        ):
            damaged = Snapshot(snapshot.response, data, "204", [])
            answer = await restore(api, "S", damaged)
            assert "error" in answer
            await api.fails("STREAM.INFO.S", 10059)
        assert "error" not in await restore(api, "S", snapshot)

    @natsd_only
    async def test_what_only_begins_as_a_snapshot_of_nats_server_is_refused(self, api: Api) -> None:
        await orders(api, 3)
        snapshot = await take(api, "S")
        await api.ok("STREAM.DELETE.S")
        snapshot.data = b"\xff\x06\x00\x00S2sTwO" + bytes(10_000)
        answer = await restore(api, "S", snapshot)
        assert "a frame does not verify" in error_text(answer["error"], 10062)
        await api.fails("STREAM.INFO.S", 10059)

    @natsd_only
    async def test_what_is_over_the_limit_is_refused_as_it_comes(
        self, api: Api, start_jetstream: StartJetStream, connect: Connect, tmp_path: Path
    ) -> None:
        await orders(api, 60, 3000)
        snapshot = await take(api, "S")
        small = await start_jetstream(store_dir=str(tmp_path / "small"), max_file_store=20_000)
        answer = await restore(Api(await connect(small)), "S", snapshot)
        error_text(answer["error"], 10047)

    @natsd_only
    async def test_a_health_check_tells_of_damage(
        self, api: Api, tmp_path: Path, server: AnyTarget
    ) -> None:
        await orders(api, 60, 3000)
        (block,) = (tmp_path / "store").rglob("000001.blk")
        data = bytearray(block.read_bytes())
        data[data.index(b"55" * 100)] ^= 1
        block.write_bytes(data)
        request = {"deliver_subject": "x", "jsck": True}
        text = await api.fails("STREAM.SNAPSHOT.S", 10064, request)
        assert text == "snapshot failed: snapshot check detected 1 bad messages"
        assert (await take(api, "S")).status == "204"


class TestRestoreFlow:
    async def test_a_chunk_without_reply_ends_it(self, api: Api, nc: Client) -> None:
        await orders(api, 3)
        snapshot = await take(api, "S")
        await api.ok("STREAM.DELETE.S")
        subject = await begin(api, "S", snapshot)
        await nc.publish(subject, snapshot.data)
        await nc.flush()
        await api.fails("STREAM.INFO.S", 10059)

    @natsd_only
    async def test_chunks_that_come_twice_are_taken_once(self, api: Api) -> None:
        """A client that missed the answer sends its chunk again."""
        await orders(api, 60, 3000)
        before = await everything(api)
        snapshot = await take(api, "S")
        await api.ok("STREAM.DELETE.S")
        subject = await begin(api, "S", snapshot)
        assert await send(api, subject, snapshot.data, 4096, times=3) == {}
        assert "error" not in await finish(api, subject)
        assert await everything(api) == before

    @natsd_only
    @pytest.mark.parametrize("options", [{}, {"key": "secret"}], ids=["plain", "encrypted"])
    async def test_nothing_is_left_of_what_was_under_way(
        self,
        options: dict[str, Any],
        start_jetstream: StartJetStream,
        connect: Connect,
        tmp_path: Path,
    ) -> None:
        """Nothing is left of snapshots and restores that ended, or that a stop ended."""
        api = Api(await connect(await start_jetstream(**options)))
        await orders(api, 60, 3000)
        snapshot = await take(api, "S")
        await api.ok("STREAM.DELETE.S")
        assert "error" not in await restore(api, "S", snapshot)
        await begin(api, "T", Snapshot(renamed(snapshot.response), b"", "", []))
        inbox = api.nc.new_inbox()
        await api.nc.subscribe(inbox)
        request = {"deliver_subject": inbox, "chunk_size": 1024, "window_size": 1024}
        await api.ok("STREAM.SNAPSHOT.S", request)
        await start_jetstream(**options)
        assert not [*(tmp_path / "store").rglob("snapshots.new/*")]
        assert [path.name for path in (tmp_path / "store").rglob("streams/*")] == ["S"]


async def restore_as(api: Api, name: str, snapshot: Snapshot, **config: Any) -> Json:
    subject = await begin(api, name, snapshot, name=name, **config)
    return await send(api, subject, snapshot.data) or await finish(api, subject)


def renamed(response: Json) -> Json:
    return {**response, "config": {**response["config"], "name": "T", "subjects": ["t"]}}


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
