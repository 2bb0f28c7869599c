"""Every seed passes its target's check, in every build: the fuzzer starts from what holds."""

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

TARGETS = sorted(path.stem for path in Path(__file__).parent.glob("fuzz_*.py"))
CASES = [
    pytest.param(target.check, seed, id=f"{name}-{number}")
    for name in TARGETS
    for target in [importlib.import_module(f"tests.fuzz.{name}")]
    for number, seed in enumerate(target.SEEDS)
]


@pytest.mark.parametrize(("check", "seed"), CASES)
def test_seed(check: Callable[[bytes], None], seed: bytes) -> None:
    check(seed)
