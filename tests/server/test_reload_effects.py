"""Every setting that a reload can change: what it does is seen to change, and to change back.

A row is a base, two values and a probe. The probe looks at the server from outside, as a client or
in its files, and returns what it sees: something else for the second value than for the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from natsd import Server
from natsd.config import make_options
from natsd.config.changes import APPLIED_BY
from natsd.config.public_keys import Kind
from natsd.server.files import ports_file
from natsd.server.log import DaemonLog
from natsd.testing.certificates import Authority
from natsd.testing.jwts import key
from tests.auth.fakes import sign
from tests.config.keys import public_key
from tests.server.streams import Stream
from tests.server.test_reload_table import (
    BASE,
    LARGER,
    LIMITED,
    MONITORING,
    NO_EFFECT,
    OPERATOR_MODE,
    USERS,
    filled,
)
from tests.waiting import eventually_within

CONNECT: Final = b'CONNECT {"verbose":false,"headers":true}\r\n'
FLOOD: Final = b"PUB flood 65536\r\n" + b"x" * 65536 + b"\r\n"
FLOOD_MESSAGES: Final = 320
PATIENCE_S: Final = 0.4
"""How long a probe waits for what does not come."""

Probe = Callable[[Server, Path], Awaitable[object]]


@dataclass
class Row:
    """How to see what a setting does."""

    first: Any
    second: Any
    probe: Probe
    base: dict[str, Any] = field(default_factory=dict)


# ---- clients


async def connection(server: Server) -> Stream:
    return Stream(*await asyncio.open_connection("127.0.0.1", server.client_port))


async def said(server: Server, *lines: bytes) -> bytes:
    """Return what a new client is told up to its PONG or its end, without INFO."""
    client = await connection(server)
    client.send(CONNECT + b"\r\n".join(lines) + b"\r\nPING\r\n" if lines else CONNECT + b"PING\r\n")
    told = b""
    while line := await client.line():
        if not line.startswith(b"INFO"):
            told += line
        if line == b"PONG\r\n":
            break
    await client.close()
    return told


async def info(server: Server) -> dict[str, Any]:
    """Return the INFO that a new client gets; nothing if it is closed before."""
    client = await connection(server)
    line = await client.line()
    await client.close()
    return dict(json.loads(line.removeprefix(b"INFO "))) if line else {}


async def logged_in(server: Server, **fields: str) -> str:
    """Return the account of a client with these credentials; empty: it is refused."""
    client = await connection(server)
    client.send(b"CONNECT " + json.dumps({"verbose": False, **fields}).encode() + b"\r\nPING\r\n")
    while (line := await client.line()).startswith(b"INFO"):
        pass
    accounts = [each.account_name for each in server.clients.values() if each.reason is None]
    await client.close()
    await eventually_within(lambda: not server.clients)
    return str(accounts[-1]) if line == b"PONG\r\n" else ""


def tells(*lines: bytes) -> Probe:
    async def probe(server: Server, _directory: Path) -> bytes:
        return await said(server, *lines)

    return probe


def informs(name: str) -> Probe:
    async def probe(server: Server, _directory: Path) -> object:
        return (await info(server)).get(name)

    return probe


def accepts(**fields: str) -> Probe:
    async def probe(server: Server, _directory: Path) -> str:
        return await logged_in(server, **fields)

    return probe


def describes(name: str) -> Probe:
    async def probe(server: Server, _directory: Path) -> object:
        return server.describe().get(name)

    return probe


async def pinged(server: Server, _directory: Path) -> int:
    """Return how many PINGs a silent client gets, until it is closed or some time is over."""
    client = await connection(server)
    client.send(CONNECT)
    pings = 0
    try:
        async with asyncio.timeout(PATIENCE_S):
            while line := await client.reader.readline():
                pings += line == b"PING\r\n"
    except TimeoutError:
        pass
    await client.close()
    return pings


async def times_out(server: Server, _directory: Path) -> bool:
    """Return whether a client that does not log in is closed soon."""
    client = await connection(server)
    try:
        async with asyncio.timeout(PATIENCE_S):
            return b"Authentication Timeout" in await client.reader.read()
    except TimeoutError:
        return False
    finally:
        await client.close()


async def remembered(server: Server, _directory: Path) -> int:
    """Return how many closed clients are known after four more."""
    for _ in range(4):
        await said(server)
    await eventually_within(lambda: not server.clients)
    return min(4, len(server.closed_clients))


async def flooded(server: Server) -> tuple[str | None, int]:
    """Return why a client that reads nothing is closed, and how often its publisher waited."""
    lazy = socket.create_connection(("127.0.0.1", server.client_port))
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lazy.sendall(CONNECT + b"SUB flood 1\r\n")
    publisher = await connection(server)
    publisher.send(CONNECT)
    await publisher.sync()
    await eventually_within(
        lambda: any(client.num_subscriptions for client in server.clients.values())
    )
    (target,) = [client for client in server.clients.values() if client.num_subscriptions]
    waited = server.counters.stalled_clients
    for _ in range(FLOOD_MESSAGES):
        publisher.send(FLOOD)
        await publisher.writer.drain()
    await publisher.sync()
    with contextlib.suppress(AssertionError):
        await eventually_within(lambda: target.reason is not None, PATIENCE_S)
    reason = None if target.reason is None else target.reason.value
    lazy.close()
    await publisher.close()
    await eventually_within(lambda: not server.clients)
    return reason, server.counters.stalled_clients - waited


async def slow_consumer(server: Server, _directory: Path) -> str | None:
    return (await flooded(server))[0]


async def stalls(server: Server, _directory: Path) -> bool:
    return (await flooded(server))[1] > 0


async def bytes_for_all(server: Server, _directory: Path) -> int:
    return server.reactor.pending_bytes_max


async def reads_header(server: Server, _directory: Path) -> bool:
    """Return whether a PROXY header is understood."""
    client = await connection(server)
    client.send(b"PROXY TCP4 192.0.2.1 192.0.2.2 5 6\r\n" + CONNECT + b"PING\r\n")
    told = b""
    while not told.endswith(b"PONG\r\n") and (line := await client.line()):
        told += line
    await client.close()
    return b"-ERR" not in told


# ---- the log and other files


def log_lines(shows: Callable[[list[str]], object]) -> Probe:
    """Return a probe that publishes with headers, and looks at the new lines of the log."""

    async def probe(server: Server, directory: Path) -> object:
        log = directory / "log"
        before = log.stat().st_size if log.exists() else 0
        message = b"HPUB a 18 21\r\nNATS/1.0\r\nA: b\r\n\r\nxyz"
        await said(server, message)
        await eventually_within(lambda: not server.clients)
        if server.log is not None:
            server.log.reopen()
        return shows(log.read_text()[before:].splitlines() if log.exists() else [])

    return probe


def has(text: str) -> Callable[[list[str]], bool]:
    return lambda lines: any(text in line for line in lines)


async def log_files(server: Server, directory: Path) -> int:
    """Return how many files the log has after many lines."""
    for _ in range(20):
        await said(server)
    return sum(name.startswith("log") for name in os.listdir(directory))


async def log_file_grows(server: Server, directory: Path) -> bool:
    other = directory / "other"
    before = other.stat().st_size if other.exists() else 0
    await said(server)
    return other.exists() and other.stat().st_size > before


async def pid_file(_server: Server, directory: Path) -> bool:
    return (directory / "pid").exists()


async def has_ports_file(_server: Server, directory: Path) -> bool:
    return ports_file(directory).exists()


CERTIFICATE: Final = {"cert_file": "{cert_file}", "key_file": "{key_file}"}
SINGLE: Final = {"user": "a", "password": "b"}
DEBUG: Final = {"debug": True}
TRACE: Final = {"trace": True}
AUTHORIZED: Final = {"authorization": {"users": USERS}}
A_USER: Final = {"user": "a", "pass": "b"}
ROWS: Final[dict[str, Row]] = {
    "client_advertise": Row("", "there:4222", informs("host")),
    "debug": Row(False, True, log_lines(has("[DBG]"))),
    "trace": Row(False, True, log_lines(has("<<- [HPUB a 18 21]"))),
    "trace_verbose": Row(False, True, log_lines(has("<<- [HPUB a 18 21]"))),
    "trace_headers": Row(False, True, log_lines(has("xyz")), TRACE),
    "logtime": Row(True, False, log_lines(has("/")), DEBUG),
    "log_file": Row("{tmp}/log", "{tmp}/other", log_file_grows, DEBUG),
    "max_traced_msg_len": Row(0, 3, log_lines(has('["NAT..."]')), TRACE),
    "pid_file": Row(None, "{tmp}/pid", pid_file),
    "ports_file_dir": Row(None, "{tmp}", has_ports_file),
    "max_control_line": Row(4096, 60, tells(b"SUB " + b"a" * 80 + b" 1")),
    "max_payload": Row(1 << 20, 2, tells(b"PUB a 3\r\nabc")),
    "max_pending": Row(64 << 20, 2 << 20, slow_consumer),
    "max_pending_total": Row(256 << 20, 128 << 20, bytes_for_all),
    "max_connections": Row(65_536, 0, tells()),
    "max_subscriptions": Row(0, 1, tells(b"SUB a 1\r\nSUB b 2")),
    "max_sub_tokens": Row(0, 2, tells(b"SUB a.b.c 1")),
    "max_closed_clients": Row(10_000, 2, remembered),
    "ping_interval": Row("2m", "20ms", pinged, {"ping_max": 2}),
    "ping_max": Row(1, 3, pinged, {"ping_interval": "20ms"}),
    "write_deadline": Row("10s", "50ms", slow_consumer),
    "mappings": Row({}, {"a": "b"}, tells(b"SUB b 1\r\nPUB a 1\r\nx")),
    "accounts": Row({}, {"A": {"users": USERS}}, accepts(**A_USER)),
    "tls": Row(None, CERTIFICATE, informs("tls_required")),
    "allow_non_tls": Row(
        False,
        True,
        informs("tls_available"),
        {"tls": CERTIFICATE},
    ),
    "proxy_protocol": Row(False, True, reads_header),
    "server_tags": Row([], ["a", "b"], describes("tags")),
    "server_metadata": Row({}, {"a": "b"}, describes("metadata")),
    "jetstream.enabled": Row(False, True, informs("jetstream"), {"store_dir": "{tmp}/store"}),
    "no_fast_producer_stall": Row(False, True, stalls, {"max_pending": 8 << 20}),
    "authorization": Row({}, {"token": "t"}, accepts()),
    "authorization.timeout": Row(
        {"users": USERS, "timeout": "5s"}, {"users": USERS, "timeout": "50ms"}, times_out
    ),
    "authorization.default_permissions": Row(
        {"users": USERS},
        {"users": USERS, "default_permissions": LIMITED},
        tells(b"SUB x 1"),
        {"no_auth_user": "a"},
    ),
    "authorization.user": Row({"user": "c", "password": "b"}, SINGLE, accepts(**A_USER)),
    "authorization.password": Row({"user": "a", "password": "c"}, SINGLE, accepts(**A_USER)),
    "authorization.token": Row({"token": "s"}, {"token": "t"}, accepts(auth_token="t")),
    "authorization.users": Row(
        {"users": [{"user": "c", "password": "b"}]}, {"users": USERS}, accepts(**A_USER)
    ),
    "authorization.auth_callout": Row(
        {"users": USERS},
        {"users": USERS, "auth_callout": {"issuer": public_key("A"), "auth_users": ["a"]}},
        informs("xkey"),
    ),
    "authorization.proxy_required": Row(
        SINGLE,
        {"user": "a", "password": "b", "proxy_required": True},
        accepts(**A_USER),
    ),
    "no_auth_user": Row("", "a", accepts(), AUTHORIZED),
}

ELSEWHERE: Final = {
    *("log_size_limit", "logfile_max_num", "logtime_utc"),  # below
    *("lame_duck_duration", "lame_duck_grace_period"),  # below
    "proxies",  # below
    "cluster",  # tests/cluster/test_reload.py
    *("jetstream.scrub_interval", "jetstream.scrub_speed"),  # test_reload.py
    *("syslog", "remote_syslog"),  # test_syslog.py
    *LARGER,
    *NO_EFFECT,
    *OPERATOR_MODE,
    *MONITORING,
}
"""Settings whose effect other tests show."""


def test_every_setting_that_can_be_reloaded_is_seen_to_change() -> None:
    reloadable = {name for name, row in APPLIED_BY.items() if row.components}
    assert {*ROWS, *ELSEWHERE} - {"authorization"} == reloadable


@pytest.fixture(name="files")
def _files(tmp_path: Path) -> dict[str, str]:
    return {"tmp": str(tmp_path), **Authority(tmp_path).sign("localhost").settings}


@pytest.fixture(name="log")
def _log(tmp_path: Path) -> Iterator[DaemonLog]:
    """The log of the process, in a file."""
    log = DaemonLog(make_options(log_file=tmp_path / "log"))
    yield log
    log.close()


@pytest.mark.parametrize("name", ROWS)
async def test_what_a_setting_does_changes_and_changes_back(
    name: str, tmp_path: Path, files: dict[str, str], log: DaemonLog
) -> None:
    row = ROWS[name]
    setting = "authorization" if name.startswith("authorization") else name

    def options(value: Any) -> Any:
        given = {**BASE, "log_file": "{tmp}/log", **row.base, setting: value}
        return make_options(**filled(given, files))

    before, after = options(row.first), options(row.second)
    async with Server(before) as server:
        server.log = log
        server.reload(make_options(before, debug=not before.debug))  # the log is the server's
        server.reload(before)
        first = await row.probe(server, tmp_path)
        for _ in range(2):
            server.reload(after)
            assert await row.probe(server, tmp_path) != first
            server.reload(before)
            assert await row.probe(server, tmp_path) == first


async def test_proxies_are_trusted_and_not() -> None:
    """A user with `proxy_required` logs in with the signature of a trusted proxy."""
    proxy = key(Kind.SERVER, "proxy")
    users = {"users": [{**USERS[0], "proxy_required": True}]}
    settings = {"authorization": users, "proxies": {"trusted": [{"key": proxy.public}]}}
    async with Server(make_options(**BASE, **settings)) as server:
        for trusted in (proxy.public, public_key("N"), proxy.public):
            server.reload(proxies={"trusted": [{"key": trusted}]})
            client = await connection(server)
            nonce = json.loads((await client.line()).removeprefix(b"INFO "))["nonce"]
            fields = {**A_USER, "verbose": False, "proxy_sig": sign(proxy, nonce.encode())}
            client.send(b"CONNECT " + json.dumps(fields).encode() + b"\r\nPING\r\n")
            answer = await client.line()
            assert (answer == b"PONG\r\n") is (trusted == proxy.public), answer
            await client.close()


async def test_the_lame_duck_takes_the_time_that_is_configured_then(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"lame_duck_duration": "20m", "lame_duck_grace_period": "10m"}
    async with Server(make_options(**BASE, **settings)) as server:
        server.reload(lame_duck_duration="100ms", lame_duck_grace_period="50ms")
        server.reload(**settings)
        assert server.options.lame_duck_grace_period.total_seconds() == 600
        server.reload(lame_duck_duration="100ms", lame_duck_grace_period="50ms")
        client = await connection(server)
        client.send(CONNECT)
        await client.sync()
        server.enter_lame_duck()
        async with asyncio.timeout(20):
            await server.wait_closed()
        await client.close()


async def test_the_log_is_rotated_as_configured_then(tmp_path: Path, log: DaemonLog) -> None:
    base = make_options(**BASE, log_file=tmp_path / "log", debug=True)
    async with Server(make_options(base, debug=False)) as server:
        server.log = log
        server.reload(base)
        assert await log_files(server, tmp_path) == 1
        server.reload(log_size_limit=500, logfile_max_num=3)
        assert await log_files(server, tmp_path) == 3
        server.reload(logfile_max_num=0)
        files = await log_files(server, tmp_path)
        assert files > 3
        server.reload(log_size_limit=0)
        assert await log_files(server, tmp_path) == files


async def test_times_of_the_log_are_local_or_utc(
    tmp_path: Path, log: DaemonLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "XST-5")
    time.tzset()
    try:
        base = make_options(**BASE, log_file=tmp_path / "log", debug=True)
        async with Server(make_options(base, debug=False)) as server:
            server.log = log

            async def hours_from_utc() -> int:
                size = (tmp_path / "log").stat().st_size
                await said(server)
                shown = (tmp_path / "log").read_text()[size:].split()[2]
                return round(int(shown[:2]) - time.time() / 3600 % 24 + 0.5) % 24

            for is_utc, hours in ((False, 5), (True, 0), (False, 5)):
                server.reload(make_options(base, logtime_utc=is_utc))
                assert await hours_from_utc() in (hours, hours - 1 % 24, hours + 1)
    finally:
        monkeypatch.undo()
        time.tzset()
