"""Where an account's streams are on disk, and how they begin and end there.

    <store_dir>/jetstream/<account>/
        streams/<stream>/  meta.json     the stream is; its configuration (asset_file.py)
                           meta.deleted  the stream is deleted: what else is here is to be removed
                           msgs/         its messages (store/file_store.py)
                           obs/          its consumers
                           delayed/      messages that wait (schedules/delays.py)
        damaged/<stream>/  set aside at a start: meta.json said nothing any more

Promise
- `meta.json` is on disk before anything else of a stream is, and renamed before anything of it is
  removed: a crash in the middle of a create or a delete leaves one that the next start finishes.
- What was never created (a directory without any file of a stream) is removed at a start; what is
  damaged is moved, never deleted.

Everything but the paths blocks, and raises OSError.
"""

from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final

from natsd.jetstream.asset_file import ASSET_FILE, DELETED_FILE, write_asset
from natsd.jetstream.models.base import Model, TimeNs
from natsd.jetstream.models.stream import StreamConfig
from natsd.store.disk import Disk, make_directories
from natsd.store.doubled_file import UNFINISHED_SUFFIX

STREAMS: Final = "streams"
MESSAGES: Final = "msgs"
DELAYED: Final = "delayed"
DAMAGED: Final = "damaged"


class StreamAsset(Model):
    """What `meta.json` of a stream says."""

    config: StreamConfig
    created: TimeNs


class Found(Enum):
    """What a directory among an account's streams is."""

    STREAM = auto()
    DELETED = auto()
    UNFINISHED = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class AccountFiles:
    """The directories of one account."""

    directory: Path

    @property
    def streams(self) -> Path:
        return self.directory / STREAMS

    def stream(self, name: str) -> Path:
        """Of a name that was checked to be one: no separators, not "." or ".."."""
        return self.streams / name

    def list_streams(self, disk: Disk) -> list[str]:
        """Names of the directories that may be streams."""
        if not disk.exists(self.streams):
            return []
        return [
            name for name in disk.listdir(self.streams) if disk.is_directory(self.streams / name)
        ]

    def set_aside(self, disk: Disk, name: str) -> Path:
        """Put a stream's directory where no start looks for streams; where it is now."""
        aside = self.directory / DAMAGED
        make_directories(disk, aside)
        target, number = aside / name, 0
        while disk.exists(target):
            number += 1
            target = aside / f"{name}.{number}"
        disk.rename(self.stream(name), target)
        disk.sync_dir(aside)
        disk.sync_dir(self.streams)
        return target


def look_at(disk: Disk, directory: Path) -> Found:
    """What is there, by the names of the files in it."""
    names = disk.listdir(directory)
    if DELETED_FILE in names:
        return Found.DELETED
    if ASSET_FILE in names:
        return Found.STREAM
    if all(name.endswith(UNFINISHED_SUFFIX) for name in names):
        return Found.UNFINISHED
    return Found.UNKNOWN


def create_stream(disk: Disk, directory: Path, asset: StreamAsset) -> None:
    """A stream of that name is on disk on return, without messages; what was left of one that is
    deleted is gone."""
    if disk.exists(directory):
        if look_at(disk, directory) not in (Found.DELETED, Found.UNFINISHED):
            raise FileExistsError(f"{directory} exists, and is no stream of this account")
        disk.rmtree(directory)
    make_directories(disk, directory)
    write_asset(disk, directory, asset)
