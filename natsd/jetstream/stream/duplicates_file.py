"""Which message ids a stream knew when it was closed: `duplicates.db`, beside its `meta.json`.

Promise
- The file is written when a stream is closed, and taken away as it is opened: what it says is
  believed once, and never behind what came later.
- It is worth having, not needed: without it (a crash, damage, which is logged) the ids are found
  in the messages.
  Only those of messages that were removed meanwhile are forgotten then, as on nats-server.

Encrypted where there is a key. Everything here blocks, and raises OSError, EncryptionError.
"""

from pathlib import Path
from typing import Final

from natsd.store.twin_file import remove_twins, twins_exist
from natsd.store.vault import Vault

DUPLICATES_FILE: Final = "duplicates.db"
MAGIC: Final = b"NATSDIDS"


def leave_duplicates(
    vault: Vault, directory: Path, encoded: bytes, *, place: Path | None = None
) -> None:
    """Keep `MessageIds.encode` for the next start; on disk on return. `place`: where the
    directory will be, if it is built elsewhere."""
    path = (place or directory) / DUPLICATES_FILE
    vault.write(directory / DUPLICATES_FILE, MAGIC, encoded, place=path)


def take_duplicates(vault: Vault, directory: Path) -> bytes | None:
    """What was left, which is not there any more on return; None: nothing that verifies."""
    path, disk = directory / DUPLICATES_FILE, vault.disk
    if not twins_exist(disk, path):
        return None
    body = vault.recall(path, MAGIC, "message ids are found in the messages")
    remove_twins(disk, path)
    return body
