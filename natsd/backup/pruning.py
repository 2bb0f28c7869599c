"""Removal of old backups, and of the pieces that no other backup needs."""

from __future__ import annotations

from dataclasses import dataclass

from natsd.backup.directory import BackupDirectory
from natsd.backup.verifying import pieces_of


@dataclass(frozen=True, slots=True)
class Pruned:
    """The removed backups, and the number and bytes of the removed pieces."""

    backups: list[str]
    pieces: int
    bytes: int


def prune(directory: BackupDirectory, keep: int) -> Pruned:
    """Remove all backups but the newest `keep`, with the directory locked.

    Manifests go first: an interruption leaves pieces that the next call removes. What an unfinished
    backup has stored is removed, too. Raises DamagedPiece if a kept backup cannot be read, before
    anything is removed; OSError.
    """
    ids = directory.ids()
    kept, removed = ids[len(ids) - keep :], ids[: max(len(ids) - keep, 0)]
    pieces: set[str] = set()
    for backup_id in kept:
        pieces |= pieces_of(directory, directory.read(backup_id))
    for backup_id in removed:
        directory.remove(backup_id)
    directory.forget_unfinished()
    return Pruned(removed, *directory.pieces.remove_others(pieces))
