"""The rows of the monitoring endpoints: the time of a scrape, and what scrapes cost clients.

- A server has idle connections, or streams with consumers, or both. A scrape reads what a row is
  about to its end; a run's time is the median of `SCRAPES`.
- Then requests are sent and answered, in turns without scrapes and during scrapes without a pause
  between them. What counts is the ratio of the p99 during scrapes to that without.
- The scraper is a thread of the benchmark's process, which only waits otherwise. It, the two load
  processes and the server share the machine's cores, whichever server it is; with fewer than four
  cores a p99 during scrapes is also one of the system's scheduler.
- nats-server has no `/metrics`. In its place the three endpoints are read that a Prometheus
  exporter reads for the same metrics; the exporter's own work is not counted.
- Streams are in memory, so that they are made quickly.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import ClassVar, Final

from natsd.bench.arms import HOST, BenchServer
from natsd.bench.jetstream.api import Api
from natsd.bench.measurement import Measurement, first_problem
from natsd.bench.rows import Metric, Row, Scale
from natsd.bench.scenarios import RequestReply
from natsd.bench.statistics import median
from natsd.bench.storm import Storm
from natsd.bench.wire import LoadError
from natsd.bench.workers import Crew

CONNZ: Final = "/connz?limit=1000000"
JSZ: Final = "/jsz?consumers=true&config=true&raft=true"
EXPORTED: Final = ("/varz", "/connz", JSZ)
"""What prometheus-nats-exporter reads for the metrics of natsd's `/metrics`."""

SCRAPES: Final = 5
SCRAPE_SECONDS_MAX: Final = 60.0
RECEIVE_BYTES: Final = 1 << 20

TIME: Final = Metric("ms", higher_is_better=False, digits=1)
DURING: Final = Metric("×", higher_is_better=False, is_share=True)
TIME_GOAL: Final = 1.0
DURING_GOAL: Final = 1.2


@dataclass(frozen=True)
class Monitored:
    """A server of this size whose endpoints are read; see the module."""

    first_size: ClassVar[int | None] = None
    fresh: ClassVar[bool] = False
    setup: ClassVar[str] = "monitored"

    paths: tuple[str, ...]
    """What is read of natsd."""
    clients: int = 0
    streams: int = 0
    consumers: int = 0
    requests: int = 4_000
    turns: int = 3

    def run(self, server: BenchServer, size: int) -> Measurement:
        """Measure the time of a scrape, and the p99 of requests with and without scrapes."""
        began = time.perf_counter()
        target = Target(server, self.paths)
        if self.streams:
            _fill(server, target, self.streams, self.consumers)
        with _connected(server, self.clients):
            times_ms = sorted(target.scrape() * 1e3 for _ in range(SCRAPES))
            quiet, busy, problem = self._percentiles(server, target)
        values = {"scrape_ms": median(times_ms)}
        if not problem:
            values["during"] = median(busy) / median(quiet)
        return Measurement(values, time.perf_counter() - began, problem=problem)

    def _percentiles(
        self, server: BenchServer, target: "Target"
    ) -> tuple[list[float], list[float], str]:
        """Return p99s without and during scrapes, and the first problem."""
        load = RequestReply(self.requests)
        p99s_us: tuple[list[float], list[float]] = ([], [])
        for _ in range(self.turns):
            for is_busy, samples in enumerate(p99s_us):
                with target.scraped() if is_busy else nullcontext():
                    measurement = load.run(server, 0)
                if measurement.problem:
                    return *p99s_us, measurement.problem
                samples.append(measurement.values["p99_us"])
        return *p99s_us, target.problem


class Target:
    """The monitoring port of a server, and what is read of it."""

    def __init__(self, server: BenchServer, paths: tuple[str, ...]) -> None:
        assert server.config is not None
        settings = json.loads(server.config.read_text())
        self._port = int(settings["http"].rpartition(":")[2])
        has_metrics = "natsd" in server.info
        self._paths = paths if has_metrics or paths != ("/metrics",) else EXPORTED
        self.problem = ""

    def scrape(self) -> float:
        """Read the answers to their ends, as Prometheus does; return the seconds.

        Raises LoadError if one cannot be read.
        """
        began = time.perf_counter()
        for path in self._paths:
            self.read(path)
        return time.perf_counter() - began

    def read(self, path: str) -> bytes:
        """Return the end of the answer, up to RECEIVE_BYTES of it, or all if it is short."""
        connection = HTTPConnection(HOST, self._port, timeout=SCRAPE_SECONDS_MAX)
        try:
            connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
            response = connection.getresponse()
            if response.status != 200:
                raise LoadError(f"{path} is answered {response.status}")
            buffer, last = bytearray(RECEIVE_BYTES), b""
            while count := response.readinto(buffer):
                last = bytes(memoryview(buffer)[:count])
            return last
        except (OSError, HTTPException) as error:
            raise LoadError(f"{path}: {error}") from error
        finally:
            connection.close()

    @contextmanager
    def scraped(self) -> Iterator[None]:
        """Scrape without a pause during the `with`; `problem` tells why a scrape failed."""
        ended = threading.Event()

        def scrape() -> None:
            try:
                while not ended.is_set():
                    self.scrape()
            except LoadError as error:
                self.problem = self.problem or str(error)

        thread = threading.Thread(target=scrape)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


@contextmanager
def _connected(server: BenchServer, clients: int) -> Iterator[None]:
    """Hold idle connections during the `with`; raises LoadError if they cannot be opened."""
    if not clients:
        yield
        return
    with Crew([Storm(server.host, server.port, clients)]) as crew:
        if problem := first_problem(crew.run()):
            raise LoadError(problem)
        yield


def _fill(server: BenchServer, target: Target, streams: int, consumers: int) -> None:
    """Make the streams and consumers, each stream with one message, unless they are there."""
    if json.loads(target.read("/jsz"))["streams"] == streams:
        return
    with Api(server.host, server.port) as api:
        for number in range(streams):
            name = f"S{number:05d}"
            config = {"name": name, "subjects": [f"bench.{name}"], "storage": "memory"}
            api.request(f"STREAM.CREATE.{name}", config)
        for number in range(consumers):
            stream, name = f"S{number % streams:05d}", f"C{number:06d}"
            settings = {"name": name, "durable_name": name, "ack_policy": "explicit"}
            body = {"stream_name": stream, "config": settings}
            api.request(f"CONSUMER.DURABLE.CREATE.{stream}.{name}", body)


def all_rows(scale: Scale) -> list[Row]:
    """Return every row, in the order of the table."""
    clients, streams, consumers = scale.clients, scale.streams, scale.consumers
    held, kept = f"{clients:,} connections", f"{streams:,} streams with {consumers:,} consumers"
    scenarios = {
        "connz": (f"/connz of {held}", Monitored((CONNZ,), clients)),
        "jsz": (f"/jsz of {kept}", Monitored((JSZ,), 0, streams, consumers)),
        "metrics": (
            "/metrics of both; of nats-server /varz, /connz and /jsz, as for an exporter",
            Monitored(("/metrics",), clients, streams, consumers),
        ),
    }
    rows = []
    for key, (title, scenario) in scenarios.items():
        p99 = f"request/reply p99 while /{key} is read, of that without"
        rows.append(Row(f"mon-{key}", title, scenario, "scrape_ms", TIME, TIME_GOAL))
        rows.append(Row(f"mon-{key}-p99", p99, scenario, "during", DURING, DURING_GOAL))
    return rows
