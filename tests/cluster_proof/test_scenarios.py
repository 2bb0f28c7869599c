"""Replicated JetStream keeps its promises while servers die, pause, part, and lose their files.

`make test` plays one or two rounds of the short scenarios, `make torture` a minute of each. By
hand: `python -m tests.cluster_proof --list`.
"""

import random
import statistics
import sys
from pathlib import Path

import pytest

from tests.clients.target import GO_SERVER
from tests.cluster_proof.program import PROGRAM, REPLICATED
from tests.cluster_proof.run import Report, run
from tests.cluster_proof.scenarios import SCENARIOS
from tests.cluster_proof.servers import may_mount
from tests.store.crash import TORTURE

SHORT_S = 0.5
LONG_S = 3.0 * TORTURE
RECOVERY_S_MAX = 1.0
"""Median time without a leader, with the default settings."""

pytestmark = [REPLICATED, pytest.mark.torture]


async def played(name: str, directory: Path, seconds: float) -> Report:
    """Run a scenario, print what it has shown, and check that it has no problem."""
    chosen = SCENARIOS[name]
    if chosen.read_replicas and GO_SERVER:
        pytest.skip("nats-server has no read replicas")
    if chosen.disk_bytes and not may_mount():
        pytest.skip("a disk of its own must be mounted, which only root may do")
    if chosen.is_natsd and GO_SERVER:
        pytest.skip("nats-server does not do this")
    report = await run(chosen, directory, PROGRAM, seconds, random.randrange(1 << 32))
    text = "\n".join(report.lines())
    sys.stdout.write(f"{text}\n")
    assert not report.problems, text
    return report


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", [each.name for each in SCENARIOS.values() if each.is_short])
async def test_for_a_moment(name: str, tmp_path: Path) -> None:
    await played(name, tmp_path, SHORT_S)


@pytest.mark.timeout(120)
@pytest.mark.skipif(bool(GO_SERVER), reason="nats-server takes no key from the environment")
async def test_with_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATSD_JETSTREAM_KEY", "a key")
    await played("all-killed", tmp_path, SHORT_S)
    assert len(key_files(tmp_path)) == 3


def key_files(directory: Path) -> list[Path]:
    """Return the key files of the servers' RAFT logs."""
    return list(directory.glob("n*/store/jetstream/raft.logs/key.db"))


@pytest.mark.skipif(TORTURE == 1, reason="`make torture` runs it")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_for_a_minute(name: str, tmp_path: Path) -> None:
    report = await played(name, tmp_path, LONG_S)
    recoveries = report.journal.recoveries_s
    if name == "leader-killed" and not GO_SERVER:
        assert statistics.median(recoveries) <= RECOVERY_S_MAX, recoveries
