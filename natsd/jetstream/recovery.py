"""Bringing back an account's streams and consumers at a start.

    streams/*  ─┬─ *.removed                 removed: the delete is finished
                ├─ nothing of a stream       removed: the create never happened
                ├─ meta.json, damaged        offline: it stays, and its name is taken
                ├─ meta.json, not understood the same
                ├─ a consumer, not understood the same: what waits for it is not to be lost
                └─ meta.json ─▶ store ─▶ consumers ─▶ duplicates ─▶ subscribed
    snapshots.new/             removed: snapshots and restores that were under way

Promise
- At most `AT_ONCE` streams are recovered at a time, and the loop has its turns in between.
- A stream that cannot be recovered, whatever its start raises, is offline: it costs one line in the
  log and no other stream, and its files stay as they are. If what it lacked was space, a descriptor
  or memory, it is tried again every `RETRY_S` until it is served; its subjects are taken meanwhile.
- A key that opens no stream at all stops the start (`check_keys`): to go on would hide every one.
- A stream receives only once all of it is there; until the start is over, nobody publishes.

Source: nats-server 2.14 reference 11.1, and what nats-server does with each of these.
"""

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

from natsd.core.steps import in_turns
from natsd.jetstream.account import JetStreamAccount
from natsd.jetstream.asset_file import ASSET_FILE, MAGIC, AssetDamaged, has_asset, read_asset
from natsd.jetstream.consumer.files import UnsupportedConsumers
from natsd.jetstream.errors import ApiError
from natsd.jetstream.names import why_unsupported
from natsd.jetstream.resources import release, reserve
from natsd.jetstream.side_by_side import side_by_side
from natsd.jetstream.stream.files import AccountFiles, Found, StreamAsset, look_at
from natsd.jetstream.stream.stream import Stream
from natsd.store.disk import is_passing
from natsd.store.errors import EncryptionError, StoreError
from natsd.store.vault import Vault

_logger = logging.getLogger(__name__)

AT_ONCE: Final = 8
RETRY_S: Final = 1.0


def check_keys(vault: Vault, accounts: Iterable[AccountFiles]) -> bool:
    """Return whether the keys open a stream; raise EncryptionError if there are encrypted streams
    and they open none. Nothing is changed. Blocks. Raises OSError."""
    refusal: EncryptionError | None = None
    for files in accounts:
        for name in files.list_streams(vault.disk):
            if not has_asset(vault.disk, files.stream(name)):
                continue
            path = files.stream(name) / ASSET_FILE
            refused = vault.refusal(path, MAGIC)
            refusal = refusal or refused
            if refused is None and (vault.keys.key is None or vault.is_sealed(path)):
                return True
    if refusal is not None:
        raise refusal
    return False


async def recover_account(account: JetStreamAccount) -> None:
    """Serve what the account has stored. Raises OSError."""
    volume = account.jetstream.volume
    await volume.read(volume.disk.rmtree, account.files.snapshots)
    for directory in await volume.read(account.files.list_removed, volume.disk):
        await _remove_rest(account, directory)
    names = await volume.read(account.files.list_streams, volume.disk)
    await side_by_side(partial(_recover_directory, account), names, most=AT_ONCE)


async def _remove_rest(account: JetStreamAccount, directory: Path) -> None:
    """Of a stream that was deleted."""
    volume = account.jetstream.volume
    try:
        await volume.read(volume.disk.rmtree, directory)
    except OSError as error:
        _logger.error("JetStream: %s cannot be removed: %s", directory, error)


async def _recover_directory(account: JetStreamAccount, name: str) -> None:
    lacking = await _try_to_recover(account, name)
    if lacking is not None:
        _take_offline(account, name, f"{lacking}; it is tried again")
        account.keep(_recover_later(account, name))


async def _recover_later(account: JetStreamAccount, name: str) -> None:
    """Try again until the stream is served, deleted, or cannot be served for another reason."""
    while name in account.offline:
        await asyncio.sleep(RETRY_S)
        async with account.changing(name):
            if name in account.offline and await _try_to_recover(account, name) is None:
                if name in account.streams:
                    _logger.info("JetStream: stream '%s > %s' is served", account.name, name)
                return


async def _try_to_recover(account: JetStreamAccount, name: str) -> Exception | None:
    """Serve the stream of that directory, if it is one. Return what was lacking, if it may come:
    space, a descriptor or memory."""
    try:
        await _recover(account, name)
    except (AssetDamaged, StoreError, OSError) as error:
        if is_passing(error):
            return error
        _take_offline(account, name, str(error))
    except ApiError as error:  # no limits are there for it
        _take_offline(account, name, error.description)
    except UnsupportedConsumers as error:
        account.offline_consumers[name] = error.reasons
        _take_offline(account, name, str(error))
    except Exception as error:
        _take_offline(account, name, f"it does not start: {error!r}", error)
    if name not in account.streams:
        await in_turns(account.claims.claim(name, ()))
    return None


async def _recover(account: JetStreamAccount, name: str) -> None:
    volume, directory = account.jetstream.volume, account.files.stream(name)
    asset = await volume.read(_settle, account.jetstream.vault, directory)
    if asset is None:
        account.offline.pop(name, None)
        return
    reason = _why_not_served(asset, name)
    if reason:
        _take_offline(account, name, reason)
        return
    await in_turns(account.claims.claim(name, asset.config.subjects))
    await _recover_stream(account, asset)


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


def _take_offline(
    account: JetStreamAccount, name: str, reason: str, unexpected: Exception | None = None
) -> None:
    account.offline[name] = reason
    _logger.error(
        "JetStream: stream '%s > %s' is offline: %s",
        account.name,
        name,
        reason,
        exc_info=unexpected,
    )


async def _recover_stream(account: JetStreamAccount, asset: StreamAsset) -> None:
    config = asset.config
    stream = await Stream.open(account, config, asset.created)
    usage = account.tiers.of(config.num_replicas).usage
    reserve(usage, config)
    try:
        account.offline.pop(config.name, None)
        account.streams[config.name] = stream
        await stream.begin()
    except BaseException:
        account.streams.pop(config.name, None)
        release(usage, config)
        stream.ingest.release_usage()
        await stream.close()
        raise
    _logger.debug(
        "JetStream: %s messages for stream '%s > %s'",
        f"{stream.store.state().msgs:,}",
        account.name,
        config.name,
    )
