"""Bytes written to an overlay are read there, and never reach the disk below."""

from pathlib import Path

import pytest

from natsd.store.disk.disk import make_directories
from natsd.store.disk.doubled_file import read_file, replace_file
from natsd.store.disk.real_disk import RealDisk
from natsd.store.maintenance.overlay_disk import OverlayDisk


def test_reads_show_what_is_below_and_writes_stay_above(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"below")
    disk = OverlayDisk(RealDisk())
    assert read_file(disk, path) == b"below"
    file = disk.open(path)
    file.pwrite(b"ABOVE", 3)
    file.fdatasync()
    assert read_file(disk, path) == b"belABOVE"
    file.truncate(4)
    file.allocate(2, 4)
    assert (file.pread(10, 0), file.size(), file.fileno()) == (b"belA\0\0", 6, None)
    file.close()
    assert path.read_bytes() == b"below"


def test_names_come_and_go_above_only(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "inner").write_bytes(b"inner")
    disk = OverlayDisk(RealDisk())
    replace_file(disk, tmp_path / "new", b"new")
    disk.rename(tmp_path / "old", tmp_path / "renamed")
    make_directories(disk, tmp_path / "a" / "b")
    disk.open(tmp_path / "a" / "b" / "c", create=True)
    assert disk.listdir(tmp_path) == ["a", "directory", "new", "renamed"]
    assert disk.listdir(tmp_path / "a") == ["b"]
    assert disk.is_directory(tmp_path / "a" / "b")
    disk.rmtree(tmp_path / "directory")
    assert disk.listdir(tmp_path / "directory") == []
    disk.unlink(tmp_path / "new")
    for missing in ("new", "old"):
        assert not disk.exists(tmp_path / missing)
        with pytest.raises(FileNotFoundError):
            disk.unlink(tmp_path / missing)
        with pytest.raises(FileNotFoundError):
            disk.open(tmp_path / missing, write=False)
    with pytest.raises(FileExistsError):
        disk.open(tmp_path / "renamed", create=True, exclusive=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["directory", "inner", "old"]
