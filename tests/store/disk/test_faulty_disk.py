"""The simulated disk loses all that it promises to lose, and nothing else."""

import asyncio
import errno
from pathlib import Path

import pytest

from natsd.store.disk.disk import DirectoryLocked, ShortWrite, make_directories
from tests.store.faulty_disk import SECTOR, FaultyDisk, PowerLoss

DIRECTORY = Path("/volume")
PATH = DIRECTORY / "f"
SEEDS = range(200)


def disk_with_file(content: bytes = b"") -> FaultyDisk:
    """Return a disk with a file whose content and name are on disk."""
    disk = FaultyDisk()
    make_directories(disk, DIRECTORY)
    file = disk.open(PATH, create=True)
    file.pwrite(content, 0)
    file.fsync()
    disk.sync_dir(DIRECTORY)
    return disk


def content_after(disk: FaultyDisk, seed: int, path: Path = PATH) -> bytes | None:
    """Return the file's content after a crash, or None if the file is gone."""
    after = disk.crash(seed)
    if not after.exists(path):
        return None
    file = after.open(path)
    return file.pread(1 << 30, 0)


def test_it_reads_what_was_written() -> None:
    disk = disk_with_file(b"0123456789")
    file = disk.open(PATH)
    file.pwrite(b"ab", 4)
    assert file.pread(100, 2) == b"23ab6789"
    file.allocate(10, 5)
    assert file.pread(100, 9) == b"9" + bytes(5)
    file.truncate(3)
    assert (file.size(), file.pread(100, 0)) == (3, b"012")


def test_what_is_synced_stays() -> None:
    disk = disk_with_file(b"x" * 3000)
    assert {content_after(disk, seed) for seed in SEEDS} == {b"x" * 3000}


def test_each_sector_is_lost_or_kept_for_itself() -> None:
    disk = disk_with_file(b"a" * 3 * SECTOR)
    disk.open(PATH).pwrite(b"b" * 3 * SECTOR, 0)
    found = {content_after(disk, seed) for seed in SEEDS}
    assert len(found) == 8
    for content in found:
        assert content is not None
        assert all(
            content[at : at + SECTOR] in (b"a" * SECTOR, b"b" * SECTOR)
            for at in range(0, 3 * SECTOR, SECTOR)
        )


def test_an_older_version_may_be_what_survives() -> None:
    disk = disk_with_file(b"a")
    file = disk.open(PATH)
    file.pwrite(b"b", 0)
    file.pwrite(b"c", 0)
    assert {content_after(disk, seed) for seed in SEEDS} == {b"a", b"b", b"c"}


def test_a_size_is_volatile_until_synced() -> None:
    disk = disk_with_file(b"a")
    file = disk.open(PATH)
    file.pwrite(b"bb", 1)
    file.truncate(2)
    sizes = {len(content_after(disk, seed) or b"") for seed in SEEDS}
    assert sizes == {1, 2, 3}


def test_what_is_extended_and_lost_reads_as_zeros() -> None:
    disk = disk_with_file(b"")
    disk.open(PATH).pwrite(b"b" * 2 * SECTOR, 0)
    found = {content_after(disk, seed) for seed in SEEDS}
    assert bytes(SECTOR) + b"b" * SECTOR in found
    assert b"" in found


def test_a_name_is_volatile_until_its_directory_is_synced() -> None:
    disk = FaultyDisk()
    make_directories(disk, DIRECTORY)
    disk.open(PATH, create=True).fsync()
    assert {content_after(disk, seed) for seed in SEEDS} == {None, b""}


def test_a_directory_is_volatile_too() -> None:
    disk = FaultyDisk()
    disk.mkdir(DIRECTORY)
    disk.open(PATH, create=True).fsync()
    disk.sync_dir(DIRECTORY)
    assert {content_after(disk, seed) for seed in SEEDS} == {None, b""}


def renamed() -> FaultyDisk:
    """Return a disk with an unsynced rename of a new file over an old one."""
    disk = disk_with_file(b"old")
    new = disk.open(DIRECTORY / "f.new", create=True)
    new.pwrite(b"new", 0)
    new.fsync()
    disk.sync_dir(DIRECTORY)
    disk.rename(DIRECTORY / "f.new", PATH)
    return disk


def test_a_rename_is_atomic_and_may_be_lost() -> None:
    disk = renamed()
    assert {content_after(disk, seed) for seed in SEEDS} == {b"old", b"new"}
    disk = renamed()
    disk.sync_dir(DIRECTORY)
    assert {content_after(disk, seed) for seed in SEEDS} == {b"new"}
    assert not disk.crash(0).exists(DIRECTORY / "f.new")


def test_an_unlink_may_be_lost() -> None:
    disk = disk_with_file(b"x")
    disk.unlink(PATH)
    assert not disk.exists(PATH)
    assert {content_after(disk, seed) for seed in SEEDS} == {None, b"x"}
    with pytest.raises(FileNotFoundError):
        disk_with_file().unlink(DIRECTORY / "missing")


def test_a_moved_directory_takes_its_files_along() -> None:
    disk = disk_with_file(b"x")
    disk.rename(DIRECTORY, Path("/other"))
    assert disk.listdir(Path("/other")) == ["f"]
    disk.sync_dir(Path("/"))
    disk = disk.crash(0)
    assert disk.open(Path("/other/f")).pread(9, 0) == b"x"
    disk.rmtree(Path("/other"))
    assert disk.listdir(Path("/")) == []


def test_calls_fail_as_asked() -> None:
    disk = disk_with_file(b"x")
    file = disk.open(PATH)
    disk.fail("pwrite", errno.EIO, after=1)
    file.pwrite(b"1", 0)
    with pytest.raises(OSError, match="Input/output error"):
        file.pwrite(b"2", 0)
    file.pwrite(b"3", 0)
    disk.fail("open", errno.EMFILE, path="other")
    disk.open(PATH)
    with pytest.raises(OSError, match="Too many open files"):
        disk.open(DIRECTORY / "other", create=True)


def test_a_failed_sync_drops_what_it_should_have_written() -> None:
    """After a failed sync the next one succeeds and reads show bytes that are not on disk."""
    disk = disk_with_file(b"a")
    file = disk.open(PATH)
    file.pwrite(b"b", 0)
    disk.fail("fdatasync", errno.EIO)
    disk.chance.seed(1)
    with pytest.raises(OSError, match="Input/output error"):
        file.fdatasync()
    file.fdatasync()
    assert file.pread(1, 0) == b"b"
    assert len({content_after(disk, seed) for seed in SEEDS}) == 1
    lost = []
    for seed in range(20):
        disk = disk_with_file(b"a")
        disk.chance.seed(seed)
        file = disk.open(PATH)
        file.pwrite(b"b", 0)
        disk.fail("fdatasync", errno.EIO)
        with pytest.raises(OSError, match="Input/output error"):
            file.fdatasync()
        file.fdatasync()
        lost.append(content_after(disk, 0) == b"a")
    assert True in lost
    assert False in lost


def test_a_killed_process_leaves_the_page_cache_to_the_next() -> None:
    disk = disk_with_file(b"a")
    file = disk.open(PATH)
    file.pwrite(b"b", 0)
    disk.open(DIRECTORY / "new", create=True)
    after = disk.kill()
    with pytest.raises(PowerLoss):
        file.pread(1, 0)
    assert after.open(PATH).pread(1, 0) == b"b"
    assert after.exists(DIRECTORY / "new")
    after.is_off = True
    assert {content_after(after, seed) for seed in SEEDS} == {b"a", b"b"}
    assert {after.crash(seed).exists(DIRECTORY / "new") for seed in SEEDS} == {True, False}


def test_what_a_failed_sync_dropped_is_shown_to_the_next_process_and_lost_with_the_power() -> None:
    disk = disk_with_file(b"a")
    file = disk.open(PATH)
    file.pwrite(b"b", 0)
    disk.chance.seed(next(seed for seed in SEEDS if failed_sync_loses(seed)))
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        file.fdatasync()
    after = disk.kill()
    found = after.open(PATH)
    assert found.pread(1, 0) == b"b"
    found.fdatasync()
    assert {content_after(after, seed) for seed in SEEDS} == {b"a"}


def failed_sync_loses(seed: int) -> bool:
    """Return whether a failed sync lost the unsynced byte."""
    disk = disk_with_file(b"a")
    file = disk.open(PATH)
    file.pwrite(b"b", 0)
    disk.chance.seed(seed)
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        file.fdatasync()
    return content_after(disk, 0) == b"a"


def test_a_spoiled_sector_is_unreadable_until_it_is_written() -> None:
    disk = disk_with_file(b"a" * 3 * SECTOR)
    disk.spoil(PATH, offset=SECTOR + 7)
    disk = disk.crash(0)
    file = disk.open(PATH)
    assert file.pread(SECTOR, 0) == b"a" * SECTOR
    with pytest.raises(OSError, match="Input/output error"):
        file.pread(2 * SECTOR, 0)
    file.pwrite(b"b" * SECTOR, SECTOR)
    assert file.pread(2 * SECTOR, 0) == b"a" * SECTOR + b"b" * SECTOR


def test_calls_fail_as_often_as_asked() -> None:
    disk = disk_with_file(b"x")
    disk.fail("open", errno.EMFILE, after=1, times=2)
    disk.open(PATH)
    for _ in range(2):
        with pytest.raises(OSError, match="Too many open files"):
            disk.open(PATH)
    disk.open(PATH)


def test_a_full_disk_cuts_a_write_short() -> None:
    disk = disk_with_file(b"x" * 90)
    disk.capacity_bytes = 100
    file = disk.open(PATH)
    with pytest.raises(ShortWrite) as caught:
        file.pwrite(b"y" * 20, 90)
    assert caught.value.written == 10
    with pytest.raises(OSError, match="No space left"):
        file.pwrite(b"z", 100)
    with pytest.raises(OSError, match="No space left"):
        file.allocate(100, 1)
    file.pwrite(b"over", 0)
    assert disk.free_bytes(PATH) == 0


def test_power_fails_at_a_call() -> None:
    disk = disk_with_file(b"x")
    file = disk.open(PATH)
    disk.power_fails_at = 1
    file.pwrite(b"y", 0)
    with pytest.raises(PowerLoss):
        file.fdatasync()
    with pytest.raises(PowerLoss):
        disk.exists(PATH)
    after = disk.crash(0)
    assert after.exists(PATH)


def test_a_lock_ends_with_the_power() -> None:
    disk = disk_with_file()
    lock = disk.lock(DIRECTORY / "lock")
    with pytest.raises(DirectoryLocked):
        disk.lock(DIRECTORY / "lock")
    lock.release()
    disk.lock(DIRECTORY / "lock")
    disk.crash(0).lock(DIRECTORY / "lock")


def test_jobs_are_done_in_steps_that_interleave() -> None:
    disk = disk_with_file()
    workers = disk.commit_workers(2)
    for name in ("a", "b", "c"):
        file = disk.open(DIRECTORY / name, create=True)
        job = workers.job(name)
        job.write(file, b"x", 0)
        job.datasync(file)
        workers.submit(job)
    done = []
    while workers.in_flight:
        workers.wait()
        done += [job.token for job in workers.take_completed()]
    assert sorted(map(str, done)) == ["a", "b", "c"]


async def test_workers_call_back_on_an_event_loop() -> None:
    disk = disk_with_file()
    workers = disk.commit_workers(2)
    done = asyncio.get_running_loop().create_future()
    workers.watch(
        asyncio.get_running_loop(), lambda: done.set_result(workers.take_completed()[0].error)
    )
    file = disk.open(PATH)
    disk.fail("fdatasync", errno.EIO)
    job = workers.job()
    job.datasync(file)
    workers.submit(job)
    error = await done
    assert error is not None
    assert job.failed_sync
