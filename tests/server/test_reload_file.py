"""A reload of the configuration file: users, accounts and what they share, under traffic."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

from natsd import Server
from natsd.config import OptionsError
from natsd.config.load import load_options
from natsd.core.reasons import ClosedReason
from natsd.server.reload import ReloadError
from tests.server.streams import Stream
from tests.server.test_reload import traffic
from tests.waiting import eventually_within

HEAD = 'listen: "127.0.0.1:-1"\n'
ONE_ACCOUNT = (
    HEAD + "accounts { A { users: [{user: a, password: pw}, {user: b, password: pw}] } }\n"
)


class Reloadable:
    """A server with a configuration file that a test rewrites."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        path.write_text(text)
        loaded = load_options(path)
        self.server = Server(loaded.options)
        self.server.config = loaded

    async def to(self, text: str) -> None:
        """Write the file and reload it."""
        self.path.write_text(text)
        await self.server.reload_file()


async def login(server: Server, user: str = "", password: str = "pw") -> NatsClient:
    """Return a client that does not connect again."""

    async def ignore(_error: Exception) -> None:
        pass

    extra: dict[str, Any] = {"user": user, "password": password} if user else {}
    return await nats.connect(server.client_url, allow_reconnect=False, error_cb=ignore, **extra)


async def refusal(server: Server, user: str) -> bytes:
    """Return what a client is told that is not accepted."""
    client = Stream(*await asyncio.open_connection("127.0.0.1", server.client_port))
    client.send(b'CONNECT {"verbose":false,"user":"%s","pass":"pw"}\r\n' % user.encode())
    told = await client.read_until_closed()
    await client.close()
    return told


def reasons(server: Server) -> list[str]:
    return [closed.reason for closed in server.closed_clients]


async def test_without_a_file_nothing_is_reloaded() -> None:
    async with Server(host="127.0.0.1", port=-1) as server:
        with pytest.raises(ReloadError, match="can only reload config when a file is provided"):
            await server.reload_file()


async def test_flags_hold_over_the_new_file_too(tmp_path: Path) -> None:
    path = tmp_path / "nats.conf"
    path.write_text(HEAD + "max_payload: 1000\ndebug: true\n")
    loaded = load_options(path, {"max_payload": 500})
    server = Server(loaded.options)
    server.config = loaded
    async with server:
        path.write_text(HEAD + "max_payload: 2000\nping_max: 7\n")
        (debug, ping_max) = await server.reload_file()
        assert (debug.name, ping_max.name) == ("debug", "ping_max")
        assert server.settings.max_payload == 500
        assert server.config_digest.startswith("sha256:")
        assert server.config_digest != loaded.digest


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("max_payload: much", OptionsError, "max_payload"),
        ("unheard_of: 1", OptionsError, "unheard_of"),
        ("max_payload = [", OptionsError, "."),
        ('http_base_path: "/x"\nmax_payload: 7', ReloadError, "config reload not supported for"),
        (
            "accounts { A { imports: [{stream: {account: B, subject: s}}] }, B {} }",
            OptionsError,
            "stream import not authorized",
        ),
        ('tls { cert_file: "none.pem", key_file: "none.pem" }', OptionsError, "none.pem"),
    ],
)
async def test_a_refused_file_changes_nothing(
    tmp_path: Path, text: str, error: type[Exception], says: str
) -> None:
    reloadable = Reloadable(tmp_path / "nats.conf", ONE_ACCOUNT)
    async with reloadable.server as server:
        before, digest = server.options, server.config_digest
        async with _kept(await login(server, "a")):
            with pytest.raises(error, match=says):
                await reloadable.to(HEAD + text)
            assert server.options is before
            assert server.config_digest == digest
            assert list(server.accounts) == ["$G", "$SYS", "A"]


def _kept(client: NatsClient) -> Any:
    """Return a context at whose end the client must still be connected."""

    class Kept:
        async def __aenter__(self) -> NatsClient:
            return client

        async def __aexit__(self, *_: object) -> None:
            await client.flush()
            await client.close()

    return Kept()


async def test_a_refusal_says_where_the_settings_stand_that_need_a_restart(
    tmp_path: Path,
) -> None:
    reloadable = Reloadable(tmp_path / "nats.conf", HEAD + "server_name: before\n")
    async with reloadable.server as server:
        with pytest.raises(ReloadError) as caught:
            await reloadable.to(
                HEAD
                + "debug: true\n\n feature_flags { a: true }\njetstream {\n enabled: false\n}\n"
            )
        assert str(caught.value) == (
            "config reload not supported for server_name: old=before, new=; "
            f"feature_flags ({reloadable.path}:4:2)"
        )
        with pytest.raises(ReloadError) as caught:
            await reloadable.to('listen: "localhost:-1"\n server_name: after\n')
        assert str(caught.value) == (
            f"config reload not supported for host: old=127.0.0.1, new=localhost "
            f"({reloadable.path}:1:1); "
            f"server_name: old=before, new=after ({reloadable.path}:2:2)"
        )
        assert not server.options.debug


async def test_the_bound_port_is_the_same_as_a_random_one(tmp_path: Path) -> None:
    reloadable = Reloadable(tmp_path / "nats.conf", HEAD)
    async with reloadable.server as server:
        for port in (server.client_port, -1):
            await reloadable.to(f'listen: "127.0.0.1:{port}"\nmax_payload: {port + 9}\n')
            assert server.settings.max_payload == port + 9
            client = await login(server)
            await client.close()
        with pytest.raises(ReloadError, match="port: old=-1, new=1"):
            await reloadable.to('listen: "127.0.0.1:1"\n')


async def test_users_change_and_only_those_who_lost_their_right_are_closed(tmp_path: Path) -> None:
    reloadable = Reloadable(tmp_path / "nats.conf", ONE_ACCOUNT)
    async with reloadable.server as server:
        stays, goes = await login(server, "a"), await login(server, "b")
        got: list[Msg] = []

        async def note(message: Msg) -> None:
            got.append(message)

        await stays.subscribe("s", cb=note)
        await stays.flush()
        await reloadable.to(
            HEAD + "accounts { A { users: [{user: a, password: pw}, {user: c, password: new}] } }\n"
        )
        await eventually_within(lambda: goes.is_closed)
        assert reasons(server) == [ClosedReason.AUTHENTICATION_FAILURE.value]
        async with _kept(await login(server, "c", "new")) as late:
            await late.publish("s", b"hello")
            await eventually_within(lambda: got)
        assert b"Authorization Violation" in await refusal(server, "b")
        await stays.close()


async def test_a_changed_password_closes_and_changed_permissions_do_not(tmp_path: Path) -> None:
    def users(password: str, rule: str) -> str:
        return (
            f"{HEAD}authorization {{ users: [{{user: a, password: {password}}}, "
            f"{{user: b, password: pw, permissions: {{ subscribe: {rule} }} }}] }}\n"
        )

    reloadable = Reloadable(tmp_path / "nats.conf", users("pw", '"x.>"'))
    async with reloadable.server as server:
        changed, limited = await login(server, "a"), await login(server, "b")
        await limited.subscribe("x.one")
        await limited.subscribe("x.two")
        await limited.flush()
        await reloadable.to(users("other", '"x.two"'))
        await eventually_within(lambda: changed.is_closed)
        await limited.flush()
        (client,) = [each for each in server.clients.values() if each.authorized_user == "b"]
        assert [each.subject for each in client.subscriptions()] == ["x.two"]
        await limited.close()


async def test_accounts_come_change_and_go(tmp_path: Path) -> None:
    reloadable = Reloadable(tmp_path / "nats.conf", ONE_ACCOUNT)
    async with reloadable.server as server:
        one = await login(server, "a")
        await reloadable.to(
            HEAD
            + "accounts {\n"
            + " A { users: [{user: a, password: pw}], exports: [{stream: news}] }\n"
            + " B { users: [{user: x, password: pw}], limits: {max_connections: 1}, "
            + "imports: [{stream: {account: A, subject: news}}] }\n}\n"
        )
        reader = await login(server, "x")
        news = await reader.subscribe("news")
        await reader.flush()
        await one.publish("news", b"first")
        assert (await news.next_msg(10)).data == b"first"
        assert b"maximum account active connections exceeded" in await refusal(server, "x")
        await reloadable.to(ONE_ACCOUNT)
        await eventually_within(lambda: reader.is_closed)
        assert "B" not in server.accounts
        await one.publish("news", b"second")
        await one.flush()
        await one.close()


async def test_an_export_that_is_gone_ends_the_import_at_once(tmp_path: Path) -> None:
    def shared(exports: str, imports: str) -> str:
        return (
            f"{HEAD}accounts {{ A {{ users: [{{user: a, password: pw}}], exports: [{exports}] }}, "
            f"B {{ users: [{{user: b, password: pw}}], imports: [{imports}] }} }}\n"
        )

    given = "{stream: {account: A, subject: news}}"
    reloadable = Reloadable(tmp_path / "nats.conf", shared("{stream: news}", given))
    async with reloadable.server as server:
        a, b = await login(server, "a"), await login(server, "b")
        news = await b.subscribe("news")
        await b.flush()
        await a.publish("news", b"1")
        assert (await news.next_msg(10)).data == b"1"
        await reloadable.to(shared("", ""))
        await a.publish("news", b"2")
        await a.flush()
        await reloadable.to(shared("{stream: news}", given))
        await a.publish("news", b"3")
        assert (await news.next_msg(10)).data == b"3"
        for client in (a, b):
            await client.close()


async def test_what_the_default_account_shares_ends_with_its_settings(tmp_path: Path) -> None:
    def text(own: str) -> str:
        return (
            f"{HEAD}{own}\naccounts {{ A {{ users: [{{user: a, password: pw}}] }} }}\n"
            "authorization { users: [{user: g, password: pw}] }\n"
        )

    shared = "mappings { a: b }"
    reloadable = Reloadable(tmp_path / "nats.conf", text(shared))
    async with reloadable.server as server:
        client = await login(server, "g")
        a, b = await client.subscribe("a"), await client.subscribe("b")
        for own in (shared, "", shared):
            await reloadable.to(text(own))
            await client.publish("a", b"x")
            assert (await (b if own else a).next_msg(10)).data == b"x"
        await client.close()


async def test_clients_without_a_login_notice_nothing_of_many_reloads(tmp_path: Path) -> None:
    reloadable = Reloadable(tmp_path / "nats.conf", HEAD)

    def other(number: int) -> str:
        return f"{HEAD}mappings {{ a: b{number} }}\nmax_payload: {2000 + number}\n"

    async with reloadable.server as server, traffic(server):
        for number in range(20):
            await reloadable.to(other(number))
            await asyncio.sleep(0)
        await reloadable.to(HEAD)
    assert server.options.mappings == {}


async def test_a_client_that_sent_no_connect_loses_its_right_too(tmp_path: Path) -> None:
    def text(no_auth_user: str) -> str:
        return f"{ONE_ACCOUNT}{no_auth_user}\n"

    reloadable = Reloadable(tmp_path / "nats.conf", text("no_auth_user: b"))
    async with reloadable.server as server:
        client = Stream(*await asyncio.open_connection("127.0.0.1", server.client_port))
        client.send(b"SUB secret 1\r\n")
        await client.sync()
        await reloadable.to(text(""))
        assert b"Authorization Violation" in await client.read_until_closed()
        await client.close()
