"""Recovery of the streams and consumers of accounts, at a start and when JetStream is enabled.

    streams/*  ─┬─ *.removed                 removed: the delete is finished
                ├─ no part of a stream       removed: the create never completed
                ├─ meta.json, damaged        offline: the files stay, the name stays taken
                ├─ meta.json, not understood offline, as above
                ├─ a consumer, not understood offline: messages that wait for it must not be lost
                └─ meta.json ─▶ store ─▶ consumers ─▶ duplicates ─▶ subscribed
    snapshots.new/             removed: unfinished snapshots and restores

Promise
- At most `AT_ONCE` streams are recovered at a time, of all accounts of a start together, and the
  event loop goes on in between.
- A stream that cannot be recovered, whatever its start raises, is offline: it costs one line in the
  log and affects no other stream, and its files stay as they are. If it lacked disk space, a file
  descriptor or memory, recovery is retried every `RETRY_S` until it succeeds; its subjects stay
  claimed in the meantime.
- A key that opens no stream at all stops the start (`check_keys`): otherwise all streams would be
  hidden.
- A stream receives messages only when it is recovered completely; until the start is over, no
  client can publish.

The order of the steps and the treatment of damage are described in docs/store.md; the cases are
those of nats-server's `Account.EnableJetStream`.
"""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from natsd.core.steps import run_cooperatively
from natsd.jetstream.account import JetStreamAccount
from natsd.jetstream.account_resources import why_no_directory
from natsd.jetstream.asset_file import ASSET_FILE, MAGIC, AssetDamaged, has_asset, read_asset
from natsd.jetstream.consumer.files import UnsupportedConsumers
from natsd.jetstream.errors import ApiError
from natsd.jetstream.gather_limited import gather_limited
from natsd.jetstream.names import why_unsupported
from natsd.jetstream.resources import release, reserve
from natsd.jetstream.stream.files import AccountFiles, DirectoryKind, StreamAsset, look_at
from natsd.jetstream.stream.stream import Stream
from natsd.store.crypto.vault import Vault
from natsd.store.disk.disk import Disk, is_removed, is_transient
from natsd.store.errors import EncryptionError, StoreError

_logger = logging.getLogger(__name__)

AT_ONCE: Final = 8
RETRY_S: Final = 1.0


def check_keys(vault: Vault, accounts: Iterable[AccountFiles]) -> bool:
    """Return whether the keys open a stream; raise EncryptionError if they open none.

    False means that no stream could prove the keys: there is none, or none is encrypted. Nothing is
    changed. Blocks on the disk. Raises OSError.
    """
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


def accounts_on_disk(disk: Disk, directory: Path) -> dict[str, int]:
    """Return the accounts that have a directory, and the number of streams in it.

    Accounts that were purged are removed completely. Blocks on the disk. Raises OSError.
    """
    found: dict[str, int] = {}
    for name in disk.subdirectories(directory) if disk.exists(directory) else ():
        if is_removed(name):
            disk.rmtree(directory / name)
        elif not why_no_directory(name):
            found[name] = len(AccountFiles(directory / name).list_streams(disk))
    return found


async def recover_accounts(
    accounts: Iterable[JetStreamAccount], *, are_assigned: bool = False
) -> None:
    """Recover and serve the stored streams of accounts with a directory. Raises OSError.

    `are_assigned`: only remove what a crash left; the cluster says which streams are served.
    """
    found: list[tuple[JetStreamAccount, str]] = []
    for account in accounts:
        volume = account.jetstream.volume
        removed, names = await volume.read(_list, volume.disk, account.files)
        for directory in removed:
            await _remove_rest(account, directory)
        if not are_assigned:
            found += [(account, name) for name in names]
    await gather_limited(lambda each: recover_stream(*each), found, most=AT_ONCE)


def _list(disk: Disk, files: AccountFiles) -> tuple[list[Path], list[str]]:
    """Remove unfinished snapshots; return the deleted streams, and the names of the others."""
    disk.rmtree(files.snapshots)
    return files.list_removed(disk), files.list_streams(disk)


async def _remove_rest(account: JetStreamAccount, directory: Path) -> None:
    """Remove the remaining files of a deleted stream."""
    volume = account.jetstream.volume
    try:
        await volume.read(volume.disk.rmtree, directory)
    except OSError as error:
        _logger.error("JetStream: %s cannot be removed: %s", directory, error)


async def recover_stream(account: JetStreamAccount, name: str) -> None:
    """Serve the stream of that directory, if it holds one; otherwise it is offline."""
    lacking = await _try_to_recover(account, name)
    if lacking is not None:
        _take_offline(account, name, f"{lacking}; it is tried again")
        account.keep(_recover_later(account, name))


async def _recover_later(account: JetStreamAccount, name: str) -> None:
    """Retry until the stream is served, deleted, or cannot be served for another reason."""
    while name in account.offline:
        await asyncio.sleep(RETRY_S)
        async with account.changing(name):
            if name in account.offline and await _try_to_recover(account, name) is None:
                if name in account.streams:
                    _logger.info("JetStream: stream '%s > %s' is served", account.name, name)
                return


async def _try_to_recover(account: JetStreamAccount, name: str) -> Exception | None:
    """Serve the stream of that directory, if it holds one.

    Return the error if it may pass (no disk space, descriptor or memory), otherwise None.
    """
    try:
        await _recover(account, name)
    except (AssetDamaged, StoreError, OSError) as error:
        if is_transient(error):
            return error
        _take_offline(account, name, str(error))
    except ApiError as error:  # e.g. no limits apply to it
        _take_offline(account, name, error.description)
    except UnsupportedConsumers as error:
        account.offline_consumers[name] = error.reasons
        _take_offline(account, name, str(error))
    except Exception as error:
        _take_offline(account, name, f"it does not start: {error!r}", error)
    if name not in account.streams:
        await run_cooperatively(account.claims.claim(name, ()))
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
    await run_cooperatively(account.claims.claim(name, asset.config.subjects))
    await _recover_stream(account, asset)


def _settle(vault: Vault, directory: Path) -> StreamAsset | None:
    """Finish or undo what a crash left, and return the stream to serve; None if there is none.

    Blocks on the disk. Raises AssetDamaged, AssetUnknown, EncryptionError, OSError.
    """
    disk = vault.disk
    found = look_at(disk, directory)
    if found is DirectoryKind.STREAM:
        return read_asset(vault, directory, StreamAsset)
    if found is DirectoryKind.UNKNOWN:
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
    reserve(account.tiers.usage_of(config.num_replicas), config)
    try:
        account.offline.pop(config.name, None)
        account.streams[config.name] = stream
        await stream.begin()
    except BaseException:
        account.streams.pop(config.name, None)
        release(account.tiers.usage_of(config.num_replicas), config)
        stream.ingest.release_usage()
        await stream.close()
        raise
    _logger.debug(
        "JetStream: %s messages for stream '%s > %s'",
        f"{stream.store.state().msgs:,}",
        account.name,
        config.name,
    )
