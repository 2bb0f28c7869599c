"""JetStream of one server: its accounts, from start to stop.

    JetStream ── JetStreamAccount ── Stream ── Consumer
        │   └ meta layer, API, accounts at run time        served_accounts.py
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
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from natsd.accounts import Account
from natsd.config.jetstream_options import JetStreamOptions
from natsd.config.resources import three_quarters
from natsd.core.network import Reactor
from natsd.jetstream.account import CLOSED_AT_ONCE
from natsd.jetstream.early_requests import EarlyRequests
from natsd.jetstream.gather_limited import gather_limited
from natsd.jetstream.recovery import accounts_on_disk, recover_accounts
from natsd.jetstream.resources import PromisedBytes, check_promised
from natsd.jetstream.scrubber import Scrubber
from natsd.jetstream.served_accounts import ServedAccounts
from natsd.jetstream.stream.state import Alarm
from natsd.jetstream.stream.stream import Stream
from natsd.jetstream.tiers import UNLIMITED, AccountTiers
from natsd.store.commit.volume import Volume
from natsd.store.crypto.vault import Vault
from natsd.store.disk.disk import Disk
from natsd.store.disk.real_disk import RealDisk

if TYPE_CHECKING:
    from natsd.jetstream.meta_group.cluster import ClusterSettings

_logger = logging.getLogger(__name__)

COUNTED_EVERY_NS: Final = 1_000_000_000
ROOM_EVERY_S: Final = 10.0
GROWS_BY_MIN: Final = 1.01
"""Factor: the limit stays as it is if it would grow by less."""


class JetStream(ServedAccounts):
    """JetStream of one server, between `start` and `stop`; used on the server's event loop only.

    `unserved` maps the accounts that have streams on disk, but were not served at the start, to
    the number of these streams.
    """

    def __init__(
        self,
        options: JetStreamOptions,
        reactor: Reactor,
        loop: asyncio.AbstractEventLoop,
        *,
        server_name: str = "",
        server_id: str = "",
        limits_of: Callable[[Account], AccountTiers | None] = lambda _account: UNLIMITED,
        clock: Callable[[], int] = time.time_ns,
        random_bytes: Callable[[int], bytes] = os.urandom,
        disk: Disk | None = None,
        has_default_room: bool = False,
        early: EarlyRequests | None = None,
        cluster: "ClusterSettings | None" = None,
    ) -> None:
        """Create JetStream without accounts; `start` opens the store.

        `limits_of` returns the limits that an account has when it is served for the first time;
        empty: it has no JetStream; None: nor are its requests refused, since another account
        answers them. `has_default_room` says that `max_file_store` was not configured but derived
        from the free space. `clock` returns wall-clock nanoseconds. `early` holds the requests that
        the accounts received before. `cluster`: this server is part of one.
        """
        super().__init__(
            options,
            reactor,
            loop,
            server_name=server_name,
            server_id=server_id,
            clock=clock,
            random_bytes=random_bytes,
            early=early,
        )
        self._limits_of = limits_of
        self._cluster_settings = cluster
        self.unserved: dict[str, int] = {}
        self._counting = Alarm(self.scheduler, self._count_again)
        self._disk = disk or RealDisk()
        self._has_default_room = has_default_room
        self._looking_for_room: asyncio.Task[None] | None = None
        self.scrubber = Scrubber(self, self.accounts)

    async def start(self, accounts: Iterable[Account]) -> None:
        """Serve these accounts, with everything that is stored.

        Raises ApiError if the server has less than the accounts may use together; StoreError,
        OSError, AccountNameError.
        """
        accounts = list(accounts)
        check_promised(
            self.usage,
            PromisedBytes.of(
                limits for each in accounts for limits in (self._limits_of(each) or {}).values()
            ),
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
            await self._serve_first(accounts)
        except BaseException:
            await self.stop()
            raise

    async def _serve_first(self, accounts: list[Account]) -> None:
        """Recover the accounts together, since a thousand may have a stream or none each."""
        on_disk = await self.volume.read(accounts_on_disk, self.volume.disk, self.directory)
        served = []
        for account in accounts:
            if account.is_system:
                self.system_account = account
            elif limits := self._limits_of(account):
                served.append(self.make_account(account, limits))
        stored = [each for each in served if each.name in on_disk]
        await self.check_keys([each.files for each in stored])
        for each in served:
            self.accounts[each.name] = each
        if self._cluster_settings is not None:
            await self._open_cluster(self._cluster_settings)
        await recover_accounts(stored, are_assigned=self.cluster is not None)
        for each in served:
            self.api.serve(each)
        for account in accounts:
            if account.is_system or self._limits_of(account) == {}:
                self.api.refuse(account)
        for each in served:
            await each.begin_sourcing()
        if self.cluster is not None:
            self.cluster.start()
        self.scrubber.configure(self.options)
        self.unserved = {
            name: count for name, count in on_disk.items() if count and name not in self.accounts
        }

    async def _open_cluster(self, settings: "ClusterSettings") -> None:
        from natsd.jetstream.meta_group.cluster import JetStreamCluster  # few servers need it

        cluster = JetStreamCluster(self, self.accounts, settings)
        await cluster.open()
        self.cluster = self.api.cluster = cluster

    def grow(self, max_memory_store: int, max_file_store: int) -> None:
        """Raise the limits of all streams together, in memory and in files, to these bytes."""
        self.options = replace(
            self.options, max_memory_store=max_memory_store, max_file_store=max_file_store
        )
        self.usage.memory_limit, self.usage.file_limit = max_memory_store, max_file_store

    def scrub_as(self, options: JetStreamOptions) -> None:
        """Scrub as often and as fast as these options say."""
        self.options = replace(
            self.options, scrub_interval=options.scrub_interval, scrub_speed=options.scrub_speed
        )
        self.scrubber.configure(self.options)

    async def stop(self) -> None:
        """Stop answering requests, and close everything. Raises StoreError, OSError."""
        await self.api.close()
        await self.scrubber.close()
        if self._looking_for_room is not None:
            self._looking_for_room.cancel()
            await asyncio.gather(self._looking_for_room, return_exceptions=True)
        if self.cluster is not None:
            await self.cluster.leave()
        for account in self.accounts.values():
            await account.end_transfers()
        if self.cluster is not None:
            await self.cluster.close()
        streams = [s for account in self.accounts.values() for s in account.streams.values()]
        try:
            await gather_limited(Stream.close, streams, most=CLOSED_AT_ONCE)
        finally:
            self.scheduler.close()
            if self.cluster is not None:
                self.cluster.close_logs()
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
