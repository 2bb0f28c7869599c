"""New directories: they have their name when they are complete, and are on disk on return."""

import asyncio
import errno
from pathlib import Path

import pytest

from natsd.store.commit.new_directories import JOBS_MAX, unfinished
from natsd.store.commit.volume import Volume
from natsd.store.disk.disk import Disk
from natsd.store.disk.doubled_file import read_file
from natsd.store.disk.real_disk import RealDisk
from tests.store.faulty_disk import FaultyDisk

ROOT = Path("/store")
FILES = {"a": b"one" * 5_000, "b": b"two"}


def open_volume(disk: Disk, root: Path = ROOT) -> Volume:
    return Volume.open(disk, root, lambda n: bytes(n), loop=asyncio.get_running_loop())


def contents(disk: Disk, directory: Path) -> dict[str, bytes]:
    return {name: read_file(disk, directory / name) for name in disk.listdir(directory)}


@pytest.mark.parametrize("call", range(60))
async def test_a_power_cut_leaves_all_of_it_or_nothing_under_its_name(call: int) -> None:
    disk = FaultyDisk(seed=call)
    volume = open_volume(disk)
    disk.power_fails_at = call
    making = asyncio.ensure_future(volume.make_with_files(ROOT / "c", FILES))
    while not making.done() and not disk.is_off:  # noqa: ASYNC110 - it sends no event
        await asyncio.sleep(0)
    is_made = making.done() and making.exception() is None
    making.cancel()
    after = disk.crash(seed=call)
    assert is_made or call < 20
    if is_made or after.exists(ROOT / "c"):
        assert contents(after, ROOT / "c") == FILES


@pytest.mark.parametrize("call", ["mkdir", "open", "pwrite", "fsync", "rename"])
async def test_a_failure_leaves_nothing(call: str) -> None:
    disk = FaultyDisk(seed=1)
    volume = open_volume(disk)
    disk.fail(call, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        await volume.make_with_files(ROOT / "c", FILES)
    assert not disk.exists(ROOT / "c")
    assert not disk.exists(unfinished(ROOT / "c"))
    await volume.make_with_files(ROOT / "c", FILES)
    assert contents(disk, ROOT / "c") == FILES
    await volume.close()


async def test_remains_are_replaced_and_parents_made(tmp_path: Path) -> None:
    volume = open_volume(RealDisk(), tmp_path / "store")
    directory = tmp_path / "store" / "x" / "y"
    for remains in (directory, unfinished(directory)):
        remains.mkdir(parents=True)
        (remains / "old").touch()
        await volume.make_with_files(directory, FILES)
        assert contents(volume.disk, directory) == FILES
        assert [path.name for path in directory.parent.iterdir()] == ["y"]
    await volume.close()


async def test_many_are_made_a_few_at_a_time(tmp_path: Path) -> None:
    volume = open_volume(RealDisk(), tmp_path)
    made = [volume.make_with_files(tmp_path / f"{number}", FILES) for number in range(50)]
    making = asyncio.gather(*made)
    await asyncio.sleep(0)
    assert volume.committer._workers.in_flight <= JOBS_MAX
    await making
    assert all(contents(volume.disk, tmp_path / f"{number}") == FILES for number in range(50))
    await volume.close()
