"""The examples of docs/delayed-messages.md work."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "delayed-messages.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
PRINTED = ["Bob called\ncall Bob back\n", "21 degrees house.plan\n"]


@pytest.mark.parametrize(
    ("program", "printed"), list(zip(PROGRAMS, PRINTED, strict=True)), ids=["delay", "schedule"]
)
def test_the_example_works(program: str, printed: str, tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text(program)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (printed, 0), done.stderr
