"""`meta.json`: two files that hold the old content or the new one (docs/store.md)."""

import os
from pathlib import Path

import pytest

from natsd.jetstream.asset_file import (
    ASSET_FILE,
    MAGIC,
    AssetDamaged,
    AssetUnknown,
    read_asset,
    write_asset,
)
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.stream.files import StreamAsset
from natsd.store.crypto.vault import Vault
from natsd.store.disk.doubled_file import decode_doubled
from natsd.store.disk.real_disk import RealDisk
from natsd.store.disk.twin_file import COPY_SUFFIX, copy_of

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
