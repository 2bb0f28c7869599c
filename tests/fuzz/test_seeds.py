"""Every seed passes its target's check, in every build.

Inputs that repeat a seed many times pass too, at a cost in proportion to their length.
"""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from tests.fuzz.cost import check_cost, check_memory

TARGETS = sorted(path.stem for path in Path(__file__).parent.glob("fuzz_*.py"))
MODULES = [importlib.import_module(f"tests.fuzz.{name}") for name in TARGETS]
CASES = [
    pytest.param(target, seed, id=f"{name}-{number}")
    for name, target in zip(TARGETS, MODULES, strict=True)
    for number, seed in enumerate(target.SEEDS)
]
LONG_BYTES = 8_192


@pytest.mark.parametrize(("target", "seed"), CASES)
def test_seed(target: ModuleType, seed: bytes) -> None:
    check_cost(target.check, seed)


@pytest.mark.parametrize("target", MODULES, ids=TARGETS)
def test_what_is_long_costs_no_more_than_its_length(target: ModuleType) -> None:
    for seed in filter(None, target.SEEDS):
        long = (seed * (LONG_BYTES // len(seed) + 1))[:LONG_BYTES]
        check_cost(target.check, long)
    check_memory(target.check, long)
