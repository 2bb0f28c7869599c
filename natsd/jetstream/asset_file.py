"""What an asset is, on disk: `meta.json` of a stream or a consumer.

    <account>/streams/<stream>/meta.json                   {"config": {...}, "created": "..."}
    <account>/streams/<stream>/obs/<consumer>/meta.json    the same of a consumer

Promise
- It is kept as two files, encrypted where there is a key (store/vault.py): one that is damaged or
  lost costs nothing.
- `write_asset` leaves the old content or the new one, and returns when the new one is on disk; the
  old one where it raises.
- Files that say nothing any more raise AssetDamaged, those that say what this version does not
  understand AssetUnknown; both are left as they are.
- `mark_deleted` has removed the second file on disk before anything else of the asset goes, so that
  no crash brings a deleted asset back. Where it raises, the asset is there.

Everything here blocks, and raises OSError; what reads raises EncryptionError too.

Source: nats-server 2.14 reference 11.1 (`meta.inf`).
"""

from pathlib import Path
from typing import Final, TypeVar

from natsd.jetstream.models.base import Model
from natsd.jetstream.models.go_json import InvalidJson, decode, encode
from natsd.store.disk import Disk
from natsd.store.twin_file import twins_exist
from natsd.store.vault import Vault

ASSET_FILE: Final = "meta.json"
MAGIC: Final = b"NATSDAST"

M = TypeVar("M", bound=Model)


class AssetDamaged(Exception):
    """No copy verifies; one line that names the file."""


class AssetUnknown(AssetDamaged):
    """A later version wrote it; one line that names the file."""


def write_asset(vault: Vault, directory: Path, asset: Model, *, place: Path | None = None) -> None:
    """Give the directory this `meta.json`; it is on disk on return. `place`: where the directory
    will be, if it is built elsewhere."""
    path = (place or directory) / ASSET_FILE
    vault.write(directory / ASSET_FILE, MAGIC, encode(asset), place=path)


def read_asset(vault: Vault, directory: Path, model: type[M]) -> M:
    """What the directory's `meta.json` says; a damaged copy is written anew.

    Raises AssetDamaged, AssetUnknown.
    """
    path = directory / ASSET_FILE
    if not has_asset(vault.disk, directory):
        raise AssetDamaged(f"{path} is missing")
    body = vault.read(path, MAGIC)
    if body is None:
        raise AssetDamaged(f"{path} is damaged: no copy of it verifies")
    try:
        return decode(model, body)
    except InvalidJson as error:
        raise AssetUnknown(f"{path} is not understood: {error}") from None


def has_asset(disk: Disk, directory: Path) -> bool:
    """Whether the directory has a `meta.json`, or what is left of one."""
    return twins_exist(disk, directory / ASSET_FILE)
