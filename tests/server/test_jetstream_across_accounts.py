"""Streams, buckets and consumers that one account shares with others by exports and imports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.js.api import ConsumerConfig, ExternalStream, StreamSource
from nats.js.errors import ServiceUnavailableError

from tests.clients.target import start_on_loop, stop_on_loop
from tests.server.accounts import log_in, settings_of
from tests.waiting import eventually_within

PREFIX = "JS.HUB.API"


def service(subject: str, to: str = "", **more: Any) -> dict[str, Any]:
    source = {"service": {"account": "HUB", "subject": subject}, **more}
    return {**source, "to": to} if to else source


HUB = {
    "jetstream": True,
    "exports": [
        {"service": "$JS.API.>", "response_type": "stream"},
        *(
            {"service": subject}
            for subject in ("$JS.ACK.>", "$JS.FC.>", "orders.>", "$KV.>", "$O.>")
        ),
        {"stream": "deliver.>"},
    ],
}
SHARED = [
    *(service(subject) for subject in ("$JS.ACK.>", "$JS.FC.>", "orders.>", "$KV.>", "$O.>")),
    {"stream": {"account": "HUB", "subject": "deliver.>"}},
]
SHOP = {"jetstream": True, "imports": [service("$JS.API.>", f"{PREFIX}.>"), *SHARED]}
GUEST = {"imports": [service("$JS.API.>", share=True), *SHARED]}
FAR = {"imports": [service("$JS.API.>", "$JS.hub.API.>"), *SHARED]}
OTHER = {"jetstream": True}


@asynccontextmanager
async def served(directory: Path, **settings: Any) -> AsyncIterator[str]:
    """Yield the URL of a server with the accounts: natsd, or NATSD_TEST_SERVER."""
    accounts = {"HUB": HUB, "SHOP": SHOP, "GUEST": GUEST, "FAR": FAR, "OTHER": OTHER}
    settings |= {**settings_of(accounts), "default_js_domain": {"FAR": "hub"}}
    target = await start_on_loop({"jetstream": {"store_dir": str(directory)}, **settings})
    try:
        yield target.url
    finally:
        await stop_on_loop(target)


async def messages(client: NatsClient, stream: str) -> int:
    return int((await client.jetstream().stream_info(stream)).state.messages)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.01)


async def test_a_stream_of_another_account(tmp_path: Path) -> None:
    """Created, published to and read through imports; it belongs to the exporting account."""
    async with served(tmp_path) as server:
        hub, shop, other = [await log_in(server, name) for name in ("HUB", "SHOP", "OTHER")]
        js = shop.jetstream(prefix=PREFIX)
        await js.add_stream(name="ORDERS", subjects=["orders.>"], allow_direct=True)
        for number in range(1, 21):
            assert (await js.publish("orders.new", b"%d" % number)).seq == number
        assert await messages(hub, "ORDERS") == 20
        assert (await js.account_info()).streams == 1
        assert (await shop.jetstream().account_info()).streams == 0
        assert (tmp_path / "jetstream/HUB/streams/ORDERS").is_dir()
        got = await js.get_msg("ORDERS", 7, direct=True)
        assert (got.subject, got.data) == ("orders.new", b"7")
        with pytest.raises(ServiceUnavailableError):
            await other.jetstream(prefix=PREFIX).account_info()
        with pytest.raises(NoRespondersError):
            await other.request("orders.new", b"")
        for client in (hub, shop, other):
            await client.close()


@pytest.mark.parametrize("account", ["SHOP", "GUEST", "FAR"])
async def test_a_pull_consumer_of_another_account(tmp_path: Path, account: str) -> None:
    """`GUEST` has no JetStream: the imported one is its own, and answers once.

    `FAR` imports it as that of a domain, which is its default.
    """
    async with served(tmp_path) as server:
        hub, client = await log_in(server, "HUB"), await log_in(server, account)
        await hub.jetstream().add_stream(name="ORDERS", subjects=["orders.>"])
        for number in range(10):
            await hub.jetstream().publish("orders.new", b"%d" % number)
        js = client.jetstream(**({"prefix": PREFIX} if account == "SHOP" else {}))
        pulled = await js.pull_subscribe("orders.>", durable="C", stream="ORDERS")
        for first in (0, 5):
            fetched = await pulled.fetch(5, timeout=20)
            assert [message.data for message in fetched] == [b"%d" % (first + n) for n in range(5)]
            for message in fetched[:4]:
                await message.ack()
            await fetched[4].ack_sync(timeout=20)
        info = await hub.jetstream().consumer_info("ORDERS", "C")
        assert (info.ack_floor.stream_seq, info.num_ack_pending) == (10, 0)
        with pytest.raises(asyncio.TimeoutError):
            await pulled.fetch(1, timeout=0.1)
        await hub.close()
        await client.close()


async def test_a_push_consumer_of_another_account(tmp_path: Path) -> None:
    """With heartbeats, flow control and acknowledgements."""
    async with served(tmp_path) as server:
        hub, shop = await log_in(server, "HUB"), await log_in(server, "SHOP")
        await hub.jetstream().add_stream(name="ORDERS", subjects=["orders.>"])
        received: list[Msg] = []

        async def take(message: Msg) -> None:
            received.append(message)
            await message.ack()

        js = shop.jetstream(prefix=PREFIX)
        config = ConsumerConfig(deliver_subject="deliver.shop", flow_control=True)
        await js.subscribe(
            "orders.>",
            stream="ORDERS",
            durable="P",
            config=config,
            cb=take,
            manual_ack=True,
            idle_heartbeat=0.2,
        )
        payload = bytes(4096)
        for _ in range(300):
            await hub.publish("orders.new", payload)
        await eventually_within(lambda: len(received) == 300)

        async def is_acknowledged() -> bool:
            info = await hub.jetstream().consumer_info("ORDERS", "P")
            return info.ack_floor.stream_seq == 300

        await until(is_acknowledged)
        await hub.close()
        await shop.close()


async def test_a_mirror_and_a_source_of_another_account(tmp_path: Path) -> None:
    """They follow the other account's stream, also after a restart."""
    external = ExternalStream(api=PREFIX, deliver="deliver.shop")
    async with served(tmp_path) as server:
        hub, shop = await log_in(server, "HUB"), await log_in(server, "SHOP")
        await hub.jetstream().add_stream(name="ORDERS", subjects=["orders.>"])
        for _ in range(1000):
            await hub.publish("orders.new", bytes(1000))
        js = shop.jetstream()
        source = StreamSource(name="ORDERS", external=external)
        await js.add_stream(name="MIRROR", mirror=source)
        await js.add_stream(name="COPY", sources=[source])
        await until(partial(have_all, shop, 1000))
        await hub.close()
        await shop.close()
    async with served(tmp_path) as server:
        hub, shop = await log_in(server, "HUB"), await log_in(server, "SHOP")
        await hub.jetstream().publish("orders.new", b"after the restart")
        await until(partial(have_all, shop, 1001))
        await hub.close()
        await shop.close()


async def have_all(client: NatsClient, count: int) -> bool:
    return [await messages(client, name) for name in ("MIRROR", "COPY")] == [count, count]


async def test_buckets_of_another_account(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        hub = await log_in(server, "HUB")
        shop = await log_in(server, "SHOP", inbox_prefix="deliver.inbox")
        here, there = hub.jetstream(), shop.jetstream(prefix=PREFIX)
        mine = await here.create_key_value(bucket="B", history=5)
        theirs = await there.key_value("B")
        revision = await theirs.put("key", b"one")
        assert (await mine.get("key")).value == b"one"
        watcher = await theirs.watchall()
        assert (await watcher.updates(timeout=20)).value == b"one"
        assert await watcher.updates(timeout=20) is None
        await theirs.update("key", b"two", last=revision)
        assert (await watcher.updates(timeout=20)).value == b"two"
        assert (await theirs.get("key")).value == b"two"
        assert await theirs.keys() == ["key"]
        await theirs.delete("key")
        objects = await there.create_object_store("O")
        content = bytes(range(256)) * 2000
        await objects.put("name", content)
        assert (await (await here.object_store("O")).get("name")).data == content
        assert (await objects.get("name")).data == content
        await hub.close()
        await shop.close()


async def test_audits_name_both_accounts(tmp_path: Path) -> None:
    """The client is described as far as its account shares it; a header of its own is nothing."""
    async with served(tmp_path, server_name="S") as server:
        hub, shop, guest, other = [
            await log_in(server, name, name=f"client of {name}")
            for name in ("HUB", "SHOP", "GUEST", "OTHER")
        ]
        audits = await hub.subscribe("$JS.EVENT.ADVISORY.API")
        await hub.flush()
        forged = {"Nats-Request-Info": '{"acc":"HUB","svc":"HUB","user":"root"}'}

        async def client_of(nc: NatsClient, subject: str) -> dict[str, Any]:
            await nc.request(subject, b"", headers=forged, timeout=20)
            told = json.loads((await audits.next_msg(20)).data)
            assert told["subject"] == "$JS.API.STREAM.NAMES"
            return dict(told["client"])

        told = await client_of(shop, f"{PREFIX}.STREAM.NAMES")
        told.pop("rtt", None)
        assert told == {"acc": "SHOP", "svc": "HUB", "server": "S"}
        told = await client_of(guest, "$JS.API.STREAM.NAMES")
        assert (told["acc"], told["svc"], told["name"]) == ("GUEST", "HUB", "client of GUEST")
        assert told["user"] == "GUEST"
        told = await client_of(hub, "$JS.API.STREAM.NAMES")
        assert "svc" not in told
        assert (told["acc"], told["user"]) == ("HUB", "HUB")
        answer = await other.request("$JS.API.STREAM.NAMES", b"", headers=forged)
        assert json.loads(answer.data)["total"] == 0
        for client in (hub, shop, guest, other):
            await client.close()


async def test_requests_to_what_is_not_there(tmp_path: Path) -> None:
    """No responders, through the import as in the account itself."""
    async with served(tmp_path) as server:
        shop = await log_in(server, "SHOP")
        for subject in ("CONSUMER.MSG.NEXT.S.C", "DIRECT.GET.S"):
            with pytest.raises(NoRespondersError):
                await shop.request(f"{PREFIX}.{subject}", timeout=20)
        answer = json.loads((await shop.request(f"{PREFIX}.STREAM.INFO.S", timeout=20)).data)
        assert answer["error"]["err_code"] == 10059
        await shop.close()
