"""JetStream in the accounts of a configuration: which have it, and what becomes of changes."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client as NatsClient
from nats.errors import NoRespondersError

from natsd import Server
from natsd.config import OptionsError, make_options
from natsd.config.account_options import AccountOptions
from natsd.server.jetstream import JetStreamError, imports_api
from tests.server.accounts import log_in, server_with

NOT_ENABLED = 10039


def server_of(directory: Path, accounts: dict[str, Any], **settings: Any) -> Server:
    jetstream = {"enabled": True, **settings.pop("jetstream", {})}
    return server_with(accounts, jetstream=jetstream, store_dir=directory, **settings)


async def ask(client: NatsClient, subject: str, **body: Any) -> dict[str, Any]:
    data = json.dumps(body).encode() if body else b""
    return dict(json.loads((await client.request(f"$JS.API.{subject}", data, timeout=20)).data))


async def error(client: NatsClient, subject: str, **body: Any) -> int:
    return int((await ask(client, subject, **body)).get("error", {}).get("err_code", 0))


async def test_only_accounts_that_say_so_have_streams(tmp_path: Path) -> None:
    """As on nats-server, `$G` has none if another account is configured."""
    accounts = {"A": {"jetstream": {"max_streams": 1}}, "B": {"jetstream": "enabled"}, "C": {}}
    async with server_of(tmp_path, accounts) as server:
        clients = {name: await log_in(server, name) for name in ("A", "B", "C", "$G", "$SYS")}
        for name in "AB":
            for _ in range(3):
                js = clients[name].jetstream()
                await js.add_stream(name="S", subjects=["s"])
                assert (await js.publish("s", b"body")).stream == "S"
        assert (await clients["A"].jetstream().account_info()).limits.max_streams == 1
        assert await error(clients["A"], "STREAM.CREATE.T", name="T") == 10027
        assert await error(clients["B"], "STREAM.CREATE.T", name="T") == 0
        for name in ("C", "$G", "$SYS"):
            assert await error(clients[name], "INFO") == NOT_ENABLED
        with pytest.raises(NoRespondersError):
            await clients["C"].request("$JS.API.DIRECT.GET.S")
        purged = await ask(clients["$SYS"], "ACCOUNT.PURGE.A")
        assert purged["initiated"] is True
        assert (await ask(clients["A"], "INFO"))["streams"] == 0
        assert (await ask(clients["B"], "INFO"))["streams"] == 2
        for client in clients.values():
            await client.close()


async def test_settings_of_an_account_change(tmp_path: Path) -> None:
    """The last of several changes holds; requests wait while JetStream is being enabled."""
    accounts = {"A": {"jetstream": True}, "B": {"jetstream": True}}
    async with server_of(tmp_path, accounts) as server:
        part, client = server._jetstream, await log_in(server, "A")
        await client.jetstream().add_stream(name="S", subjects=["s"])
        await client.jetstream().publish("s", b"body")
        for jetstream in (False, {"max_streams": 1}, False, {"max_streams": 2}):
            options = make_options(accounts={"A": {"jetstream": jetstream}, "B": {}})
            part.settings_of = lambda account, options=options: options.accounts[account.name]
            part.configure_account(server.accounts["A"])
            await asyncio.sleep(0)
        info = await ask(client, "INFO")
        assert (info["streams"], info["limits"]["max_streams"]) == (1, 2)
        part.remove_account(server.accounts["A"])
        await part.configured()
        with pytest.raises(NoRespondersError):
            await client.request("$JS.API.INFO")
        await client.close()


async def test_an_account_that_cannot_be_served_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = {"jetstream": {"max_store": 500}}
    accounts = {"A": limits, "B": {"jetstream": False}}
    async with server_of(tmp_path, accounts, jetstream={"max_file_store": 900}) as server:
        part, client = server._jetstream, await log_in(server, "B")
        options = make_options(accounts={"B": limits})
        part.settings_of = lambda _account: options.accounts["B"]
        with caplog.at_level(logging.ERROR, "natsd.jetstream"):
            part.configure_account(server.accounts["B"])
            await part.configured()
        assert 'settings of account "B" are not applied: insufficient storage' in caplog.text
        assert await error(client, "INFO") == NOT_ENABLED
        await client.close()


async def test_a_start_with_more_than_the_server_has(tmp_path: Path) -> None:
    limits = {"jetstream": {"max_memory": 600}}
    server = server_of(tmp_path, {"A": limits, "B": limits}, jetstream={"max_memory_store": 1000})
    with pytest.raises(JetStreamError, match="Can't start JetStream: insufficient memory"):
        await server.start()


async def test_accounts_that_went_keep_their_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with server_of(tmp_path, {"A": {"jetstream": True}}) as server:
        client = await log_in(server, "A")
        await client.jetstream().add_stream(name="S", subjects=["s"])
        await client.close()
    with caplog.at_level(logging.WARNING, "natsd.jetstream"):
        async with server_of(tmp_path, {"B": {"jetstream": True}}):
            pass
    assert 'account "A" has 1 streams on disk, which are not served' in caplog.text
    async with server_of(tmp_path, {"A": {"jetstream": True}}) as server:
        client = await log_in(server, "A")
        assert (await ask(client, "STREAM.NAMES"))["streams"] == ["S"]
        await client.close()


@pytest.mark.parametrize(
    ("imported", "is_import"),
    [
        ({"service": {"account": "A", "subject": "$JS.API.>"}}, True),
        ({"service": {"account": "A", "subject": ">"}}, True),
        ({"service": {"account": "A", "subject": "api.>"}, "to": "$JS.API.>"}, True),
        ({"service": {"account": "A", "subject": "$JS.API.INFO"}}, True),
        ({"service": {"account": "A", "subject": "$JS.API.>"}, "to": "JS.A.API.>"}, False),
        ({"service": {"account": "A", "subject": "$JS.ACK.>"}}, False),
        ({"service": {"account": "A", "subject": "$JS.API"}}, False),
        ({"stream": {"account": "A", "subject": "$JS.API.>"}}, False),
    ],
)
def test_imports_of_the_api(imported: dict[str, Any], is_import: bool) -> None:
    """An account without JetStream that imports the API of another one is not answered twice."""
    settings = make_options(accounts={"A": {}, "B": {"imports": [imported]}}).accounts["B"]
    assert imports_api(settings) is is_import
    assert not imports_api(AccountOptions())
    assert not imports_api(None)


async def test_jsz_and_healthz_of_accounts(tmp_path: Path) -> None:
    accounts = {"A": {"jetstream": {"max_mem": 1000}}, "B": {"jetstream": True}, "C": {}}
    async with server_of(tmp_path, accounts, http_port=-1) as server:
        client = await log_in(server, "A")
        await client.jetstream().add_stream(name="S", subjects=["s"])
        await client.close()

        async def get(query: str) -> dict[str, Any]:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
            writer.write(f"GET /{query} HTTP/1.0\r\n\r\n".encode())
            body = (await reader.read()).split(b"\r\n\r\n", 1)[1]
            writer.close()
            return dict(json.loads(body))

        answer = await get("jsz?accounts=1")
        rows = {row["name"]: row for row in answer["account_details"]}
        assert (list(rows), answer["accounts"], answer["total"]) == (["A", "B"], 2, 2)
        assert rows["A"]["reserved_memory"] == 1000
        assert rows["B"]["reserved_memory"] == 2**64 - 1
        assert rows["A"]["api"]["total"] == 1
        (row,) = (await get("jsz?acc=A&streams=1"))["account_details"]
        assert [stream["name"] for stream in row["stream_detail"]] == ["S"]
        assert "account_details" not in await get("jsz?acc=C")
        assert await get("healthz?account=A&stream=S") == {"status": "ok"}
        assert (await get("healthz?account=C"))["error"] == 'JetStream account "C" not found'


async def test_a_reload_changes_accounts(tmp_path: Path) -> None:
    """It is checked as a whole before; what has not changed is left alone."""
    accounts = {"A": {"jetstream": True}, "B": {"jetstream": {"max_streams": 1}}, "C": {}}
    server = server_of(tmp_path, accounts, jetstream={"max_file_store": 1000})
    async with server:
        part, engine = server._jetstream, server.jetstream
        assert engine is not None
        clients = {name: await log_in(server, name) for name in accounts}
        await clients["A"].jetstream().add_stream(name="S", subjects=["s"])
        half = {"jetstream": {"max_store": 600}}
        with pytest.raises(OptionsError, match="accounts: insufficient storage"):
            part.check(make_options(server.options, accounts={"A": half, "B": half}))
        options = make_options(server.options, accounts={"A": {}, "B": accounts["B"], "C": half})
        part.check(options)
        before = engine.accounts["B"]
        part.renew(options, server.reactor, server.accounts)
        await part.configured()
        assert await error(clients["A"], "STREAM.INFO.S") == NOT_ENABLED
        assert engine.accounts["B"] is before
        assert (await ask(clients["C"], "INFO"))["limits"]["max_storage"] == 600
        for client in clients.values():
            await client.close()
