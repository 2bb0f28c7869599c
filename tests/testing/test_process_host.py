"""A server's process: it ends with the test's process, and says why it did not start."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from natsd import testing
from natsd.testing import process_host

DEADLINE_S = 30.0
TEST = """
import sys, time
from natsd import testing

servers = [testing.NatsServer(process=True, jetstream=jetstream) for jetstream in (False, True)]
print(*[server.__enter__().pid for server in servers], flush=True)
time.sleep(600)
"""


def is_there(pid: int) -> bool:
    """Return whether the process runs; one that only waits to be reaped does not."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        if sys.platform == "linux":
            with contextlib.suppress(FileNotFoundError):
                return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
            return False
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_servers_end_with_the_test(number: signal.Signals) -> None:
    test = subprocess.Popen(
        [sys.executable, "-c", TEST], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert test.stdout is not None
    with test:
        pids = [int(pid) for pid in test.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(is_there, pids))
        test.send_signal(number)
    give_up_at = time.monotonic() + DEADLINE_S
    while any(map(is_there, pids)):
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def test_a_port_in_use_is_told() -> None:
    with testing.server() as first:
        port = int(first.client_url.rpartition(":")[2])
        with pytest.raises(testing.ProcessError, match="address already in use"):
            testing.server(process=True, port=port).__enter__()


def test_a_process_that_ends_by_itself() -> None:
    with testing.server(process=True) as server:
        os.kill(server.pid, signal.SIGKILL)
        give_up_at = time.monotonic() + DEADLINE_S
        while server.is_running:
            assert time.monotonic() < give_up_at
        with pytest.raises(testing.ProcessError, match="ended by itself"):
            server.connections()
        server.restart()
        assert server.connections() == []


def test_a_paused_process_may_be_killed() -> None:
    with testing.server(process=True) as server:
        server.pause()
        server.kill()
        server.restart()
        assert server.connections() == []


def test_a_fork_server_that_is_gone_is_replaced() -> None:
    with testing.server(process=True):
        forking = process_host._fork_server._process
    assert forking is not None
    forking.kill()
    forking.wait()
    with testing.server(process=True) as server:
        assert server.connections() == []


def test_a_process_has_the_environment_of_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with testing.server(process=True):  # the fork server is there before the variable is
        monkeypatch.setenv("SCOOPS", "1234")
        monkeypatch.chdir(tmp_path)
        Path("limits.conf").write_text("max_payload: $SCOOPS")
        with testing.server(process=True, config=Path("limits.conf")) as server:
            assert server.reload() == []
            monkeypatch.setenv("SCOOPS", "99")
            server.restart()
            assert server.reload(max_payload=50) == ["max_payload = 50"]


def test_two_processes_have_ids_of_their_own() -> None:
    with testing.server(process=True) as one, testing.server(process=True) as other:
        ids = {line for server in (one, other) for line in server.log.lines if "  ID:" in line}
        assert len({line.split()[-1] for line in ids}) == 2
