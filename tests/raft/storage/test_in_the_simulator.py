"""Members of a simulated group write the real log on disks that crash, tear and flip bits."""

import os

import pytest

from tests.sim.real_log import FLAGS, EncryptedLog, RealLog
from tests.sim.simulation import simulate
from tests.store.faulty_disk import FaultyJob

SEEDS = 10 * int(os.environ.get("NATSD_TORTURE", "1"))


@pytest.mark.parametrize("log", [RealLog, EncryptedLog])
@pytest.mark.parametrize("case", range(4))
def test_histories_are_linearizable_on_the_real_log(case: int, log: type[RealLog]) -> None:
    """Fresh seeds; a failure names the one to replay."""
    first = int.from_bytes(os.urandom(6), "big")
    for seed in range(first, first + SEEDS):
        result = simulate(seed, log)
        assert not result.violation, (
            f"{result.detail}\nreplay: python -m tests.sim{FLAGS[log]} --seed {seed} --trace"
        )


def test_a_log_that_is_not_synced_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: batches are reported when they are written."""
    monkeypatch.setattr(FaultyJob, "datasync", lambda job, file: None)
    assert any(simulate(seed, RealLog).violation for seed in range(1, 300))
