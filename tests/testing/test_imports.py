"""What the plugin imports: nearly nothing in a run that starts no server."""

from pathlib import Path

import pytest

from tests.testing.running import run_tests

pytestmark = pytest.mark.timeout(220)  # pytest in a process of its own is slow on a busy machine

LISTING = """
import sys


def test_it():
    loaded = sorted(name for name in sys.modules if name.partition(".")[0] == "natsd")
    assert loaded == ["natsd", "natsd.testing", "natsd.testing.plugin", "natsd.version"]
    assert not {"asyncio", "nats", "cryptography", "uvloop"} & set(sys.modules)
"""


def test_a_run_without_servers_imports_nothing(tmp_path: Path) -> None:
    outcome = run_tests(tmp_path, LISTING, "-p", "no:asyncio", "-p", "no:anyio")
    assert outcome.counts == {"passed": 1}, outcome.text
