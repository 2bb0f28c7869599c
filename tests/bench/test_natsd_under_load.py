"""Small loads of every kind against natsd itself: all is delivered, and nothing is left behind."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from natsd import bench
from natsd.bench.arms import BenchServer, natsd_arm
from natsd.bench.cluster import SETUP as CLUSTER
from natsd.bench.cluster import InterestStorm
from natsd.bench.measurement import Measurement
from natsd.bench.scenarios import (
    ConnectedClients,
    PubSub,
    RequestReply,
    Scenario,
    Sharing,
    run_once,
)
from natsd.bench.setups import running


@pytest.fixture(scope="module")
def server() -> Iterator[BenchServer]:
    with natsd_arm().running() as running:
        yield running


@pytest.mark.parametrize(
    "scenario",
    [
        PubSub(1, 0, 16),
        PubSub(1, 1, 16),
        PubSub(1, 1, 1 << 14),
        PubSub(1, 3, 128),
        PubSub(2, 2, 128),
        PubSub(1, 2, 128, Sharing.GROUP),
        PubSub(2, 2, 128, Sharing.PAIRS),
        PubSub(1, 2, 128, Sharing.FLEET, subscriptions=1_000, subjects=100),
    ],
    ids=str,
)
def test_streams_lose_nothing(server: BenchServer, scenario: PubSub) -> None:
    measurement = run_once(scenario, server, 5_001)
    assert (measurement.missing, measurement.problem) == (0, "")
    assert measurement.values["rate"] > 0


def test_requests_are_answered(server: BenchServer) -> None:
    measurement = run_once(RequestReply(requests=50), server, 0)
    assert measurement.problem == ""
    assert 0 < measurement.values["p50_us"] <= measurement.values["p99_us"]


def test_connections_are_counted_and_weighed(server: BenchServer) -> None:
    measurement = run_once(ConnectedClients(clients=100), server, 0)
    assert (measurement.missing, measurement.problem) == (0, "")
    assert measurement.values["rate"] > 0
    assert "idle_bytes" in measurement.values


@pytest.mark.parametrize(
    ("scenario", "value"),
    [
        (PubSub(1, 2, 128, setup=CLUSTER), "rate"),
        (PubSub(1, 2, 128, Sharing.GROUP, setup=CLUSTER), "rate"),
        (RequestReply(50, setup=CLUSTER), "p50_us"),
        (InterestStorm(1_000), "storm_ms"),
    ],
    ids=str,
)
def test_a_route_loses_nothing(scenario: Scenario, value: str) -> None:
    with running(natsd_arm(), scenario) as server:
        measurement = run_once(scenario, server, 5_001)
    assert (measurement.missing, measurement.problem) == (0, "")
    assert measurement.values[value] > 0


@pytest.mark.parametrize("scenario", [PubSub(1, 1, 16), RequestReply(10), ConnectedClients(10)])
def test_a_server_that_is_gone_voids_the_run(scenario: Scenario) -> None:
    with natsd_arm().running() as server:
        pass
    measurement: Measurement = run_once(scenario, server, 100)
    assert measurement.problem
    assert not measurement.counts


def test_the_command_from_end_to_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], server: BenchServer
) -> None:
    saved, picture = tmp_path / "bench.json", tmp_path / "bench.svg"
    other = f"{server.host}:{server.port}"
    few = ["--row", "1-1-128", "--rounds", "1", "--seconds", "0.01"]
    files = ["--json", str(saved), "--plot", str(picture)]
    assert bench.main(["--connect", other, "--vs", "natsd", *few, *files, "--goals"]) == 0
    out, err = capfd.readouterr()
    assert "| 1 → 1, 128 B |" in out
    assert "≥ 2.5" in out
    assert err == ""
    data = json.loads(saved.read_text())
    assert [cell["missing"] for cell in data["rows"][0]["cells"]] == [0, 0]
    assert data["rows"][0]["ratio"] > 0
    assert picture.read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--row", "nothing"], "no row matches; --list shows them"),
        (["--vs", "no-such-program-anywhere"], "no such program: no-such-program-anywhere"),
        (["--connect", "127.0.0.1:1"], "cannot reach 127.0.0.1:1"),
        (["--cores"], "--cores needs exactly one --vs"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], complaint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(arguments) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"natsd bench: {complaint}")
    assert err.count("\n") == 1


def test_the_rows_can_be_listed(capfd: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--list"]) == 0
    out, _ = capfd.readouterr()
    assert "queue-4-128" in out
    assert "pairs-4-128" in out
