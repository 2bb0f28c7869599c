"""The file `meta.json` on disk: configuration and creation time of a stream or a consumer.

    <account>/streams/<stream>/meta.json                   {"config": {...}, "created": "..."}
    <account>/streams/<stream>/obs/<consumer>/meta.json    the same members for a consumer

Promise
- The content is kept in two files, encrypted if there is a key (store/vault.py): the loss or
  damage of one of them costs nothing.
- `write_asset` leaves either the old content or the new one, and returns when the new one is on
  disk. If it raises, the old content stays.
- If no copy verifies, AssetDamaged is raised; if this version does not understand the content,
  AssetUnknown is raised. Both leave the files as they are.

Everything here blocks, and raises OSError; functions that read raise EncryptionError too.

The file has the role of nats-server's `meta.inf` (`JetStreamMetaFile`). See docs/store.md.
"""

from pathlib import Path
from typing import Final, TypeVar

from natsd.jetstream.models.base import Model
from natsd.jetstream.models.go_json import InvalidJson, decode, encode
from natsd.store.crypto.vault import Vault
from natsd.store.disk.disk import Disk
from natsd.store.disk.twin_file import twins_exist

ASSET_FILE: Final = "meta.json"
MAGIC: Final = b"NATSDAST"

M = TypeVar("M", bound=Model)


class AssetDamaged(Exception):
    """No copy of the file verifies; the message is one line that names the file."""


class AssetUnknown(AssetDamaged):
    """A later version wrote the file; the message is one line that names the file."""


def write_asset(vault: Vault, directory: Path, asset: Model, *, place: Path | None = None) -> None:
    """Write the directory's `meta.json`; it is on disk on return.

    `place` is the path the directory will have later, if the asset is built elsewhere.
    """
    path = (place or directory) / ASSET_FILE
    vault.write(directory / ASSET_FILE, MAGIC, encode(asset), place=path)


def new_asset(vault: Vault, directory: Path, asset: Model) -> dict[str, bytes]:
    """Return the files of `meta.json`, by name, for a directory that is yet to be made."""
    return vault.new_files(directory / ASSET_FILE, MAGIC, encode(asset))


def read_asset(vault: Vault, directory: Path, model: type[M]) -> M:
    """Return the content of the directory's `meta.json`; a damaged copy is rewritten.

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
    """Return whether the directory has a `meta.json`, or the remains of one."""
    return twins_exist(disk, directory / ASSET_FILE)
