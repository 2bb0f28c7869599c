"""A server's process: found by its pid file, and never taken for another program."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from natsd.local_cluster.errors import LocalClusterError
from natsd.local_cluster.process import ProcessState, ServerProcess

SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")
DEAF = (
    sys.executable,
    "-c",
    "import signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('deaf', flush=True)\n"
    "time.sleep(600)",
)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ServerProcess]:
    found = ServerProcess(tmp_path / "nats.conf", tmp_path / "pid", tmp_path / "log")
    yield found
    found.kill()


def state(process: ServerProcess) -> ProcessState:
    return process.state


def test_life(process: ServerProcess) -> None:
    assert state(process) is ProcessState.STOPPED
    process.start(SLEEPER)
    assert state(process) is ProcessState.RUNNING
    process.pause()
    assert state(process) is ProcessState.PAUSED
    process.resume()
    assert state(process) is ProcessState.RUNNING
    process.kill()
    assert state(process) is ProcessState.STOPPED
    process.start(SLEEPER)
    process.pause()
    process.stop()
    assert process.wait(20)


def test_the_process_leads_a_session_of_its_own(process: ServerProcess) -> None:
    process.start(SLEEPER)
    assert process.pid is not None
    assert os.getsid(process.pid) == process.pid


def test_another_program_is_not_taken_for_the_server(
    process: ServerProcess, tmp_path: Path
) -> None:
    """After a crash the pid may belong to anybody."""
    with subprocess.Popen(SLEEPER) as stranger:
        try:
            (tmp_path / "pid").write_text(str(stranger.pid))
            assert process.pid is None
            process.stop()
            process.kill()
            assert stranger.poll() is None
        finally:
            stranger.kill()


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "99999999999", "4999999"])
def test_a_pid_file_with_anything(process: ServerProcess, tmp_path: Path, text: str) -> None:
    (tmp_path / "pid").write_text(text)
    assert process.pid is None
    assert state(process) is ProcessState.STOPPED


def test_a_server_that_was_started_by_hand_is_found(process: ServerProcess, tmp_path: Path) -> None:
    command = [*DEAF, "-c", str(tmp_path / "nats.conf")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as by_hand:
        try:
            assert by_hand.stdout is not None
            assert by_hand.stdout.readline() == b"deaf\n"
            (tmp_path / "pid").write_text(str(by_hand.pid))
            assert process.pid == by_hand.pid
        finally:
            by_hand.kill()


def test_a_process_that_does_not_stop(process: ServerProcess, tmp_path: Path) -> None:
    process.start(DEAF)
    while b"deaf" not in (tmp_path / "log").read_bytes():
        assert process.pid is not None
        time.sleep(0.005)
    process.stop()
    assert not process.wait(0.2)
    process.kill()
    assert process.pid is None


def test_a_program_that_there_is_not(process: ServerProcess) -> None:
    with pytest.raises(LocalClusterError, match="no-such-server: No such file"):
        process.start(["no-such-server"])
