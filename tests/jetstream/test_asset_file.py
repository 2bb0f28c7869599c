"""`meta.json`: two files, the old content or the new one (reference §11.1)."""

import errno
import os
from pathlib import Path

import pytest

from natsd.jetstream.asset_file import (
    ASSET_FILE,
    DELETED_FILE,
    MAGIC,
    AssetDamaged,
    AssetUnknown,
    has_asset,
    mark_deleted,
    read_asset,
    write_asset,
)
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.stream.files import StreamAsset
from natsd.store.disk import RealDisk
from natsd.store.doubled_file import decode_doubled
from natsd.store.twin_file import COPY_SUFFIX, copy_of
from natsd.store.vault import Vault
from tests.store.faulty_disk import FaultyDisk

ASSET = StreamAsset(
    config=StreamConfig(name="S", subjects=["<ö>"], metadata={"a": "b"}), created=17
)
COPY = ASSET_FILE + COPY_SUFFIX
disk = RealDisk()


def vault(root: Path) -> Vault:
    return Vault(disk, root, os.urandom)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_asset(vault(tmp_path), tmp_path, ASSET)
    assert read_asset(vault(tmp_path), tmp_path, StreamAsset) == ASSET
    assert b'{"config":{"name":"S"' in (tmp_path / ASSET_FILE).read_bytes()


@pytest.mark.parametrize("half", [0, 1])
def test_one_damaged_copy_costs_nothing_and_is_written_anew(tmp_path: Path, half: int) -> None:
    write_asset(vault(tmp_path), tmp_path, ASSET)
    path = tmp_path / ASSET_FILE
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[half * len(whole) // 2 + 30] ^= 1
    path.write_bytes(damaged)
    assert read_asset(vault(tmp_path), tmp_path, StreamAsset) == ASSET
    assert decode_doubled(path.read_bytes()).damage == ()
    assert path.read_bytes() == copy_of(path).read_bytes()


def test_files_that_say_nothing_are_left_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / ASSET_FILE
    for each in (path, copy_of(path)):
        each.write_bytes(b'{"config":{}}')
    with pytest.raises(AssetDamaged, match=r"meta\.json is damaged: no copy"):
        read_asset(vault(tmp_path), tmp_path, StreamAsset)
    for each in (path, copy_of(path)):
        assert each.read_bytes() == b'{"config":{}}'


def test_a_later_versions_setting_is_not_ignored(tmp_path: Path) -> None:
    write_asset(vault(tmp_path), tmp_path, ASSET)
    body = b'{"config":{"name":"S","quantum":true},"created":"2026-01-01T00:00:00Z"}'
    vault(tmp_path).write(tmp_path / ASSET_FILE, MAGIC, body)
    with pytest.raises(AssetUnknown, match='unknown field "quantum"'):
        read_asset(vault(tmp_path), tmp_path, StreamAsset)


@pytest.mark.parametrize("lost", [(), (ASSET_FILE,), (COPY,), (ASSET_FILE, COPY)])
def test_a_deleted_asset_has_no_meta_file(tmp_path: Path, lost: tuple[str, ...]) -> None:
    write_asset(vault(tmp_path), tmp_path, ASSET)
    for name in lost:
        (tmp_path / name).unlink()
    mark_deleted(disk, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [DELETED_FILE]


@pytest.mark.parametrize("call", ["rename", "unlink", "sync_dir"])
def test_a_delete_that_fails_changes_nothing(call: str) -> None:
    faulty = FaultyDisk(seed=1)
    store = Vault(faulty, Path("/"), os.urandom)
    write_asset(store, Path("/"), ASSET)
    faulty.fail(call, errno.EIO)
    with pytest.raises(OSError):
        mark_deleted(faulty, Path("/"))
    assert DELETED_FILE not in faulty.listdir(Path("/"))
    assert read_asset(store, Path("/"), StreamAsset) == ASSET


def test_a_deleted_asset_never_comes_back_without_its_mark() -> None:
    """Whatever of its directory's changes a power cut keeps."""
    for seed in range(40):
        faulty = FaultyDisk(seed)
        write_asset(Vault(faulty, Path("/"), os.urandom), Path("/"), ASSET)
        mark_deleted(faulty, Path("/"))
        faulty.unlink(Path("/") / DELETED_FILE)  # the rest of the asset is being removed
        assert not has_asset(faulty.crash(seed), Path("/"))
