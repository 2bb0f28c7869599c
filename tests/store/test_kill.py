"""kill -9 at random moments: every acknowledged commit is found after a restart.

With NATSD_TORTURE=100 the test runs hundreds of rounds.
"""

import os
import random
from pathlib import Path

import pytest

from natsd.store.commit.volume import Volume
from natsd.store.disk.real_disk import RealDisk
from tests.store.crash import TORTURE, kill_midway
from tests.store.sources import count_whole

pytestmark = pytest.mark.torture

ROUNDS = 2 * TORTURE

SCRIPT = """
import asyncio, os, sys
from pathlib import Path
from natsd.store.disk.real_disk import RealDisk
from natsd.store.commit.volume import Volume
from tests.store.crash import acknowledge
from tests.store.sources import Pieces, count_whole

class Loud(Pieces):
    def on_disk(self, commits):
        super().on_disk(commits)
        acknowledge(f"{self.source} {self.acknowledged}")

async def main(directory, count):
    disk = RealDisk()
    volume = Volume.open(disk, directory, os.urandom, loop=asyncio.get_running_loop(),
                         journal_bytes_max=1 << 16)
    sources = []
    for i in range(count):
        source = Loud(disk, directory / f"{i:04}", i, count_whole(disk, directory, i))
        volume.committer.attach(source)
        sources.append(source)
    while True:
        for source in sources:
            if source.appended - source.written < 100:
                source.append(3)
                volume.committer.dirty(source)
        await asyncio.sleep(0)

asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
"""


@pytest.mark.parametrize("count", [1, 4, 50])
def test_killed(count: int, tmp_path: Path) -> None:
    disk = RealDisk()
    chance = random.Random(count)
    for _ in range(ROUNDS):
        lines = kill_midway(
            SCRIPT,
            str(tmp_path),
            str(count),
            lines=chance.randint(1, 300),
            delay_s=chance.uniform(0, 0.01),
        )
        volume = Volume.open(disk, tmp_path, os.urandom)
        assert volume.replayed.damage == []
        acknowledged = {int(line.split()[0]): int(line.split()[1]) for line in lines}
        for source, number in acknowledged.items():
            assert count_whole(disk, tmp_path, source) >= number
        volume.close_now()
