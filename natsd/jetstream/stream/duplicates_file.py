"""Which message ids a stream knew when it was closed: `duplicates.db`, beside its `meta.json`.

Promise
- The file is written when a stream is closed, and taken away as it is opened: what it says is
  believed once, and never behind what came later.
- It is worth having, not needed: without it (a crash, damage) the ids are found in the messages.
  Only those of messages that were removed meanwhile are forgotten then, as on nats-server.

Everything here blocks, and raises OSError.
"""

from pathlib import Path
from typing import Final

from natsd.store.disk import Disk
from natsd.store.doubled_file import decode_doubled, read_file, replace_doubled

DUPLICATES_FILE: Final = "duplicates.db"
MAGIC: Final = b"NATSDIDS"


def leave_duplicates(disk: Disk, directory: Path, encoded: bytes) -> None:
    """Keep `MessageIds.encode` for the next start; on disk on return."""
    replace_doubled(disk, directory / DUPLICATES_FILE, MAGIC, encoded)


def take_duplicates(disk: Disk, directory: Path) -> bytes | None:
    """What was left, which is not there any more on return; None: nothing that verifies."""
    path = directory / DUPLICATES_FILE
    if not disk.exists(path):
        return None
    body = decode_doubled(MAGIC, read_file(disk, path)).body
    disk.unlink(path)
    disk.sync_dir(directory)
    return body
