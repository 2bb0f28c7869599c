"""What an executor needs to read a store directory: keep servers out, open a stream's key.

Not a byte changes. Importing this is cheap; planning (store_plan.py) needs more.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from natsd.spark.stored.stored_ranges import StoreNotReadable
from natsd.store.disk import DirectoryLocked, Disk, FileLock, lock_to_read
from natsd.store.keys import ENCRYPTING_FILE, KEY_FILE, DataKey, OperatorKeys, open_data_key
from natsd.store.twin_file import twins_exist

LOCK_NAME: Final = "natsd.lock"  # as natsd.store.volume has it, which loads all that serves


class InUse(StoreNotReadable):
    """A server runs on the directory."""


def hold(root: Path) -> FileLock | None:
    """Keep servers out, not others who read; None where there is nothing to hold. Raises InUse."""
    try:
        return lock_to_read(root / LOCK_NAME)
    except FileNotFoundError:
        return None
    except DirectoryLocked as error:
        raise InUse(
            f"{error}: stop the server, read over the network (servers=…), or read a snapshot"
        ) from None


def open_key(disk: Disk, root: Path, directory: Path, operator: OperatorKeys) -> DataKey | None:
    """The key of a stream's blocks; None where they are plain, keys or not. Raises EncryptionError.

    `disk` is written to where the key is to be wrapped anew.
    """
    if not any(twins_exist(disk, directory / name) for name in (KEY_FILE, ENCRYPTING_FILE)):
        return None
    context = directory.relative_to(root).as_posix()
    opened = open_data_key(disk, directory, context, operator, os.urandom)
    return opened.data_key if opened else None
