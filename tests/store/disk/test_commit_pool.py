"""Worker threads that write and sync without holding the GIL."""

import asyncio
import errno
import gc
import mmap
import os
import sys
from pathlib import Path

import pytest

from natsd.store.disk.commit_pool import CommitPool, PoolJob
from natsd.store.disk.disk import ShortWrite, is_out_of_space
from natsd.store.disk.real_disk import RealDisk, RealFile
from tests.waiting import Eventually


@pytest.fixture
def pool() -> CommitPool:
    return CommitPool(3)


def new_file(path: Path) -> RealFile:
    return RealDisk().open(path, create=True)


def test_a_job_does_its_steps_in_order(pool: CommitPool, tmp_path: Path) -> None:
    file = new_file(tmp_path / "f")
    job = pool.job("first")
    job.allocate(file, 0, 8192)
    job.write(file, b"abc", 0)
    job.write(file, bytearray(b"XY"), 1)
    job.write(file, b"", 3)
    job.truncate(file, 4096)
    job.datasync(file)
    job.sync_directory(tmp_path)
    pool.submit(job)
    assert pool.in_flight == 1
    pool.wait()
    assert pool.take_completed() == [job]
    assert (job.token, job.error, job.failed_sync, pool.in_flight) == ("first", None, False, 0)
    assert file.pread(9000, 0) == b"aXY" + bytes(4093)
    file.close()


def test_all_jobs_come_back_and_threads_are_bounded(pool: CommitPool, tmp_path: Path) -> None:
    assert pool.thread_count == 0
    files = [new_file(tmp_path / str(i)) for i in range(20)]
    for i, file in enumerate(files):
        job = pool.job(i)
        job.write(file, b"%d" % i, 0)
        job.datasync(file)
        pool.submit(job)
    taken: list[object] = []
    while pool.in_flight:
        pool.wait()
        taken += [job.token for job in pool.take_completed()]
    assert sorted(map(str, taken)) == sorted(map(str, range(20)))
    assert 1 <= pool.thread_count <= 3
    assert [file.pread(2, 0) for file in files] == [b"%d" % i for i in range(20)]
    for file in files:
        file.close()


def test_the_first_step_that_fails_ends_the_job(pool: CommitPool, tmp_path: Path) -> None:
    file = new_file(tmp_path / "f")
    readonly = RealDisk().open(tmp_path / "f", write=False)
    job = pool.job()
    job.write(file, b"abc", 0)
    job.write(readonly, b"x", 0)
    job.write(file, b"never", 0)
    pool.submit(job)
    pool.wait()
    pool.take_completed()
    assert job.error is not None
    assert (job.error.errno, job.error.filename) == (errno.EBADF, str(tmp_path / "f"))
    assert not job.failed_sync
    assert file.pread(10, 0) == b"abc"
    file.close()
    readonly.close()


def test_a_failed_sync_is_known_as_such(pool: CommitPool, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    file = RealDisk().open(tmp_path / "fifo")  # a FIFO cannot be synced
    job = pool.job()
    job.datasync(file)
    run(pool, job)
    assert job.error is not None
    assert job.error.errno == errno.EINVAL
    assert job.failed_sync
    file.close()


def test_a_directory_that_cannot_be_opened_was_not_synced_in_vain(
    pool: CommitPool, tmp_path: Path
) -> None:
    job = pool.job()
    job.sync_directory(tmp_path / "missing")
    run(pool, job)
    assert isinstance(job.error, FileNotFoundError)
    assert not job.failed_sync


def run(pool: CommitPool, job: PoolJob) -> None:
    pool.submit(job)
    pool.wait()
    pool.take_completed()


def test_parts_fail_alone_and_what_follows_needs_them_all(pool: CommitPool, tmp_path: Path) -> None:
    """A failed part fails no other part, but the steps after the parts are not done.

    A committer's round is such a job: it writes many files, and then the journal.
    """
    files = [new_file(tmp_path / str(i)) for i in range(4)]
    readonly = RealDisk().open(tmp_path / "1", write=False)
    last = new_file(tmp_path / "last")
    job = pool.job()
    for i, file in enumerate([files[0], readonly, files[2], readonly]):
        job.begin_part()
        job.write(file, b"%d" % i, 0)
        job.write(files[i], b"rest", 1)
    job.end_parts()
    job.write(last, b"all went well", 0)
    run(pool, job)
    assert [(part, error.errno, is_sync) for part, error, is_sync in job.failures] == [
        (1, errno.EBADF, False),
        (3, errno.EBADF, False),
    ]
    assert job.error is not None
    assert [file.pread(9, 0) for file in files] == [b"0rest", b"", b"2rest", b""]
    assert last.size() == 0
    for file in (*files, readonly, last):
        file.close()


def test_what_follows_the_parts_is_done(pool: CommitPool, tmp_path: Path) -> None:
    file, last = new_file(tmp_path / "f"), new_file(tmp_path / "last")
    job = pool.job()
    job.begin_part()
    job.write(file, b"x", 0)
    job.end_parts()
    job.write(last, b"all went well", 0)
    run(pool, job)
    assert (job.error, job.failures, last.pread(99, 0)) == (None, [], b"all went well")
    file.close()
    last.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("zeros", [False, True])
def test_a_full_disk_says_so(pool: CommitPool, zeros: bool) -> None:
    file = RealDisk().open(Path("/dev/full"))
    job = pool.job()
    if zeros:
        job.write_zeros(file, 0, 3)
    else:
        job.write(file, b"abc", 0)
    pool.submit(job)
    pool.wait()
    pool.take_completed()
    assert job.error is not None
    assert is_out_of_space(job.error)
    assert not isinstance(job.error, ShortWrite)
    file.close()


def test_a_write_cut_short_is_a_short_write(pool: CommitPool, tmp_path: Path) -> None:
    """A write that the system cuts short raises ShortWrite; here the file size is limited."""
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    file = new_file(tmp_path / "f")
    job = pool.job()
    job.write(file, b"x" * 100, 0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60, before[1]))
    try:
        pool.submit(job)
        pool.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    pool.take_completed()
    assert isinstance(job.error, ShortWrite)
    assert (job.error.wanted, job.error.written) == (100, 60)
    file.close()


def test_what_is_being_written_cannot_be_resized(pool: CommitPool, tmp_path: Path) -> None:
    file = new_file(tmp_path / "f")
    data = bytearray(b"x" * 100)
    job = pool.job()
    job.write(file, data, 0)
    pool.submit(job)
    with pytest.raises(BufferError):
        data.extend(b"more")
    pool.wait()
    pool.take_completed()
    data.extend(b"more")
    file.close()


def test_a_job_is_submitted_once(pool: CommitPool, tmp_path: Path) -> None:
    job = pool.job()
    pool.submit(job)
    with pytest.raises(ValueError, match="submitted already"):
        pool.submit(job)
    with pytest.raises(ValueError, match="submitted already"):
        job.sync_directory(tmp_path)


def test_close_waits_for_what_was_submitted(pool: CommitPool, tmp_path: Path) -> None:
    file = new_file(tmp_path / "f")
    jobs = [pool.job(i) for i in range(10)]
    for job in jobs:
        job.write(file, b"x" * 1000, 1000 * int(str(job.token)))
        job.datasync(file)
        pool.submit(job)
    pool.close()
    assert len(pool.take_completed()) == 10
    assert file.size() == 10_000
    with pytest.raises(ValueError, match="the pool is closed"):
        pool.submit(pool.job())
    file.close()


def test_a_closed_pool_has_no_descriptor(pool: CommitPool, tmp_path: Path) -> None:
    """What holds a closed pool, such as a server that has ended, holds no descriptor by it."""
    file = new_file(tmp_path / "f")
    bell = pool.fileno()
    job = pool.job()
    job.write(file, b"x", 0)
    pool.submit(job)
    pool.close()
    assert pool.fileno() == -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(bell)
    pool.wait()
    assert pool.take_completed() == [job]
    assert pool.take_completed() == []
    pool.close()
    file.close()


def test_a_forgotten_pool_leaves_nothing(tmp_path: Path) -> None:
    """A collected pool ends its threads, and closes its descriptor, after its jobs are done."""
    file = new_file(tmp_path / "f")
    pool = CommitPool(2)
    bell = pool.fileno()
    job = pool.job()
    job.write(file, b"x", 0)
    pool.submit(job)
    del pool, job
    gc.collect()
    assert file.size() == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(bell)
    file.close()


@pytest.mark.both_loops
async def test_the_event_loop_is_told(
    pool: CommitPool, tmp_path: Path, eventually: Eventually
) -> None:
    taken: list[object] = []
    pool.watch(
        asyncio.get_running_loop(),
        lambda: taken.extend(job.token for job in pool.take_completed()),
    )
    file = new_file(tmp_path / "f")
    for i in range(5):
        job = pool.job(i)
        job.write(file, b"x", i)
        pool.submit(job)
    await eventually(lambda: len(taken) == 5)
    pool.close()
    file.close()


def test_workers_do_not_wait_for_the_gil(pool: CommitPool, tmp_path: Path) -> None:
    """The bytes reach the file although the main thread never releases the GIL."""
    file = new_file(tmp_path / "f")
    file.pwrite(b"-", 0)
    job = pool.job()
    job.write(file, b"x", 0)
    before = sys.getswitchinterval()
    with mmap.mmap(file.fileno(), 1) as view:
        sys.setswitchinterval(30)
        try:
            pool.submit(job)
            while view[0] != ord("x"):
                pass
        finally:
            sys.setswitchinterval(before)
    pool.close()
    file.close()


@pytest.mark.parametrize("length", [0, 1, 65536, 200_000])
def test_zeros_are_written(pool: CommitPool, tmp_path: Path, length: int) -> None:
    file = new_file(tmp_path / "f")
    file.pwrite(b"xxxxx", 0)
    job = pool.job()
    job.write_zeros(file, 3, length)
    pool.submit(job)
    pool.wait()
    pool.take_completed()
    assert job.error is None
    assert file.pread(1 << 20, 0) == (b"xxx" + bytes(length) + b"xx"[length:])
    file.close()
