"""JetStream of one account: its streams, and every change to them.

Promise
- Each stream undergoes one change at a time; different streams change concurrently. What two
  changes could both take is claimed before another change can take it: room is claimed in the
  same step that checks it, subjects are claimed under a lock.
- A change is check → propose → apply (meta.py): a refused change has changed nothing, and an
  answered change is on disk.
- Limits may shrink below what is used: streams and messages stay, and what would add to them is
  refused until there is room.
- A stream that cannot be served (damaged, of a later version, unreadable) is `offline`: its files
  stay as they are, its name stays taken, and requests for it are answered with the reason.

Source: nats-server's `Account.EnableJetStream`, `jsAccountInfoRequest` and the stream functions of
its jetstream_api.go.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from natsd.accounts import Account
from natsd.core.steps import run_cooperatively
from natsd.jetstream.advisories import stream_created, stream_deleted, stream_updated
from natsd.jetstream.api.counters import ApiCounters
from natsd.jetstream.consumer.consumer import Consumer
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.gather_limited import gather_limited
from natsd.jetstream.keyed_lock import KeyedLock
from natsd.jetstream.meta import (
    Change,
    CreateStream,
    DeleteStream,
    RestoreStream,
    UpdateStream,
)
from natsd.jetstream.models.account import AccountInfo, ApiStats, Tier
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.names import API_LEVEL
from natsd.jetstream.resources import PromisedBytes, check_room, release, reserve
from natsd.jetstream.server_resources import ServerResources
from natsd.jetstream.stream.config import ConfigRules, check_config, check_create, check_update
from natsd.jetstream.stream.files import StreamAsset, check_free, install_stream
from natsd.jetstream.stream.publishing import Usage
from natsd.jetstream.stream.stream import Stream, StreamAccount
from natsd.jetstream.tiers import UNLIMITED, AccountTier, AccountTiers
from natsd.store.disk.disk import is_out_of_space
from natsd.store.errors import StoreError, StoreFull

_logger = logging.getLogger(__name__)

CLOSED_AT_ONCE: Final = 16
"""Streams that are closed concurrently."""


class JetStreamAccount(StreamAccount):
    """JetStream of one account; made by JetStream (jetstream.py)."""

    def __init__(
        self,
        jetstream: ServerResources,
        account: Account,
        limits: AccountTiers = UNLIMITED,
    ) -> None:
        """Create the account without streams; `limits` maps tier names to limits (see tiers.py)."""
        super().__init__(jetstream, account, limits)
        self.offline: dict[str, str] = {}  # stream ─▶ reason
        self.offline_consumers: dict[str, dict[str, str]] = {}  # stream ─▶ consumer ─▶ reason
        self.api = ApiCounters()
        self._claiming = asyncio.Lock()  # held while subjects are checked and claimed
        self.changing = KeyedLock()
        self.transfers: set[asyncio.Task[None]] = set()  # running snapshots and restores
        self._returning: set[asyncio.Task[None]] = set()  # retries of offline streams
        self._claimed_configs: dict[str, StreamConfig] = {}  # of creates and updates under way
        self.promised = PromisedBytes.of(limits.values())
        self.is_closed = False  # JetStream was disabled for the account: requests are refused

    async def begin_sourcing(self) -> None:
        """Start all mirrors and sources: every stream is recovered and requests are answered."""
        self.fills_streams = True
        for stream in list(self.streams.values()):
            if not stream.ingest.is_paused:  # a follower begins when it leads
                await run_cooperatively(stream.sourcing.begin())

    def change_limits(self, limits: AccountTiers) -> None:
        """Apply other limits at once: what exists stays, what would need more is refused."""
        configs = {name: stream.config for name, stream in self.streams.items()}
        configs |= self._claimed_configs
        for config in configs.values():
            release(self.tiers.usage_of(config.num_replicas), config)
        self.tiers.change(limits)
        self.promised = PromisedBytes.of(limits.values())
        for config in configs.values():
            reserve(self.tiers.usage_of(config.num_replicas), config)
        for stream in self.streams.values():
            stream.count_in(stream.usage)

    async def close(self) -> None:
        """End everything of the account and close its streams; their files stay.

        The account's requests must be refused, and none may be running. Every acknowledged message
        of a file stream is on disk on return; memory streams are gone.
        """
        self.is_closed = True
        await self.end_transfers()
        streams = list(self.streams.values())
        await gather_limited(_close, streams, most=CLOSED_AT_ONCE)
        for stream in streams:
            release(self.tiers.usage_of(stream.config.num_replicas), stream.config)
            stream.count_in(Usage())
        self.streams.clear()

    # Queries

    def stream(self, name: str) -> Stream:
        """Return the stream of that name.

        Raises ApiError 10059 if it does not exist, 10194 if it is offline.
        """
        if name in self.offline:
            raise api_error(ErrorId.JSStreamOfflineReasonErrF, err=self.offline[name])
        stream = self.streams.get(name)
        if stream is None:
            raise api_error(ErrorId.JSStreamNotFoundErr)
        return stream

    def consumer(self, stream: str, name: str) -> Consumer:
        """Return the consumer of that name on that stream.

        Raises ApiError 10059, 10014 or 10194; 10195 if the consumer was written by a later version,
        which also makes its stream offline.
        """
        reason = self.offline_consumers.get(stream, {}).get(name)
        if reason is not None:
            raise api_error(ErrorId.JSConsumerOfflineReasonErrF, err=reason)
        return self.stream(stream).consumer(name)

    def count_usage(self) -> None:
        """Bring `usage` up to date: removals of messages do not report to it."""
        for stream in self.streams.values():
            stream.ingest.count_usage()

    def keep(self, work: Coroutine[object, object, None]) -> None:
        """Run `work` in the background while the account is served.

        It is used to bring a stream back that was offline.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def end_transfers(self) -> None:
        """Cancel all snapshots, restores and retries of offline streams; wait until they end."""
        tasks = [*self.transfers, *self._returning]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def info(self) -> AccountInfo:
        """Return usage, limits and request counts: the answer to `$JS.API.INFO`."""
        self.count_usage()
        tiers = self.tiers
        return AccountInfo(
            memory=tiers.memory_used,
            storage=tiers.file_used,
            reserved_memory=tiers.memory_reserved,
            reserved_storage=tiers.file_reserved,
            streams=len(self.streams),
            consumers=sum(len(stream.consumers) for stream in self.streams.values()),
            limits=tiers.limits,
            tiers={} if tiers.is_flat else {tier.name: self._tier_info(tier) for tier in tiers},
            domain=self.jetstream.options.domain,
            api=ApiStats(level=API_LEVEL, total=self.api.total, errors=self.api.errors),
        )

    def _tier_info(self, tier: AccountTier) -> Tier:
        streams = [s for s in self.streams.values() if tier.counts(s.config.num_replicas)]
        return Tier(
            memory=max(tier.usage.memory_used, 0),
            storage=max(tier.usage.file_used, 0),
            reserved_memory=tier.usage.memory_reserved,
            reserved_storage=tier.usage.file_reserved,
            streams=len(streams),
            consumers=sum(len(stream.consumers) for stream in streams),
            limits=tier.limits,
        )

    # Changes, first half: the checks that can refuse a change

    async def create_stream(
        self, config: StreamConfig, *, pedantic: bool = False
    ) -> tuple[Stream, bool]:
        """Create the stream and return it, and whether it is new.

        False means that the stream exists already with this configuration. Raises ApiError; nothing
        has changed in that case.
        """
        async with self.changing(config.name):
            existing = self.streams.get(config.name)
            self._check_limits(config, existing)
            config = await run_cooperatively(
                check_create(config, self._rules(config), pedantic=pedantic)
            )
            if existing is not None:
                if existing.config == config:
                    return existing, False
                raise api_error(ErrorId.JSStreamNameExistErr)
            if config.name in self.offline:
                raise api_error(ErrorId.JSStreamNameExistErr)
            async with self._claimed(config):
                created_ns = self.jetstream.scheduler.now_ns()
                change = CreateStream(self.name, config, created_ns)
                await self._propose(change, ErrorId.JSStreamCreateErrF)
            stream_created(self, config.name)
            return self.streams[config.name], True

    def _rules(self, config: StreamConfig) -> ConfigRules:
        """Return the rules for a stream's configuration."""
        window = self.jetstream.options.limits.duplicate_window

        def find(name: str) -> StreamConfig | None:
            stream = self.streams.get(name)
            return None if stream is None else stream.config

        return ConfigRules(
            self.tiers.limits_of(config.num_replicas),
            window // timedelta(microseconds=1) * 1_000,
            find,
        )

    async def check_config(self, config: StreamConfig, *, pedantic: bool = False) -> None:
        """Check the configuration; raises the ApiError of the first rule that it breaks."""
        await run_cooperatively(check_config(config, self._rules(config), pedantic=pedantic))

    async def check_restore(self, config: StreamConfig) -> StreamConfig:
        """Return the configuration that a restored stream would get. Raises ApiError."""
        config = await run_cooperatively(check_create(config, self._rules(config)))
        self._check_limits(config, None)
        if config.name in self.streams or config.name in self.offline:
            raise api_error(ErrorId.JSStreamNameExistRestoreFailedErr)
        return config

    async def restore_stream(self, asset: StreamAsset, built: Path) -> Stream:
        """Make a stream of the files in the directory `built` and return it.

        The files must be complete and on disk; the directory is gone on return. Raises ApiError;
        nothing has changed in that case.
        """
        config = asset.config
        async with self.changing(config.name):
            await self.check_restore(config)
            async with self._claimed(config):
                change = RestoreStream(self.name, config, asset.created, built)
                await self._propose(change, ErrorId.JSStreamRestoreErrF)
            stream_created(self, config.name)
            return self.streams[config.name]

    async def update_stream(self, config: StreamConfig, *, pedantic: bool = False) -> Stream:
        """Reconfigure the stream and return it. Raises ApiError.

        The new configuration is on disk and in force on return.
        """
        async with self.changing(config.name):
            stream = self.stream(config.name)
            checks = check_update(
                stream.config,
                config,
                self._rules(config),
                lambda: {name: each.config for name, each in stream.consumers.items()},
                pedantic=pedantic,
            )
            config = await run_cooperatively(checks)
            async with self._claimed(config, stream.config):
                change = UpdateStream(self.name, config)
                await self._propose(change, ErrorId.JSStreamUpdateErrF)
            stream_updated(self, config.name)
            return stream

    async def delete_stream(self, name: str) -> None:
        """Delete the stream with its messages and consumers, on disk as well. Raises ApiError."""
        async with self.changing(name):
            if name not in self.offline:
                self.stream(name)
            await self._propose(DeleteStream(self.name, name), ErrorId.JSStreamDeleteErrF)
            stream_deleted(self, name)

    # Changes, second half: the decided change is carried out

    async def apply(self, change: Change) -> None:
        """Carry out a change (meta.py), one at a time per stream. Raises StoreError, OSError."""
        match change:
            case CreateStream():
                await self._create(change)
            case RestoreStream():
                await self._install(change)
            case UpdateStream():
                await self.streams[change.config.name].reconfigure(change.config)
            case DeleteStream():
                await self._remove(change.name)

    async def _create(self, change: CreateStream) -> None:
        """Create the stream; a stream that cannot begin is removed again."""
        name = change.config.name
        stream = await Stream.create(self, change.config, change.created_ns)
        self.streams[name] = stream
        try:
            await stream.begin()
        except BaseException:
            del self.streams[name]
            with contextlib.suppress(StoreError, OSError):  # the first error is raised
                await stream.abandon()
                if stream.is_filed:
                    await self.jetstream.volume.remove_tree(self.files.stream(name))
            raise

    async def _install(self, change: RestoreStream) -> None:
        volume, directory = self.jetstream.volume, self.files.stream(change.config.name)
        await volume.read(check_free, volume.disk, directory)
        await volume.remove_tree(directory)
        stream: Stream | None = None
        try:
            await volume.read(install_stream, volume.disk, change.built, directory)
            stream = await Stream.open(self, change.config, change.created_ns, is_restored=True)
            await stream.keep_to_limits()
        except BaseException:
            with contextlib.suppress(StoreError, OSError):  # the first error is raised
                if stream is not None:
                    await stream.abandon()
                await volume.remove_tree(directory)
            raise
        self.streams[change.config.name] = stream
        await stream.begin()

    async def _remove(self, name: str) -> None:
        """Remove the stream by renaming its directory; the rename makes the removal final.

        If removing the files fails after that, the next start removes them. Raises StoreError,
        OSError if the rename fails: the stream then stays as it was.
        """
        volume, directory = self.jetstream.volume, self.files.stream(name)
        stream = self.streams.get(name)
        if stream is None:
            removed = await volume.rename_removed(directory)
            del self.offline[name]
            self.offline_consumers.pop(name, None)
            await run_cooperatively(self.claims.claim(name, ()))
            await volume.finish_removal(directory, removed)
            return
        removed_files = await stream.rename_removed()
        del self.streams[name]
        release(self.tiers.usage_of(stream.config.num_replicas), stream.config)
        await run_cooperatively(self.claims.claim(name, ()))
        await stream.abandon()
        if removed_files is not None:
            await volume.finish_removal(directory, removed_files)

    async def _propose(self, change: Change, failure: ErrorId) -> None:
        """Carry out the change; errors of the disk become an ApiError."""
        try:
            await self.jetstream.meta.propose(change)
        except (StoreError, OSError) as error:
            if isinstance(error, StoreFull) or is_out_of_space(error):
                raise api_error(ErrorId.JSStorageResourcesExceededErr) from error
            _logger.error("JetStream: %s: %s", change, error)
            raise api_error(failure, err=error) from error

    def _check_limits(self, config: StreamConfig, existing: Stream | None) -> None:
        """Check the limits of the account before anything else, as nats-server does."""
        tier = self.tiers.of(config.num_replicas)
        if tier.limits.max_streams > 0:
            names = [s.name for s in self.streams.values() if tier.counts(s.config.num_replicas)]
            others = len(names) + len(self.offline) - (config.name in names)
            if tier.limits.max_streams <= others:
                raise api_error(ErrorId.JSMaximumStreamsLimitErr)
        if existing is None:
            check_room(tier, config)

    @asynccontextmanager
    async def _claimed(
        self, config: StreamConfig, before: StreamConfig | None = None
    ) -> AsyncIterator[None]:
        """Hold room and subjects for the stream; restore the previous claims on failure."""
        check_room(self.tiers.of(config.num_replicas), config, before)
        held = before.subjects if before is not None else []
        reserve(self.tiers.usage_of(config.num_replicas), config, before)
        self._claimed_configs[config.name] = config
        try:
            await self._claim_subjects(config, held)
            yield
        except BaseException:
            usage = self.tiers.usage_of(config.num_replicas)  # the limits may have changed
            release(usage, config)
            if before is not None:
                reserve(usage, before)
            await run_cooperatively(self.claims.claim(config.name, held))
            raise
        finally:
            del self._claimed_configs[config.name]
        await run_cooperatively(self.claims.claim(config.name, config.subjects))

    async def _claim_subjects(self, config: StreamConfig, held: list[str]) -> None:
        """Claim the subjects of the configuration in addition to `held`, one claim at a time."""
        async with self._claiming:
            if await run_cooperatively(self.claims.collide(config.subjects, but=config.name)):
                raise api_error(ErrorId.JSStreamSubjectOverlapErr)
            await run_cooperatively(self.claims.claim(config.name, [*held, *config.subjects]))


async def _close(stream: Stream) -> None:
    """Close a stream of a server that goes on; errors are logged."""
    try:
        await stream.close()
    except (StoreError, OSError) as error:
        _logger.error(
            "JetStream: stream '%s > %s' did not close in order: %s",
            stream.account.name,
            stream.name,
            error,
        )
