"""pytest run in a directory of its own, as in another project."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

SETTINGS = """
[pytest]
filterwarnings =
    error
    ignore:The configuration option "asyncio_default_fixture_loop_scope" is unset
"""


@dataclass(frozen=True)
class Outcome:
    """What a run of pytest has printed, and how many tests passed, failed, ..."""

    text: str
    counts: dict[str, int]


def run_pytest(directory: Path, *arguments: str) -> Outcome:
    """Run pytest in a directory."""
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    summary = done.stdout.splitlines()[-1] if done.stdout else ""
    counted = re.findall(r"(\d+) (passed|failed|errors?|skipped|warnings?)", summary)
    return Outcome(done.stdout, {word.rstrip("s"): int(number) for number, word in counted})


def run_tests(directory: Path, tests: str, *arguments: str, settings: str = "") -> Outcome:
    """Run the text of a test module; `settings` are further lines of pytest's configuration."""
    (directory / "pytest.ini").write_text(SETTINGS + dedent(settings))
    (directory / "test_it.py").write_text(dedent(tests))
    return run_pytest(directory, *arguments)
