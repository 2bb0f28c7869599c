"""Transcripts of routes: text files of what a peer sends and what natsd answers; and their player.

    # A server that dials tells its INFO after that of the peer.
    cluster: {"pool_size": 1}
    dialed:
    < CONNECT {"echo":true,"cluster":"C"}
    > INFO {"server_id":"PEER","route_pool_size":1}
    < INFO {"server_name":"A","route_pool_size":1}
    ! closed

- The first line states the rule that the transcript proves; further `#` lines are comments.
- `cluster:` has settings of the cluster, in JSON; `server:` those of the server.
- `dialed:` lets natsd dial the peer; without it the peer dials natsd.
- `> text` sends text and CRLF. `< text` expects exactly that; of INFO and CONNECT the given members
  are expected, and `null` for members that must be missing. Interest in `$SYS` is left out.
- `! closed` expects the end of the connection, `! registered` that natsd has registered the route,
  `! logged TEXT` a line of the log.
"""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.mesh import cluster_of, member, routes_of
from tests.waiting import eventually_within

DIRECTORY = Path(__file__).parent / "transcripts"
DEADLINE_S = 20.0
OWN = b"$SYS"
"""Interest of the server itself, which depends on its services."""


@dataclass
class Transcript:
    """The contents of a transcript file."""

    rule: str
    cluster: dict[str, Any] = field(default_factory=dict)
    server: dict[str, Any] = field(default_factory=dict)
    is_dialed: bool = False
    steps: list[tuple[str, str]] = field(default_factory=list)


def transcripts() -> list[Path]:
    return sorted(DIRECTORY.glob("*.txt"))


def read(path: Path) -> Transcript:
    lines = path.read_text(encoding="utf-8").splitlines()
    found = Transcript(lines[0].removeprefix("# "))
    for line in lines[1:]:
        name, _, value = line.partition(":")
        if not line.strip() or line.startswith("#"):
            continue
        if name in ("cluster", "server"):
            setattr(found, name, json.loads(value))
        elif line == "dialed:":
            found.is_dialed = True
        else:
            found.steps.append((line[0], line[2:]))
    return found


async def play(transcript: Transcript, caplog: pytest.LogCaptureFixture) -> None:
    """Play the peer; fail if natsd answers otherwise."""
    streams: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    listener = await asyncio.start_server(lambda *pair: streams.put(pair), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    routes = [f"nats://us:pw@127.0.0.1:{port}"] if transcript.is_dialed else []
    settings = {"no_system_account": True, **transcript.server}
    server = member("A", cluster={"routes": routes, **transcript.cluster}, **settings)
    async with listener, server, asyncio.timeout(DEADLINE_S):
        if transcript.is_dialed:
            reader, writer = await streams.get()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", cluster_of(server).port)
        for kind, text in transcript.steps:
            text = text.replace("{id}", server.id)
            if kind == ">":
                writer.write(text.encode() + b"\r\n")
            elif kind == "<":
                check(await read_line(reader), text)
            elif text == "closed":
                assert await reader.read() == b""
            elif text == "registered":
                await eventually_within(lambda: routes_of(server))
            else:
                await eventually_within(partial(_is_logged, caplog, text.removeprefix("logged ")))
        writer.close()


def _is_logged(caplog: pytest.LogCaptureFixture, line: str) -> bool:
    return line in caplog.text


async def read_line(reader: asyncio.StreamReader) -> str:
    """Return the next line that is not about the server's own interest."""
    while True:
        line = await reader.readline()
        assert line.endswith(b"\r\n"), f"{line!r} and then the end"
        if not (line.startswith(b"RS") and OWN in line):
            return line.decode().rstrip()


def check(line: str, expected: str) -> None:
    operation, _, json_text = expected.partition(" ")
    if operation not in ("INFO", "CONNECT"):
        assert line == expected
        return
    assert line.startswith(operation), line
    told = json.loads(line.removeprefix(operation))
    for name, value in members(json_text):
        assert told.get(name) == value, f"{name} in {line}"


def members(json_text: str) -> Iterator[tuple[str, Any]]:
    yield from json.loads(json_text).items()
