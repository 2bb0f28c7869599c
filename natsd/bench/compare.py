"""Runs rows against servers, interleaved, and keeps what was measured.

For each scenario all servers are started, sized once (calibrated to about `run_seconds` per
run, which also warms them up), and then take turns, A B A B, round after round; an idle
server costs nothing. A run that lost messages or failed is void, and one void run voids the
server's whole cell.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from natsd.bench.arms import AnyArm, Server
from natsd.bench.rows import Row
from natsd.bench.scenarios import Measurement, Scenario, run_once
from natsd.bench.statistics import median

CALIBRATIONS_MAX = 4
LONG_ENOUGH_SHARE = 0.3
SIZE_MAX = 200_000_000

Report = Callable[[str], None]


@dataclass
class Cell:
    """One server's runs of one row."""

    values: list[float] = field(default_factory=list)
    missing: int = 0
    problem: str = ""
    load_share: float = 0.0

    def add(self, measurement: Measurement, value: str) -> None:
        """Take one run in."""
        self.missing += measurement.missing
        self.problem = self.problem or measurement.problem
        self.load_share = max(self.load_share, measurement.load_share)
        if measurement.counts and value in measurement.values:
            self.values.append(measurement.values[value])

    @property
    def median(self) -> float | None:
        """The median, unless a run was void or there is none."""
        if self.missing or self.problem or not self.values:
            return None
        return median(self.values)


@dataclass
class RowResult:
    """A row, and one cell per arm in the order of the arms; the first arm is ours."""

    row: Row
    cells: list[Cell]

    @property
    def title(self) -> str:
        """The row's."""
        return self.row.title

    @property
    def goal(self) -> float | None:
        """A bound on the ratio."""
        return self.row.goal

    @property
    def higher_is_better(self) -> bool:
        """Which way the ratio is better."""
        return self.row.metric.higher_is_better

    @property
    def best_other(self) -> float | None:
        """The best median among the servers that ours is compared with."""
        medians = [cell.median for cell in self.cells[1:]]
        known = [value for value in medians if value is not None]
        if not known:
            return None
        return max(known) if self.row.metric.higher_is_better else min(known)

    @property
    def ratio(self) -> float | None:
        """Our median divided by the best other one."""
        ours, best = self.cells[0].median, self.best_other
        return ours / best if ours is not None and best else None

    @property
    def misses_goal(self) -> bool:
        """Whether there is a goal and something to compare with, and it is not met."""
        if self.row.goal is None or self.best_other is None:
            return False
        return self.ratio is None or not self.row.meets_goal(self.ratio)


@dataclass(frozen=True)
class Plan:
    """How often and how long."""

    rounds: int = 3
    run_seconds: float = 1.0


class Comparison:
    """The servers side by side."""

    def __init__(self, arms: Sequence[AnyArm], plan: Plan, report: Report) -> None:
        self.arms = list(arms)
        self.plan = plan
        self.versions: list[str] = ["?"] * len(self.arms)
        self._report = report

    @property
    def labels(self) -> list[str]:
        """Each server's name and version."""
        pairs = zip(self.arms, self.versions, strict=True)
        return [f"{arm.name} {version}{arm.note}" for arm, version in pairs]

    def read_versions(self) -> None:
        """Start each server once and read what it calls itself."""
        for index, arm in enumerate(self.arms):
            with arm.running() as server:
                self.versions[index] = server.version

    def run(self, rows: Iterable[Row]) -> Iterator[list[RowResult]]:
        """Measure; yields the finished rows of each scenario."""
        for scenario, group in by_scenario(rows):
            yield self._run_scenario(scenario, group)

    def _run_scenario(self, scenario: Scenario, rows: list[Row]) -> list[RowResult]:
        results = [RowResult(row, [Cell() for _ in self.arms]) for row in rows]
        runs = self._fresh_runs if scenario.fresh else self._runs
        for index, measurement in runs(scenario, rows[0].title):
            for result in results:
                result.cells[index].add(measurement, result.row.value)
        return results

    def _runs(self, scenario: Scenario, title: str) -> Iterator[tuple[int, Measurement]]:
        """All runs on servers that stay up: which arm, and what it gave."""
        with ExitStack() as stack:
            servers = [stack.enter_context(arm.running()) for arm in self.arms]
            sizes = [self._calibrate(scenario, server, title) for server in servers]
            for number in range(self.plan.rounds):
                for index, (server, size) in enumerate(zip(servers, sizes, strict=True)):
                    self._report(f"{title}: round {number + 1}, {self.arms[index].name}")
                    yield index, run_once(scenario, server, size)

    def _fresh_runs(self, scenario: Scenario, title: str) -> Iterator[tuple[int, Measurement]]:
        """All runs, each on a server of its own."""
        for number in range(self.plan.rounds):
            for index, arm in enumerate(self.arms):
                self._report(f"{title}: round {number + 1}, {arm.name}")
                with arm.running() as server:
                    yield index, run_once(scenario, server, 0)

    def _calibrate(self, scenario: Scenario, server: Server, title: str) -> int:
        size = scenario.first_size
        if size is None:
            return 0
        self._report(f"{title}: calibrating")
        for _ in range(CALIBRATIONS_MAX):
            measurement = run_once(scenario, server, size)
            if not measurement.counts or not measurement.seconds:
                break
            long_enough = measurement.seconds >= LONG_ENOUGH_SHARE * self.plan.run_seconds
            factor = min(self.plan.run_seconds / measurement.seconds, 20.0)
            size = min(SIZE_MAX, max(1, int(size * factor)))
            if long_enough:
                break
        return size


def by_scenario(rows: Iterable[Row]) -> list[tuple[Scenario, list[Row]]]:
    """Rows grouped by the scenario they share."""
    groups: dict[Scenario, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.scenario, []).append(row)
    return list(groups.items())
