"""A test's server, in a thread and in a process: what a test can do with it."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
import urllib.request
from pathlib import Path
from typing import Any

import nats
import pytest

from natsd import testing
from natsd.config import OptionsError
from natsd.server.reload import ReloadError
from natsd.testing.fixtures import running

HOSTS = pytest.mark.parametrize("process", [False, True], ids=["thread", "process"])

SHOP = {
    "kitchen": {
        "users": [{"user": "cook", "password": "salt"}],
        "exports": [{"service": "cook.>"}],
    },
    "counter": {
        "users": [{"user": "waiter", "password": "tip"}],
        "imports": [{"service": {"account": "kitchen", "subject": "cook.>"}}],
    },
}


def connected(url: str, timeout_s: float = 20) -> socket.socket:
    host, port = url.removeprefix("nats://").split(":")
    return socket.create_connection((host, int(port)), timeout_s)


def greeting(url: str) -> str:
    """Return the first line that a server sends."""
    with connected(url) as connection:
        return connection.makefile().readline()


def info(url: str) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(greeting(url).removeprefix("INFO "))
    return fields


@HOSTS
def test_a_synchronous_test(process: bool) -> None:
    with testing.server(process=process) as server:
        assert greeting(server.client_url).startswith("INFO {")
        assert server.is_running
    assert not server.is_running
    with pytest.raises(ConnectionRefusedError):
        greeting(server.client_url)


@HOSTS
async def test_an_asynchronous_test(process: bool) -> None:
    async with testing.server(process=process) as server:
        client = await server.connect()
        subscription = await client.subscribe("greet.*")
        await client.publish("greet.joe", b"hello")
        assert (await subscription.next_msg(timeout=20)).data == b"hello"
    assert client.is_closed


@HOSTS
def test_settings_are_those_of_a_server(process: bool) -> None:
    with testing.server(process=process, max_payload=1234, server_name="alpha") as server:
        told = info(server.client_url)
    assert (told["max_payload"], told["server_name"]) == (1234, "alpha")


def test_wrong_settings_are_refused() -> None:
    for process in (False, True):
        with (
            pytest.raises(OptionsError, match="max_paylod"),
            testing.server(max_paylod=1, process=process),
        ):
            pass


@HOSTS
def test_a_configuration_as_text(process: bool) -> None:
    text = "max_payload: 2000\nlog_file: /nowhere/log\nhttp: 8222\nport: 4222"
    with testing.server(config=text, process=process) as server:
        assert info(server.client_url)["max_payload"] == 2000
        assert "Server is ready" in server.log
        assert not server.client_url.endswith(":4222")
        assert not server.monitoring_url.endswith(":8222")
        assert server.reload("max_payload: 3000\nhttp: 8222") == ["max_payload = 3000"]
        assert info(server.client_url)["max_payload"] == 3000


@HOSTS
def test_a_configuration_file(process: bool, tmp_path: Path) -> None:
    file = tmp_path / "shop.conf"
    file.write_text("max_payload: 2000\njetstream { store_dir: /nowhere }")
    with testing.server(config=file, process=process) as server:
        assert (server.directory / "jetstream").is_dir()
        with pytest.raises(ValueError, match="started with a text"):
            server.reload("max_payload: 3000")
        file.write_text("max_payload: 4000\njetstream { store_dir: /nowhere }")
        assert server.reload() == ["max_payload = 4000"]


@HOSTS
def test_a_reload_of_settings(process: bool) -> None:
    with testing.server(process=process) as server:
        assert server.reload(max_payload=99) == ["max_payload = 99"]
        with pytest.raises(ReloadError, match="server_name"):
            server.reload(server_name="other")
        server.restart()
        told = info(server.client_url)
    assert told["max_payload"] == 99
    assert told["server_name"] != "other"


@HOSTS
async def test_a_restart_keeps_ports_and_streams(process: bool) -> None:
    async with testing.server(jetstream=True, http_port=-1, process=process) as server:
        urls = server.client_url, server.monitoring_url
        async with server.connect() as client:
            await client.jetstream().add_stream(name="ORDERS", subjects=["orders"])
            await client.jetstream().publish("orders", b"a cone")
        server.restart()
        assert (server.client_url, server.monitoring_url) == urls
        async with server.connect() as client:
            stream = await client.jetstream().stream_info("ORDERS")
        assert stream.state.messages == 1


async def test_a_killed_process_keeps_what_it_acknowledged() -> None:
    async with testing.server(jetstream=True, process=True) as server:
        client = await server.connect(reconnect_time_wait=0.01)
        stream = client.jetstream()
        await stream.add_stream(name="ORDERS", subjects=["orders"])
        await stream.publish("orders", b"a cone")
        first = server.pid
        server.kill()
        assert not server.is_running
        server.restart()
        assert server.pid != first
        await asyncio.to_thread(server.wait_for_connections, 1, 20)
        assert (await stream.stream_info("ORDERS")).state.messages == 1


def test_a_thread_has_no_process_to_kill() -> None:
    with testing.server() as server:
        with pytest.raises(RuntimeError, match="process=True"):
            server.kill()
        with pytest.raises(RuntimeError, match="process=True"):
            assert server.pid


@HOSTS
def test_a_paused_server_answers_later(process: bool) -> None:
    with testing.server(process=process) as server:
        with server.paused():
            assert server.is_running
            with connected(server.client_url, 0.05) as connection:
                with pytest.raises(TimeoutError):
                    connection.recv(1)
        assert greeting(server.client_url).startswith("INFO {")
        server.pause()  # the end resumes it


@HOSTS
def test_the_log(process: bool) -> None:
    with testing.server(process=process) as server:
        server.wait_for_log("Server is ready")
        assert "Server Exiting" not in server.log
        assert server.log.errors == []
        server.stop()
        server.stop()
        assert "Server Exiting" in server.log.lines[-1]
    assert "Server is ready" in server.log.text


@HOSTS
async def test_waiting_for_others(process: bool) -> None:
    async with testing.server(process=process) as server:
        client = await server.connect(name="waiter")
        await client.subscribe("orders.*")
        await asyncio.to_thread(server.wait_for_subscription, "orders.*", timeout=20)
        (connection,) = server.connections()
        assert (connection.name, connection.lang) == ("waiter", "python3")
        assert connection.subscriptions == ("orders.*",)
        with pytest.raises(TimeoutError, match="nobody subscribed to sales"):
            await asyncio.to_thread(server.wait_for_subscription, "sales", timeout=0.01)
        with pytest.raises(RuntimeError, match=r"asyncio\.to_thread"):
            server.wait_for_connections(1)


@HOSTS
async def test_accounts(process: bool) -> None:
    async with testing.server(accounts=SHOP, process=process) as server:
        async with (
            server.connect(user="cook", password="salt") as cook,
            server.connect(user="waiter", password="tip") as waiter,
        ):

            async def answer(message: Any) -> None:
                await message.respond(b"done")

            await cook.subscribe("cook.soup", cb=answer)
            await cook.flush()
            assert (await waiter.request("cook.soup", timeout=20)).data == b"done"


@HOSTS
async def test_operator_mode(process: bool) -> None:
    operator = testing.Operator()
    account = operator.account("shop")
    user = account.user("ann")
    async with testing.server(process=process, **operator.settings(account)) as server:
        async with server.connect(**user.login):
            (connection,) = server.connections()
            assert connection.account == account.name


@HOSTS
async def test_tls(process: bool) -> None:
    async with testing.server(tls=True, process=process) as server:
        assert info(server.client_url)["tls_required"]
        async with server.connect() as client:
            await client.flush()
        assert server.tls_files is not None
        trusting = ssl.create_default_context(cafile=server.tls_files.ca_file)
        client = await nats.connect(server.client_url, tls=trusting)
        await client.close()


async def test_tls_with_certificates_of_clients() -> None:
    async with testing.server(tls="verify") as server:
        async with server.connect() as client:
            await client.flush()
        assert info(server.client_url)["tls_verify"]


async def test_tls_of_ones_own(tmp_path: Path) -> None:
    authority = testing.Authority(tmp_path)
    async with testing.server(tls=authority.sign("server").settings) as server:
        trusting = ssl.create_default_context(cafile=authority.ca_file)
        async with server.connect(tls=trusting) as client:
            await client.flush()
        with pytest.raises(RuntimeError, match="tls=True"):
            server.ssl_context()


@HOSTS
def test_monitoring(process: bool) -> None:
    with testing.server(http_port=-1, process=process) as server:
        with urllib.request.urlopen(f"{server.monitoring_url}/varz", timeout=60) as answer:
            assert json.load(answer)["connections"] == 0
    with testing.server(process=process) as server:
        with pytest.raises(RuntimeError, match="http_port=-1"):
            assert server.monitoring_url


@HOSTS
async def test_a_connection_left_open_is_an_error(process: bool) -> None:
    server = await testing.server(process=process).__aenter__()
    client = await nats.connect(server.client_url, name="forgotten", allow_reconnect=False)
    for number in range(7):
        await client.subscribe(f"orders.{number}")
    await client.flush()
    with pytest.raises(testing.LeakedConnections) as raised:
        await server.__aexit__(None, None, None)
    told = str(raised.value)
    assert "1 connection is still open" in told
    assert "forgotten, python3" in told
    assert "127.0.0.1:" in told
    assert "subscribed to orders.0" in told
    assert "and 2 more" in told
    assert "check_leaks=False" in told
    await client.close()


async def test_the_error_is_one_line_for_each_connection_whatever_its_name() -> None:
    server = await testing.server().__aenter__()
    client = await nats.connect(server.client_url, name="a\nb\x1b[31m", allow_reconnect=False)
    with pytest.raises(testing.LeakedConnections, match=r"cid \d+, a\\nb\\x1b\[31m, python3"):
        await server.__aexit__(None, None, None)
    await client.close()


def test_every_server_of_a_test_ends_even_if_the_end_of_one_fails(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise TimeoutError("the client does not close")

    ending = running(request)
    start = ending.__enter__()
    servers = [start(), start(), start()]
    monkeypatch.setattr(servers[1], "_end", fail)
    with pytest.raises(TimeoutError):
        ending.__exit__(None, None, None)
    assert [server.is_running for server in servers] == [False, True, False]
    servers[1].stop()
    shutil.rmtree(servers[1].directory)


async def test_a_leak_may_be_allowed() -> None:
    async with testing.server(check_leaks=False) as server:
        client = await nats.connect(server.client_url, allow_reconnect=False)
    await client.close()


def test_a_connection_closed_a_moment_ago_is_no_leak() -> None:
    for _ in range(20):
        with testing.server() as server:
            greeting(server.client_url)


def test_the_error_of_the_test_comes_first() -> None:
    def fail() -> None:
        with testing.server() as server:
            opened.append(connected(server.client_url))
            raise ZeroDivisionError

    opened: list[socket.socket] = []
    with pytest.raises(ZeroDivisionError):
        fail()
    opened[0].close()


@HOSTS
def test_logged_errors_may_be_an_error(process: bool) -> None:
    def send_garbage(server: testing.NatsServer) -> None:
        with connected(server.client_url) as connection:
            connection.sendall(b"GARBAGE\r\n")
            while connection.recv(4096):
                pass

    with testing.server(process=process) as server:
        send_garbage(server)
    assert server.log.errors
    with pytest.raises(testing.LoggedErrors, match=r"\[ERR\]"):
        with testing.server(check_errors=True, process=process) as server:
            send_garbage(server)


@HOSTS
def test_each_server_has_its_own_directory_and_removes_it(process: bool, tmp_path: Path) -> None:
    with (
        testing.server(jetstream=True, process=process, parent=tmp_path) as one,
        testing.server(jetstream=True, process=process, parent=tmp_path) as other,
    ):
        assert one.directory != other.directory
        assert {one.directory, other.directory} == set(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []


def test_a_core_server_in_a_thread_makes_no_directory(tmp_path: Path) -> None:
    with testing.server(parent=tmp_path):
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "jetstream",
    [{"sync_interval": "always"}, {"sync": "always"}],
)
def test_a_sync_interval_may_be_chosen(jetstream: dict[str, Any]) -> None:
    with testing.server(jetstream=jetstream) as server:
        assert "always" in next(line for line in server.log.lines if "Sync Interval" in line)


def test_streams_are_synced_every_two_minutes() -> None:
    with testing.server(jetstream=True) as server:
        assert "2m0s" in next(line for line in server.log.lines if "Sync Interval" in line)


def test_a_store_may_be_elsewhere(tmp_path: Path) -> None:
    for number, place in enumerate(
        (
            {"store_dir": str(tmp_path / "0"), "jetstream": True},
            {"jetstream": {"store_dir": str(tmp_path / "1")}},
        )
    ):
        with testing.server(**place):
            assert (tmp_path / str(number) / "jetstream").is_dir()


def test_jetstream_by_a_reload(tmp_path: Path) -> None:
    with testing.server(parent=tmp_path) as server:
        server.reload(jetstream=True)
        server.wait_for_log("to start JetStream", 60)
        assert (server.directory / "jetstream").is_dir()
    assert list(tmp_path.iterdir()) == []
