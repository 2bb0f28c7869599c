"""The files of a replica at a start, which may lack what the log of its group goes on from.

    <account>/incomplete/<stream>/     they do: the stream of the leader is to replace them

Promise
- That directory is on disk before files are made, or are about to be replaced, that may lack
  something. It is removed once the stream of the leader is in its place.
- Files that cannot be opened, or in which damage is found, are whole again after that, too. But
  files that the key does not open stay as they are: the other replicas may have the wrong key, too.
- `meta.json` is written again with the configuration that is told if it is damaged or differs: what
  a leader wrote may never have been agreed to. The group's snapshot and log have the final word.

A stream in memory is never whole after a restart.
"""

import logging
from functools import partial
from pathlib import Path

from natsd.jetstream.asset_file import AssetDamaged, AssetUnknown, read_asset, write_asset
from natsd.jetstream.models.stream import Storage, StreamConfig
from natsd.jetstream.stream.files import AccountFiles, StreamAsset
from natsd.jetstream.stream.stream import Stream, StreamAccount
from natsd.store.disk.disk import Disk, is_transient, make_directories
from natsd.store.errors import KeyMissing, KeyWrong, StoreError

_logger = logging.getLogger(__name__)

INCOMPLETE = "incomplete"


async def open_replica(
    account: StreamAccount, config: StreamConfig, created_ns: int, *, is_new: bool
) -> tuple[Stream, bool]:
    """Return the stream of a replica, to follow, and whether its files are whole.

    `config` and `created_ns` are what the stream has now, as far as is known; `is_new`: the group
    is new to this server, and so is the stream. Raises StoreError, OSError.
    """
    volume, directory = account.jetstream.volume, account.files.stream(config.name)
    if is_new:
        await volume.remove_tree(directory)
        await forget_incomplete(account, config.name)
        return await Stream.create(account, config, created_ns), True
    if config.storage is Storage.MEMORY:
        return await Stream.create(account, config, created_ns), False
    place = _place(account.files, config.name)
    is_whole = await volume.read(
        lambda: volume.disk.exists(directory) and not volume.disk.exists(place)
    )
    if is_whole:
        try:
            stream = await _open(account, StreamAsset(config=config, created=created_ns))
        except (KeyMissing, KeyWrong):
            raise
        except (AssetDamaged, StoreError, OSError) as error:
            if is_transient(error):
                raise
            _logger.error("JetStream: the replica of stream %s: %s", config.name, error)
        else:
            if stream.damage:
                await note_incomplete(account, config.name)
            return stream, not stream.damage
    await note_incomplete(account, config.name)
    await volume.remove_tree(directory)
    return await Stream.create(account, config, created_ns), False


async def _open(account: StreamAccount, told: StreamAsset) -> Stream:
    volume, vault = account.jetstream.volume, account.jetstream.vault
    directory = account.files.stream(told.config.name)
    asset: StreamAsset | None = None
    try:
        asset = await volume.read(read_asset, vault, directory, StreamAsset)
    except AssetUnknown:  # of a later version
        raise
    except AssetDamaged as error:
        _logger.warning("JetStream: %s; it is written again", error)
    if asset is not None and asset.created != told.created:
        raise AssetDamaged(f"{directory} is of another stream of that name")
    if asset != told:
        await volume.read(write_asset, vault, directory, told)
    return await Stream.open_following(account, told.config, told.created)


async def note_incomplete(account: StreamAccount, name: str) -> None:
    """Note on disk that the files of that stream may lack something. Raises OSError."""
    volume = account.jetstream.volume
    await volume.read(partial(make_directories, volume.disk, _place(account.files, name)))


async def forget_incomplete(account: StreamAccount, name: str) -> None:
    """Note on disk that the files of that stream lack nothing. Raises OSError."""
    await account.jetstream.volume.remove_tree(_place(account.files, name))


def may_be_incomplete(disk: Disk, files: AccountFiles, name: str) -> bool:
    """Tell whether it is noted on disk that the files of that stream may lack something. Blocks."""
    return disk.exists(_place(files, name))


def _place(files: AccountFiles, name: str) -> Path:
    return files.directory / INCOMPLETE / name
