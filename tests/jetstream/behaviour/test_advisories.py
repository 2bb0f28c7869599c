"""Advisories about streams, consumers, messages and requests, as nats-server sends them."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from nats.aio.client import Client

from tests.jetstream.behaviour import schemas
from tests.jetstream.behaviour.api import MS, Api
from tests.jetstream.behaviour.conftest import Connect, StartJetStream
from tests.jetstream.behaviour.puller import Puller

Json = dict[str, Any]
WAIT_S = 5.0
ADVISORY = "$JS.EVENT.ADVISORY"
NOT_BY_SCHEMA = {"nak", "terminated"}
"""The schemas ask for `consumer_seq` as a text; nats-server sends a number."""


class Listener:
    """A subscriber to one kind of event."""

    def __init__(self, subject: str, heard: asyncio.Queue[tuple[str, Json]]) -> None:
        self._subject = subject
        self._heard = heard

    @classmethod
    async def of(cls, nc: Client, subject: str) -> Listener:
        heard: asyncio.Queue[tuple[str, Json]] = asyncio.Queue()

        async def hear(message: Any) -> None:
            heard.put_nowait((message.subject, json.loads(message.data)))

        await nc.subscribe(subject, cb=hear)
        await nc.flush()
        return cls(subject, heard)

    async def next(self, subject: str = "") -> Json:
        """Return the next event without its envelope, which is checked."""
        async with asyncio.timeout(WAIT_S):
            found, event = await self._heard.get()
        assert found == (subject or self._subject)
        name = event["type"].rpartition(".")[2]
        if name not in NOT_BY_SCHEMA and "domain" not in event:
            schemas.check(event)
        assert list(event)[:3] == ["type", "id", "timestamp"]
        assert len(event["id"]) >= 20
        age = datetime.now(UTC) - datetime.fromisoformat(event["timestamp"])
        assert abs(age.total_seconds()) < 60
        return {key: value for key, value in event.items() if key not in list(event)[:3]}

    def nothing_more(self) -> bool:
        return self._heard.empty()


async def test_a_stream_comes_changes_and_goes(api: Api, nc: Client) -> None:
    listener = await Listener.of(nc, f"{ADVISORY}.STREAM.>")
    await api.create_stream("S")
    await api.create_stream("S")  # exists already: no advisory
    assert await listener.next(f"{ADVISORY}.STREAM.CREATED.S") == {
        "stream": "S",
        "action": "create",
    }
    for _ in range(2):  # the second update changes nothing and is reported
        await api.update_stream("S", max_msgs=7)
        updated = await listener.next(f"{ADVISORY}.STREAM.UPDATED.S")
        assert updated == {"stream": "S", "action": "modify"}
    await api.refuses_update("S", 10052, storage="file")
    await api.ok("STREAM.DELETE.S")
    deleted = await listener.next(f"{ADVISORY}.STREAM.DELETED.S")
    assert deleted == {"stream": "S", "action": "delete"}
    assert listener.nothing_more()


async def test_a_consumer_comes_and_goes(api: Api, nc: Client) -> None:
    await api.create_stream("S")
    listener = await Listener.of(nc, f"{ADVISORY}.CONSUMER.>")
    await api.create_consumer("S", "C")
    created = await listener.next(f"{ADVISORY}.CONSUMER.CREATED.S.C")
    assert created == {"stream": "S", "consumer": "C", "action": "create"}
    await api.create_consumer("S", "C", description="it is there, and changed")
    await api.ok("CONSUMER.DELETE.S.C")
    deleted = await listener.next(f"{ADVISORY}.CONSUMER.DELETED.S.C")
    assert deleted == {"stream": "S", "consumer": "C", "action": "delete"}


async def test_an_unused_one_and_those_of_a_deleted_stream_go_too(api: Api, nc: Client) -> None:
    await api.create_stream("S")
    listener = await Listener.of(nc, f"{ADVISORY}.CONSUMER.DELETED.>")
    unused = await api.create_consumer("S", "", inactive_threshold=100 * MS)
    deleted = await listener.next(f"{ADVISORY}.CONSUMER.DELETED.S.{unused['name']}")
    assert deleted["consumer"] == unused["name"]
    await api.create_consumer("S", "C")
    await api.ok("STREAM.DELETE.S")
    assert (await listener.next(f"{ADVISORY}.CONSUMER.DELETED.S.C"))["action"] == "delete"


async def test_a_pause_begins_and_ends(api: Api, nc: Client) -> None:
    await api.create_stream("S")
    await api.create_consumer("S", "C")
    listener = await Listener.of(nc, f"{ADVISORY}.CONSUMER.PAUSE.S.C")
    far = "2100-01-01T00:00:00Z"
    for _ in range(2):  # the second update changes nothing and is not reported
        await api.ok("CONSUMER.PAUSE.S.C", {"pause_until": far})
    paused = {"stream": "S", "consumer": "C", "paused": True, "pause_until": far}
    assert await listener.next() == paused
    await api.ok("CONSUMER.PAUSE.S.C", {})
    resumed = {**paused, "paused": False, "pause_until": "0001-01-01T00:00:00Z"}
    assert await listener.next() == resumed


async def test_a_pause_that_is_over_is_told(api: Api, nc: Client) -> None:
    await api.create_stream("S")
    await api.create_consumer("S", "C")
    listener = await Listener.of(nc, f"{ADVISORY}.CONSUMER.PAUSE.S.C")
    soon = datetime.fromtimestamp(datetime.now(UTC).timestamp() + 0.2, UTC)
    await api.ok("CONSUMER.PAUSE.S.C", {"pause_until": soon.isoformat()})
    assert (await listener.next())["paused"] is True
    assert (await listener.next())["paused"] is False


async def delivered(api: Api, count: int, **config: Any) -> tuple[Puller, list[str]]:
    """Return a puller of a new consumer, and the replies of `count` delivered messages."""
    await api.create_stream("S")
    await api.fill("s", count)
    await api.create_consumer("S", "C", **config)
    puller = await Puller.of(api.nc, "S", "C")
    await puller.ask(batch=count)
    return puller, [message.reply for message in await puller.messages(count)]


async def test_refused_and_terminated_messages(api: Api, nc: Client) -> None:
    listener = await Listener.of(nc, f"{ADVISORY}.CONSUMER.*.S.C")
    _, replies = await delivered(api, 3)
    assert (await listener.next(f"{ADVISORY}.CONSUMER.CREATED.S.C"))["action"] == "create"
    for reply, body in zip(replies, (b"-NAK", b"+TERM", b"+TERM too old"), strict=True):
        await nc.publish(reply, body)
    message = {"stream": "S", "consumer": "C", "deliveries": 1}
    nak = await listener.next(f"{ADVISORY}.CONSUMER.MSG_NAKED.S.C")
    assert nak == message | {"consumer_seq": 1, "stream_seq": 1}
    term = await listener.next(f"{ADVISORY}.CONSUMER.MSG_TERMINATED.S.C")
    assert term == message | {"consumer_seq": 2, "stream_seq": 2}
    term = await listener.next(f"{ADVISORY}.CONSUMER.MSG_TERMINATED.S.C")
    assert term == message | {"consumer_seq": 3, "stream_seq": 3, "reason": "too old"}
    assert list(term) == [
        "stream",
        "consumer",
        "consumer_seq",
        "stream_seq",
        "deliveries",
        "reason",
    ]


async def test_a_message_that_was_delivered_too_often(api: Api, nc: Client) -> None:
    listener = await Listener.of(nc, f"{ADVISORY}.CONSUMER.MAX_DELIVERIES.S.C")
    puller, _ = await delivered(api, 1, max_deliver=2, ack_wait=100 * MS)
    await puller.ask(batch=2, expires=5_000 * MS)
    exceeded = await listener.next()
    assert exceeded == {"stream": "S", "consumer": "C", "stream_seq": 1, "deliveries": 2}


async def test_each_request_is_told_with_who_asked(
    api: Api, nc: Client, server: Any, connect: Connect
) -> None:
    listener = await Listener.of(await connect(server), f"{ADVISORY}.API")
    asking = await connect(server, name="auditor")
    answer = await Api(asking).create_stream("S")
    event = await listener.next()
    assert list(event) == ["server", "client", "subject", "request", "response"]
    assert json.loads(event["response"]) == answer
    assert json.loads(event["request"])["name"] == "S"
    assert event["subject"] == "$JS.API.STREAM.CREATE.S"
    client = event["client"]
    assert client.pop("rtt") > 0
    started = datetime.fromisoformat(client.pop("start"))
    assert abs((datetime.now(UTC) - started).total_seconds()) < 60
    assert client == {
        "host": "127.0.0.1",
        "id": asking.client_id,
        "acc": "$G",
        "name": "auditor",
        "lang": "python3",
        "ver": client["ver"],
        "server": event["server"],
        "kind": "Client",
        "client_type": "nats",
    }


async def test_failed_requests_are_told_too_and_messages_are_not(api: Api, nc: Client) -> None:
    await api.create_stream("S")
    await api.fill("s", 1)
    listener = await Listener.of(nc, f"{ADVISORY}.API")
    await api.ok("STREAM.MSG.GET.S", {"seq": 1})
    await api.fails("STREAM.MSG.GET.S", 10037, {"seq": 2})
    event = await listener.next()
    assert json.loads(event["response"])["error"]["err_code"] == 10037
    await nc.publish("$JS.API.STREAM.PURGE.S")  # no reply subject
    event = await listener.next()
    assert "request" not in event
    assert json.loads(event["response"])["purged"] == 1
    assert listener.nothing_more()


@pytest.mark.parametrize("subject", ["$JS.API.STREAM.NAMES", "$JS.hub.API.STREAM.NAMES"])
async def test_in_a_domain_every_event_names_it(
    start_jetstream: StartJetStream, connect: Connect, subject: str
) -> None:
    """The audit names the request's subject without the domain, however the request came."""
    nc = await connect(await start_jetstream(domain="hub"))
    audit = await Listener.of(nc, f"{ADVISORY}.API")
    await nc.request(subject, b"", WAIT_S)
    event = await audit.next()
    assert event["subject"] == "$JS.API.STREAM.NAMES"
    assert event["client"]["kind"] == "Client"
    assert list(event)[-1] == "domain"
    assert event["domain"] == "hub"
    listener = await Listener.of(nc, f"{ADVISORY}.STREAM.CREATED.S")
    await Api(nc).create_stream("S")
    assert await listener.next() == {"stream": "S", "action": "create", "domain": "hub"}
