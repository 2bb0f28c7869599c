"""The comparison: rows are measured on several servers in turns, and the values are kept.

For each scenario all servers are started and calibrated once, to about `run_seconds` per run;
calibrating also warms the servers up. Then the servers take turns, A B A B, round after round; a
server that waits for its turn is idle and uses no CPU. A run that lost messages or failed is void,
and one void run makes the server's cell in that row void.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from natsd.bench.arms import AnyArm, BenchServer
from natsd.bench.measurement import Measurement
from natsd.bench.rows import Row
from natsd.bench.scenarios import Scenario, run_once
from natsd.bench.setups import running
from natsd.bench.statistics import median

CALIBRATIONS_MAX = 4
LONG_ENOUGH_SHARE = 0.3
SIZE_MAX = 200_000_000

Report = Callable[[str], None]


@dataclass
class Cell:
    """The runs of one row on one server."""

    values: list[float] = field(default_factory=list)
    missing: int = 0
    problem: str = ""
    load_share: float = 0.0

    def add(self, measurement: Measurement, value: str) -> None:
        """Add one run to the cell; `value` is the key of the row's value in the measurement."""
        self.missing += measurement.missing
        self.problem = self.problem or measurement.problem
        self.load_share = max(self.load_share, measurement.load_share)
        if measurement.counts and value in measurement.values:
            self.values.append(measurement.values[value])

    @property
    def median(self) -> float | None:
        """The median of the runs; None if a run was void or nothing was measured."""
        if self.missing or self.problem or not self.values:
            return None
        return median(self.values)


@dataclass
class RowResult:
    """A row, with one cell per arm in the order of the arms; the first arm is ours."""

    row: Row
    cells: list[Cell]

    @property
    def title(self) -> str:
        """The title of the row."""
        return self.row.title

    @property
    def goal(self) -> float | None:
        """The bound that the row sets on the ratio or share; None: the row has no goal."""
        return self.row.goal

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher ratio is better than a lower one."""
        return self.row.metric.higher_is_better

    @property
    def best_other(self) -> float | None:
        """The best median among the other servers; None if none was measured."""
        medians = [cell.median for cell in self.cells[1:]]
        known = [value for value in medians if value is not None]
        if not known:
            return None
        return max(known) if self.row.metric.higher_is_better else min(known)

    @property
    def ratio(self) -> float | None:
        """Our median divided by the best median of the other servers; None if either is missing."""
        ours, best = self.cells[0].median, self.best_other
        return ours / best if ours is not None and best else None

    @property
    def is_judged(self) -> bool:
        """Whether the row has a goal, and another server was measured, if the goal needs one."""
        has_measure = self.row.metric.is_share or self.best_other is not None
        return self.row.goal is not None and has_measure

    @property
    def misses_goal(self) -> bool:
        """Whether the row is judged, and its goal is not met."""
        if not self.is_judged:
            return False
        number = self.cells[0].median if self.row.metric.is_share else self.ratio
        return number is None or not self.row.meets_goal(number)


@dataclass(frozen=True)
class Plan:
    """The number of rounds, and the seconds that each run aims at."""

    rounds: int = 3
    run_seconds: float = 1.0


class Comparison:
    """A comparison of servers, side by side."""

    def __init__(self, arms: Sequence[AnyArm], plan: Plan, report: Report) -> None:
        self.arms = list(arms)
        self.plan = plan
        self.versions: list[str] = ["?"] * len(self.arms)
        self._report = report

    @property
    def labels(self) -> list[str]:
        """The name, version and note of each server."""
        pairs = zip(self.arms, self.versions, strict=True)
        return [f"{arm.name} {version}{arm.note}" for arm, version in pairs]

    def read_versions(self) -> None:
        """Start each server once and read its version from its INFO."""
        for index, arm in enumerate(self.arms):
            with arm.running() as server:
                self.versions[index] = server.version

    def run(self, rows: Iterable[Row]) -> Iterator[list[RowResult]]:
        """Measure the rows; yield the results of each scenario when all its runs are done."""
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
        """Run on servers that stay up; yield the index of the arm and its measurement."""
        with ExitStack() as stack:
            servers = [stack.enter_context(running(arm, scenario)) for arm in self.arms]
            sizes = [self._calibrate(scenario, server, title) for server in servers]
            for number in range(self.plan.rounds):
                for index, (server, size) in enumerate(zip(servers, sizes, strict=True)):
                    self._report(f"{title}: round {number + 1}, {self.arms[index].name}")
                    yield index, run_once(scenario, server, size)

    def _fresh_runs(self, scenario: Scenario, title: str) -> Iterator[tuple[int, Measurement]]:
        """Run each time on a newly started server; yield the arm's index and its measurement."""
        for number in range(self.plan.rounds):
            for index, arm in enumerate(self.arms):
                self._report(f"{title}: round {number + 1}, {arm.name}")
                with running(arm, scenario) as server:
                    yield index, run_once(scenario, server, 0)

    def _calibrate(self, scenario: Scenario, server: BenchServer, title: str) -> int:
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
    """Return the rows, grouped by the scenario that they share."""
    groups: dict[Scenario, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.scenario, []).append(row)
    return list(groups.items())
