"""What JetStream of one server gives to all its accounts, streams and consumers.

    ServerResources   settings, clock, disk, events, limits of the whole server     this module
      └ JetStream     the accounts, from start to stop                              jetstream.py

Promise
- Nothing here knows an account, a stream or a consumer: all of them may use it.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from natsd.accounts import Account
from natsd.config.jetstream_options import JetStreamOptions
from natsd.core.network import Reactor, Session
from natsd.jetstream.api.counters import ApiCounters
from natsd.jetstream.api.origin import client_info
from natsd.jetstream.commands.committer import CommandCommitter, CommittedStream
from natsd.jetstream.events import Events
from natsd.jetstream.keyed_lock import KeyedLock
from natsd.jetstream.meta import Meta
from natsd.jetstream.random_pool import RandomPool
from natsd.jetstream.snapshot.transfer_memory import TransferMemory
from natsd.jetstream.stream.batch_limits import atomic_batches, fast_batches
from natsd.jetstream.stream.publishing import Usage
from natsd.jetstream.stream.state import Scheduler
from natsd.store.commit.volume import Volume
from natsd.store.crypto.keys import Cipher, OperatorKeys
from natsd.store.crypto.vault import Vault

_CIPHERS: Final = {"chachapoly": Cipher.CHACHA20_POLY1305, "aes": Cipher.AES_256_GCM}


class ServerResources:
    """What JetStream of one server gives to its accounts; used on the server's event loop only.

    `volume` and `vault` are there once the store is open.
    """

    volume: Volume
    vault: Vault
    meta: Meta

    def __init__(
        self,
        options: JetStreamOptions,
        reactor: Reactor,
        loop: asyncio.AbstractEventLoop,
        *,
        server_name: str = "",
        server_id: str = "",
        clock: Callable[[], int] = time.time_ns,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Open nothing; `clock` returns wall-clock nanoseconds."""
        self.options = options
        self.server_name = server_name
        self.server_id = server_id
        self._wall_minus_monotonic_ns = clock() - time.monotonic_ns()
        self.reactor = reactor
        self.loop = loop
        self.random_bytes = RandomPool(random_bytes)
        self.directory: Path = options.directory.absolute()
        self.keys = operator_keys(options)
        self.scheduler = Scheduler(reactor, None if clock is time.time_ns else clock)
        self.events = Events(
            domain=options.domain,
            clock=self.scheduler.now_ns,
            random_bytes=self.random_bytes,
        )
        self.usage = Usage(memory_limit=options.max_memory_store, file_limit=options.max_file_store)
        self.atomic_batches = atomic_batches(options.limits.batch)
        self.fast_batches = fast_batches(options.limits.batch)
        self.system_account: Account | None = None
        self.api_counters = ApiCounters()
        self.transfer_memory = TransferMemory()
        self.configuring = KeyedLock()  # accounts that are enabled, changed or disabled
        self.asking_origins = asyncio.Lock()  # each link makes its request in its own turn
        # Returns the committer of a new stream; None: one replica, nobody has to agree.
        self.committer_of: Callable[[CommittedStream], CommandCommitter] | None = None

    def client_info(
        self, origin: Session | None, account: str, headers: bytes
    ) -> Mapping[str, object]:
        """Return the requesting client as advisories describe it; None: the server itself asks.

        The request acts in the account of that name; `headers` are its headers.
        """
        started_ns = self._wall_minus_monotonic_ns
        return client_info(origin, account, self.server_name, started_ns, headers)


def operator_keys(options: JetStreamOptions) -> OperatorKeys:
    """Return the encryption keys of the settings in the form that the store takes."""
    return OperatorKeys(
        options.key.encode() or None, options.prev_key.encode() or None, _CIPHERS[options.cipher]
    )
