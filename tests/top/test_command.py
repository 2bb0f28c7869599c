"""`natsd top` as a script calls it, and in a terminal of its own."""

import asyncio
import base64
import contextlib
import json
import os
import pty
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest
from aiohttp import web
from nats.js.api import ConsumerConfig

from natsd import Server
from natsd.testing.certificates import Authority
from natsd.top import command, main
from natsd.top.views import headline
from tests.waiting import eventually_within

LOGIN = "Basic " + base64.b64encode(b"ann:s3cr3t").decode()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "RATE_S", 0.05)


@contextlib.asynccontextmanager
async def shop(tmp_path: Path) -> AsyncIterator[Server]:
    """Yield a server with a stream, a consumer that lags, and a client that subscribes."""
    settings: dict[str, Any] = {"jetstream": {"store_dir": str(tmp_path)}, "http_port": -1}
    async with Server(host="127.0.0.1", port=-1, server_name="shop", **settings) as server:
        client = await nats.connect(server.client_url, name="checkout\x1b[31m")
        await client.subscribe("telemetry.>")
        stream = client.jetstream()
        await stream.add_stream(name="ORDERS", subjects=["orders.*"])
        await stream.add_consumer("ORDERS", ConsumerConfig(durable_name="billing"))
        for _ in range(3):
            await stream.publish("orders.new", b"two apples")
        yield server
        await client.close()


async def top(*arguments: str) -> int:
    return await asyncio.to_thread(main, arguments)


async def test_tables_are_printed_for_scripts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shop(tmp_path) as server:
        at = f"127.0.0.1:{server.http_port}"
        printed = {}
        for view in ("connections", "streams", "consumers", "subjects", "accounts"):
            assert await top(at, "--once", "--view", view) == 0
            printed[view] = capsys.readouterr().out
    assert "shop · natsd" in printed["streams"]
    assert "checkout�[31m" in printed["connections"]
    assert "\x1b" not in "".join(printed.values())
    assert printed["consumers"].splitlines()[-1].split()[:2] == ["billing", "3"]
    assert "ORDERS" in printed["streams"]
    assert "telemetry.>" in printed["subjects"]
    assert "$G" in printed["accounts"]


async def test_json_has_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(tmp_path) as server:
        assert await top(f"http://127.0.0.1:{server.http_port}/", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["streams"]["rows"][0]["messages"] == 3
    assert set(answer) > {"server", "rates", "history", "connections", "consumers", "accounts"}


async def test_a_failure_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with Server(host="127.0.0.1", port=-1) as server:
        client_port = f"127.0.0.1:{server.client_port}"
        expected = {
            (client_port, "--once"): "is the port of NATS clients",
            ("127.0.0.1:1", "--once"): "nothing listens at http://127.0.0.1:1",
            ("ftp://x", "--once"): "is not the URL of a monitoring port",
            ("http://x:port", "--once"): "is not the URL of a monitoring port",
            ("--tlsca", str(tmp_path / "none"), "--once"): "No such file",
            ("--view", "nothing"): "natsd top -h shows the options",
        }
        for arguments, text in expected.items():
            assert await top(*arguments) == 1
            out, error = capsys.readouterr()
            assert out == ""
            assert error.startswith("natsd top: ")
            assert error.count("\n") == 1
            assert text in error


@contextlib.asynccontextmanager
async def answering(answer: Any, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Yield the address of an HTTP server that wants a login, and then answers that."""

    async def handle(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != LOGIN:
            return web.Response(status=401)
        return web.json_response(answer)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_what_a_hostile_server_says_reaches_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/9\x1b[31m 200 OK\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        assert await top(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", "--once") == 1
    assert "\x1b" not in capsys.readouterr().err
    facts = {"name": "shop", "version": "1\x1b[31m", "nats_version": "2\x07", "host": "\x9b1m"}
    line = headline({"server": {**facts, "port": 4222, "uptime_s": 7}})
    assert line == "shop · natsd 1\ufffd[31m (NATS 2\ufffd) · \ufffd1m:4222 · up 7s"


async def test_a_login_is_sent(capsys: pytest.CaptureFixture[str]) -> None:
    async with answering({"not": "nats"}) as at:
        assert await top(at, "--once") == 1
        assert "needs a user and a password" in capsys.readouterr().err
        for login in ([at, "--user", "ann", "--password", "s3cr3t"], [f"http://ann:s3cr3t@{at}"]):
            assert await top(*login, "--once") == 1
            error = capsys.readouterr().err
            assert "is not the monitoring port of a NATS server" in error
            assert "s3cr3t" not in error


async def test_tls_trusts_only_known_authorities(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    pair = authority.sign("server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.cert_file, pair.key_file)
    async with answering({"not": "nats"}, context) as at:
        asked = [f"https://ann:s3cr3t@{at}", "--once"]
        assert await top(*asked) == 1
        assert "TLS failed: " in capsys.readouterr().err
        for trust in (["--tlsca", str(authority.ca_file)], ["--insecure"]):
            assert await top(*asked, *trust) == 1
            assert "is not the monitoring port of a NATS server" in capsys.readouterr().err


def ports_of(directory: Path) -> dict[str, list[str]]:
    ports: dict[str, list[str]] = json.loads(next(directory.glob("*.ports")).read_text())
    return ports


@pytest.mark.skipif(shutil.which("nats-server") is None, reason="there is no nats-server on PATH")
async def test_a_nats_server_is_shown_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ports = ["-a", "127.0.0.1", "-p", "-1", "-m", "-1", "--ports_file_dir", str(tmp_path)]
    program = await asyncio.create_subprocess_exec(
        "nats-server", "-js", "-sd", str(tmp_path / "js"), *ports, stderr=subprocess.DEVNULL
    )
    try:
        await eventually_within(lambda: list(tmp_path.glob("*.ports")))
        at = ports_of(tmp_path)
        client = await nats.connect(at["nats"][0], name="checkout")
        await client.subscribe("telemetry.>")
        await client.jetstream().add_stream(name="ORDERS", subjects=["orders.*"], max_msgs=4)
        config = ConsumerConfig(durable_name="billing")
        await client.jetstream().add_consumer("ORDERS", config)
        await client.jetstream().publish("orders.new", b"two apples")
        assert await top(at["monitoring"][0], "--json") == 0
        answer = json.loads(capsys.readouterr().out)
        await client.close()
    finally:
        program.terminate()
        await program.wait()
    assert answer["server"]["version"] == ""
    (row,) = answer["streams"]["rows"]
    assert (row["name"], row["messages"], row["full"], row["msgs_rate"]) == ("ORDERS", 1, 0.25, 0)
    (row,) = answer["consumers"]["rows"]
    assert (row["name"], row["num_pending"]) == ("billing", 1)
    assert answer["connections"]["rows"][0]["in_msgs_rate"] == 0
    assert "telemetry.>" in {row["subject"] for row in answer["subjects"]["rows"]}
    assert {row["name"] for row in answer["accounts"]["rows"]} == {"$G", "$SYS"}


async def test_in_a_terminal_it_draws_until_it_is_quit(tmp_path: Path) -> None:
    async with shop(tmp_path) as server:
        ours, theirs = pty.openpty()
        at = f"127.0.0.1:{server.http_port}"
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "natsd", "top", at, "--view", "consumers"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"},
        )
        os.close(theirs)
        drawn = bytearray()
        loop = asyncio.get_running_loop()
        loop.add_reader(ours, lambda: drawn.extend(_read(ours)))
        try:
            await eventually_within(lambda: b"billing" in drawn, 60)
            os.write(ours, b"q")
            assert await asyncio.wait_for(program.wait(), 60) == 0
        finally:
            loop.remove_reader(ours)
            os.close(ours)
            if program.returncode is None:
                program.kill()
                await program.wait()
    assert b"\x1b[?1049h" in drawn  # the alternate screen


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other end is closed
        return b""
