"""Runs of sequences, `[[first, last], …]`: the JSON form of a set of sequences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Run = tuple[int, int]


def runs_of(sequences: Iterable[int]) -> list[list[int]]:
    """Return the runs of the sequences, ascending; both ends of a run are inclusive."""
    runs: list[list[int]] = []
    for sequence in sorted(set(sequences)):
        if runs and sequence == runs[-1][1] + 1:
            runs[-1][1] = sequence
        else:
            runs.append([sequence, sequence])
    return runs


def expanded(runs: Iterable[Sequence[int]]) -> list[int]:
    """Return every sequence of the runs."""
    return [sequence for first, last in runs for sequence in range(first, last + 1)]


def clusters(runs: Iterable[Run], gap_max: int) -> list[tuple[Run, ...]]:
    """Group neighbouring runs that have at most `gap_max` sequences between them."""
    found: list[list[Run]] = []
    for run in runs:
        if found and run[0] - found[-1][-1][1] - 1 <= gap_max:
            found[-1].append(run)
        else:
            found.append([run])
    return [tuple(cluster) for cluster in found]
