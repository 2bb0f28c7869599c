"""Small loads of every JetStream row against natsd itself: nothing is lost or wrong."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from natsd import bench
from natsd.bench.arms import natsd_arm
from natsd.bench.jetstream.api import Api
from natsd.bench.jetstream.arms import JetStreamArm, JetStreamServer, SyncSetting
from natsd.bench.jetstream.assets import Assets
from natsd.bench.jetstream.publisher import TOKENS
from natsd.bench.jetstream.scenarios import (
    Bucket,
    JetStreamScenario,
    Keys,
    OrderedReplay,
    Pull,
    Restart,
    WaitingPublish,
    WindowPublish,
)
from natsd.bench.scenarios import run_once
from natsd.bench.wire import LoadError


@pytest.fixture(scope="module")
def server() -> Iterator[JetStreamServer]:
    with JetStreamArm("natsd", "", SyncSetting.INTERVAL).running() as running:
        yield running


@pytest.mark.parametrize(
    "scenario",
    [
        WindowPublish("memory", SyncSetting.DEFAULT),
        WindowPublish("file", SyncSetting.DEFAULT),
        WindowPublish("file", SyncSetting.DEFAULT, streams=10),
        Pull(1_250),
        OrderedReplay(3_000),
        Bucket(4, True, SyncSetting.DEFAULT),
        Bucket(4, False, SyncSetting.DEFAULT),
        Keys(10_000),
    ],
    ids=str,
)
def test_nothing_is_lost(server: JetStreamServer, scenario: JetStreamScenario) -> None:
    for _ in range(2):  # the second run finds the first one's streams
        measurement = run_once(scenario, server, TOKENS + 1)
        assert (measurement.missing, measurement.problem) == (0, "")
        assert min(measurement.values.values()) > 0


def test_the_round_trip_of_one_publisher(server: JetStreamServer) -> None:
    measurement = run_once(WaitingPublish("file", SyncSetting.DEFAULT), server, 100)
    assert (measurement.missing, measurement.problem) == (0, "")
    assert measurement.values["p50_us"] > 0


def test_a_restart_finds_all_messages(server: JetStreamServer) -> None:
    before = server.pid
    measurement = run_once(Restart(5_000), server, 0)
    assert (measurement.missing, measurement.problem) == (0, "")
    assert set(measurement.values) == {"stopped_ms", "killed_ms"}
    assert server.pid != before


def test_many_streams_and_consumers_are_created_and_found_again() -> None:
    with JetStreamArm("natsd", "", SyncSetting.DEFAULT).running() as server:
        measurement = run_once(Assets(5, 20), server, 0)
    assert (measurement.missing, measurement.problem) == (0, "")
    assert min(measurement.values.values()) > 0


def test_an_error_of_the_api_is_told(server: JetStreamServer) -> None:
    with Api(server.host, server.port) as api, pytest.raises(LoadError, match="stream not found"):
        api.request("STREAM.INFO.NOTHING")


def test_nobody_answers_without_jetstream() -> None:
    with (
        natsd_arm().running() as plain,
        Api(plain.host, plain.port) as api,
        pytest.raises(LoadError, match="JetStream does not answer"),
    ):
        api.messages("S")


def test_the_command_from_end_to_end(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    few = ["--row", "js-memory", "--rounds", "1", "--seconds", "0.01"]
    where = ["--directory", str(tmp_path)]
    assert bench.main(["--jetstream", "--vs", "natsd", "--goals", "--quick", *few, *where]) == 0
    out, err = capfd.readouterr()
    assert "| async publish 128 B, memory |" in out
    assert "≥ 2.0" in out
    assert err == ""
    assert not list(tmp_path.iterdir())


def test_it_starts_its_servers_itself(capfd: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--jetstream", "--connect", "127.0.0.1:1"]) == 1
    assert capfd.readouterr().err.startswith("natsd bench: --jetstream starts the servers itself")
