"""The directories of an account's streams, and how streams are created and removed on disk.

    <store_dir>/jetstream/<account>/
        streams/<stream>/  meta.json     the stream is; its configuration (asset_file.py)
                           msgs/         its messages (store/file_store.py)
                           obs/          its consumers
                           delayed/      messages that wait (schedules/delays.py)
        streams/<stream>.removed/        the stream is deleted: to be removed
        snapshots.new/     snapshots and restores under way; removed at a start

Promise
- `meta.json` is on disk before any other file of a stream, and the directory is renamed before
  anything in it is removed: after a crash during a create or a delete, the next start finishes it.
- A stream that was never completely created (a directory without any file of a stream) is removed
  at a start; damaged files stay where they are.

All functions but the paths block on the disk and raise OSError.
"""

from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final, Protocol

from natsd.jetstream.asset_file import has_asset, write_asset
from natsd.jetstream.models.base import Model, TimeNs
from natsd.jetstream.models.stream import StreamConfig
from natsd.store.commit.volume import Volume
from natsd.store.crypto.vault import Vault
from natsd.store.disk.disk import Disk, is_removed, make_directories, rename_synced
from natsd.store.disk.doubled_file import UNFINISHED_SUFFIX
from natsd.store.disk.places import STREAMS
from natsd.store.errors import StoreFull

MESSAGES: Final = "msgs"
DELAYED: Final = "delayed"
SNAPSHOTS: Final = f"snapshots{UNFINISHED_SUFFIX}"


class FiledStream(Protocol):
    """A stream, as far as what is in its directory needs it."""

    @property
    def name(self) -> str:
        """The stream's name in its account."""

    @property
    def is_filed(self) -> bool:
        """Whether the stream has files."""

    @property
    def directory(self) -> Path:
        """The directory of the stream's files, if it has any."""


class StreamAsset(Model):
    """The content of a stream's `meta.json`."""

    config: StreamConfig
    created: TimeNs


class DirectoryKind(Enum):
    """What a directory among an account's streams is."""

    STREAM = auto()
    UNFINISHED = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class AccountFiles:
    """The directories of one account."""

    directory: Path

    @property
    def streams(self) -> Path:
        """The directory of the account's streams."""
        return self.directory / STREAMS

    def stream(self, name: str) -> Path:
        """Return the directory of a stream; `name` was checked: no separators, not "." or ".."."""
        return self.streams / name

    @property
    def snapshots(self) -> Path:
        """The directory of the snapshots and restores under way."""
        return self.directory / SNAPSHOTS

    def list_streams(self, disk: Disk) -> list[str]:
        """Return the names of the directories that may be streams."""
        return [name for name in self._directories(disk) if not is_removed(name)]

    def list_removed(self, disk: Disk) -> list[Path]:
        """Return the directories of deleted streams, which are still to be removed."""
        return [self.streams / name for name in self._directories(disk) if is_removed(name)]

    def _directories(self, disk: Disk) -> list[str]:
        if not disk.exists(self.streams):
            return []
        return disk.subdirectories(self.streams)


def look_at(disk: Disk, directory: Path) -> DirectoryKind:
    """Tell from the names of its files what a directory is."""
    names = disk.listdir(directory)
    if has_asset(disk, directory):
        return DirectoryKind.STREAM
    if all(name.endswith(UNFINISHED_SUFFIX) for name in names):
        return DirectoryKind.UNFINISHED
    return DirectoryKind.UNKNOWN


def check_free(disk: Disk, directory: Path) -> None:
    """Check that the directory does not exist or may be removed. Raises FileExistsError."""
    if disk.exists(directory) and look_at(disk, directory) is not DirectoryKind.UNFINISHED:
        raise FileExistsError(f"{directory} exists, and is no stream of this account")


def has_remains(volume: Volume, directory: Path, *, is_ours: bool) -> bool:
    """Return whether something must be removed before a stream is made there.

    `is_ours`: a create that failed left it, whatever it is. Raises StoreFull, FileExistsError.
    """
    if volume.is_low_on_space:
        raise StoreFull
    if not is_ours:
        check_free(volume.disk, directory)
    return volume.disk.exists(directory)


def create_stream(vault: Vault, directory: Path, asset: StreamAsset) -> None:
    """Create a stream without messages; it is on disk on return. Nothing of that name may exist."""
    make_directories(vault.disk, directory)
    write_asset(vault, directory, asset)


def install_stream(disk: Disk, built: Path, directory: Path) -> None:
    """Move a directory that was built elsewhere to its place, which must not exist.

    It is on disk on return.
    """
    make_directories(disk, directory.parent)
    rename_synced(disk, built, directory)
