"""A consumer on disk, and how it is created and removed there.

    <stream>/obs/<consumer>/  state/          what was delivered and acked (consumer_store.py);
                                              made by the first change
                              state.damaged/  states that were found damaged, as they were found
                              meta.json       its configuration
    <stream>/obs/<consumer>.new/              the consumer is being made, or its creation died
    <stream>/obs/<consumer>.removed/          the consumer is deleted: to be removed

Promise
- A consumer exists from the moment its directory has its name to the moment it is renamed; a crash
  before or after leaves a directory that the next start removes. A directory without `meta.json` is
  a sign of damage; but earlier versions made an unused state before `meta.json`, and that is the
  remains of a creation.
- Damaged files, or files of a later version, stay where they are, and keep their names.

Everything here blocks on the disk and raises OSError.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from natsd.core.quoting import quoted
from natsd.jetstream.asset_file import (
    AssetDamaged,
    AssetUnknown,
    has_asset,
    read_asset,
)
from natsd.jetstream.models.base import Model, Omitempty, TimeNs, Uint64
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.names import why_unsupported
from natsd.store.consumer.consumer_files import is_blank, is_state_used
from natsd.store.crypto.vault import Vault
from natsd.store.disk.disk import Disk, is_removed, is_transient, make_directories, rename_synced
from natsd.store.disk.doubled_file import UNFINISHED_SUFFIX
from natsd.store.errors import EncryptionError

CONSUMERS: Final = "obs"
STATE: Final = "state"
STATE_DAMAGED: Final = "state.damaged"


class ConsumerAsset(Model):
    """The content of a consumer's `meta.json`.

    `resume`: up to this sequence only the last message of each subject is delivered
    (start_position.py). `starting`: the first delivery was to be behind this stream sequence, which
    is all there is to know as long as the consumer has no state; None: it always has one.
    """

    config: ConsumerConfig
    created: TimeNs
    resume: Uint64 = 0
    starting: Omitempty[Uint64 | None] = None


class UnsupportedConsumers(Exception):
    """Consumers of a later version exist: without them, messages they need could be lost."""

    def __init__(self, reasons: dict[str, str]) -> None:
        """Keep the `reasons`, by the consumers' names."""
        super().__init__(f"stopped - unsupported consumer {quoted(next(iter(reasons)))}")
        self.reasons = reasons


@dataclass(frozen=True, slots=True)
class FoundConsumer:
    """A directory that holds a consumer; `why_not`: why it cannot be served, in one line.

    `is_blank`: it has no state yet, and begins behind `asset.starting`, if that is known.
    """

    directory: Path
    asset: ConsumerAsset | None
    why_not: str = ""
    is_unsupported: bool = False
    is_blank: bool = False

    @property
    def name(self) -> str:
        """The directory's name, which is the consumer's."""
        return self.directory.name


def consumer_directory(stream_directory: Path, name: str) -> Path:
    """Return the directory of a consumer; the name was checked."""
    return stream_directory / CONSUMERS / name


def find_consumers(vault: Vault, stream_directory: Path) -> list[FoundConsumer]:
    """Return the consumers of a stream, in order of their names; remove remains of others.

    Raises UnsupportedConsumers.
    """
    parent, disk = stream_directory / CONSUMERS, vault.disk
    if not disk.exists(parent):
        return []
    found = [look_at(vault, parent / name) for name in disk.subdirectories(parent)]
    unsupported = {each.name: each.why_not for each in found if each and each.is_unsupported}
    if unsupported:
        raise UnsupportedConsumers(unsupported)
    return [consumer for consumer in found if consumer is not None]


def look_at(vault: Vault, directory: Path) -> FoundConsumer | None:
    """Return the consumer in a directory; None: there is none, and the directory is removed."""
    disk = vault.disk
    names = disk.listdir(directory)
    if not _is_consumer(disk, directory, names):
        remove(disk, directory)
        return None
    try:
        asset = read_asset(vault, directory, ConsumerAsset)
    except (AssetDamaged, EncryptionError, OSError) as error:
        if is_transient(error):
            raise
        return FoundConsumer(directory, None, str(error), isinstance(error, AssetUnknown))
    name = asset.config.durable_name or asset.config.name
    if name and name != directory.name:
        return FoundConsumer(directory, None, f"{directory} says that it is {name!r}")
    why_not = why_unsupported(asset.config.metadata)
    has_no_state = STATE not in names or is_blank(disk, directory / STATE)
    return FoundConsumer(directory, asset, why_not, bool(why_not), has_no_state)


def _is_consumer(disk: Disk, directory: Path, names: list[str]) -> bool:
    """Tell whether the directory was ever that of a consumer, and still is."""
    if is_removed(directory.name) or directory.name.endswith(UNFINISHED_SUFFIX):
        return False
    if STATE not in names or has_asset(disk, directory):
        return True
    return is_state_used(disk, directory / STATE)


def remove(disk: Disk, directory: Path) -> None:
    """Remove all files of a consumer that is deleted or was never complete; on disk on return."""
    disk.rmtree(directory)
    disk.sync_dir(directory.parent)


def set_state_aside(disk: Disk, state: Path) -> Path:
    """Rename a consumer's state to the first free name where no start looks for it.

    Returns the new path; it is on disk on return.
    """
    into = state.with_name(STATE_DAMAGED)
    make_directories(disk, into)
    target, number = into / state.name, 0
    while disk.exists(target):
        number += 1
        target = into / f"{state.name}.{number}"
    rename_synced(disk, state, target)
    return target
