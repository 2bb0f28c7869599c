"""Hundreds of rounds of what the suite does a few times: `make torture` runs it, for a while.

    TORTURE_SECONDS=600 python -m tests.store.torture

kill -9 at random moments, power loss and failing calls at random calls, the model; each failure
prints what leads to it and ends the run with 1.
"""

import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.store import test_file_store_crashes as crashes
from tests.store import test_file_store_kill as kill
from tests.store.test_file_store_model import CompressedModel, EncryptedModel, FileModel

SECONDS = float(os.environ.get("TORTURE_SECONDS", "60"))
EXAMPLES = 500
KILLS = 20

Round = Callable[[], None]


def many(test: Callable[..., None]) -> Round:
    """A hypothesis test with other examples each time, more of them."""
    chosen = settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    test._hypothesis_internal_use_settings = chosen  # type: ignore[attr-defined]  # as it does
    return test


def model(machine: type[FileModel]) -> Round:
    chosen = settings(max_examples=100, stateful_step_count=50, deadline=None, database=None)
    return lambda: run_state_machine_as_test(machine, settings=chosen)


def kills() -> None:
    chance = random.Random()
    with tempfile.TemporaryDirectory() as directory:
        volume = Path(directory) / "volume"
        removed = {0}
        for _ in range(KILLS):
            seed = str(chance.randrange(1 << 30))
            lines = kill.kill_midway(
                kill.PUBLISHER,
                str(volume),
                seed,
                lines=chance.randint(1, 200),
                delay_s=chance.random() * 0.02,
            )
            asyncio.run(kill.check(volume, lines, removed))


def main() -> int:
    rounds: list[Round] = [
        kills,
        many(crashes.test_power_fails_at_any_call),
        many(crashes.test_any_call_fails_and_then_the_power),
        *map(model, (FileModel, CompressedModel, EncryptedModel)),
    ]
    ends_at = time.monotonic() + SECONDS
    count = 0
    while time.monotonic() < ends_at:
        rounds[count % len(rounds)]()
        count += 1
        print(f"{count} rounds, {max(0, ends_at - time.monotonic()):.0f} s left", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
