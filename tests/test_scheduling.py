"""All Spark tests go to one worker, first; the others go to all workers as usual."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("xdist")

from tests.scheduling import SPARK, SparkOnOneWorker


class FakeConfig:
    """The part of a configuration that a scheduler uses."""

    def __init__(self, workers: int) -> None:
        self._values = {"tx": ["popen"] * workers, "maxschedchunk": None}

    def getvalue(self, name: str) -> Any:
        return self._values[name]

    getoption = getvalue


class FakeWorker:
    """A worker that remembers the tests that it got, and runs them when told."""

    gateway = SimpleNamespace(id="fake")

    def __init__(self) -> None:
        self.waiting: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, tests: Sequence[int]) -> None:
        self.waiting += tests

    def shutdown(self) -> None:
        self.shutting_down = True


def run(tests: list[str], count: int) -> list[list[str]]:
    """Return the tests that each worker ran, in order; all tests take equally long."""
    config: Any = FakeConfig(count)
    scheduler = SparkOnOneWorker(config)
    workers: list[Any] = [FakeWorker() for _ in range(count)]
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, tests)
    scheduler.schedule()
    ran: list[list[str]] = [[] for _ in workers]
    while any(worker.waiting for worker in workers):
        before = sum(map(len, ran))
        for worker, done in zip(workers, ran, strict=True):
            # A worker keeps its last known test until it is told that no other follows.
            if len(worker.waiting) > (not worker.shutting_down):
                test = worker.waiting.pop(0)
                done.append(tests[test])
                scheduler.mark_test_complete(worker, test, 0.01)
        assert sum(map(len, ran)) > before, "every worker waits"
    assert scheduler.tests_finished
    return ran


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize(("spark", "others"), [(7, 200), (50, 60), (0, 40), (3, 0), (1, 3)])
def test_spark_goes_to_one_worker(spark: int, others: int, count: int) -> None:
    tests = [f"tests/core/test_a.py::test_{n}" for n in range(others // 2)]
    tests += [f"{SPARK}test_b.py::test_{n}" for n in range(spark)]
    tests += [f"tests/trie/test_c.py::test_{n}" for n in range(others - others // 2)]
    ran = run(tests, count)
    assert sorted(itertools.chain(*ran)) == sorted(tests)
    with_spark = [done for done in ran if any(test.startswith(SPARK) for test in done)]
    assert len(with_spark) == bool(spark)
    for done in with_spark:
        assert all(test.startswith(SPARK) for test in done[:spark])
