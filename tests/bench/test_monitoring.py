"""The rows of the monitoring endpoints: the agreed goals, and a small run against natsd."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from natsd.bench import main
from natsd.bench.arms import BenchServer, RemoteArm, natsd_arm
from natsd.bench.monitoring import CONNZ, EXPORTED, JSZ, Monitored, Target, all_rows
from natsd.bench.rows import Scale
from natsd.bench.scenarios import run_once
from natsd.bench.setups import running
from natsd.bench.wire import LoadError

AGREED = """
mon-connz       ≤ 1.0    /connz of 10,000 connections
mon-connz-p99   ≤ 1.2 ×  request/reply p99 while /connz is read, of that without
mon-jsz         ≤ 1.0    /jsz of 1,000 streams with 10,000 consumers
mon-jsz-p99     ≤ 1.2 ×  request/reply p99 while /jsz is read, of that without
mon-metrics     ≤ 1.0    /metrics of both; of nats-server /varz, /connz and /jsz, as for an exporter
mon-metrics-p99 ≤ 1.2 ×  request/reply p99 while /metrics is read, of that without
"""
SMALL = {
    "connz": Monitored((CONNZ,), clients=20, requests=20, turns=1),
    "jsz": Monitored((JSZ,), streams=3, consumers=7, requests=20, turns=1),
    "metrics": Monitored(("/metrics",), 20, 3, 7, requests=20, turns=1),
}


def test_the_rows_are_the_agreed_ones() -> None:
    shown = [f"{row.key:<15} {row.goal_text:<7}  {row.title}" for row in all_rows(Scale())]
    assert shown == AGREED.strip().splitlines()


@pytest.mark.parametrize("kind", SMALL)
def test_scrapes_are_measured(kind: str) -> None:
    scenario = SMALL[kind]
    with running(natsd_arm(), scenario) as server:
        measurement = run_once(scenario, server, 0)
        assert measurement.problem == ""
        assert measurement.values["scrape_ms"] > 0
        assert measurement.values["during"] > 0
        if scenario.streams:
            jsz = json.loads(Target(server, ("/jsz",)).read("/jsz"))
            assert (jsz["streams"], jsz["consumers"]) == (3, 7)
            assert run_once(scenario, server, 0).problem == ""  # it finds what the first run made


def test_a_server_that_runs_already_is_not_measured() -> None:
    scenario = SMALL["connz"]
    with running(RemoteArm("other", "127.0.0.1", 1), scenario) as server:
        problem = run_once(scenario, server, 0).problem
    assert problem == "a server that runs already cannot be given a configuration"


@pytest.fixture
def paths() -> Iterator[tuple[list[str], int]]:
    """Yield the paths that an HTTP server was asked for, and its port; /jsz fails there."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(500 if self.path.startswith("/jsz") else 200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # the base's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield asked, server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def target(tmp_path: Path, port: int, info: dict[str, str], *wanted: str) -> Target:
    config = tmp_path / "server.json"
    config.write_text(json.dumps({"http": f"127.0.0.1:{port}"}))
    return Target(BenchServer("127.0.0.1", 0, info, config=config), wanted)


def test_another_server_is_asked_for_what_an_exporter_asks(
    paths: tuple[list[str], int], tmp_path: Path
) -> None:
    asked, port = paths
    assert target(tmp_path, port, {"natsd": "1"}, "/metrics").scrape() > 0
    assert asked == ["/metrics"]
    other = target(tmp_path, port, {"version": "2.14.5"}, "/metrics")
    with pytest.raises(LoadError, match=r"is answered 500"):
        other.scrape()
    assert asked[1:] == list(EXPORTED)
    with other.scraped():
        pass
    assert "is answered 500" in other.problem


def test_the_rows_can_be_listed(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--monitoring", "--list"]) == 0
    assert "mon-metrics-p99" in capfd.readouterr().out
