"""The file `purge.db`: it makes a purge of the stream and of its delayed messages atomic.

It stands beside the stream's `meta.json`.

    decided on disk ─▶ stream purged ─▶ delayed messages purged ─▶ the file removed
                       refused ─▶ the file removed

    body   0 last sequence of the stream u64 │ 8 last delayed entry u64 │ 16 pattern

Promise
- A start that finds the file completes the purge, limited to the messages that existed when it was
  decided. Repeating a completed purge changes nothing.

The file is encrypted if there is a key. The functions here block, and raise OSError,
EncryptionError.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from natsd.store.crypto.vault import Vault
from natsd.store.disk.twin_file import remove_twins, twins_exist

PURGE_FILE: Final = "purge.db"
MAGIC: Final = b"NATSDPRG"
_HEAD: Final = struct.Struct("<QQ")


@dataclass(frozen=True, slots=True)
class DecidedPurge:
    """A purge of messages up to `last_sequence` and entries up to `last_entry`.

    Only those with matching subjects are removed; an empty pattern matches all subjects.
    """

    last_sequence: int
    last_entry: int
    pattern: str


def leave_purge(vault: Vault, directory: Path, purge: DecidedPurge) -> None:
    """Write the purge for the next start; it is on disk on return."""
    pattern = purge.pattern.encode("utf-8", "surrogateescape")
    body = _HEAD.pack(purge.last_sequence, purge.last_entry) + pattern
    vault.write(directory / PURGE_FILE, MAGIC, body)


def read_purge(vault: Vault, directory: Path) -> DecidedPurge | None:
    """Return the unfinished purge; None: there is none."""
    body = vault.recall(directory / PURGE_FILE, MAGIC, "a purge may be done in part")
    if body is None or len(body) < _HEAD.size:
        return None
    last_sequence, last_entry = _HEAD.unpack_from(body)
    pattern = body[_HEAD.size :].decode("utf-8", "surrogateescape")
    return DecidedPurge(last_sequence, last_entry, pattern)


def remove_purge(vault: Vault, directory: Path) -> None:
    """Remove the file; it is gone on disk on return."""
    if twins_exist(vault.disk, directory / PURGE_FILE):
        remove_twins(vault.disk, directory / PURGE_FILE)
