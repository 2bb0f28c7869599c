"""What an asset is, on disk: `meta.json` of a stream or a consumer.

    <account>/streams/<stream>/meta.json                   {"config": {...}, "created": "..."}
    <account>/streams/<stream>/obs/<consumer>/meta.json    the same of a consumer

Promise
- Everything stands twice in the file, encrypted where there is a key (store/vault.py): one damaged
  copy costs nothing.
- `write_asset` leaves the old file or the new one, and returns when the new one is on disk.
- A file that says nothing any more raises AssetDamaged, one that says what this version does not
  understand AssetUnknown; both are left as they are.

Everything here blocks, and raises OSError; what reads raises EncryptionError too.

Source: nats-server 2.14 reference 11.1 (`meta.inf`).
"""

from pathlib import Path
from typing import Final, TypeVar

from natsd.jetstream.models.base import Model
from natsd.jetstream.models.go_json import InvalidJson, decode, encode
from natsd.store.disk import Disk
from natsd.store.vault import Vault

ASSET_FILE: Final = "meta.json"
DELETED_FILE: Final = "meta.deleted"
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
    body = vault.read(path, MAGIC)
    if body is None:
        raise AssetDamaged(f"{path} is damaged: no copy of it verifies")
    try:
        return decode(model, body)
    except InvalidJson as error:
        raise AssetUnknown(f"{path} is not understood: {error}") from None


def mark_deleted(disk: Disk, directory: Path) -> None:
    """From here on the asset is gone, whatever is still in its directory; on disk on return."""
    disk.rename(directory / ASSET_FILE, directory / DELETED_FILE)
    disk.sync_dir(directory)
