"""A volume: one process opens it, replays its journal, shares it among stores and closes it."""

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

from natsd.core.network import Reactor
from natsd.store.commit.volume import LOCK_NAME, Volume
from natsd.store.disk.disk import DirectoryLocked, UnsyncedRename
from natsd.store.disk.doubled_file import replace_file
from natsd.store.disk.real_disk import RealDisk
from natsd.store.errors import StoreReadOnly
from tests.store.faulty_disk import FaultyDisk
from tests.store.sources import Pieces, count_whole, open_pieces
from tests.waiting import Eventually

DISK = RealDisk()
ROOT = Path("/store")


def copy_of(disk: FaultyDisk) -> FaultyDisk:
    """Return a copy of the disk as it is now; the first disk stays in use."""
    copied = disk.kill()
    disk.is_off = False
    return copied


def open_volume(directory: Path) -> Volume:
    return Volume.open(DISK, directory, os.urandom, loop=asyncio.get_running_loop())


async def test_a_volume_is_made_and_locked(tmp_path: Path) -> None:
    volume = open_volume(tmp_path / "a" / "b")
    assert volume.directory == tmp_path / "a" / "b"
    with pytest.raises(DirectoryLocked, match=f"in use by process {os.getpid()}"):
        open_volume(tmp_path / "a" / "b")
    await volume.close()
    await open_volume(tmp_path / "a" / "b").close()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == [LOCK_NAME]


@pytest.mark.both_loops
@pytest.mark.parametrize("sync_interval_s", [0, 60])
async def test_commits_begin_and_end_in_the_turns_of_a_reactor(
    tmp_path: Path, eventually: Eventually, sync_interval_s: float
) -> None:
    loop = asyncio.get_running_loop()
    failures: list[str] = []
    reactor = Reactor(loop, failures.append)
    volume = Volume.open(
        DISK, tmp_path, os.urandom, loop=loop, reactor=reactor, sync_interval_s=sync_interval_s
    )
    sources = open_pieces(volume.committer, DISK, tmp_path, 40)
    for count in range(1, 6):
        for source in sources:
            source.append()
            volume.committer.dirty(source)
        assert sum(source.written for source in sources) == 40 * (count - 1)
        await eventually(lambda: all(source.written == source.appended for source in sources))
    await volume.close()
    reactor.close()
    assert [count_whole(DISK, tmp_path, i) for i in range(40)] == [5] * 40
    assert failures == []
    for source in sources:
        source.file.close()


async def test_reads_run_in_threads(tmp_path: Path) -> None:
    volume = open_volume(tmp_path)
    assert await volume.read(threading.get_ident) != threading.get_ident()
    assert await volume.read(max, 3, 5) == 5
    with pytest.raises(FileNotFoundError):
        await volume.read(DISK.listdir, tmp_path / "missing")
    await volume.close()


async def test_space_is_known(tmp_path: Path) -> None:
    volume = open_volume(tmp_path)
    assert volume.free_bytes > 0
    assert volume.is_low_on_space is (volume.free_bytes < 16 << 20)
    await volume.close()


async def test_a_journal_left_behind_is_replayed(tmp_path: Path, eventually: Eventually) -> None:
    """Files that lost their unsynced bytes get them back from a journal that a kill left behind."""
    volume = open_volume(tmp_path)
    volume.make_directory(tmp_path / "streams" / "x")
    directory = tmp_path / "streams" / "x"
    sources = open_pieces(volume.committer, DISK, directory, 20)
    for source in sources:
        source.append(10)
        volume.committer.dirty(source)
    await eventually(lambda: all(source.acknowledged == 10 for source in sources))
    journal = (tmp_path / "journal.0").read_bytes()
    await volume.close()
    for source in sources:
        source.file.truncate(0)
        source.file.close()
    (tmp_path / "journal.0").write_bytes(journal)

    volume = open_volume(tmp_path)
    assert len(volume.replayed.files) == 20
    assert volume.replayed.damage == []
    assert [count_whole(DISK, directory, i) for i in range(20)] == [10] * 20
    await volume.close()


async def open_busy(disk: FaultyDisk, eventually: Eventually) -> tuple[Volume, list[Pieces]]:
    """Return a volume with directories a and b, whose journal has entries of six files in each."""
    volume = Volume.open(disk, ROOT, lambda n: bytes(n), loop=asyncio.get_running_loop())
    sources = []
    for name in ("a", "b"):
        volume.make_directory(ROOT / name)
        sources += open_pieces(volume.committer, disk, ROOT / name, 6)
    for source in sources:
        source.append(3)
        volume.committer.dirty(source)
    await eventually(lambda: all(source.acknowledged == 3 for source in sources))
    assert disk.exists(ROOT / "journal.0")
    return volume, sources


async def let_go(volume: Volume, sources: list[Pieces]) -> None:
    for source in sources:
        await volume.committer.release(source.file)
        volume.committer.detach(source)
        source.file.close()


async def test_what_is_removed_does_not_come_back(eventually: Eventually) -> None:
    """A replay brings back no removed file, and leaves new files at the same paths untouched."""
    disk = FaultyDisk(1)
    volume, _ = await open_busy(disk, eventually)
    await volume.committer.forget(*(ROOT / "a" / f"000{number}" for number in range(3)))
    disk.unlink(ROOT / "a" / "0000")
    replace_file(disk, ROOT / "a" / "0001", b"new")
    await volume.remove_tree(ROOT / "b")
    volume.make_directory(ROOT / "b")
    after = disk.crash(1)
    Volume.open(after, ROOT, lambda n: bytes(n)).close_now()
    assert after.listdir(ROOT / "b") == []
    assert after.listdir(ROOT / "a") == ["0001", "0002", "0003", "0004", "0005"]
    assert after.open(ROOT / "a" / "0001").pread(9, 0) == b"new"
    assert count_whole(after, ROOT / "a", 3) == 3


@pytest.mark.parametrize(("call", "after"), [("rename", 0), ("sync_dir", 0), ("sync_dir", 1)])
async def test_a_removal_that_fails_changes_nothing(
    call: str, after: int, eventually: Eventually
) -> None:
    disk = FaultyDisk(1)
    volume, _ = await open_busy(disk, eventually)
    disk.fail(call, errno.EIO, after=after)
    with pytest.raises(OSError, match=r"Input/output error|not synced") as caught:
        await volume.rename_removed(ROOT / "a")
    assert not isinstance(caught.value, UnsyncedRename)
    for seed in range(5):
        after = copy_of(disk).crash(seed)
        Volume.open(after, ROOT, lambda n: bytes(n)).close_now()
        assert after.listdir(ROOT) == ["a", "b"]
        assert [count_whole(after, ROOT / "a", i) for i in range(6)] == [3] * 6


async def test_a_removal_of_which_nobody_knows_is_told_apart(eventually: Eventually) -> None:
    """A rename that can neither be synced nor undone raises UnsyncedRename.

    The directory can be synced neither under its new name nor, again, under its old name.
    """
    disk = FaultyDisk(1)
    volume, _ = await open_busy(disk, eventually)
    disk.fail("sync_dir", errno.EIO, after=1, times=2)
    with pytest.raises(UnsyncedRename):
        await volume.rename_removed(ROOT / "a")
    assert disk.exists(ROOT / "a" / "0000")


async def test_a_kept_journal_lets_a_path_be_used_again(eventually: Eventually) -> None:
    """A journal that is kept for one file still forgets removed paths.

    A failed sync keeps the journal. New files at removed paths are not overwritten by its entries.
    """
    disk = FaultyDisk(1)
    volume, sources = await open_busy(disk, eventually)
    disk.fail("fdatasync", errno.EIO, path="a/0003")
    sources[3].append(3)
    volume.committer.dirty(sources[3])
    await eventually(lambda: bool(sources[3].errors))
    with pytest.raises(StoreReadOnly, match=r"only copy|not tried again"):
        await volume.committer.forget(ROOT / "a" / "0003")
    await volume.committer.forget(ROOT / "b" / "0001")
    removed = await volume.rename_removed(ROOT / "a")
    await let_go(volume, sources[:6])
    await volume.finish_removal(ROOT / "a", removed)
    assert disk.listdir(ROOT) == ["b", "journal.0"]
    await volume.remove_tree(ROOT / "a")
    volume.make_directory(ROOT / "a")
    replace_file(disk, ROOT / "a" / "0003", b"new")
    for seed in range(5):
        after = copy_of(disk).crash(seed)
        Volume.open(after, ROOT, lambda n: bytes(n)).close_now()
        assert after.listdir(ROOT / "a") == ["0003"]
        assert after.open(ROOT / "a" / "0003").pread(9, 0) == b"new"
        assert [count_whole(after, ROOT / "b", i) for i in range(6)] == [3] * 6


async def test_nothing_comes_to_a_path_that_the_journal_cannot_forget(
    eventually: Eventually,
) -> None:
    """A path that the journal cannot forget is refused until the next start."""
    disk = FaultyDisk(1)
    volume, sources = await open_busy(disk, eventually)
    disk.fail("fdatasync", errno.EIO, path="a/0003")
    sources[3].append(3)
    volume.committer.dirty(sources[3])
    await eventually(lambda: bool(sources[3].errors))
    disk.fail("pwrite", errno.EIO, path="journal.0", times=-1)
    removed = await volume.rename_removed(ROOT / "a")
    await let_go(volume, sources[:6])
    await volume.finish_removal(ROOT / "a", removed)
    for _ in range(2):
        with pytest.raises(StoreReadOnly, match="cannot forget"):
            await volume.remove_tree(ROOT / "a")
    after = disk.crash(1)
    volume = Volume.open(after, ROOT, lambda n: bytes(n), loop=asyncio.get_running_loop())
    assert not after.exists(ROOT / "a")
    await volume.remove_tree(ROOT / "a")
    await volume.close()


def test_without_an_event_loop_on_any_disk() -> None:
    disk = FaultyDisk(1)
    volume = Volume.open(disk, Path("/store"), lambda n: bytes(n))
    sources = open_pieces(volume.committer, disk, volume.directory, 6)
    for source in sources:
        source.append(3)
        volume.committer.dirty(source)
    for source in sources:
        volume.committer.commit_now(source)
    volume.close_now()
    assert disk.listdir(Path("/store")) == [f"{i:04}" for i in range(6)]
    Volume.open(disk, Path("/store"), lambda n: bytes(n)).close_now()
    after = disk.crash(1)
    assert [count_whole(after, Path("/store"), i) for i in range(6)] == [3] * 6


def test_a_volume_that_cannot_open_lets_go_of_its_lock() -> None:
    disk = FaultyDisk()
    disk.mkdir(Path("/store"))
    disk.open(Path("/store/journal.0"), create=True)
    disk.fail("open", errno.EIO, path="journal.0")
    with pytest.raises(OSError, match="Input/output error"):
        Volume.open(disk, Path("/store"), lambda n: bytes(n))
    Volume.open(disk, Path("/store"), lambda n: bytes(n)).close_now()
