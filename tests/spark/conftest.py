"""The Spark session and the servers of these tests.

Both start once, in the one worker that runs `tests/spark` (see tests/scheduling.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from natsd.cli import pipeline
from natsd.spark.wire.client import NatsClient
from tests.asan import IS_ASAN
from tests.spark.failures.commands import Ended
from tests.spark.failures.machine import Machine
from tests.spark.servers import JetStreamServer, find_go_server
from tests.spark.serving import options
from tests.spark.session import build_wheel, install_wheel, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_TIMEOUT_S = 200  # the first test waits for a wheel, a JVM and its workers
HERE = Path(__file__).parent

StartServer = Callable[..., JetStreamServer]
RunJob = Callable[..., Ended]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if not item.path.is_relative_to(HERE):
            continue
        if "spark" in fixtures and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(START_TIMEOUT_S))
        if IS_ASAN and "wheel" in fixtures:
            item.add_marker(pytest.mark.skip(reason="a JVM does not run under AddressSanitizer"))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a wheel of natsd."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory in which natsd is installed from a wheel, as by pip."""
    return install_wheel(wheel, tmp_path_factory.mktemp("installed") / "site")


@pytest.fixture(scope="session")
def machine(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Return the machine on which `natsd pipeline` runs in these tests."""
    return Machine(tmp_path_factory.mktemp("machine"), wheel)


@pytest.fixture(scope="session")
def workers(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Machine]:
    """Return the machines of a cluster's workers."""
    return [Machine(tmp_path_factory.mktemp("worker"), wheel) for _ in range(2)]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, site: Path) -> Iterator[SparkSession]:
    """Yield a session; `format("jetstream")` needs no registration, as natsd is in a wheel."""
    with spark_session(tmp_path_factory.mktemp("spark"), site) as session:
        yield session


@pytest.fixture
def run_job(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> RunJob:
    """Return a function that runs `natsd pipeline` on the session of these tests.

    It is used as `run_job("report", "ORDERS", …)`.
    """
    monkeypatch.setattr(pipeline, "make_session", lambda *_: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)

    def run(job: str, *arguments: str) -> Ended:
        capsys.readouterr()
        code = pipeline.main((job, *arguments))
        return Ended(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JetStreamServer]:
    """Yield a natsd for all tests that only need their own streams."""
    server = JetStreamServer(tmp_path_factory.mktemp("natsd"))
    yield server
    server.stop()


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Yield a function that starts a natsd for this test: `start_server(authorization={…})`."""
    started: list[JetStreamServer] = []

    def start(command: list[str] | None = None, **options: Any) -> JetStreamServer:
        started.append(JetStreamServer(tmp_path / f"server-{len(started)}", command, **options))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def go_server(start_server: StartServer) -> JetStreamServer:
    """Return a nats-server 2.11 or newer; skip the test if none is on PATH."""
    return start_go(start_server, batched_gets=True)


@pytest.fixture
def old_go_server(start_server: StartServer) -> JetStreamServer:
    """Return a nats-server before 2.11; skip the test if none is on PATH."""
    return start_go(start_server, batched_gets=False)


def start_go(start: StartServer, *, batched_gets: bool) -> JetStreamServer:
    path = find_go_server(batched_gets=batched_gets)
    if path is None:
        pytest.skip("no such nats-server on PATH")
    return start([path])


@pytest.fixture
def client(shared_server: JetStreamServer) -> Iterator[NatsClient]:
    with NatsClient(options(shared_server.url)) as client:
        yield client


@pytest.fixture
def names() -> Callable[[], str]:
    """Return a function that returns stream names that no other test has."""
    return lambda: f"S{next(_numbers)}"


_numbers = itertools.count(1)
