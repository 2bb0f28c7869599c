"""The tests of another project pass with the plugin, in one process and with pytest-xdist."""

import shutil
from pathlib import Path

import pytest

from tests.testing.running import run_pytest

pytestmark = pytest.mark.timeout(220)  # pytest in a process of its own is slow on a busy machine

PROJECT = Path(__file__).parent / "sample_project"


@pytest.mark.parametrize("arguments", [[], ["-n2"], ["--natsd-process"]], ids=str)
def test_the_tests_of_a_project_pass(tmp_path: Path, arguments: list[str]) -> None:
    project = tmp_path / "icecream"
    shutil.copytree(PROJECT, project)
    outcome = run_pytest(project, f"--basetemp={tmp_path / 'base'}", *arguments)
    assert outcome.counts == {"passed": 12}, outcome.text
    left = [path for path in (tmp_path / "base").rglob("natsd-*") if path.is_dir()]
    assert left == []
