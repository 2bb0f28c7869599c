"""The daemon with `-js`: what it says, what outlives it, and what keeps it from starting."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest

from tests.cli.daemon import Daemon, Start, running_daemons


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Daemons whose directory for temporary files is the test's."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with running_daemons() as start_one:
        yield start_one


def url(daemon: Daemon) -> str:
    line = daemon.read_until("Listening for client connections on 127.0.0.1:")
    daemon.read_until("Server is ready")
    return f"nats://127.0.0.1:{line.rpartition(':')[2].strip()}"


def test_acknowledged_messages_survive_kill_9(start: Start, tmp_path: Path) -> None:
    async def publish(where: str) -> None:
        client = await nats.connect(where)
        stream = client.jetstream()
        await stream.add_stream(name="S", subjects=["s"])
        for _ in range(5):
            await stream.publish("s", b"x")
        killed.process.kill()
        await client.close()

    async def count(where: str) -> int:
        client = await nats.connect(where)
        info = await client.jetstream().stream_info("S")
        await client.close()
        return int(info.state.messages)

    killed = start("-js", "-sd", str(tmp_path / "store"))
    asyncio.run(publish(url(killed)))
    killed.wait()
    again = start("-jetstream", "--store_dir", str(tmp_path / "store"))
    assert asyncio.run(count(url(again))) == 5
    assert again.end() == 0


def test_without_a_directory_it_is_one_of_the_user(start: Start, tmp_path: Path) -> None:
    daemon = start("-js")
    url(daemon)
    assert daemon.end(signal.SIGINT) == 0
    warning = "WRN Temporary storage directory used, data could be lost on system reboot"
    assert warning in daemon.texts
    assert f'INF   Store Directory: "{tmp_path}/natsd-{os.geteuid()}/jetstream"' in daemon.texts
    assert (tmp_path / f"natsd-{os.geteuid()}" / "jetstream").is_dir()


def test_switched_off_it_is_not_there(start: Start, tmp_path: Path) -> None:
    daemon = start("-js", "-js=false", "-sd", str(tmp_path / "store"))
    url(daemon)
    assert daemon.end() == 0
    assert not any("JetStream" in line for line in daemon.texts)
    assert not (tmp_path / "store").exists()


def test_a_directory_in_use_is_one_line(start: Start, tmp_path: Path) -> None:
    first = start("-js", "-sd", str(tmp_path))
    url(first)
    second = start("-js", "-sd", str(tmp_path))
    assert second.wait() == 1
    directory = tmp_path / "jetstream"
    assert second.texts[-1] == (
        f"FTL Can't start JetStream: {directory} is in use by process {first.process.pid}"
        " (it holds natsd.lock)"
    )
    assert first.end() == 0


def test_a_directory_that_is_none_is_one_line(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    daemon = start("-js", "-sd", str(tmp_path / "file"))
    assert daemon.wait() == 1
    assert daemon.texts[-1].startswith(
        "FTL Can't start JetStream: storage directory is not a directory"
    )
