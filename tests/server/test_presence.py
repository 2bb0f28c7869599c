"""The files and ports of an embedded server while it runs; none of them remain afterwards."""

import asyncio
import json
import logging
import os
import re
import socket
import sys
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from natsd import Server
from natsd.clients.listener import ListenError
from natsd.server.files import FileError
from natsd.testing.certificates import Authority
from natsd.testing.jwts import Operator


def varz(server: Server) -> bytes:
    url = f"http://127.0.0.1:{server.http_port}/varz"
    with urllib.request.urlopen(url, timeout=10) as answer:
        body: bytes = answer.read()
        return body


@pytest.mark.both_loops
async def test_files_and_monitoring_come_and_go(tmp_path: Path) -> None:
    settings = {"http_port": -1, "pid_file": tmp_path / "pid", "ports_file_dir": tmp_path}
    async with Server(host="127.0.0.1", port=-1, **settings) as server:
        port = server.http_port
        written = {name.rpartition("_")[2] for name in os.listdir(tmp_path)}
        assert written == {"pid", f"{os.getpid()}.ports"}
        assert server.id.encode() in await asyncio.to_thread(varz, server)
    assert os.listdir(tmp_path) == []
    assert server.http_port == 0
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


def test_monitoring_of_a_server_in_its_own_thread() -> None:
    with Server(host="127.0.0.1", port=-1, http_port=-1, thread=True) as server:
        assert server.id.encode() in varz(server)


async def test_a_taken_port_touches_nothing_of_the_server_that_has_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
        pid_file.write_text("1")
        server = Server(host="127.0.0.1", port=port, pid_file=pid_file, http_port=-1)
        with pytest.raises(ListenError, match="address already in use"):
            await server.start()
    assert pid_file.read_text() == "1"
    assert server.http_port == 0


async def test_an_unwritable_file_leaves_no_open_port(tmp_path: Path) -> None:
    server = Server(host="127.0.0.1", port=-1, pid_file=tmp_path / "missing" / "pid")
    with pytest.raises(FileError, match="Could not write pidfile"):
        await server.start()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", server.client_port)


async def test_unwise_settings_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "natsd")
    settings = {"password": "secret", "user": "ann", "max_payload": 9 << 20}
    async with Server(host="127.0.0.1", port=-1, **settings):
        pass
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        "Plaintext passwords detected, use nkeys or bcrypt",
        "Maximum payloads over 8.00 MB are generally discouraged "
        "and could lead to poor performance",
    ]
    assert "secret" not in caplog.text


async def test_the_log_of_a_stand_in_is_that_of_nats_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Under the name nats-server, with TLS: its version, and who must use TLS."""
    monkeypatch.setattr(sys, "argv", ["/usr/bin/nats-server"])
    caplog.set_level(logging.INFO, "natsd")
    tls = {**Authority(tmp_path).sign("localhost").settings, "handshake_first": True}
    settings: dict[str, Any] = {"http_port": -1, "server_name": "here", "tls": tls}
    async with Server(host="127.0.0.1", port=-1, **settings) as server:
        shown = json.loads(await asyncio.to_thread(varz, server))
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", shown["tls_cert_not_after"])
    name, port = server.id, server.client_port
    lines = [line for line in caplog.messages if "http monitor" not in line]
    assert lines[:9] == [
        "Starting nats-server",
        "  Version:  2.14.5",
        "  Git:      [not set]",
        "  Name:     here",
        f"  ID:       {name}",
        f"Listening for client connections on 127.0.0.1:{port}",
        "TLS required for client connections",
        'Clients that are not using "TLS Handshake First" option will fail to connect',
        "Server is ready",
    ]


async def test_the_operators_are_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "natsd")
    settings: dict[str, Any] = {"operators": [Operator().jwt()], "resolver": "MEMORY"}
    async with Server(host="127.0.0.1", port=-1, **settings):
        first = caplog.messages.index("Trusted Operators")
    system, name, issued, expires, advice = caplog.messages[first + 1 : first + 6]
    assert (system, expires) == ('  System  : ""', "  Expires : Never")
    assert name.startswith("  Operator: ")
    assert re.fullmatch(r"  Issued  : \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4} \S+", issued)
    assert advice == "Trusted Operators should utilize a System Account"
