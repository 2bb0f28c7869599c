"""The tests of docs/testing.md and of README pass as a reader would paste them."""

import re
from pathlib import Path

import pytest

from tests.testing.running import run_tests

pytestmark = pytest.mark.timeout(220)  # pytest in a process of its own is slow on a busy machine

ROOT = Path(__file__).resolve().parents[2]
IMPORTS = """
import asyncio
import unittest

import nats
import natsd.testing
import pytest
"""


def examples(page: str) -> list[str]:
    """Return the tests of a page."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return [block for block in blocks if "def test_" in block or "natsd.testing" in block]


def test_the_first_test_of_the_page_passes(tmp_path: Path) -> None:
    outcome = run_tests(tmp_path, examples("docs/testing.md")[0])
    assert outcome.counts == {"passed": 2}, outcome.text


def test_the_recipes_pass(tmp_path: Path) -> None:
    pytest.importorskip("pytest_asyncio")
    recipes = [*examples("docs/testing.md")[1:], *examples("README.md")]
    outcome = run_tests(tmp_path, IMPORTS + "\n\n".join(recipes), "--asyncio-mode=auto")
    assert set(outcome.counts) == {"passed"}, outcome.text
    assert outcome.counts["passed"] == "".join(recipes).count("def test_")
