"""Conversions between sets of sequences and runs."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from natsd.spark.reader.runs import clusters, expanded, runs_of

SETS = st.sets(st.integers(1, 60))


@given(SETS)
def test_there_and_back(sequences: set[int]) -> None:
    assert expanded(runs_of(sequences)) == sorted(sequences)


@given(SETS, st.integers(0, 9))
def test_clusters_keep_what_is_near_together(sequences: set[int], gap: int) -> None:
    found = clusters([(first, last) for first, last in runs_of(sequences)], gap)
    assert expanded(run for cluster in found for run in cluster) == sorted(sequences)
    for before, after in pairwise(found):
        assert after[0][0] - before[-1][1] - 1 > gap
