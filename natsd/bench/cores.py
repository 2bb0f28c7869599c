"""The comparison by cores: how many cores the Go server needs to overtake natsd, which uses one.

The other server is measured once per number of cores: GOMAXPROCS limits its threads, and with
pinning the kernel limits its cores too. The load generators need cores as well, so a machine with
few cores cannot answer the question for many, and the report states what was measured.
"""

from collections.abc import Sequence
from dataclasses import replace

from natsd.bench.arms import AnyArm, Arm, ArmError
from natsd.bench.compare import RowResult

ROW_PATTERNS = ["1-1-128", "1-8-128", "4-4-128", "pairs-4-128"]


def arms_by_cores(ours: AnyArm, other: AnyArm, cores: int) -> list[AnyArm]:
    """Return our server, and the other server once for each number of cores up to `cores`.

    Raises ArmError if the other server is not started by the benchmark.
    """
    if not isinstance(other, Arm):
        raise ArmError("--cores starts the other server itself: give --vs a program")
    return [ours, *(_with_cores(other, count) for count in core_steps(cores))]


def core_steps(cores: int) -> list[int]:
    """Return the numbers of cores to measure: 1, 2, 3, 4, then larger steps, and `cores` itself."""
    steps = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128) if n < cores]
    return [*steps, cores]


def _with_cores(arm: Arm, count: int) -> Arm:
    return replace(
        arm,
        note=f", {count} core{'s' if count > 1 else ''}",
        environment={**arm.environment, "GOMAXPROCS": str(count)},
    )


def verdicts(results: Sequence[RowResult], steps: Sequence[int], machine_cores: int) -> list[str]:
    """Return one sentence per row, and one sentence about the limits of this machine."""
    lines = [f"{result.row.title}: {_verdict(result, steps)}" for result in results]
    lines.append(
        f"measured with up to {steps[-1]} core{'s' if steps[-1] > 1 else ''} for the other server, "
        f"on a machine of {machine_cores}, whose cores the load generators share; "
        "nothing is claimed beyond that"
    )
    return lines


def _verdict(result: RowResult, steps: Sequence[int]) -> str:
    ours = result.cells[0].median
    if ours is None:
        return "ours was not measured"
    for count, cell in zip(steps, result.cells[1:], strict=True):
        if cell.median is not None and cell.median > ours:
            return f"overtaken from {count} core{'s' if count > 1 else ''} on"
    return f"not overtaken with up to {steps[-1]} core{'s' if steps[-1] > 1 else ''}"
