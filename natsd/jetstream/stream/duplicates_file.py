"""The message ids of a stream at a close or a RAFT snapshot: `duplicates.db` beside `meta.json`.

Promise
- The file describes one moment, and says which: the ids of later messages are found in the
  messages. So the file is never wrong, only old, and stays until the next close writes it anew.
- The file saves time but is not needed: without it (or if it is damaged, which is logged) the ids
  are found in the messages. Only the ids of messages that were removed meanwhile are lost then, as
  on nats-server.

The file is encrypted where there is a key. Every function here blocks on the disk and raises
OSError.
"""

from pathlib import Path
from typing import Final

from natsd.store.crypto.vault import Vault
from natsd.store.disk.twin_file import twins_exist

DUPLICATES_FILE: Final = "duplicates.db"
MAGIC: Final = b"NATSDIDS"


def keep_duplicates(
    vault: Vault, directory: Path, encoded: bytes, *, place: Path | None = None
) -> None:
    """Write the result of `MessageIds.encode` for the next start; it is on disk on return.

    `place` is the final directory, if `directory` is a temporary one.
    """
    path = (place or directory) / DUPLICATES_FILE
    vault.write(directory / DUPLICATES_FILE, MAGIC, encoded, place=path)


def has_duplicates(vault: Vault, directory: Path) -> bool:
    """Tell whether a file of ids was written."""
    return twins_exist(vault.disk, directory / DUPLICATES_FILE)


def read_duplicates(vault: Vault, directory: Path) -> bytes | None:
    """Return the written ids; None if there are none or they do not verify."""
    path = directory / DUPLICATES_FILE
    return vault.recall(path, MAGIC, "message ids are found in the messages")
