"""RealDisk: the operating system's files behind the store's small interface."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from natsd.store.disk.disk import DirectoryLocked, ShortWrite, is_out_of_space, make_directories
from natsd.store.disk.real_disk import RealDisk, lock_to_read

HOLD_LOCK = """
import sys
from pathlib import Path
from natsd.store.disk.real_disk import RealDisk
lock = RealDisk().lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk()


def test_what_is_written_is_read(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "000001.blk", create=True)
    assert file.pwrite(b"0123456789", 0) == 10
    assert file.pwrite(memoryview(b"ab"), 4) == 2
    file.fdatasync()
    file.fsync()
    assert file.size() == 10
    assert file.pread(100, 0) == b"0123ab6789"
    assert file.pread(3, 8) == b"89"
    assert file.pread(3, 10) == b""
    file.truncate(4)
    assert file.pread(100, 0) == b"0123"
    file.close()
    file.close()


def test_a_file_is_created_only_when_asked(disk: RealDisk, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(tmp_path / "missing")
    disk.open(tmp_path / "there", create=True, exclusive=True).close()
    with pytest.raises(FileExistsError):
        disk.open(tmp_path / "there", create=True, exclusive=True)
    disk.open(tmp_path / "there", create=True).close()


def test_a_file_opened_for_reading_is_not_written(disk: RealDisk, tmp_path: Path) -> None:
    disk.open(tmp_path / "f", create=True).close()
    file = disk.open(tmp_path / "f", write=False)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite(b"x", 0)
    file.close()


def test_modes_are_private(disk: RealDisk, tmp_path: Path) -> None:
    """Directories have mode 0700 and files 0600, as in nats-server.

    See its `defaultDirPerms` and `defaultFilePerms`.
    """
    make_directories(disk, tmp_path / "a" / "b")
    disk.open(tmp_path / "a" / "b" / "f", create=True).close()
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "b" / "f").stat().st_mode) == 0o600


def test_allocated_bytes_are_zeros(disk: RealDisk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "f", create=True)
    file.pwrite(b"abc", 0)
    file.allocate(3, 4093)
    if sys.platform != "darwin":
        assert file.size() == 4096
        assert file.pread(4096, 0) == b"abc" + bytes(4093)
    file.close()


def test_a_file_system_that_cannot_reserve_is_no_error(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(number: int) -> None:
        def fallocate(fd: int, offset: int, length: int) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "posix_fallocate", fallocate, raising=False)
        monkeypatch.setattr(sys, "platform", "linux")

    file = disk.open(tmp_path / "f", create=True)
    refuse(errno.EOPNOTSUPP)
    file.allocate(0, 4096)
    refuse(errno.ENOSPC)
    with pytest.raises(OSError, match="No space left") as caught:
        file.allocate(0, 4096)
    assert is_out_of_space(caught.value)
    file.close()


def test_a_short_write_is_seen(
    disk: RealDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open(tmp_path / "f", create=True)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: 3)
    with pytest.raises(ShortWrite, match=r"short write \(3 of 5 bytes\)") as caught:
        file.pwrite(b"12345", 0)
    assert (caught.value.wanted, caught.value.written) == (5, 3)
    assert is_out_of_space(caught.value)
    file.close()


def test_directories(disk: RealDisk, tmp_path: Path) -> None:
    make_directories(disk, tmp_path / "a" / "b")
    make_directories(disk, tmp_path / "a" / "b")
    disk.open(tmp_path / "a" / "new", create=True).close()
    disk.rename(tmp_path / "a" / "new", tmp_path / "a" / "f")
    disk.sync_dir(tmp_path / "a")
    assert disk.listdir(tmp_path / "a") == ["b", "f"]
    assert disk.exists(tmp_path / "a" / "f")
    assert not disk.exists(tmp_path / "a" / "new")
    assert disk.is_directory(tmp_path / "a" / "b")
    assert not disk.is_directory(tmp_path / "a" / "f")
    disk.unlink(tmp_path / "a" / "f")
    disk.rmtree(tmp_path / "a")
    disk.rmtree(tmp_path / "a")
    assert disk.listdir(tmp_path) == []


def test_free_space_is_known(disk: RealDisk, tmp_path: Path) -> None:
    assert disk.free_bytes(tmp_path) > 0


def test_two_servers_on_one_directory(disk: RealDisk, tmp_path: Path) -> None:
    """A second server is refused with the process id of the first; a kill frees the lock."""
    path = tmp_path / "natsd.lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(DirectoryLocked) as caught:
        disk.lock(path)
    assert (
        str(caught.value) == f"{tmp_path} is in use by process {holder.pid} (it holds natsd.lock)"
    )
    holder.kill()
    holder.communicate()
    lock = disk.lock(path)
    assert path.read_bytes() == b"%d" % os.getpid()
    with pytest.raises(DirectoryLocked):
        disk.lock(path)
    lock.release()
    disk.lock(path).release()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_says_so(disk: RealDisk) -> None:
    file = disk.open(Path("/dev/full"))
    with pytest.raises(OSError, match="No space left") as caught:
        file.pwrite(b"x", 0)
    assert is_out_of_space(caught.value)
    file.close()


def test_readers_share_a_lock_and_keep_its_owner_out(tmp_path: Path) -> None:
    """Readers share a lock that excludes a server; the lock file's bytes do not change."""
    disk, path = RealDisk(), tmp_path / "natsd.lock"
    owner = disk.lock(path)
    with pytest.raises(DirectoryLocked, match=f"process {os.getpid()}"):
        lock_to_read(path)
    owner.release()
    before = path.read_bytes()
    one, another = lock_to_read(path), lock_to_read(path)
    one.release()
    with pytest.raises(DirectoryLocked):
        disk.lock(path)
    another.release()
    assert path.read_bytes() == before
    disk.lock(path).release()
    with pytest.raises(FileNotFoundError):
        lock_to_read(tmp_path / "none")
