"""Access to a store directory for executors: a lock that keeps servers out, and a stream's key.

No byte of the directory changes. Importing this module is cheap; planning (store_plan.py) imports
more.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from natsd.spark.stored.stored_ranges import StoreNotReadable
from natsd.store.crypto.keys import ENCRYPTING_FILE, KEY_FILE, DataKey, OperatorKeys, open_data_key
from natsd.store.disk.disk import DirectoryLocked, Disk
from natsd.store.disk.places import place_in
from natsd.store.disk.real_disk import FileLock, lock_to_read
from natsd.store.disk.twin_file import twins_exist

LOCK_NAME: Final = "natsd.lock"  # as in natsd.store.commit.volume, whose import is expensive


class InUse(StoreNotReadable):
    """A server uses the directory."""


def lock_against_servers(root: Path) -> FileLock | None:
    """Lock the directory against servers, but not against other readers.

    Returns None if the directory has no lock file. Raises InUse.
    """
    try:
        return lock_to_read(root / LOCK_NAME)
    except FileNotFoundError:
        return None
    except DirectoryLocked as error:
        raise InUse(
            f"{error}: stop the server, read over the network (servers=…), or read a snapshot"
        ) from None


def open_key(disk: Disk, root: Path, directory: Path, operator: OperatorKeys) -> DataKey | None:
    """Return the key of a stream's blocks; None: the blocks are not encrypted.

    `disk` is written to if the data key must be wrapped with a new key; pass an OverlayDisk to keep
    the directory unchanged. Raises EncryptionError.
    """
    if not any(twins_exist(disk, directory / name) for name in (KEY_FILE, ENCRYPTING_FILE)):
        return None
    context = place_in(root, directory)
    opened = open_data_key(disk, directory, context, operator, os.urandom)
    return opened.data_key if opened else None
