"""Clusters of tests: their servers are natsd, or nats-server if it is on PATH."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from natsd.local_cluster.cluster import LocalCluster
from natsd.local_cluster.plan import FREE, Plan
from natsd.local_cluster.process import NATSD

PROGRAMS = pytest.mark.parametrize(
    "program",
    [
        pytest.param(NATSD, id="natsd"),
        pytest.param(
            ("nats-server",),
            id="nats-server",
            marks=pytest.mark.skipif(
                shutil.which("nats-server") is None, reason="there is no nats-server on PATH"
            ),
        ),
    ],
)


@contextmanager
def none_left(directory: Path) -> Iterator[Path]:
    """Yield the directory; end the servers that run in it at the end."""
    try:
        yield directory
    finally:
        if LocalCluster.is_in(directory):
            LocalCluster.open(directory).kill()


@contextmanager
def running(
    directory: Path, count: int = 3, program: Sequence[str] = NATSD
) -> Iterator[LocalCluster]:
    """Yield a cluster that is a full mesh."""
    with none_left(directory):
        plan = Plan(port=FREE)
        cluster = LocalCluster.create(directory, plan, count)
        cluster.start_new(plan, program)
        cluster.wait_for_mesh()
        yield cluster
