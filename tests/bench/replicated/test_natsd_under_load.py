"""Small loads of the rows with three replicas against natsd itself: nothing is lost or wrong."""

from collections.abc import Iterator

import pytest

from natsd import bench
from natsd.bench.arms import BenchServer, natsd_arm
from natsd.bench.replicated.scenarios import (
    CatchUp,
    ReplicatedBucket,
    ReplicatedPublish,
    ReplicatedPull,
    ReplicatedScenario,
    ReplicatedWaitingPublish,
)
from natsd.bench.replicated.servers import ReplicatedServer
from natsd.bench.replicated.streams import ReplicatedStreams
from natsd.bench.scenarios import run_once
from natsd.bench.setups import running

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def cluster() -> Iterator[BenchServer]:
    with running(natsd_arm(), ReplicatedPublish("memory")) as server:
        assert server.unsupported == ""
        yield server


@pytest.mark.parametrize(
    "scenario",
    [
        ReplicatedPublish("file"),
        ReplicatedPublish("memory"),
        ReplicatedWaitingPublish(),
        ReplicatedPull(1_250),
        ReplicatedBucket(4, puts=True),
        ReplicatedBucket(4, puts=False),
    ],
    ids=str,
)
def test_nothing_is_lost(cluster: BenchServer, scenario: ReplicatedScenario) -> None:
    for _ in range(2):  # the second run finds the first one's streams
        measurement = run_once(scenario, cluster, 200)
        assert (measurement.missing, measurement.problem) == (0, "")
        assert min(measurement.values.values()) > 0


def test_a_wiped_server_gets_everything_again(cluster: BenchServer) -> None:
    assert isinstance(cluster, ReplicatedServer)
    measurement = run_once(CatchUp(2_000), cluster, 0)
    assert (measurement.missing, measurement.problem) == (0, "")
    assert [each.messages("BENCH") for each in cluster.members] == [2_000] * 3


def test_streams_are_made_and_left_alone() -> None:
    scenario = ReplicatedStreams(5, idle_seconds=0.1)
    with running(natsd_arm(), scenario) as server:
        measurement = run_once(scenario, server, 0)
    assert measurement.problem == ""
    assert min(measurement.values.values()) > 0


def test_the_command_from_end_to_end(capfd: pytest.CaptureFixture[str]) -> None:
    few = ["--row", "r3-memory", "--rounds", "1", "--seconds", "0.01"]
    assert bench.main(["--goals", "--quick", *few]) == 0
    out, err = capfd.readouterr()
    assert "| R3 async publish 128 B, memory |" in out
    assert err == ""
