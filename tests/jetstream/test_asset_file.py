"""`meta.json`: twice in the file, the old one or the new one (reference §11.1)."""

import os
from pathlib import Path

import pytest

from natsd.jetstream.asset_file import (
    ASSET_FILE,
    DELETED_FILE,
    AssetDamaged,
    AssetUnknown,
    mark_deleted,
    read_asset,
    write_asset,
)
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.stream.files import StreamAsset
from natsd.store.disk import RealDisk
from natsd.store.doubled_file import replace_doubled
from natsd.store.vault import Vault

ASSET = StreamAsset(
    config=StreamConfig(name="S", subjects=["<ö>"], metadata={"a": "b"}), created=17
)
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
    assert path.read_bytes() == whole


def test_a_file_that_says_nothing_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / ASSET_FILE
    path.write_bytes(b'{"config":{}}')
    with pytest.raises(AssetDamaged, match=r"meta\.json is damaged: no copy"):
        read_asset(vault(tmp_path), tmp_path, StreamAsset)
    assert path.read_bytes() == b'{"config":{}}'


def test_a_later_versions_setting_is_not_ignored(tmp_path: Path) -> None:
    body = b'{"config":{"name":"S","quantum":true},"created":"2026-01-01T00:00:00Z"}'
    replace_doubled(disk, tmp_path / ASSET_FILE, b"NATSDAST", body)
    with pytest.raises(AssetUnknown, match='unknown field "quantum"'):
        read_asset(vault(tmp_path), tmp_path, StreamAsset)


def test_a_deleted_asset_has_no_meta_file(tmp_path: Path) -> None:
    write_asset(vault(tmp_path), tmp_path, ASSET)
    mark_deleted(disk, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [DELETED_FILE]
