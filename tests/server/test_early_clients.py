"""Clients that connect while JetStream is imported: a server with an empty store accepts them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from natsd import Server
from natsd.core.steps import at_once
from natsd.jetstream import early_requests
from natsd.jetstream import jetstream as jetstream_module
from natsd.jetstream.account import JetStreamAccount
from natsd.monitor.healthz import HealthzOptions, healthz
from natsd.monitor.query import Query
from natsd.server.jetstream import JetStreamError
from tests.accounts.test_directory import ByUser, Tenants
from tests.server.loading import SlowLoading
from tests.server.streams import QUIET, Stream
from tests.waiting import eventually_within

INBOX = b"SUB inbox 1\r\n"
CREATE = b'{"name":"S","subjects":["s"]}'
NO_RESPONDERS = b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n'


def request(subject: bytes, body: bytes = b"") -> bytes:
    return b"PUB %b inbox %d\r\n%b\r\n" % (subject, len(body), body)


async def answer(client: Stream) -> tuple[bytes, bytes]:
    """Return the first line and the rest of the next message."""
    while not (line := await client.line()).startswith((b"MSG", b"HMSG")):
        assert line, "closed by the server"
    async with asyncio.timeout(30):
        return line, await client.reader.readexactly(int(line.split()[-1]) + 2)


async def answered(client: Stream) -> dict[str, Any]:
    return dict(json.loads((await answer(client))[1]))


class Starting:
    """A server whose start waits for the import of JetStream."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path, **settings: Any) -> None:
        self.loading = SlowLoading(monkeypatch)
        settings = {"jetstream": True, **settings}
        self.server = Server(host="127.0.0.1", port=-1, store_dir=directory, **settings)
        self.task = asyncio.create_task(self.server.start())

    async def finish(self) -> None:
        self.loading.may_go_on.set()
        await self.task


@asynccontextmanager
async def starting(
    monkeypatch: pytest.MonkeyPatch, directory: Path, **settings: Any
) -> AsyncIterator[Starting]:
    start = Starting(monkeypatch, directory, **settings)
    await start.loading.begun()
    try:
        yield start
    finally:
        start.loading.may_go_on.set()
        await asyncio.wait([start.task])
        await start.server.stop()


async def test_a_request_in_the_first_packet_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with starting(monkeypatch, tmp_path) as start:
        reader, writer = await asyncio.open_connection("127.0.0.1", start.server.client_port)
        writer.write(QUIET + INBOX + request(b"$JS.API.INFO") + b"PING\r\n")
        client = Stream(reader, writer)
        assert json.loads((await client.line()).removeprefix(b"INFO "))["jetstream"] is True
        assert await client.line() == b"PONG\r\n"
        assert not start.task.done()
        await start.finish()
        assert (await answered(client))["type"] == "io.nats.jetstream.api.v1.account_info_response"
        await client.close()


async def test_requests_are_carried_out_in_order_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with starting(monkeypatch, tmp_path) as start:
        client = await Stream.open(start.server.client_port)
        client.send(INBOX + request(b"$JS.API.STREAM.CREATE.S", CREATE))
        client.send(request(b"$JS.API.STREAM.DELETE.S"))
        client.send(request(b"$JS.API.STREAM.CREATE.S", CREATE))
        await client.sync()
        await start.finish()
        kinds = [(await answered(client))["type"].split(".")[-1] for _ in range(3)]
        create, delete = "stream_create_response", "stream_delete_response"
        assert kinds == [create, delete, create]
        client.send(request(b"$JS.API.STREAM.NAMES"))
        assert (await answered(client))["streams"] == ["S"]
        assert await client.sync() == []  # one answer, not two
        await client.close()


async def test_a_domains_requests_wait_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with starting(monkeypatch, tmp_path, jetstream={"domain": "hub"}) as start:
        client = await Stream.open(start.server.client_port)
        client.send(INBOX + request(b"$JS.hub.API.STREAM.CREATE.S", CREATE))
        await client.sync()
        await start.finish()
        assert (await answered(client))["config"]["name"] == "S"
        await client.close()


async def log_in(server: Server, user: bytes) -> Stream:
    client = Stream(*await asyncio.open_connection("127.0.0.1", server.client_port))
    client.send(b'CONNECT {"verbose":false,"user":"%b"}\r\n' % user)
    return client


async def test_accounts_that_are_created_meanwhile_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading = SlowLoading(monkeypatch)
    settings = {"jetstream": True, "store_dir": tmp_path, "authenticator": ByUser()}
    server = Tenants(host="127.0.0.1", port=-1, **settings)
    task = asyncio.create_task(server.start())
    try:
        await loading.begun()
        one = await log_in(server, b"tenant-1")
        one.send(INBOX + request(b"$JS.API.STREAM.CREATE.S", CREATE))
        await one.sync()
        recover = jetstream_module.recover_accounts

        async def recover_late(accounts: Iterable[JetStreamAccount], *, are_assigned: bool) -> None:
            server.accounts.find("tenant-2")
            await recover(accounts, are_assigned=are_assigned)

        monkeypatch.setattr(jetstream_module, "recover_accounts", recover_late)
        loading.may_go_on.set()
        await task
        assert (await answered(one))["config"]["name"] == "S"
        engine = server.jetstream
        assert engine is not None
        await eventually_within(lambda: "tenant-2" in engine.accounts)
        two = await log_in(server, b"tenant-2")
        two.send(INBOX + request(b"$JS.API.STREAM.NAMES"))
        assert (await answered(two))["total"] == 0
        for client in (one, two):
            await client.close()
    finally:
        loading.may_go_on.set()
        await asyncio.wait([task])
        await server.stop()


async def test_a_request_keeps_its_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with starting(monkeypatch, tmp_path) as start:
        client = await Stream.open(start.server.client_port)
        client.send(b'CONNECT {"verbose":false,"name":"early"}\r\n')
        client.send(b"SUB $JS.EVENT.ADVISORY.API 1\r\n")
        client.send(request(b"$JS.API.STREAM.CREATE.S", CREATE))
        await client.sync()
        await start.finish()
        assert (await answered(client))["client"]["name"] == "early"
        await client.close()


@pytest.mark.parametrize("subject", [b"$JS.API.DIRECT.GET.S", b"$JS.API.CONSUMER.MSG.NEXT.S.C"])
async def test_a_request_to_a_stream_finds_no_responders(
    subject: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with starting(monkeypatch, tmp_path) as start:
        client = await Stream.open(start.server.client_port)
        client.send(NO_RESPONDERS + INBOX + request(subject))
        assert (await answer(client))[1].startswith(b"NATS/1.0 503\r\n")
        client.send(QUIET + INBOX + request(subject))
        assert await client.sync() == []  # this client did not ask to be told
        await client.close()


async def test_messages_of_clients_do_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with starting(monkeypatch, tmp_path) as start:
        client = await Stream.open(start.server.client_port)
        client.send(b"SUB a.b 1\r\nPUB a.b 2\r\nhi\r\n")
        assert await answer(client) == (b"MSG a.b 1 2\r\n", b"hi\r\n")
        assert not start.task.done()
        await client.close()


@pytest.mark.parametrize(("limit", "most"), [("REQUESTS_MAX", 2), ("BYTES_MAX", 100)])
async def test_too_many_requests_are_dropped(
    limit: str,
    most: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(early_requests, limit, most)
    async with starting(monkeypatch, tmp_path) as start:
        client = await Stream.open(start.server.client_port)
        client.send(INBOX + 3 * request(b"$JS.API.STREAM.NAMES", b'{"subject":"dropped.it"}'))
        client.send(request(b"$JS.API.INFO"))
        with caplog.at_level(logging.WARNING, "natsd.jetstream"):
            await client.sync()
        assert "JetStream API queue limit reached, dropping 3 requests" in caplog.text
        await start.finish()
        assert (await answered(client))["type"].endswith("account_info_response")
        assert await client.sync() == []
        await client.close()


async def test_a_server_that_still_loads_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with starting(monkeypatch, tmp_path) as start:
        server = start.server
        assert not server.is_ready
        code, _ = at_once(healthz(server, HealthzOptions.of(Query({}))))
        assert code == 500
        server.enter_lame_duck()  # as during a recovery: not before the server is ready
        assert not server.is_lame_duck
        await start.finish()
        assert server.is_ready
        code, _ = at_once(healthz(server, HealthzOptions.of(Query({}))))
        assert code == 200


async def test_a_start_that_fails_closes_its_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with starting(monkeypatch, tmp_path) as start:
        client = await Stream.open(start.server.client_port)
        client.send(INBOX + request(b"$JS.API.INFO"))
        await client.sync()
        start.loading.error = OSError(24, "Too many open files")
        start.loading.may_go_on.set()
        with pytest.raises(JetStreamError, match="Can't start JetStream: too many open files"):
            await start.task
        assert b"MSG" not in await client.read_until_closed()
        assert not start.server.is_ready
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", start.server.client_port)
        await client.close()


async def test_a_store_in_use_is_refused_before_clients_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Server(host="127.0.0.1", port=-1, jetstream=True, store_dir=tmp_path):
        async with starting(monkeypatch, tmp_path) as start:
            assert start.server.clients == {}
            assert start.server.client_port == 0
            start.loading.may_go_on.set()
            with pytest.raises(JetStreamError, match="is in use by process"):
                await start.task


async def test_clients_of_stored_streams_wait_for_the_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Server(host="127.0.0.1", port=-1, jetstream=True, store_dir=tmp_path) as server:
        client = await Stream.open(server.client_port)
        client.send(INBOX + request(b"$JS.API.STREAM.CREATE.S", CREATE))
        await answered(client)
        await client.close()
    async with starting(monkeypatch, tmp_path) as start:
        assert start.server.client_port == 0
        await start.finish()
        client = await Stream.open(start.server.client_port)
        client.send(INBOX + request(b"$JS.API.STREAM.INFO.S"))
        assert (await answered(client))["config"]["name"] == "S"
        await client.close()
