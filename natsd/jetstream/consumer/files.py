"""A consumer on disk, and how it comes and goes there.

    <stream>/obs/<consumer>/  state/          what was delivered and acked (consumer_store.py)
                              state.damaged/  states that were found damaged, as they were found
                              meta.json       the consumer is; written last
    <stream>/obs/<consumer>.removed/          the consumer is deleted: to be removed

Promise
- A consumer is there from the moment `meta.json` is on disk to the moment its directory is renamed;
  a crash before or behind leaves a directory that the next start removes. A state in which anything
  was written, and no `meta.json`, is what damage left.
- What is damaged, or of a later version, stays where it is, and keeps its name.

Everything here blocks, and raises OSError.
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
from natsd.jetstream.models.base import Model, TimeNs, Uint64
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.names import why_unsupported
from natsd.store.consumer_files import is_state_used
from natsd.store.disk import Disk, is_passing, is_removed, make_directories, rename_synced
from natsd.store.errors import EncryptionError
from natsd.store.vault import Vault

CONSUMERS: Final = "obs"
STATE: Final = "state"
STATE_DAMAGED: Final = "state.damaged"


class ConsumerAsset(Model):
    """What `meta.json` of a consumer says.

    `resume`: up to here it delivers only the last message of each subject (start_position.py).
    """

    config: ConsumerConfig
    created: TimeNs
    resume: Uint64 = 0


class UnsupportedConsumers(Exception):
    """A later version made them: to go on without them could lose what waits for them."""

    def __init__(self, reasons: dict[str, str]) -> None:
        """`reasons` by the consumers' names."""
        super().__init__(f"stopped - unsupported consumer {quoted(next(iter(reasons)))}")
        self.reasons = reasons


@dataclass(frozen=True, slots=True)
class FoundConsumer:
    """A directory that holds a consumer; `why_not`: it cannot be served, in one line."""

    directory: Path
    asset: ConsumerAsset | None
    why_not: str = ""
    is_unsupported: bool = False

    @property
    def name(self) -> str:
        """The directory's, which is the consumer's."""
        return self.directory.name


def consumer_directory(stream_directory: Path, name: str) -> Path:
    """Of a name that was checked to be one."""
    return stream_directory / CONSUMERS / name


def find_consumers(vault: Vault, stream_directory: Path) -> list[FoundConsumer]:
    """The consumers of a stream, in order of their names; what is left of others is removed.

    Raises UnsupportedConsumers.
    """
    parent, disk = stream_directory / CONSUMERS, vault.disk
    if not disk.exists(parent):
        return []
    found = [look_at(vault, parent / name) for name in sorted(disk.listdir(parent))]
    unsupported = {each.name: each.why_not for each in found if each and each.is_unsupported}
    if unsupported:
        raise UnsupportedConsumers(unsupported)
    return [consumer for consumer in found if consumer is not None]


def look_at(vault: Vault, directory: Path) -> FoundConsumer | None:
    """What stands in a consumer's directory; None: nothing that counts, and it is removed."""
    disk = vault.disk
    is_there = has_asset(disk, directory) or is_state_used(disk, directory / STATE)
    if is_removed(directory.name) or not is_there:
        remove(disk, directory)
        return None
    try:
        asset = read_asset(vault, directory, ConsumerAsset)
    except (AssetDamaged, EncryptionError, OSError) as error:
        if is_passing(error):
            raise
        return FoundConsumer(directory, None, str(error), isinstance(error, AssetUnknown))
    name = asset.config.durable_name or asset.config.name
    if name and name != directory.name:
        return FoundConsumer(directory, None, f"{directory} says that it is {name!r}")
    why_not = why_unsupported(asset.config.metadata)
    return FoundConsumer(directory, asset, why_not, bool(why_not))


def remove(disk: Disk, directory: Path) -> None:
    """All of a consumer that is deleted, or was never there; on disk on return."""
    disk.rmtree(directory)
    disk.sync_dir(directory.parent)


def set_state_aside(disk: Disk, state: Path) -> Path:
    """Put a consumer's state under the first free name where no start looks for it; where it is
    now, on disk."""
    into = state.with_name(STATE_DAMAGED)
    make_directories(disk, into)
    target, number = into / state.name, 0
    while disk.exists(target):
        number += 1
        target = into / f"{state.name}.{number}"
    rename_synced(disk, state, target)
    return target
