"""Servers of these tests: natsd in a thread, and the Go server if it is on PATH."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from natsd import Server
from natsd.spark.wire.client import NatsClient, frame
from natsd.spark.wire.connecting import ClientOptions

DEADLINE_S = 20.0
PUBLISHED_AT_ONCE = 2000


@contextlib.contextmanager
def natsd_server(directory: Path, **settings: Any) -> Iterator[str]:
    """Yield the URL of a natsd."""
    jetstream = {"enabled": True, "store_dir": directory}
    settings = {"host": "127.0.0.1", "port": -1, "jetstream": jetstream, **settings}
    with Server(thread=True, **settings) as server:
        yield server.client_url


def go_server() -> str | None:
    """Return the path of the Go server; None: there is none."""
    return shutil.which("nats-server")


@contextlib.contextmanager
def go_serving(directory: Path, more: str = "") -> Iterator[str]:
    """Yield the URL of a Go server with JetStream; `more` is configuration."""
    program = go_server()
    assert program is not None
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "go.conf"
    ports = directory / "ports"
    ports.mkdir()
    config.write_text(
        f'listen: "127.0.0.1:-1"\nports_file_dir: "{ports}"\n'
        f'jetstream {{ store_dir: "{directory}" }}\n{more}\n'
    )
    process = subprocess.Popen([program, "-c", config], stderr=subprocess.DEVNULL)
    try:
        yield port_of(ports)
    finally:
        process.terminate()
        process.wait()


def port_of(ports: Path) -> str:
    """Return the port from the Go server's ports file."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        for file in ports.glob("*.ports"):
            with contextlib.suppress(ValueError, KeyError, IndexError):
                return str(json.loads(file.read_text())["nats"][0])
        time.sleep(0.02)
    raise TimeoutError("the Go server did not start")


def version_of(program: str) -> tuple[int, int]:
    """Return the version of a Go server."""
    text = subprocess.run([program, "-v"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"v(\d+)\.(\d+)", text)
    assert found
    return int(found[1]), int(found[2])


def options(*urls: str, **settings: Any) -> ClientOptions:
    """Return options with short timeouts."""
    return ClientOptions(
        servers=urls, **{"retries": 2, "retry_interval_s": 0.02, "request_timeout_s": 5, **settings}
    )


def create(client: NatsClient, name: str, *subjects: str, **settings: Any) -> None:
    """Create a stream that answers direct gets, unless settings say otherwise."""
    config = {"name": name, "subjects": list(subjects), "allow_direct": True, **settings}
    client.api(f"STREAM.CREATE.{name}", config)


def publish(client: NatsClient, messages: list[tuple[str, bytes, bytes]]) -> None:
    """Publish messages of (subject, headers, data) in order; all are stored on return."""
    for begin in range(0, len(messages), PUBLISHED_AT_ONCE):
        part = messages[begin : begin + PUBLISHED_AT_ONCE]
        answers = client.subscribe(client.new_inbox())
        client.send(
            b"".join(
                frame(subject, data, answers.subject, headers) for subject, headers, data in part
            )
        )
        for _ in part:
            answer = answers.next(DEADLINE_S)
            assert answer is not None
            assert b'"error"' not in answer.data, answer.data
        answers.unsubscribe()
