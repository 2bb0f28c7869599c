"""The data of /proc about processes below this one."""

import os
import subprocess
import sys

import pytest

from natsd.bench.spark import processes
from natsd.bench.spark.processes import CpuSeconds, Meter, Process, below

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


def test_children_and_theirs() -> None:
    every = [Process(pid, parent, "p", 0.0) for pid, parent in ((2, 1), (3, 2), (4, 3), (9, 8))]
    assert sorted(process.pid for process in below(1, every)) == [2, 3, 4]
    assert below(4, every) == []


def test_a_process_is_read() -> None:
    command = [sys.executable, "-c", "import sys; sum(range(10**7)); print(); sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        process = processes.read(child.pid)
        assert process is not None
        assert process.parent == os.getpid()
        assert process.cpu_seconds > 0
        used = processes.cpu_seconds(child.pid)
        assert used is not None
        assert used.server >= process.cpu_seconds
    assert processes.read(child.pid) is None


def test_a_python_process_that_is_not_sparks_is_no_worker() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid not in processes.workers()


def test_a_meter_divides_by_rows() -> None:
    with Meter(None) as used:
        sum(range(10**5))
    assert used.seconds > 0
    each = used.each(1000)
    assert each is not None
    assert each.server == 0
    assert CpuSeconds(1.0, 2.0, 3.0).since(CpuSeconds(0.5, 3.0, 1.0)) == CpuSeconds(0.5, 0.0, 2.0)


def test_elsewhere_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PROC", processes.PROC / "none")
    assert processes.cpu_seconds(1) is None
    assert processes.peak_bytes() is None
    processes.forget_peaks()
