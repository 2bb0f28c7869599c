"""Key-value stores, object stores and services with nats-py (ADR-8, ADR-20, ADR-32)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from typing import Any

import nats.micro
import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig, ObjectMeta, StorageType
from nats.js.errors import (
    BucketNotFoundError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NoKeysError,
    ObjectNotFoundError,
)
from nats.js.kv import KeyValue

from tests.jetstream.behaviour.api import Api
from tests.jetstream.behaviour.conftest import Connect, StartJetStream

STORAGE = pytest.mark.parametrize("storage", [StorageType.MEMORY, StorageType.FILE])


async def bucket(js: JetStreamContext, **config: Any) -> KeyValue:
    config.setdefault("storage", StorageType.MEMORY)
    return await js.create_key_value(KeyValueConfig(bucket="B", **config))


class TestKeyValue:
    @STORAGE
    async def test_put_get(self, js: JetStreamContext, storage: StorageType) -> None:
        kv = await bucket(js, storage=storage)
        assert await kv.put("name", b"one") == 1
        assert await kv.put("name", b"two") == 2
        entry = await kv.get("name")
        assert (entry.value, entry.revision) == (b"two", 2)
        with pytest.raises(KeyNotFoundError):
            await kv.get("other")

    async def test_history(self, js: JetStreamContext) -> None:
        kv = await bucket(js, history=3)
        for number in range(5):
            await kv.put("name", b"%d" % number)
        assert [entry.value for entry in await kv.history("name")] == [b"2", b"3", b"4"]
        old = await kv.get("name", revision=4)
        assert old.value == b"3"

    async def test_create_and_update(self, js: JetStreamContext) -> None:
        """Compare and set: only one writer succeeds."""
        kv = await bucket(js)
        assert await kv.create("name", b"1") == 1
        with pytest.raises(KeyWrongLastSequenceError):
            await kv.create("name", b"2")
        assert await kv.update("name", b"2", last=1) == 2
        with pytest.raises(KeyWrongLastSequenceError):
            await kv.update("name", b"3", last=1)
        await kv.delete("name")
        assert await kv.create("name", b"4") == 4

    async def test_delete_and_purge(self, js: JetStreamContext) -> None:
        kv = await bucket(js, history=5)
        for number in range(3):
            await kv.put("name", b"%d" % number)
        await kv.delete("name")
        with pytest.raises(KeyNotFoundError):
            await kv.get("name")
        assert len(await kv.history("name")) == 4
        await kv.purge("name")
        assert len(await kv.history("name")) == 1
        assert (await kv.status()).values == 1

    async def test_keys(self, js: JetStreamContext) -> None:
        kv = await bucket(js)
        with pytest.raises(NoKeysError):
            await kv.keys()
        for name in ("a.1", "a.2", "b.1"):
            await kv.put(name, b"")
        await kv.delete("a.2")
        assert sorted(await kv.keys()) == ["a.1", "b.1"]

    async def test_watch(self, js: JetStreamContext) -> None:
        """A watch delivers the present entries, an end mark, and then new entries."""
        kv = await bucket(js)
        await kv.put("a", b"1")
        await kv.put("b", b"2")
        watcher = await kv.watchall()
        assert [(await watcher.updates(5)).key for _ in range(2)] == ["a", "b"]
        assert await watcher.updates(5) is None
        await kv.put("c", b"3")
        await kv.delete("a")
        later = [await watcher.updates(5) for _ in range(2)]
        assert [(entry.key, entry.operation) for entry in later] == [("c", None), ("a", "DEL")]
        await watcher.stop()

    async def test_many_keys(self, js: JetStreamContext) -> None:
        kv = await bucket(js, storage=StorageType.FILE)
        chance = random.Random(7)
        values: dict[str, bytes] = {}
        for _ in range(10):
            changes = {f"k.{chance.randrange(100)}": b"%d" % chance.randrange(9) for _ in range(50)}
            await asyncio.gather(*(kv.put(name, value) for name, value in changes.items()))
            values |= changes
        assert sorted(await kv.keys()) == sorted(values)
        found = await asyncio.gather(*(kv.get(name) for name in values))
        assert {entry.key: entry.value for entry in found} == values

    async def test_survives(self, start_jetstream: StartJetStream, connect: Connect) -> None:
        js = (await connect(await start_jetstream())).jetstream()
        kv = await bucket(js, storage=StorageType.FILE, history=2)
        for number in range(3):
            await kv.put("name", b"%d" % number)
        js = (await connect(await start_jetstream())).jetstream()
        kv = await js.key_value("B")
        assert (await kv.get("name")).revision == 3
        assert await kv.update("name", b"x", last=3) == 4
        assert [entry.value for entry in await kv.history("name")] == [b"2", b"x"]

    async def test_deleted_bucket(self, js: JetStreamContext) -> None:
        await bucket(js)
        await js.delete_key_value("B")
        with pytest.raises(BucketNotFoundError):
            await js.key_value("B")


class TestObjects:
    @STORAGE
    async def test_put_get(self, js: JetStreamContext, storage: StorageType) -> None:
        """An object is stored in chunks of 128 KiB with a digest."""
        store = await js.create_object_store("O", storage=storage)
        data = random.Random(1).randbytes(1_000_000)
        info = await store.put("picture", data)
        assert (info.size, info.chunks) == (1_000_000, 8)
        found = await store.get("picture")
        assert hashlib.sha256(found.data or b"").digest() == hashlib.sha256(data).digest()
        assert [entry.name for entry in await store.list()] == ["picture"]

    async def test_replaced(self, js: JetStreamContext, api: Api) -> None:
        """The chunks of the replaced object are removed."""
        store = await js.create_object_store("O", storage=StorageType.MEMORY)
        await store.put("x", b"1" * 300_000)
        await store.put("x", b"2" * 200_000)
        assert (await store.get("x")).data == b"2" * 200_000
        assert (await api.stream_state("OBJ_O"))["messages"] == 3

    async def test_deleted(self, js: JetStreamContext, api: Api) -> None:
        store = await js.create_object_store("O", storage=StorageType.MEMORY)
        await store.put("x", b"1" * 300_000, meta=ObjectMeta(description="a thing"))
        await store.delete("x")
        with pytest.raises(ObjectNotFoundError):
            await store.get("x")
        assert (await api.stream_state("OBJ_O"))["messages"] == 1

    async def test_sealed(self, js: JetStreamContext, api: Api) -> None:
        store = await js.create_object_store("O", storage=StorageType.MEMORY)
        await store.put("x", b"data")
        await store.seal()
        assert (await api.ok("STREAM.INFO.OBJ_O"))["config"]["sealed"] is True
        with pytest.raises(Exception, match="sealed"):
            await store.put("y", b"data")


async def test_service(nc: Client) -> None:
    """A micro service answers, and describes itself."""

    async def double(request: nats.micro.Request) -> None:
        await request.respond(request.data * 2)

    service = await nats.micro.add_service(nc, name="Doubler", version="1.0.0")
    await service.add_endpoint(name="double", subject="double", handler=double)
    assert (await nc.request("double", b"ab", 5)).data == b"abab"
    for verb in ("PING", "INFO", "STATS"):
        response = json.loads((await nc.request(f"$SRV.{verb}.Doubler", b"", 5)).data)
        assert response["type"] == f"io.nats.micro.v1.{verb.lower()}_response"
        assert response["name"] == "Doubler"
    await service.stop()
