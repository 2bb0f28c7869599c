"""Opening a stream's store, in memory or in files with the server's settings.

    <account>/streams/<stream>/msgs/    key, blocks, index (store/file_store.py)
    <account>/streams/<stream>/delayed/ the same, where schedules are allowed

Source: docs/store.md.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from natsd.jetstream.models.stream import PersistMode, Storage, StreamConfig
from natsd.jetstream.stream.files import DELAYED, MESSAGES
from natsd.jetstream.stream.limits import is_compressed, store_limits, without_limits
from natsd.store.commit.committer import Sync
from natsd.store.file_store import FileOptions, FileStore, block_bytes_for
from natsd.store.log_store import LogStore
from natsd.store.maintenance.check import context_of
from natsd.store.mem_store import MemStore
from natsd.store.store import Limits

if TYPE_CHECKING:
    from natsd.jetstream.account_resources import AccountResources


async def open_store(
    account: "AccountResources", config: StreamConfig, *, is_limited: bool = True
) -> LogStore:
    """Return the stream's store, new or as it was left. Raises StoreError, OSError.

    Unless it `is_limited`, it enforces no limit by itself.
    """
    return await _open(account, config, MESSAGES, store_limits(config), is_limited=is_limited)


async def open_delayed_store(account: "AccountResources", config: StreamConfig) -> LogStore:
    """Return the store of delayed messages (schedules/delays.py). Raises StoreError, OSError."""
    return await _open(account, config, DELAYED, Limits())


async def _open(
    account: "AccountResources",
    config: StreamConfig,
    name: str,
    limits: Limits,
    *,
    is_limited: bool = True,
) -> LogStore:
    enforced = limits if is_limited else without_limits(limits)
    if config.storage is Storage.MEMORY:
        return MemStore(enforced)
    jetstream = account.jetstream
    options = store_options(account, config, name)
    options = replace(options, block_bytes_max=block_bytes_for(limits, options))
    directory = account.files.stream(config.name) / name
    return await FileStore.open(
        jetstream.volume, directory, enforced, jetstream.random_bytes, options
    )


def store_options(
    account: "AccountResources", config: StreamConfig, name: str = MESSAGES
) -> FileOptions:
    """Return the options for the files of one of the stream's stores."""
    jetstream = account.jetstream
    directory = account.files.stream(config.name) / name
    return FileOptions(
        compress=is_compressed(config),
        keys=jetstream.keys,
        context=context_of(jetstream.directory, directory),
        sync=Sync.LATER if config.persist_mode is PersistMode.ASYNC else Sync.AS_SET,
        is_mirror=config.mirror is not None and name == MESSAGES,
        buffered_bytes_max=jetstream.options.max_buffered_size,
        buffered_msgs_max=jetstream.options.max_buffered_msgs,
    )
