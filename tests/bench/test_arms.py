"""The servers that can be named; how each is started, observed and stopped."""

import os
import sys

import pytest

from natsd.bench.arms import (
    HOST,
    NATSD_COMMAND,
    Arm,
    ArmError,
    command_arm,
    natsd_arm,
    remote_arm,
    resident_bytes,
)


def test_natsd_is_this_natsd() -> None:
    assert command_arm("natsd").command == NATSD_COMMAND


def test_a_program_gets_address_and_port() -> None:
    arm = command_arm(sys.executable)
    assert arm.command == (sys.executable, "-a", HOST, "-p", "{port}")


def test_a_command_may_say_itself_where_the_port_goes() -> None:
    arm = command_arm(f"{sys.executable} -m other --listen={{port}}")
    assert arm.command == (sys.executable, "-m", "other", "--listen={port}")


@pytest.mark.parametrize("text", ["", "no-such-program-anywhere"])
def test_what_is_not_there_is_refused(text: str) -> None:
    with pytest.raises(ArmError, match="no such program"):
        command_arm(text)


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("nats://example.org:4333", "example.org", 4333),
        ("example.org:4333", "example.org", 4333),
        ("nats://example.org", "example.org", 4222),
    ],
)
def test_a_running_server_has_a_url(url: str, host: str, port: int) -> None:
    arm = remote_arm(url)
    assert (arm.host, arm.port) == (host, port)


def test_a_server_that_ends_at_once_says_why() -> None:
    arm = Arm("broken", (sys.executable, "-c", "raise SystemExit('no room for {port}')"))
    with pytest.raises(ArmError, match="ended at once: no room for"), arm.running():
        pass


def test_natsd_starts_is_seen_and_ends() -> None:
    with natsd_arm().running() as server:
        assert server.pid is not None
        assert server.version == server.info["natsd"]
        memory_bytes = server.resident_bytes()
        assert memory_bytes is not None
        assert memory_bytes > 1 << 20
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


def test_our_own_memory_is_seen() -> None:
    assert resident_bytes(os.getpid()) > 1 << 20
