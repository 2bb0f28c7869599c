"""The examples of the documentation do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        (
            "dead-letters.md",
            "a melted ice cream\norders.7\nterminated: nobody can make that\n",
        ),
        (
            "ordered-work.md",
            "['accounts.ann.open', 'accounts.bob.open']\n['accounts.ann.pay']\n",
        ),
        ("tracing.md", "in orders.new\njs ORDERS\neg workers\n0 stored\n"),
    ],
)
def test_the_example_of_a_page_works(tmp_path: Path, page: str, printed: str) -> None:
    match = re.search(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert match is not None
    program = tmp_path / "example.py"
    program.write_text(match[1])
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (printed, 0), done.stderr
