"""The commands of a recorded run of a server, applied to a second one, make the same state.

The run has clients on sockets, streams of every retention and both storages, and every kind of
change: publishes with ids, expectations, rollups and lifetimes, limits of both discard policies,
atomic and fast batches, purges, deletes, updates, consumers of all ack policies with every kind of
acknowledgement, resets, pauses, delayed messages, copies of other streams, and a restore.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client

from natsd.jetstream.commands import commands as c
from natsd.jetstream.stream.stream import Stream
from tests.clients.target import NatsdTarget, start_on_loop, stop_on_loop
from tests.jetstream.behaviour.api import SECOND, Api, soon
from tests.jetstream.behaviour.batch import Batch
from tests.jetstream.behaviour.puller import Puller
from tests.jetstream.behaviour.test_fast_batches import APPEND, COMMIT
from tests.jetstream.behaviour.test_fast_batches import begin as begin_fast_batch
from tests.jetstream.behaviour.transfer import restore, take
from tests.jetstream.commands.replay import Recorder, check_replay


class Recorded:
    """A server whose streams all have a recorder, and a client."""

    def __init__(self, nc: Client, recorders: dict[str, Recorder]) -> None:
        self.nc = nc
        self.api = Api(nc)
        self.recorders = recorders

    async def publish(self, subject: str, data: bytes = b"", **headers: str) -> dict[str, object]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        reply = await self.nc.request(subject, data, 10, headers=named or None)
        answer: dict[str, object] = json.loads(reply.data)
        return answer


@pytest.fixture
async def recorded(tmp_path: Path) -> AsyncIterator[Recorded]:
    server = await start_on_loop({"jetstream": {"store_dir": str(tmp_path / "leader")}})
    recorders: dict[str, Recorder] = {}

    def committer_of(stream: Stream) -> Recorder:
        recorders[stream.name] = Recorder(stream)
        return recorders[stream.name]

    if not isinstance(server, NatsdTarget):
        pytest.skip("nats-server records no commands")
    jetstream = server.server.jetstream
    assert jetstream is not None
    jetstream.committer_of = committer_of
    nc = await nats.connect(server.url, allow_reconnect=False)
    yield Recorded(nc, recorders)
    await nc.close()
    await stop_on_loop(server)


def kinds(commands: list[c.Command]) -> set[type[c.Command]]:
    return {type(each) for each in commands}


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_publishes_and_removals(recorded: Recorded, tmp_path: Path, storage: str) -> None:
    api = recorded.api
    await api.create_stream(
        "S",
        subjects=["a.>"],
        storage=storage,
        max_msgs=30,
        max_msgs_per_subject=4,
        allow_rollup_hdrs=True,
        allow_msg_ttl=True,
        allow_atomic=True,
        allow_batched=True,
        duplicate_window=100 * SECOND,
    )
    for at in range(60):
        await recorded.publish(f"a.{at % 9}", b"%d" % at, Nats_Msg_Id=f"id {at % 50}")
    await recorded.publish("a.0", b"no", Nats_Expected_Last_Sequence="1")
    short = await recorded.publish("a.1", b"short", Nats_TTL="1s")
    await recorded.publish("a.2", b"long", Nats_TTL="1h")
    await recorded.publish("a.3", b"one", Nats_Rollup="sub")
    batch = Batch(recorded.nc)
    await batch.put("a.3", b"1", Nats_Msg_Id="batched")
    await batch.put("a.4", b"2")
    await batch.commit("a.5", b"3", Nats_Rollup="sub")
    state = await api.stream_state("S")
    await api.ok("STREAM.MSG.DELETE.S", {"seq": state["last_seq"] - 1})
    await api.ok("STREAM.MSG.DELETE.S", {"seq": state["last_seq"] - 3, "no_erase": True})
    await api.ok("STREAM.PURGE.S", {"filter": "a.6"})
    await api.ok("STREAM.PURGE.S", {"keep": 15})

    async def is_expired() -> dict[str, object] | None:
        found = await api.request("STREAM.MSG.GET.S", {"seq": short["seq"]})
        return found if "error" in found else None

    await soon(is_expired)
    await api.update_stream(
        "S",
        subjects=["a.>"],
        storage=storage,
        max_msgs=5,
        max_msgs_per_subject=1,
        allow_rollup_hdrs=True,
        allow_msg_ttl=True,
        allow_atomic=True,
        allow_batched=True,
        duplicate_window=100 * SECOND,
    )
    await recorded.publish("a.9", b"after the update", Nats_Msg_Id="id 60")
    commands = await check_replay(recorded.recorders["S"], tmp_path / "one")
    assert kinds(commands) >= {
        c.Publish,
        c.PublishBatch,
        c.Delete,
        c.PurgeMessages,
        c.ExpireMessages,
        c.EnforceLimits,
        c.ReconfigureStream,
    }
    await recorded.publish("a.9", b"all", Nats_Rollup="all")
    await api.ok("STREAM.PURGE.S", {"seq": 1000})
    await recorded.publish("a.9", b"the first")
    await api.ok("STREAM.PURGE.S")
    commands = await check_replay(recorded.recorders["S"], tmp_path / "two")
    assert c.PurgeAll in kinds(commands)


async def test_discard_new_and_expectations(recorded: Recorded, tmp_path: Path) -> None:
    await recorded.api.create_stream(
        "S",
        subjects=["a.>"],
        discard="new",
        max_msgs=5,
        max_msgs_per_subject=2,
        discard_new_per_subject=True,
    )
    answers = [await recorded.publish(f"a.{at % 4}", b"x" * at) for at in range(12)]
    assert sum("error" in answer for answer in answers) >= 6
    await recorded.publish("a.0", b"", Nats_Expected_Last_Subject_Sequence="5")
    commands = await check_replay(recorded.recorders["S"], tmp_path / "one")
    assert len(commands) == sum("error" not in answer for answer in answers)


ACKS = [b"+ACK", b"-NAK", b"+WPI", b"+TERM", b'-NAK {"delay": 1000000}', b"", b"+ACK"]


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("retention", ["limits", "interest", "workqueue"])
async def test_consumers(recorded: Recorded, tmp_path: Path, retention: str, storage: str) -> None:
    api, nc = recorded.api, recorded.nc
    await api.create_stream("S", subjects=["a.>"], retention=retention, storage=storage)
    await api.create_consumer(
        "S",
        "A",
        durable_name="A",
        filter_subject="a.0",
        max_deliver=2,
        ack_policy="explicit",
        ack_wait=SECOND // 20,
    )
    await api.create_consumer(
        "S",
        "B",
        durable_name="B",
        filter_subject="a.1",
        ack_policy="explicit",
        ack_wait=60 * SECOND,
    )
    if retention == "limits":
        await api.create_consumer("S", "C", durable_name="C", ack_policy="all")
        await api.create_consumer("S", "D", durable_name="D", ack_policy="none")
    for at in range(30):
        await recorded.publish(f"a.{at % 3}", b"%d" % at)
    for name in ("A", "B", "C", "D")[: 4 if retention == "limits" else 2]:
        puller = await Puller.of(nc, "S", name)
        await puller.ask(batch=8)
        for at in range(8):
            message = await puller.message()
            if ACKS[at % len(ACKS)] and name != "D":
                await nc.publish(message.reply, ACKS[at % len(ACKS)])
    await nc.flush()
    again = await Puller.of(nc, "S", "A")
    await again.ask(batch=3)
    await again.messages(3)
    await api.ok("STREAM.PURGE.S", {"filter": "a.1", "keep": 2})
    wanted = await recorded.publish("a.0", b"to be deleted")
    await api.ok("STREAM.MSG.DELETE.S", {"seq": wanted["seq"]})
    await api.ok("CONSUMER.PAUSE.S.B", {"pause_until": "2033-01-01T00:00:00Z"})
    commands = await check_replay(recorded.recorders["S"], tmp_path / "one")
    assert kinds(commands) >= {c.CreateConsumer, c.ChangeTracker, c.PauseConsumer}
    assert retention == "limits" or c.Release in kinds(commands)
    await api.create_consumer(
        "S",
        "B",
        durable_name="B",
        filter_subject="a.2",
        ack_policy="explicit",
        max_ack_pending=7,
        ack_wait=60 * SECOND,
    )
    await api.ok("CONSUMER.RESET.S.B")
    await api.ok("CONSUMER.DELETE.S.A")
    commands = await check_replay(recorded.recorders["S"], tmp_path / "two")
    assert kinds(commands) >= {c.UpdateConsumer, c.ResetConsumer, c.DeleteConsumer}


async def test_delayed_messages(recorded: Recorded, tmp_path: Path) -> None:
    api = recorded.api
    await api.create_stream("S", subjects=["a.>"], allow_msg_schedules=True)
    await recorded.publish("a.1", b"soon", Nats_Delay="100ms", Nats_Msg_Id="soon")
    await recorded.publish("a.2", b"later", Nats_Delay="1h")
    deleted = await recorded.publish("a.3", b"never", Nats_Delay="2h")
    await api.ok("STREAM.MSG.DELETE.S", {"seq": deleted["seq"]})
    await api.until_messages("S", 1)
    commands = await check_replay(recorded.recorders["S"], tmp_path / "one")
    assert c.RemoveDelayed in kinds(commands)


async def test_copies_of_other_streams(recorded: Recorded, tmp_path: Path) -> None:
    api = recorded.api
    await api.create_stream("O", subjects=["o.>"])
    for at in range(10):
        await recorded.publish(f"o.{at}", b"%d" % at)
    for sequence in (1, 4, 5):
        await api.ok("STREAM.MSG.DELETE.O", {"seq": sequence})
    await api.ok("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "O"}})
    sources = [{"name": "O", "filter_subject": "o.7"}, {"name": "M"}]
    await api.ok("STREAM.CREATE.F", {"name": "F", "sources": sources})
    await api.until_messages("M", 7)
    await api.until_messages("F", 8)
    for name in ("O", "M", "F"):
        commands = await check_replay(recorded.recorders[name], tmp_path / name)
        assert (c.Skip in kinds(commands)) is (name == "M")


async def test_a_large_batch_in_slices(recorded: Recorded, tmp_path: Path) -> None:
    await recorded.api.create_stream("S", subjects=["a.>"], allow_atomic=True, max_msgs=10)
    batch = Batch(recorded.nc)
    for at in range(11):
        await batch.put(f"a.{at}", bytes(300_000))
    purge = asyncio.ensure_future(recorded.api.ok("STREAM.PURGE.S", {"filter": "a.3"}))
    await batch.commit("a.last", b"end")
    await recorded.publish("a.1", b"after")
    await purge
    commands = await check_replay(recorded.recorders["S"], tmp_path / "one")
    assert c.PublishBatch in kinds(commands)


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_a_fast_batch(recorded: Recorded, tmp_path: Path, storage: str) -> None:
    await recorded.api.create_stream(
        "S", subjects=["s.*"], storage=storage, allow_batched=True, max_msgs=12
    )
    batch = await begin_fast_batch(recorded.nc, flow=5)
    await batch.start(Nats_Msg_Id="first")
    for at in range(20):
        await batch.send(APPEND, f"s.{at % 3}", b"%d" % at, Nats_Msg_Id=f"id {at % 15}")
    await batch.send(COMMIT, "s.1", b"last")
    while "count" not in (answer := await batch.heard()):
        assert "error" not in answer
    recorder = recorded.recorders["S"]
    await recorder.stream.store.settle()
    commands = await check_replay(recorder, tmp_path / "one")
    assert sum(isinstance(each, c.Publish) for each in commands) == answer["seq"]


async def test_a_restore(recorded: Recorded, tmp_path: Path) -> None:
    api = recorded.api
    await api.create_stream(
        "S",
        subjects=["a.>"],
        storage="file",
        allow_msg_schedules=True,
        duplicate_window=100 * SECOND,
    )
    for at in range(20):
        await recorded.publish(f"a.{at % 3}", b"%d" % at, Nats_Msg_Id=f"id {at}")
    await recorded.publish("a.9", b"later", Nats_Delay="1h", Nats_Msg_Id="later")
    gone = await recorded.publish("a.9", b"never", Nats_Delay="2h")
    await recorded.publish("a.9", b"much later", Nats_Delay="3h")
    for name, subject in (("A", "a.0"), ("B", "a.1")):
        await api.create_consumer(
            "S", name, durable_name=name, filter_subject=subject, ack_policy="explicit"
        )
        puller = await Puller.of(recorded.nc, "S", name)
        await puller.ask(batch=4)
        for message in [await puller.message() for _ in range(4)][1:]:
            await recorded.nc.request(message.reply, b"+ACK", 10)
    for sequence in (4, 5, gone["seq"]):
        await api.ok("STREAM.MSG.DELETE.S", {"seq": sequence})
    snapshot = await take(api, "S")
    await api.ok("STREAM.DELETE.S")
    await restore(api, "S", snapshot, max_msgs=15)
    commands = await check_replay(recorded.recorders["S"], tmp_path / "one")
    assert isinstance(commands[0], c.Restore)
    assert kinds(commands) == {c.Restore, c.EnforceLimits, c.ChangeTracker}
    again = await recorded.publish("a.0", b"19", Nats_Msg_Id="id 19")
    assert again["duplicate"]
    await recorded.publish("a.0", b"new")
    puller = await Puller.of(recorded.nc, "S", "A")
    await puller.ask(batch=2)
    for message in [await puller.message(), await puller.message()]:
        await recorded.nc.request(message.reply, b"+ACK", 10)
    await api.ok("STREAM.MSG.DELETE.S", {"seq": 21})  # a delayed message
    commands = await check_replay(recorded.recorders["S"], tmp_path / "two")
    assert kinds(commands) >= {c.Publish, c.ChangeTracker, c.RemoveDelayed}
