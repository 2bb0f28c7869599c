"""Bringing back an account's streams and consumers at a start.

    streams/*  ─┬─ meta.deleted              removed: the delete is finished
                ├─ nothing of a stream       removed: the create never happened
                ├─ meta.json, damaged        moved to damaged/, reported
                ├─ meta.json, not understood offline: it stays, and its name is taken
                ├─ a consumer, not understood the same: what waits for it is not to be lost
                └─ meta.json ─▶ store ─▶ consumers ─▶ duplicates ─▶ subscribed
    snapshots.new/             removed: snapshots and restores that were under way

Promise
- At most `AT_ONCE` streams are recovered at a time, and the loop has its turns in between.
- A stream that cannot be recovered costs one line in the log, and no other stream.
- What was refused for want of a key stops the start: to go on would hide every stream.
- A stream receives only once all of it is there; until the start is over, nobody publishes.

Source: nats-server 2.14 reference 11.1, and what nats-server does with each of these.
"""

import logging
from functools import partial
from pathlib import Path
from typing import Final

from natsd.jetstream.account import JetStreamAccount
from natsd.jetstream.asset_file import AssetDamaged, AssetUnknown, read_asset
from natsd.jetstream.consumer.files import UnsupportedConsumers
from natsd.jetstream.errors import ApiError
from natsd.jetstream.names import why_unsupported
from natsd.jetstream.resources import reserve
from natsd.jetstream.side_by_side import side_by_side
from natsd.jetstream.steps import in_turns
from natsd.jetstream.stream.files import Found, StreamAsset, look_at
from natsd.jetstream.stream.stream import Stream
from natsd.store.errors import EncryptionError, StoreError
from natsd.store.vault import Vault

_logger = logging.getLogger(__name__)

AT_ONCE: Final = 8


async def recover_account(account: JetStreamAccount) -> None:
    """Serve what the account has stored. Raises EncryptionError, OSError."""
    volume = account.jetstream.volume
    await volume.read(volume.disk.rmtree, account.files.snapshots)
    names = await volume.read(account.files.list_streams, volume.disk)
    await side_by_side(partial(_recover_directory, account), names, most=AT_ONCE)


async def _recover_directory(account: JetStreamAccount, name: str) -> None:
    volume, directory = account.jetstream.volume, account.files.stream(name)
    try:
        asset = await volume.read(_settle, account.jetstream.vault, directory)
    except (AssetUnknown, OSError) as error:
        _take_offline(account, name, str(error))
        return
    except AssetDamaged as error:
        aside = await volume.read(account.files.set_aside, volume.disk, name)
        _logger.error("JetStream: %s; the stream is set aside in %s", error, aside)
        return
    if asset is None:
        return
    reason = _why_not_served(asset, name)
    if reason:
        _take_offline(account, name, reason)
        return
    try:
        await _recover_stream(account, asset)
    except EncryptionError:
        raise
    except (StoreError, OSError) as error:
        _take_offline(account, name, str(error))
    except ApiError as error:  # no limits are there for it
        _take_offline(account, name, error.description)
    except UnsupportedConsumers as error:
        account.offline_consumers[name] = error.reasons
        _take_offline(account, name, str(error))


def _settle(vault: Vault, directory: Path) -> StreamAsset | None:
    """Finish or undo what a crash left; what is to be served then. Blocks.

    Raises AssetDamaged, AssetUnknown, EncryptionError, OSError.
    """
    disk = vault.disk
    found = look_at(disk, directory)
    if found is Found.STREAM:
        return read_asset(vault, directory, StreamAsset)
    if found is Found.UNKNOWN:
        raise AssetDamaged(f"{directory} has no meta.json")
    disk.rmtree(directory)
    disk.sync_dir(directory.parent)
    return None


def _why_not_served(asset: StreamAsset, name: str) -> str:
    if asset.config.name != name:
        return f"it says that it is {asset.config.name!r}"
    return why_unsupported(asset.config.metadata)


def _take_offline(account: JetStreamAccount, name: str, reason: str) -> None:
    account.offline[name] = reason
    _logger.error("JetStream: stream '%s > %s' is offline: %s", account.name, name, reason)


async def _recover_stream(account: JetStreamAccount, asset: StreamAsset) -> None:
    config = asset.config
    stream = await Stream.open(account, config, asset.created)
    reserve(account.tiers.of(config.num_replicas).usage, config)
    await in_turns(account.claims.claim(config.name, config.subjects))
    account.streams[config.name] = stream
    await stream.begin()
    _logger.debug(
        "JetStream: %s messages for stream '%s > %s'",
        f"{stream.store.state().msgs:,}",
        account.name,
        config.name,
    )
