"""The CPU time of a process is read from the system."""

import os
import time

import pytest

from natsd.bench.cpu_time import cpu_seconds, seconds_of


def test_it_grows_with_work() -> None:
    before = cpu_seconds(os.getpid())
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    assert 0.05 < cpu_seconds(os.getpid()) - before < 5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:07", 7), ("1:02.50", 62.5), ("02:00:01", 7_201), ("3-01:00:00", 262_800)],
)
def test_a_time_of_ps(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds
