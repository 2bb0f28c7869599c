"""How a stream's store is opened: in memory, or in files with the server's settings.

    <account>/streams/<stream>/msgs/    key, blocks, index (store/file_store.py)

Source: nats-server 2.14 reference 2.8, 11.1.
"""

from typing import TYPE_CHECKING

from natsd.jetstream.models.stream import PersistMode, Storage, StreamConfig
from natsd.jetstream.stream.files import MESSAGES
from natsd.jetstream.stream.limits import is_compressed, store_limits
from natsd.store.check import context_of
from natsd.store.committer import Sync
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.log_store import LogStore
from natsd.store.mem_store import MemStore

if TYPE_CHECKING:
    from natsd.jetstream.account import JetStreamAccount


async def open_store(account: "JetStreamAccount", config: StreamConfig) -> LogStore:
    """The stream's store, new or as it was left. Raises StoreError, OSError."""
    limits = store_limits(config)
    if config.storage is Storage.MEMORY:
        return MemStore(limits)
    jetstream = account.jetstream
    directory = account.files.stream(config.name) / MESSAGES
    options = FileOptions(
        compress=is_compressed(config),
        keys=jetstream.keys,
        context=context_of(jetstream.directory, directory),
        sync=Sync.LATER if config.persist_mode is PersistMode.ASYNC else Sync.AS_SET,
        buffered_bytes_max=jetstream.options.max_buffered_size,
        buffered_msgs_max=jetstream.options.max_buffered_msgs,
    )
    return await FileStore.open(
        jetstream.volume, directory, limits, jetstream.random_bytes, options
    )
