"""The measuring of the Spark rows: each scenario is prepared on each server, then run in turns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from natsd.bench.arms import ArmError
from natsd.bench.jetstream.arms import JetStreamArm, JetStreamServer
from natsd.bench.spark.results import SparkResult
from natsd.bench.spark.scenario import Run, SparkScenario, Stage
from natsd.bench.wire import LoadError

Report = Callable[[str], None]
PROBLEM_CHARACTERS_MAX = 200


class Measuring:
    """The servers, which run during all rows, and the Spark session."""

    def __init__(
        self, stage: Stage, arms: Sequence[JetStreamArm], rounds: int, report: Report
    ) -> None:
        self.stage = stage
        self.arms = list(arms)
        self.rounds = rounds
        self.versions: list[str] = []
        self._report = report

    @property
    def labels(self) -> list[str]:
        """The name and version of each server."""
        return [f"{arm.name} {text}" for arm, text in zip(self.arms, self.versions, strict=True)]

    def run(self, results: Sequence[SparkResult]) -> None:
        """Measure all rows and add the runs to the results."""
        with ExitStack() as stack:
            servers = [stack.enter_context(arm.running()) for arm in self.arms]
            self.versions = [server.version for server in servers]
            for scenario, group in by_scenario(results):
                for column, run in self._runs(scenario, servers, group[0].row.title):
                    for result in group:
                        result.add(column, run)

    def _runs(
        self, scenario: SparkScenario, servers: Sequence[JetStreamServer], title: str
    ) -> Iterator[tuple[int, Run]]:
        """Yield the column and the result of each run of the scenario."""
        measured = list(enumerate(servers))
        if scenario.alone or scenario.ours_only:
            measured = measured[:1]
        column = len(servers) if scenario.alone else 0
        with ExitStack() as stack:
            ready = []
            for index, server in measured:
                self._report(f"{title}: preparing, {self.arms[index].name}")
                stack.callback(finished, scenario, self.stage, server)
                if problem := self._prepare(scenario, server):
                    yield column + index, Run(problem=problem)
                else:
                    ready.append((index, server))
            for number in range(self.rounds):
                for index, server in ready:
                    self._report(f"{title}: round {number + 1}, {self.arms[index].name}")
                    yield column + index, run_once(scenario, self.stage, server)

    def _prepare(self, scenario: SparkScenario, server: JetStreamServer) -> str:
        """Prepare the scenario; return why it cannot be measured, empty if it can."""
        try:
            scenario.prepare(self.stage, server)
        except Exception as error:  # errors of Spark and nats-py too: they make only this row void
            return problem_of(error)
        return ""


def run_once(scenario: SparkScenario, stage: Stage, server: JetStreamServer) -> Run:
    """Run the scenario once; an exception becomes the problem of the run."""
    try:
        return scenario.run(stage, server)
    except Exception as error:  # errors of Spark and nats-py too, as in _prepare
        return Run(problem=problem_of(error))


def finished(scenario: SparkScenario, stage: Stage, server: JetStreamServer) -> None:
    """Finish the scenario; raise ArmError if the server does not run afterwards."""
    with contextlib.suppress(LoadError, OSError):
        scenario.finish(stage, server)
    if server.pid is None:
        raise ArmError("the server does not start again")


def problem_of(error: Exception) -> str:
    """Return the error in one line: of Spark's long texts the line that natsd's code raised."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("natsd.")]
    text = (said or lines or [type(error).__name__])[0]
    return text[:PROBLEM_CHARACTERS_MAX]


def by_scenario(
    results: Sequence[SparkResult],
) -> list[tuple[SparkScenario, list[SparkResult]]]:
    """Return the results, grouped by the scenario that their rows share."""
    groups: dict[SparkScenario, list[SparkResult]] = {}
    for result in results:
        groups.setdefault(result.row.scenario, []).append(result)
    return list(groups.items())
