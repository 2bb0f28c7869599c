"""JetStream of one server: its accounts, from start to stop.

    JetStream ── JetStreamAccount ── Stream ── Consumer
        │   └ meta layer, API
        └ volume, scheduler, usage of the whole server     server_resources.py

Promise
- `start` returns when everything that was stored is served again; clients are accepted after that.
- An asset that cannot be served is reported in one line and does not keep others from being served.
  Only errors that affect everything stop the start: a directory in use, a key that opens nothing.
- The usage of streams is counted again every second, because removals do not report it: a limit
  that was reached ends at most a second after there is room again. A storage limit that is not
  configured grows with the free space of the disk, which is checked every `ROOM_EVERY_S`.
- `stop` returns when everything acknowledged is on disk, and every file is closed.

Source: nats-server's `EnableJetStream`, `enableJetStreamAccounts` and `JetStreamConfig`.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from natsd.accounts import Account
from natsd.config.jetstream_options import JetStreamOptions
from natsd.config.resources import three_quarters
from natsd.core.network import Reactor
from natsd.jetstream.account import JetStreamAccount
from natsd.jetstream.api.router import Router
from natsd.jetstream.early_requests import EarlyRequests
from natsd.jetstream.gather_limited import gather_limited
from natsd.jetstream.meta import Change, Meta
from natsd.jetstream.recovery import check_keys, recover_account
from natsd.jetstream.resources import check_promised
from natsd.jetstream.server_resources import ServerResources
from natsd.jetstream.stream.files import AccountFiles
from natsd.jetstream.stream.state import Alarm
from natsd.jetstream.stream.stream import Stream
from natsd.jetstream.tiers import UNLIMITED, AccountTiers
from natsd.store.commit.volume import Volume
from natsd.store.crypto.vault import Vault
from natsd.store.disk.disk import Disk
from natsd.store.disk.real_disk import RealDisk

_logger = logging.getLogger(__name__)

CLOSED_AT_ONCE: Final = 16
"""Streams that are closed concurrently."""
COUNTED_EVERY_NS: Final = 1_000_000_000
ROOM_EVERY_S: Final = 10.0
GROWS_BY_MIN: Final = 1.01
"""Factor: the limit stays as it is if it would grow by less."""


class JetStream(ServerResources):
    """JetStream of one server, between `start` and `stop`; used on the server's event loop only.

    `limits` maps account names to tiers; an account with empty tiers is not served.
    """

    def __init__(
        self,
        options: JetStreamOptions,
        reactor: Reactor,
        loop: asyncio.AbstractEventLoop,
        *,
        server_name: str = "",
        server_id: str = "",
        limits: Mapping[str, AccountTiers] = MappingProxyType({}),
        clock: Callable[[], int] = time.time_ns,
        random_bytes: Callable[[int], bytes] = os.urandom,
        disk: Disk | None = None,
        has_default_room: bool = False,
        early: EarlyRequests | None = None,
    ) -> None:
        """Create JetStream without accounts; `start` opens the store.

        `has_default_room` says that `max_file_store` was not configured but derived from the free
        space. `clock` returns wall-clock nanoseconds. `early` holds the requests that the accounts
        received before.
        """
        super().__init__(
            options,
            reactor,
            loop,
            server_name=server_name,
            server_id=server_id,
            clock=clock,
            random_bytes=random_bytes,
        )
        self.limits = limits
        self._keys_are_right = False
        self.accounts: dict[str, JetStreamAccount] = {}
        self._counting = Alarm(self.scheduler, self._count_again)
        self.meta = Meta(self._apply)
        self.api = Router(self, self.accounts, early)
        self._disk = disk or RealDisk()
        self._has_default_room = has_default_room
        self._looking_for_room: asyncio.Task[None] | None = None

    async def start(self, accounts: Iterable[Account]) -> None:
        """Serve these accounts, with everything that is stored.

        Raises ApiError if the server has less than the accounts may use together; StoreError,
        OSError.
        """
        check_promised(
            self.usage, (each for tiers in self.limits.values() for each in tiers.values())
        )
        interval_s = self.options.sync_interval.total_seconds()
        self.volume = await asyncio.to_thread(
            Volume.open,
            self._disk,
            self.directory,
            self.random_bytes,
            loop=self.loop,
            sync_interval_s=interval_s,
            reactor=self.reactor,
        )
        self.vault = Vault(self._disk, self.directory, self.random_bytes, self.keys)
        for damage in self.volume.replayed.damage:
            _logger.error("JetStream: %s", damage)
        self._count_again(self.scheduler.now_ns())
        if self._has_default_room:
            self._looking_for_room = self.loop.create_task(self._look_for_room())
        try:
            accounts = list(accounts)
            files = [AccountFiles(self.directory / account.name) for account in accounts]
            await self._check_keys(files)
            for account in accounts:
                await self.serve(account)
        except BaseException:
            await self.stop()
            raise

    async def serve(self, account: Account) -> None:
        """Serve an account as its settings say. Raises EncryptionError, OSError."""
        if account.is_system:
            self.system_account = account
            self.api.refuse(account)
        elif tiers := self.limits.get(account.name, UNLIMITED):
            await self.enable(account, tiers)
        else:
            self.api.refuse(account)

    async def enable(self, account: Account, limits: AccountTiers = UNLIMITED) -> None:
        """Serve an account, and return when its streams are. Raises EncryptionError, OSError."""
        served = JetStreamAccount(self, account, limits)
        await self._check_keys([served.files])
        self.accounts[account.name] = served
        await recover_account(served)
        self.api.serve(served)
        await served.begin_sourcing()

    async def _check_keys(self, accounts: list[AccountFiles]) -> None:
        """Check the keys until they have opened one stream. Raises EncryptionError."""
        if not self._keys_are_right:
            self._keys_are_right = await self.volume.read(check_keys, self.vault, accounts)

    def grow(self, max_memory_store: int, max_file_store: int) -> None:
        """Raise the limits of all streams together, in memory and in files, to these bytes."""
        self.options = replace(
            self.options, max_memory_store=max_memory_store, max_file_store=max_file_store
        )
        self.usage.memory_limit, self.usage.file_limit = max_memory_store, max_file_store

    async def stop(self) -> None:
        """Stop answering requests, and close everything. Raises StoreError, OSError."""
        await self.api.close()
        if self._looking_for_room is not None:
            self._looking_for_room.cancel()
            await asyncio.gather(self._looking_for_room, return_exceptions=True)
        for account in self.accounts.values():
            await account.end_transfers()
        streams = [s for account in self.accounts.values() for s in account.streams.values()]
        try:
            await gather_limited(Stream.close, streams, most=CLOSED_AT_ONCE)
        finally:
            self.scheduler.close()
            await self.volume.close()

    def count_usage(self) -> None:
        """Bring `usage` up to date for the server and its accounts."""
        for account in self.accounts.values():
            account.count_usage()

    def _count_again(self, now_ns: int) -> None:
        self.count_usage()
        self._counting.set(now_ns + COUNTED_EVERY_NS)

    async def _look_for_room(self) -> None:
        """Raise the storage limit if there is more free space than when it was chosen."""
        while True:
            await asyncio.sleep(ROOM_EVERY_S)
            with contextlib.suppress(OSError):
                free = await self.volume.read(lambda: self.volume.free_bytes)
                room = three_quarters(free, self.usage.file_used)
                if room > self.usage.file_limit * GROWS_BY_MIN:
                    _logger.info("JetStream: max_file_store is %s bytes now", f"{room:,}")
                    self.usage.file_limit = room

    async def _apply(self, change: Change) -> None:
        await self.accounts[change.account].apply(change)
