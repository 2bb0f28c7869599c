"""kill -9 at random moments: every acknowledged message is found after a restart.

The messages are in order and their bytes are equal. `make torture` runs hundreds of rounds.
"""

import asyncio
import os
import random
from pathlib import Path

import pytest

from natsd.store.commit.volume import Volume
from natsd.store.disk.real_disk import RealDisk
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.store import Limits
from tests.store.crash import TORTURE, kill_midway
from tests.store.test_file_store_model import everything

pytestmark = pytest.mark.torture

ROUNDS = 3
PUBLISHER = """
import asyncio, os, random, sys
from pathlib import Path
from natsd.store.disk.real_disk import RealDisk
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.store import Limits
from natsd.store.commit.volume import Volume
from tests.store.crash import acknowledge

async def main(directory, seed):
    chance = random.Random(seed)
    loop = asyncio.get_running_loop()
    volume = Volume.open(RealDisk(), directory, os.urandom, loop=loop)
    options = FileOptions(block_bytes_max=20_000, compress=seed % 2 == 0)
    store = await FileStore.open(volume, directory / "S", Limits(), os.urandom, options)
    removed = 0
    while True:
        for _ in range(chance.randint(1, 40)):
            sequence = store.state().last_sequence + 1
            store.append("s.%d" % (sequence % 7), None, b"%d " % sequence * 20, sequence)
        if chance.random() < 0.2:
            removed = sequence - chance.randint(0, 30)
            await store.delete(removed)
        if chance.random() < 0.05:
            await store.write_index()
        await store.synced()
        acknowledge(f"{sequence} {removed}")

asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
"""


async def check(directory: Path, lines: list[str], ever_removed: set[int]) -> None:
    loop = asyncio.get_running_loop()
    volume = Volume.open(RealDisk(), directory, os.urandom, loop=loop)
    options = FileOptions(block_bytes_max=20_000)
    store = await FileStore.open(volume, directory / "S", Limits(), os.urandom, options)
    acknowledged = int(lines[-1].split()[0])
    ever_removed |= {int(line.split()[1]) for line in lines}
    found = {message.sequence: message for message in await everything(store)}
    assert store.damage == []
    assert store.state().last_sequence >= acknowledged
    # The removal that was under way at the kill is not in the lines.
    missing = [s for s in range(1, acknowledged + 1) if s not in found and s not in ever_removed]
    assert len(missing) <= 1
    ever_removed.update(missing)
    assert not [s for s in ever_removed if s in found and s <= acknowledged - 100]
    for sequence, message in found.items():
        assert message.data == b"%d " % sequence * 20
        assert message.subject == f"s.{sequence % 7}"
    await store.close()
    await volume.close()


async def test_killed_again_and_again(tmp_path: Path) -> None:
    ever_removed = {0}
    chance = random.Random(5)
    for number in range(ROUNDS * TORTURE):
        lines = await asyncio.to_thread(
            kill_midway,
            PUBLISHER,
            str(tmp_path / "volume"),
            str(number),
            lines=chance.randint(1, 60),
            delay_s=chance.random() * 0.01,
        )
        await check(tmp_path / "volume", lines, ever_removed)
