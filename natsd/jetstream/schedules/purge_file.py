"""A purge of two stores, the stream's and that of what waits, as a whole: `purge.db`, beside the
stream's `meta.json`.

    decided on disk ─▶ stream purged ─▶ what waits purged ─▶ the file removed
                       refused ─▶ the file removed

    body   0 last sequence of the stream u64 │ 8 last entry that waits u64 │ 16 pattern

Promise
- A start that finds the file completes the purge, of what was there when it was decided. To do it
  once more changes nothing.

Encrypted where there is a key. Everything here but the coding blocks, and raises OSError,
EncryptionError.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from natsd.store.twin_file import remove_twins, twins_exist
from natsd.store.vault import Vault

PURGE_FILE: Final = "purge.db"
MAGIC: Final = b"NATSDPRG"
_HEAD: Final = struct.Struct("<QQ")


@dataclass(frozen=True, slots=True)
class DecidedPurge:
    """What goes: messages up to `last_sequence` and entries up to `last_entry`, those to subjects
    that match; empty: all."""

    last_sequence: int
    last_entry: int
    pattern: str


def leave_purge(vault: Vault, directory: Path, purge: DecidedPurge) -> None:
    """Keep it for the next start; on disk on return."""
    pattern = purge.pattern.encode("utf-8", "surrogateescape")
    body = _HEAD.pack(purge.last_sequence, purge.last_entry) + pattern
    vault.write(directory / PURGE_FILE, MAGIC, body)


def read_purge(vault: Vault, directory: Path) -> DecidedPurge | None:
    """The purge that a stop has cut short, if any."""
    body = vault.recall(directory / PURGE_FILE, MAGIC, "a purge may be done in part")
    if body is None or len(body) < _HEAD.size:
        return None
    last_sequence, last_entry = _HEAD.unpack_from(body)
    pattern = body[_HEAD.size :].decode("utf-8", "surrogateescape")
    return DecidedPurge(last_sequence, last_entry, pattern)


def remove_purge(vault: Vault, directory: Path) -> None:
    """On disk on return."""
    if twins_exist(vault.disk, directory / PURGE_FILE):
        remove_twins(vault.disk, directory / PURGE_FILE)
