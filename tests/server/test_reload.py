"""A reload: what it changes in a running server, and that it changes all or nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.errors import ServiceUnavailableError

from natsd import Server
from natsd.config import Options, OptionsError, make_options
from natsd.config.jetstream_options import NO_SCRUB
from natsd.core.reasons import ClosedReason
from natsd.core.steps import AT_ONCE, at_once
from natsd.server.files import ports_file
from natsd.server.log import DaemonLog
from natsd.server.reload import ReloadError, reload_steps
from tests.server.streams import Stream
from tests.waiting import DEADLINE_S, eventually_within

ASYNC_INFO = b'CONNECT {"verbose":false,"protocol":1}\r\n'
SETTINGS = {"host": "127.0.0.1", "port": -1}


async def info_of(client: Stream) -> dict[str, Any]:
    """Return the next INFO."""
    while not (line := await client.line()).startswith(b"INFO "):
        assert line, "closed by the server"
    return dict(json.loads(line.removeprefix(b"INFO ")))


@asynccontextmanager
async def traffic(server: Server) -> AsyncIterator[None]:
    """Let two clients exchange messages; assert at the end that they still do, and lost none."""
    one, two = [await Stream.open(server.client_port) for _ in range(2)]
    two.send(b"SUB numbers 1\r\n")
    await two.sync()
    last, is_over = 0, False

    async def publish() -> None:
        nonlocal last
        while not is_over:
            last += 1
            one.send(b"PUB numbers %d\r\n%d\r\n" % (len(str(last)), last))
            await one.sync()

    publishing = asyncio.create_task(publish())
    try:
        await eventually_within(lambda: last > 2)
        yield
        reached = last
        await eventually_within(lambda: last > reached)
    finally:
        is_over = True
        await publishing
    lines = [line for line in await two.sync() if line[:1].isdigit()]
    assert lines == [b"%d\r\n" % number for number in range(1, last + 1)]
    assert not server.closed_clients
    await one.close()
    await two.close()


async def test_a_reload_disconnects_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Server(**SETTINGS, pid_file=tmp_path / "old.pid") as server:
        with caplog.at_level(logging.INFO, "natsd.server"):
            async with traffic(server):
                changes = server.reload(
                    debug=True,
                    max_payload=1000,
                    max_control_line=1000,
                    max_pending=2000,
                    max_connections=2,
                    max_subscriptions=7,
                    max_sub_tokens=3,
                    max_closed_clients=5,
                    max_traced_msg_len=10,
                    ping_interval="1m",
                    ping_max=5,
                    write_deadline="1s",
                    auth_timeout="1s",
                    lame_duck_duration="1m",
                    lame_duck_grace_period="1s",
                    no_fast_producer_stall=True,
                    client_advertise="there:1",
                    pid_file=tmp_path / "new.pid",
                    ports_file_dir=tmp_path,
                )
        assert len(changes) == 19
        for change in changes:
            assert attrgetter(change.name)(server.options) == change.new
            assert f"Reloaded: {change.new_text}" in caplog.text
        assert not (tmp_path / "old.pid").exists()
        assert (tmp_path / "new.pid").exists()
        assert json.loads(ports_file(tmp_path).read_text())["nats"] == [server.client_url]
        settings, options = server.settings, server.options
        assert settings.max_payload == 1000
        assert settings.max_pending == 2000
        assert settings.write_deadline_ns == 1_000_000_000
        assert settings.no_fast_producer_stall
        assert options.lame_duck_duration == timedelta(minutes=1)
    assert os.listdir(tmp_path) == []


async def test_nothing_changes_if_one_change_needs_a_restart() -> None:
    async with Server(**SETTINGS) as server:
        before = server.options
        with pytest.raises(ReloadError) as caught:
            server.reload(max_payload=1000, host="localhost", http_base_path="/nats")
        assert str(caught.value) == (
            "config reload not supported for host: old=127.0.0.1, new=localhost; "
            "http_base_path: old=, new=/nats"
        )
        assert server.options is before
        assert server.settings.max_payload == before.max_payload


async def test_nothing_changes_if_the_log_cannot_be_opened(tmp_path: Path) -> None:
    log = DaemonLog(make_options(log_file=tmp_path / "log"))
    root = logging.getLogger("natsd")
    try:
        async with Server(**SETTINGS, log_file=tmp_path / "log") as server:
            server.log = log
            missing = tmp_path / "missing" / "log"
            with pytest.raises(ReloadError, match="error opening log file: open"):
                server.reload(
                    max_payload=1000, log_file=missing, pid_file=tmp_path / "pid", debug=True
                )
            assert server.settings.max_payload == server.options.max_payload == 1 << 20
            assert not (tmp_path / "pid").exists()
            logging.getLogger("natsd.server").info("still here")
            assert "still here" in (tmp_path / "log").read_text()
            assert root.level == logging.INFO
    finally:
        log.close()


async def test_nothing_changes_if_a_file_cannot_be_written(tmp_path: Path) -> None:
    async with Server(**SETTINGS) as server:
        with pytest.raises(ReloadError, match="Could not write pidfile"):
            server.reload(ports_file_dir=tmp_path, pid_file=tmp_path / "missing" / "pid")
        assert server.options.ports_file_dir is None
        assert os.listdir(tmp_path) == []


async def test_the_log_follows(tmp_path: Path) -> None:
    log = DaemonLog(make_options(log_file=tmp_path / "one"))
    try:
        async with Server(**SETTINGS, log_file=tmp_path / "one") as server:
            server.log = log
            client = await Stream.open(server.client_port)
            server.reload(log_file=tmp_path / "two", trace=True, logtime=False)
            client.send(b"PUB traced 0\r\n\r\n")
            await client.sync()
            assert "<<- [PUB traced 0]" in (tmp_path / "two").read_text()
            assert "[DBG]" not in (tmp_path / "two").read_text()
            server.reload(trace=False, debug=True)
            size = (tmp_path / "two").stat().st_size

            def log_after(size: int) -> str:
                return (tmp_path / "two").read_text()[size:]

            client.send(b"PUB silent 0\r\n\r\n")
            await client.sync()
            await client.close()
            await eventually_within(lambda: "Client connection closed" in log_after(size))
            assert "silent" not in log_after(size)
            assert (tmp_path / "one").read_text().endswith("Server is ready\n")
    finally:
        log.close()


async def test_a_connection_follows_the_new_limits() -> None:
    async with Server(**SETTINGS) as server:
        client = await Stream.open(server.client_port)
        server.reload(max_payload=10)
        client.send(b"PUB a 11\r\n12345678901\r\n")
        assert await client.read_until_closed() == b"-ERR 'Maximum Payload Violation'\r\n"
        await client.close()
        client = await Stream.open(server.client_port)
        await client.sync()
        server.reload(max_payload=20, max_control_line=60)
        client.send(b"SUB a 1\r\nPUB a 11\r\n12345678901\r\n")
        assert b"12345678901\r\n" in await client.sync()
        client.send(b"SUB %b 1\r\n" % (b"a" * 60))
        assert b"maximum control line" in await client.read_until_closed()
        await client.close()
        client = await Stream.open(server.client_port)
        server.reload(max_subscriptions=1)
        client.send(b"SUB a 1\r\nSUB b 2\r\n")
        assert b"-ERR 'maximum subscriptions exceeded'\r\n" in await client.sync()
        await client.close()


async def test_a_shorter_ping_interval_holds_at_once() -> None:
    async with Server(**SETTINGS) as server:
        client = await Stream.open(server.client_port)
        await client.sync()
        server.reload(ping_interval="20ms", ping_max=1)
        assert b"-ERR 'Stale Connection'\r\n" in await client.read_until_closed()
        await client.close()


async def test_fewer_connections_close_the_newest() -> None:
    async with Server(**SETTINGS) as server:
        clients = [await Stream.open(server.client_port) for _ in range(3)]
        for client in clients:
            await client.sync()
        server.reload(max_connections=1)
        for client in clients[1:]:
            assert await client.read_until_closed() == b"-ERR 'maximum connections exceeded'\r\n"
        assert await clients[0].sync() == []
        reasons = [closed.reason for closed in server.closed_clients]
        assert reasons == [ClosedReason.MAXIMUM_CONNECTIONS_EXCEEDED.value] * 2
        for client in clients:
            await client.close()


async def test_clients_are_sent_the_new_info() -> None:
    async with Server(**SETTINGS) as server:
        old, new = [await Stream.open(server.client_port) for _ in range(2)]
        new.send(ASYNC_INFO)
        for client in (old, new):
            await client.sync()
        server.reload(max_payload=1000, client_advertise="there:99")
        while (info := await info_of(new)).get("connect_info"):
            pass  # sent after the first PONG
        assert (info["max_payload"], info["host"], info["port"]) == (1000, "there", 99)
        assert await old.sync() == []  # it does not support that
        late = await asyncio.open_connection("127.0.0.1", server.client_port)
        assert b'"max_payload":1000' in await late[0].readline()
        late[1].close()
        for client in (old, new):
            await client.close()


async def test_clients_are_sent_no_info_that_they_have_already() -> None:
    """Other users, accounts and permissions do not show in INFO; nats-server sends none either."""
    users = [{"user": "a", "password": "b"}]
    settings = {"authorization": {"users": users}, "no_auth_user": "a"}
    async with Server(**SETTINGS, **settings) as server:
        client = await Stream.open(server.client_port)
        client.send(ASYNC_INFO)
        await client.sync()
        await client.sync()  # INFO with the account follows the first PONG
        server.reload(authorization={"users": [*users, {"user": "c", "password": "d"}]})
        server.reload(accounts={"A": {}})
        server.reload(debug=True, ping_max=7)
        assert await client.sync() == []
        server.reload(max_payload=1000)
        assert (await info_of(client))["max_payload"] == 1000
        await client.close()


async def test_other_credentials_close_the_clients_that_have_the_old_ones() -> None:
    async with Server(**SETTINGS, token="old") as server:
        old, new, silent = [
            Stream(*await asyncio.open_connection("127.0.0.1", server.client_port))
            for _ in range(3)
        ]
        old.send(b'CONNECT {"verbose":false,"auth_token":"old"}\r\n')
        assert len(await old.sync()) == 1  # INFO
        server.reload(token="new", auth_timeout="100ms")
        new.send(b'CONNECT {"verbose":false,"auth_token":"new"}\r\n')
        assert len(await new.sync()) == 1
        assert await old.read_until_closed() == b"-ERR 'Authorization Violation'\r\n"
        assert b"Authentication Timeout" in await silent.read_until_closed()
        server.reload(token="")
        assert await new.sync() == []
        for client in (old, new, silent):
            await client.close()


def with_users(*users: tuple[str, str]) -> Options:
    return make_options(
        **SETTINGS,
        authorization={"users": [{"user": user, "password": word} for user, word in users]},
    )


async def test_logins_are_checked_in_steps_and_the_users_that_are_gone_first() -> None:
    """Between two steps other clients are served; a new login is decided as the new options say."""
    before = with_users(("a", "1"), ("gone", "1"))
    after = with_users(("a", "2"))
    async with Server(before) as server:
        clients = []
        for number in range(AT_ONCE + 2):
            client = Stream(*await asyncio.open_connection("127.0.0.1", server.client_port))
            user = b"gone" if number == AT_ONCE + 1 else b"a"
            client.send(b'CONNECT {"verbose":false,"user":"%s","pass":"1"}\r\n' % user)
            await client.sync()
            clients.append(client)
        steps = reload_steps(server, after)
        while server.options is not after:
            next(steps)
        reasons = [client.reason for client in server.clients.values()]
        assert reasons[-1] is ClosedReason.AUTHENTICATION_FAILURE
        assert reasons[-2] is None
        refused = Stream(*await asyncio.open_connection("127.0.0.1", server.client_port))
        refused.send(b'CONNECT {"verbose":false,"user":"a","pass":"1"}\r\n')
        assert b"Authorization Violation" in await refused.read_until_closed()
        (change,) = at_once(steps)
        assert change.name == "authorization.users"
        await eventually_within(lambda: not server.clients)
        for client in (*clients, refused):
            await client.close()


async def test_a_reload_in_the_middle_of_another_is_not_undone_by_it() -> None:
    async with Server(**SETTINGS) as server:
        steps = reload_steps(server, make_options(server.options, token="old"))
        next(steps)
        server.reload(max_payload=1000)
        with pytest.raises(ReloadError, match="changed by another reload meanwhile"):
            at_once(steps)
        assert server.options == make_options(**SETTINGS, max_payload=1000)


async def test_a_required_login_closes_the_clients_without_one() -> None:
    async with Server(**SETTINGS) as server:
        client = await Stream.open(server.client_port)
        await client.sync()
        server.reload(user="u", password="secret")
        assert await client.read_until_closed() == b"-ERR 'Authorization Violation'\r\n"
        await client.close()


async def test_scrubs_come_sooner_and_end(tmp_path: Path) -> None:
    async with Server(**SETTINGS, store_dir=tmp_path, jetstream=True) as server:
        engine = server.jetstream
        assert engine is not None
        assert engine.scrubber.ended == 0
        server.reload(**{"jetstream.scrub_interval": timedelta(seconds=0.01)})
        await eventually_within(lambda: engine.scrubber.ended)
        server.reload(**{"jetstream.scrub_interval": NO_SCRUB, "jetstream.scrub_speed": 1000})
        assert engine.scrubber._task is None
        assert engine.options.scrub_interval == NO_SCRUB
        assert engine.options.scrub_speed == 1000


async def test_limits_of_jetstream_grow(tmp_path: Path) -> None:
    jetstream = {"max_file_store": 1 << 20, "max_memory_store": 1 << 20}
    async with Server(**SETTINGS, store_dir=tmp_path, jetstream=jetstream) as server:
        server.reload(**{"jetstream.max_file_store": 2 << 20})
        engine = server.jetstream
        assert engine is not None
        assert (engine.usage.file_limit, engine.usage.memory_limit) == (2 << 20, 1 << 20)
        assert engine.options.max_file_store == 2 << 20
        with pytest.raises(ReloadError, match=r"not supported for jetstream\.max_file_store"):
            server.reload(**{"jetstream.max_file_store": 1 << 20})
        await server.stop()
        await server.start()
        engine = server.jetstream
        assert engine is not None
        assert engine.usage.file_limit == 2 << 20


async def answered(request: Callable[[], Awaitable[object]]) -> None:
    """Repeat a request until somebody responds."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with contextlib.suppress(ServiceUnavailableError):
                await request()
                return
            await asyncio.sleep(0.01)


async def test_jetstream_is_switched_off_and_on(tmp_path: Path) -> None:
    async with Server(**SETTINGS, store_dir=tmp_path, jetstream=True) as server:
        client = await nats.connect(server.client_url)
        stream = client.jetstream()
        await stream.add_stream(name="S", subjects=["s"])
        await stream.publish("s", b"kept")
        server.reload(jetstream=False)
        await eventually_within(lambda: server.jetstream is None)
        with pytest.raises(ServiceUnavailableError):
            await stream.account_info()
        late = await Stream.open(server.client_port)
        late.send(ASYNC_INFO)
        await late.sync()
        server.reload(**{"jetstream.enabled": True, "jetstream.domain": "hub"})
        in_domain = client.jetstream(domain="hub")
        await answered(in_domain.account_info)
        assert "jetstream" not in await info_of(late)  # sent after the first PONG
        assert (await info_of(late))["domain"] == "hub"
        assert (await in_domain.get_msg("S", 1)).data == b"kept"
        with pytest.raises(ReloadError, match=r"not supported for jetstream\.domain: old=hub"):
            server.reload(**{"jetstream.domain": "other"})
        await client.close()
        await late.close()


async def test_jetstream_that_cannot_start_leaves_the_server_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "jetstream").touch()
    async with Server(**SETTINGS) as server:
        server.reload(jetstream=True, store_dir=tmp_path)
        await eventually_within(lambda: "Can't start JetStream" in caplog.text)
        assert server.jetstream is None
        client = await Stream.open(server.client_port)
        await client.sync()
        await client.close()


async def test_jetstream_is_switched_off_while_it_starts(tmp_path: Path) -> None:
    async with Server(**SETTINGS) as server:
        for is_on in (True, False, True, False):
            server.reload(jetstream=is_on, store_dir=tmp_path)
    assert server.jetstream is None
    async with Server(**SETTINGS, jetstream=True, store_dir=tmp_path):
        pass


async def test_a_mistake_changes_nothing() -> None:
    async with Server(**SETTINGS) as server:
        with pytest.raises(OptionsError):
            server.reload(max_payload="much")
        with pytest.raises(OptionsError):
            server.reload(max_pending=1)
        assert server.reload() == []
        with pytest.raises(ReloadError):
            server.reload(Options())
    with pytest.raises(RuntimeError):
        server.reload(max_payload=10)


def test_a_server_in_its_own_thread() -> None:
    with Server(**SETTINGS, thread=True) as server:
        (change,) = server.reload(max_payload=1000)
        assert (change.old, change.new) == (1 << 20, 1000)
        assert server.settings.max_payload == 1000
        with pytest.raises(ReloadError):
            server.reload(host="localhost")
