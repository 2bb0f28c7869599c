"""Which message ids a stream knew when it was closed: `duplicates.db`, beside its `meta.json`.

Promise
- The file speaks of one moment, and says which: ids of what came later are found in the messages.
  So it is never wrong, only old, and stays until the next close writes it anew.
- It is worth having, not needed: without it (damage, which is logged) the ids are found in the
  messages. Only those of messages that were removed meanwhile are forgotten then, as on
  nats-server.

Encrypted where there is a key. Everything here blocks, and raises OSError.
"""

from pathlib import Path
from typing import Final

from natsd.store.twin_file import twins_exist
from natsd.store.vault import Vault

DUPLICATES_FILE: Final = "duplicates.db"
MAGIC: Final = b"NATSDIDS"


def keep_duplicates(
    vault: Vault, directory: Path, encoded: bytes, *, place: Path | None = None
) -> None:
    """Keep `MessageIds.encode` for the next start; on disk on return. `place`: where the
    directory will be, if it is built elsewhere."""
    path = (place or directory) / DUPLICATES_FILE
    vault.write(directory / DUPLICATES_FILE, MAGIC, encoded, place=path)


def has_duplicates(vault: Vault, directory: Path) -> bool:
    """Whether any were kept."""
    return twins_exist(vault.disk, directory / DUPLICATES_FILE)


def read_duplicates(vault: Vault, directory: Path) -> bytes | None:
    """What was kept; None: nothing that verifies."""
    path = directory / DUPLICATES_FILE
    return vault.recall(path, MAGIC, "message ids are found in the messages")
