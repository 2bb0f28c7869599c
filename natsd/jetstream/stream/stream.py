"""A stream: its messages, its publish path, and its consumers.

    subjects ──▶ ingest ──▶ store ──▶ readers ──▶ consumers
                                        └────▶ direct get, MSG.GET, info

Promise
- Nothing is received before `begin`, and nothing after `close` or `abandon` has begun.
- `config` is the configuration on disk; it changes as a whole, in `reconfigure`.
- Only durable messages are shown: info, messages and counts end at `readers.visible`.
- Replies to purges, deletions and changes wait until these are on disk.

Source: nats-server's `stream`; docs/store.md.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final, Self

from natsd.accounts import Account
from natsd.core.routing import InvalidSubject, collide, is_subset
from natsd.core.steps import Breaks, Steps, is_each, run_cooperatively
from natsd.jetstream.account_resources import AccountResources
from natsd.jetstream.advisories import server_out_of_storage
from natsd.jetstream.asset_file import write_asset
from natsd.jetstream.commands.commands import Command, ReconfigureStream
from natsd.jetstream.commands.committer import NotCommitted
from natsd.jetstream.consumer import lifecycle
from natsd.jetstream.consumer.config import filters_of
from natsd.jetstream.consumer.consumer import Consumer
from natsd.jetstream.consumer.offline import OfflineConsumers
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.keyed_lock import KeyedLock
from natsd.jetstream.listening import Listening
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.go_json import encode
from natsd.jetstream.models.requests import StreamMsgGetRequest
from natsd.jetstream.models.stream import (
    Retention,
    ReturnedMessage,
    Storage,
    StreamConfig,
    StreamInfo,
)
from natsd.jetstream.resources import reserve_anew
from natsd.jetstream.schedules.scheduled_messages import ScheduledMessages
from natsd.jetstream.server_resources import ServerResources
from natsd.jetstream.snapshot.contents import ConsumerImage
from natsd.jetstream.snapshot.replicating import propose_restored
from natsd.jetstream.sourcing.committed_positions import CommittedPositions
from natsd.jetstream.sourcing.positions import Positions
from natsd.jetstream.sourcing.sourcing import Sourcing
from natsd.jetstream.stream.agreement import Agreement
from natsd.jetstream.stream.batches import take_batches
from natsd.jetstream.stream.batching import trace_publish
from natsd.jetstream.stream.committed import CommittedState
from natsd.jetstream.stream.direct_get import DirectGets
from natsd.jetstream.stream.expiry import Expiry
from natsd.jetstream.stream.files import StreamAsset, create_stream, has_remains, install_stream
from natsd.jetstream.stream.info import stream_info, subject_counts
from natsd.jetstream.stream.known_ids import KnownIds
from natsd.jetstream.stream.limits import ingest_settings, is_compressed, store_limits
from natsd.jetstream.stream.markers import replace_expired
from natsd.jetstream.stream.own_consumers import OwnConsumers
from natsd.jetstream.stream.proposing import begin_proposing, end_proposing
from natsd.jetstream.stream.publishing import Ingest, Usage
from natsd.jetstream.stream.reading import find_message, names_one_message
from natsd.jetstream.stream.settings import IngestSettings
from natsd.jetstream.stream.staleness import Staleness
from natsd.jetstream.stream.state import StreamReaders
from natsd.jetstream.stream.storage import open_store
from natsd.jetstream.tiers import UNLIMITED, AccountTiers
from natsd.store.errors import MessageNotFound, StoreEOF, StoreError, StoreFull
from natsd.store.file_store import FileStore
from natsd.store.log_store import LogStore
from natsd.store.recovery.found_damage import FoundDamage

_logger = logging.getLogger(__name__)

TURNS_TO_TELL: Final = 2
"""Turns of the event loop from a commit until its acknowledgements are sent."""
EVERYTHING: Final = ">"
_SID: Final = b"0"


class StreamAccount(AccountResources):
    """An account as its streams see it: what it gives to them, and the streams beside them."""

    def __init__(
        self, jetstream: ServerResources, account: Account, limits: AccountTiers = UNLIMITED
    ) -> None:
        """Create the account without streams."""
        super().__init__(jetstream, account, limits)
        self.streams: dict[str, Stream] = {}
        self.half_made: set[str] = set()  # creates that failed and left files that do not count
        self.fills_streams = False  # mirrors and sources have been started

    def streams_with(self, subject: str) -> "list[Stream]":
        """Return the streams with a subject that overlaps `subject`, sorted by name.

        `subject` may contain wildcards.
        """
        names = sorted(self.claims.owners(subject))
        return [self.streams[name] for name in names if name in self.streams]


class Stream:
    """A stream, made by its account with an open store; `begin` makes it receive messages."""

    def __init__(
        self, account: StreamAccount, config: StreamConfig, created_ns: int, store: LogStore
    ) -> None:
        jetstream = account.jetstream
        self.account = account
        self.jetstream = jetstream
        self.config = config
        self.created_ns = created_ns
        self.store = store
        self.consumers: dict[str, Consumer] = {}
        self.readers: StreamReaders = StreamReaders(
            config.name, store, account.publisher, jetstream.scheduler
        )
        self.offline_consumers = OfflineConsumers(self.readers)
        self.readers.set_retention(config.retention.value)
        settings = ingest_settings(config, jetstream.options, account.claims)
        self.is_read_replica = False  # it takes no part in the quorum of its stream
        self.ingest: Ingest = Ingest(self.readers, settings, self.usage)
        self.known_ids = KnownIds(self)
        self._expiry = Expiry(jetstream.scheduler, store, config.name)
        self.ingest.expiring = self._expiry.note
        self.ingest.failing = self._commit_failed
        self.on_rolled_back: Callable[[StoreError], object] | None = None
        """Called with the reason when changes of the messages were undone."""
        self.ingest.trace_publish = trace_publish
        take_batches(self)
        self._direct = DirectGets(self)
        self._answers_gets = False  # the stream leads, or follows and has what is committed
        self._staleness: Staleness | None = None  # of a read replica that answers
        self.committed_positions: CommittedPositions | None = None  # None: one replica
        self.sourcing = Sourcing(self)
        self.scheduled: ScheduledMessages | None = None
        self._listening = Listening(account.account.sublist, _SID, self.ingest)
        self.own_consumers = OwnConsumers(self.consumers)
        self._changing = KeyedLock()
        self.transfers: set[asyncio.Task[None]] = set()  # snapshots under way
        self.committed: CommittedState | None = None  # what the replicas have; None: one replica
        self.agreement: Agreement | None = None  # of the replicas, while this one leads them
        if jetstream.committer_of is not None:
            begin_proposing(self, jetstream.committer_of(self))

    @property
    def name(self) -> str:
        """The stream's name in its account."""
        return self.config.name

    @property
    def directory(self) -> Path:
        """The directory of the stream's files, if it has any."""
        return self.account.files.stream(self.name)

    @property
    def is_filed(self) -> bool:
        """Whether the stream has files."""
        return self.config.storage is Storage.FILE

    @property
    def usage(self) -> Usage:
        """What counts the stream's bytes, as its configuration is now."""
        replicas = self.config.num_replicas
        return self.account.tiers.usage_of(replicas, is_read_replica=self.is_read_replica)

    @property
    def leaves_markers(self) -> bool:
        """Whether expired messages may have to be replaced by markers."""
        return self.config.subject_delete_marker_ttl > 0

    @property
    def damage(self) -> list[FoundDamage]:
        """The damage that was found in the stream's files."""
        return self.store.damage if isinstance(self.store, FileStore) else []

    @property
    def file_stores(self) -> list[FileStore]:
        """The stores of messages, stored and delayed, that have files."""
        stores = (
            [self.store] if self.scheduled is None else [self.store, self.scheduled.delays.store]
        )
        return [each for each in stores if isinstance(each, FileStore)]

    # Creation and end

    @classmethod
    async def create(cls, account: StreamAccount, config: StreamConfig, created_ns: int) -> Self:
        """Create a stream; its files are on disk on return.

        Raises StoreError, OSError; then nothing is left of it.
        """
        # Raises if the configuration cannot be built, before anything is made.
        ingest_settings(config, account.jetstream.options, account.claims)
        volume, directory = account.jetstream.volume, account.files.stream(config.name)
        if config.storage is Storage.MEMORY:
            stream = cls(account, config, created_ns, await open_store(account, config))
            await stream.open_scheduled(config)
            return stream
        asset = StreamAsset(config=config, created=created_ns)
        is_ours = config.name in account.half_made
        if await volume.read(partial(has_remains, volume, directory, is_ours=is_ours)):
            await volume.remove_tree(directory)
        else:
            await volume.committer.forget_removed(directory)
        account.half_made.add(config.name)
        store: LogStore | None = None
        try:
            await volume.read(create_stream, account.jetstream.vault, directory, asset)
            store = await open_store(account, config)
            stream = cls(account, config, created_ns, store)
            await stream.open_scheduled(config)
        except BaseException:
            with contextlib.suppress(StoreError, OSError):  # the first failure is raised
                if store is not None:
                    await store.abandon()
                await volume.remove_tree(directory)
                account.half_made.discard(config.name)
            raise
        account.half_made.discard(config.name)
        return stream

    @classmethod
    async def open(
        cls,
        account: StreamAccount,
        config: StreamConfig,
        created_ns: int,
        *,
        is_restored: bool = False,
    ) -> Self:
        """Open a stream whose files exist, with its consumers. Raises StoreError, OSError.

        `is_restored`: its replicas do not have its state yet, which is proposed first; its limits
        are enforced by `keep_to_limits`.
        """
        is_replicated = account.jetstream.committer_of is not None
        now_ns = account.jetstream.scheduler.now_ns()
        store = await open_store(account, config, is_limited=not (is_restored and is_replicated))
        try:
            # Otherwise it is done once the stream takes messages.
            if not (config.subject_delete_marker_ttl or is_replicated):
                await store.expire(now_ns)
            stream = cls(account, config, created_ns, store)
        except BaseException:
            await store.close()
            raise
        try:
            if is_restored and is_replicated:
                await propose_restored(stream)
            await lifecycle.recover_all(stream)
            await stream.known_ids.recall(now_ns)
            await stream.open_scheduled(config)
        except BaseException:
            stream.ingest.release_usage()
            await stream.close()
            raise
        return stream

    @classmethod
    async def open_following(
        cls, account: StreamAccount, config: StreamConfig, created_ns: int
    ) -> Self:
        """Open a stream whose files exist, with its consumers, to follow its leader.

        Nothing is delivered, and no clock decides anything. Raises StoreError, OSError.
        """
        store = await open_store(account, config, is_limited=False)
        stream = cls(account, config, created_ns, store)
        try:
            await lifecycle.recover_all(stream, is_led=True)
            await stream.known_ids.recall(stream.readers.log.last_time_ns)
            await stream.begin_noting_positions().recall()
            await stream.open_scheduled(config)
        except BaseException:
            stream.ingest.release_usage()
            await stream.close()
            raise
        return stream

    async def follow_restored(self, asset: StreamAsset, built: Path) -> "Stream":
        """Put a restored stream in the place of this one; it follows the same leader.

        Raises StoreError, OSError.
        """
        account, volume, directory = self.account, self.jetstream.volume, self.directory
        self.own_consumers.set_aside()
        await self.abandon()
        await volume.remove_tree(directory)
        await volume.read(install_stream, volume.disk, built, directory)
        restored = await Stream.open_following(account, asset.config, asset.created)
        restored.own_consumers.take_over(self.own_consumers)
        account.streams[restored.name] = restored
        return restored

    async def follow_built(
        self,
        asset: StreamAsset,
        messages: LogStore,
        delayed: LogStore | None,
        consumers: Iterable[ConsumerImage],
        message_ids: bytes,
        positions: Positions,
    ) -> "Stream":
        """Put a stream that was built in memory in the place of this one, as `follow_restored`.

        `delayed` are its delayed messages; None: none waits. `message_ids` are encoded, `positions`
        those of its sources. Raises StoreError, OSError.
        """
        self.own_consumers.set_aside()
        await self.abandon()
        built = Stream(self.account, asset.config, asset.created, messages)
        for each in consumers:
            consumer = each.consumer
            await lifecycle.make_again(built, consumer.name, consumer.asset, each.state)
        built.own_consumers.take_over(self.own_consumers)
        await built.known_ids.recall(built.readers.log.last_time_ns, message_ids)
        built.begin_noting_positions().take(positions)
        if asset.config.allow_msg_schedules:
            built.scheduled = await ScheduledMessages.open(built, delayed, is_led=True)
        self.account.streams[built.name] = built
        return built

    async def keep_to_limits(self) -> None:
        """Remove the messages that the configuration's limits forbid. Raises StoreError.

        The messages may come from a stream with other limits.
        """
        self.store.update_limits(store_limits(self.config), self.jetstream.scheduler.now_ns())
        await self.store.settle()
        await self.store.synced()

    async def open_scheduled(self, config: StreamConfig) -> None:
        """Load schedules and delayed messages if `config` allows schedules.

        Raises StoreError, OSError.
        """
        if config.allow_msg_schedules and self.scheduled is None:
            proposer = self.readers.proposer
            is_led = proposer is None and self.committed_positions is not None
            self.scheduled = await ScheduledMessages.open(self, is_led=is_led)
            if proposer is not None:
                self.scheduled.delays.begin_proposing(proposer)

    async def begin(self) -> None:
        """Receive messages and requests.

        Without limits retention, messages that all interested consumers have acknowledged are
        removed.
        """
        if self.config.retention is not Retention.LIMITS:
            self.readers.keep_unclaimed()
            self.readers.recheck_soon()
        self._begin_expiry()
        self._answers_gets = True
        self._staleness = None
        self._set_direct(self.config)
        self.known_ids.complete()
        take_batches(self)
        self.ingest.resume()
        if self.scheduled is not None:
            self.scheduled.begin()
        if self.account.fills_streams:
            await run_cooperatively(self.sourcing.begin())
        await run_cooperatively(self._listening.change(self.config.subjects))

    async def end_leading(self) -> None:
        """Receive nothing more, because another server leads the stream's replicas now."""
        await self._end()
        if self.scheduled is not None:
            await self.scheduled.end_leading()
        await self.sourcing.ended()
        self.sourcing = Sourcing(self)

    async def _end(self, *, is_gone: bool = False) -> None:
        await run_cooperatively(self.sourcing.end(is_gone=is_gone))
        self.ingest.pause()
        self.end_gets()
        self._expiry.close()
        await run_cooperatively(self._listening.change(()))

    async def close(self) -> None:
        """Close the stream: every acknowledged message and all other state is on disk on return.

        What the replicas have not committed is undone: it stays in their log.
        """
        await self._end()
        await self._end_transfers()
        proposer = self.readers.proposer
        if proposer is not None and (
            proposer.proposed > proposer.committed or self.readers.log.is_staged
        ):
            with contextlib.suppress(StoreError):  # it was logged before
                await self.store.undo(NotCommitted())
            end_proposing(self)
        with contextlib.suppress(StoreError):  # the error was logged before, or is logged below
            await self.store.synced()
        # for the acknowledgements to publishers and the messages to consumers
        for _ in range(TURNS_TO_TELL):
            await asyncio.sleep(0)
        await self.sourcing.keep()
        breaks = Breaks()
        for consumer in list(self.consumers.values()):
            await consumer.close()
            await breaks.take()
        try:
            if self.scheduled is not None:
                await self.scheduled.close()
        except (StoreError, OSError) as error:
            _logger.error("JetStream: stream %s: what waits: %s", self.name, error)
        keep_ids = self.known_ids.at_close()
        self.ingest.close()
        self.readers.close()
        try:
            await self.store.close()
            await keep_ids()
        except (StoreError, OSError) as error:
            _logger.error("JetStream: stream %s: %s", self.name, error)

    def _commit_failed(self, error: StoreError) -> None:
        if self.on_rolled_back is not None:
            self.on_rolled_back(error)
        if isinstance(error, StoreFull):
            server_out_of_storage(self.jetstream, self.name)

    def _begin_expiry(self) -> None:
        self._expiry.begin(self._replace_expired if self.leaves_markers else None)

    def _replace_expired(self, due: list[tuple[int, bytes, bytes]]) -> None:
        if not self.ingest.is_paused:
            lifetime_ns = self.config.subject_delete_marker_ttl
            replace_expired(self.ingest, self.store, due, lifetime_ns)

    async def _end_transfers(self) -> None:
        for transfer in self.transfers:
            transfer.cancel()
        await asyncio.gather(*self.transfers, return_exceptions=True)

    def encode_message_ids(self) -> bytes:
        """Return the ids in the duplicate window; b"" if reading the messages is as fast."""
        return self.known_ids.encode_few()

    async def rename_removed(self) -> Path | None:
        """Rename the stream's directory, which deletes the stream, also after a crash.

        Returns the new directory; None if the stream has no files. Raises StoreError, OSError; then
        the stream is there as before.
        """
        if not self.is_filed:
            return None
        assert isinstance(self.store, FileStore)
        rename = partial(self.store.rename_removed, self.directory)
        async with self._changing(self.name):  # no consumer is being made in it
            return await self.sourcing.removed(rename)

    async def abandon(self) -> None:
        """End everything of a deleted stream and close it; its account removes the files."""
        await self._end(is_gone=True)
        if self.agreement is not None:
            self.agreement.end()
        await self._end_transfers()
        async with self._changing(self.name):  # no consumer is being made
            breaks = Breaks()
            for consumer in list(self.consumers.values()):
                await consumer.abandon()
                await breaks.take()
        await self.sourcing.ended()
        if self.scheduled is not None:
            await self.scheduled.abandon()
        self.ingest.release_usage()
        self.ingest.close()
        self.readers.close()
        await self.store.abandon()

    def count_in(self, usage: Usage) -> None:
        """Count the stream's bytes in `usage` from now on, and keep to its limits."""
        self.ingest.count_in(usage)
        if self.scheduled is not None:
            self.scheduled.delays.count_in(usage)

    # Changes: decided and applied

    async def reconfigure(self, config: StreamConfig) -> None:
        """Apply a new configuration, which is on disk and in force on return.

        What it describes is built before anything is written. Raises StoreError, OSError; then
        nothing has changed.
        """
        settings = ingest_settings(config, self.jetstream.options, self.account.claims)
        limits = store_limits(config)
        await self.open_scheduled(config)
        await self._write_config(config)
        before = self._take_config(config, settings)
        self.propose(ReconfigureStream(encode(config)))
        if self.scheduled is not None and not before.allow_msg_schedules:
            self.scheduled.begin()
        take_batches(self)
        expired_ns = 0 if self.leaves_markers else self.jetstream.scheduler.now_ns()
        self.store.update_limits(limits, expired_ns)
        if config.retention is not before.retention:
            self.readers.set_retention(config.retention.value)
        self._set_direct(config)
        self._begin_expiry()
        await run_cooperatively(self.sourcing.configure(config))
        await run_cooperatively(self._listening.change(config.subjects))

    async def follow_config(self, config: StreamConfig) -> None:
        """Apply a configuration of the stream's leader. Raises StoreError, OSError."""
        settings = ingest_settings(config, self.jetstream.options, self.account.claims)
        await self.open_scheduled(config)
        await self._write_config(config)
        reserve_anew(self.account.tiers, self._take_config(config, settings), config)
        self.count_in(self.usage)
        if self._answers_gets:
            self.begin_gets(self._staleness)

    async def _write_config(self, config: StreamConfig) -> None:
        if self.is_filed:
            volume = self.jetstream.volume
            asset = StreamAsset(config=config, created=self.created_ns)
            await volume.read(write_asset, self.jetstream.vault, self.directory, asset)

    def _take_config(self, config: StreamConfig, settings: IngestSettings) -> StreamConfig:
        """Put a configuration in force for the state; return the one before."""
        before, self.config = self.config, config
        self.ingest.configure(settings)
        if self.committed_positions is not None:
            self.committed_positions.configure(config)
            self._note_positions(self.committed_positions)
        if isinstance(self.store, FileStore):
            self.store.set_compression(is_compressed(config))
        return before

    # Replication

    def begin_as_replica(self) -> None:
        """Write files behind the log of the replicas, which makes changes durable."""
        self.readers.begin_as_replica()
        for consumer in self.consumers.values():
            consumer.begin_as_replica()

    def begin_noting_positions(self) -> CommittedPositions:
        """Return the committed positions of the sources, which are noted from now on."""
        if self.committed_positions is None:
            self.committed_positions = CommittedPositions(self)
            self._note_positions(self.committed_positions)
        return self.committed_positions

    def _note_positions(self, positions: CommittedPositions) -> None:
        self.ingest.noting = positions.note if positions.is_any else None

    def propose(self, command: Command) -> None:
        """Propose a change that was made; with one replica, nobody has to agree to it."""
        if self.readers.proposer is not None:
            self.readers.proposer.propose(command)

    def commit(self, index: int) -> None:
        """Show what is durable and committed: the committer has committed commands up to `index`.

        The first command has index 1.
        """
        self.readers.commit(index)
        if self.scheduled is not None:
            self.scheduled.delays.commit()
        if self.agreement is not None:
            self.agreement.moved()

    async def agreed(self) -> None:
        """Return once the replicas have committed every change so far; with one replica, at once.

        Raises NotCommitted if the stream stops to lead first. It does not notice if that happened
        before the call: `agreement`, taken before the change was made, does.
        """
        if self.agreement is not None:
            await self.agreement.reached()

    # Direct gets

    def begin_gets(self, staleness: Staleness | None = None) -> None:
        """Answer direct gets as a follower that has what is committed; a leader does in any case.

        A follower shows what it has applied, and that is committed. `staleness` is that of a read
        replica; None: the stream is another replica. The read replica of a mirror does not answer
        for the origin: nobody knows how much the mirror lacks.
        """
        self._answers_gets = True
        self._staleness = staleness
        self._set_direct(self.config)
        if staleness is None:
            self.sourcing.follow(self.config)
        else:
            self.own_consumers.begin(staleness)

    def end_gets(self) -> None:
        """Answer no direct gets; the consumers on a read replica stand still."""
        self._answers_gets = False
        self.own_consumers.end()
        self._direct.close()
        self.sourcing.close_direct()

    def _set_direct(self, config: StreamConfig) -> None:
        if config.allow_direct:
            self._direct.open(self._staleness)
        else:
            self._direct.close()

    # Messages

    async def purge(self, filter_subject: str = "", sequence: int = 0, keep: int = 0) -> int:
        """Remove matching messages, below `sequence` or all but the newest `keep`.

        Returns the number of removed messages; the removal is on disk on return. Raises ApiError.
        """
        if self.config.sealed:
            raise api_error(ErrorId.JSStreamSealedErr)
        if self.config.deny_purge:
            raise api_error(ErrorId.JSStreamPurgeFailedF, err="stream purge not permitted")
        if sequence and keep:
            raise api_error(ErrorId.JSBadRequestErr)
        await self.sourcing.keep()
        is_whole = filter_subject in ("", EVERYTHING)
        last = self.readers.log.last_sequence
        purge_store = partial(self._purge_store, filter_subject, sequence, keep)
        try:
            if self.scheduled is not None and not (sequence or keep):
                removed = await self.scheduled.purge(filter_subject, purge_store)
            else:
                removed = await purge_store()
        except InvalidSubject:  # no message has such a subject
            return 0
        except (StoreError, OSError) as error:
            raise api_error(ErrorId.JSStreamGeneralErrorF, err=error) from error
        purged = EVERYTHING if is_whole else filter_subject
        await run_cooperatively(
            self._pass_over(purged, 0 if is_whole or sequence or keep else last)
        )
        return removed

    async def _purge_store(self, filter_subject: str, sequence: int, keep: int) -> int:
        """Purge the store; return the number of removed messages.

        Raises StoreError, InvalidSubject.
        """
        if sequence > 1 and filter_subject in ("", EVERYTHING):
            removed = await self.store.compact(sequence)  # the sequence may lie past the end
        else:
            removed = await self.store.purge(
                pattern=filter_subject or None, up_to_sequence=sequence, keep=keep
            )
        await self.store.synced()
        self.readers.durable(self.store.durable_sequence)
        return removed

    def _pass_over(self, purged: str, last: int) -> Steps[None]:
        """Let consumers begin behind what was purged, as nats-server does.

        `last`: no message of the purged subjects is left up to here; 0: some may be left.
        """
        gone = self.readers.log.first_sequence - 1
        for consumer in list(self.consumers.values()):
            wanted = filters_of(consumer.config) or (EVERYTHING,)
            behind = 0
            if last and (yield from is_each(wanted, lambda each: is_subset(each, purged))):
                behind = last
            elif not (yield from is_each(wanted, lambda each: not collide(each, purged))):
                behind = gone
            if behind and self.consumers.get(consumer.name) is consumer and not consumer.server:
                consumer.store.update_starting(behind)

    async def get_message(self, request: StreamMsgGetRequest) -> ReturnedMessage:
        """Return the requested message. Raises ApiError 10003, 10037."""
        if not names_one_message(request):
            raise api_error(ErrorId.JSBadRequestErr)
        try:
            found = await find_message(self.readers, request)
        except (MessageNotFound, StoreEOF, InvalidSubject):
            raise api_error(ErrorId.JSNoMessageFoundErr) from None
        return ReturnedMessage(
            subject=found.subject,
            seq=found.sequence,
            hdrs=b"" if request.no_hdr else found.headers or b"",
            data=found.data,
            time=found.time_ns,
        )

    async def delete_message(self, sequence: int, *, erase: bool = True) -> None:
        """Delete a message, on disk on return; `erase` overwrites its bytes. Raises ApiError."""
        if self.config.sealed:
            raise api_error(ErrorId.JSStreamSealedErr)
        if self.config.deny_delete:
            raise api_error(ErrorId.JSStreamMsgDeleteFailedF, err="message delete not permitted")
        await self.sourcing.keep()
        if self.scheduled is not None and await self._take_back(sequence):
            return
        remove = self.store.erase if erase else self.store.delete
        log = self.readers.log
        is_within = log.first_sequence <= sequence <= log.last_sequence
        try:
            # nats-server's file store does so, its memory store does not
            if self.is_filed and not is_within:
                raise MessageNotFound if sequence < log.first_sequence else StoreEOF
            was_there = is_within and await remove(sequence)
            await self.store.synced()
        except StoreError as error:
            raise api_error(ErrorId.JSStreamMsgDeleteFailedF, err=error.text) from error
        if not was_there:
            raise api_error(ErrorId.JSSequenceNotFoundErrF, seq=sequence)

    async def _take_back(self, sequence: int) -> bool:
        """Cancel the delayed message with that sequence; False: none. Raises ApiError."""
        assert self.scheduled is not None
        try:
            return await self.scheduled.delays.cancel(sequence)
        except StoreError as error:
            raise api_error(ErrorId.JSStreamMsgDeleteFailedF, err=error.text) from error

    # Info

    async def info(
        self, *, deleted_details: bool = False, subjects_filter: str = "", offset: int = 0
    ) -> StreamInfo:
        """Return settings and state, with a page of matching subjects if there is a filter."""
        info, _ = await self.info_page(
            deleted_details=deleted_details, subjects_filter=subjects_filter, offset=offset
        )
        return info

    async def info_page(
        self, *, deleted_details: bool = False, subjects_filter: str = "", offset: int = 0
    ) -> tuple[StreamInfo, int]:
        """Return the same as `info`, and the number of matching subjects."""
        info = stream_info(self, deleted_details=deleted_details)
        if not subjects_filter:
            return info, 0
        counts, total = await subject_counts(self.store, subjects_filter, offset)
        state = info.state.model_copy(update={"subjects": counts})
        return info.model_copy(update={"state": state}), total

    # Consumers

    @property
    def public_consumers(self) -> list[Consumer]:
        """The consumers that infos count and list.

        These are all but the direct ones, which read for mirrors and sources without acknowledging.
        """
        return [each for each in self.consumers.values() if not each.config.direct]

    def consumer(self, name: str) -> Consumer:
        """Return a consumer. Raises ApiError 10014, 10195."""
        self.check_consumer_online(name)
        consumer = self.consumers.get(name)
        if consumer is None:
            raise api_error(ErrorId.JSConsumerNotFoundErr)
        return consumer

    def check_consumer_online(self, name: str) -> None:
        """Raise ApiError 10195 for a consumer that cannot be served."""
        reason = self.offline_consumers.reasons.get(name)
        if reason is not None:
            raise api_error(ErrorId.JSConsumerOfflineReasonErrF, err=reason)

    async def create_consumer(
        self, config: ConsumerConfig, action: str, *, pedantic: bool = False
    ) -> Consumer:
        """Return a new or updated consumer; its files are on disk. Raises ApiError."""
        async with self._changing(self.name):
            if self.account.streams.get(self.name) is not self:
                raise api_error(ErrorId.JSStreamNotFoundErr)
            return await lifecycle.create(self, self.account, config, action, pedantic=pedantic)

    async def move_consumer(self, consumer: Consumer, server: str) -> None:
        """Have another server's read replica serve a consumer, as `lifecycle.move` does."""
        async with self._changing(self.name):
            if self.consumers.get(consumer.name) is consumer:
                await lifecycle.move(consumer, server)

    async def delete_consumer(self, name: str, *, only: Consumer | None = None) -> None:
        """Delete a consumer, on disk too on return. Raises ApiError 10014.

        `only`: nothing happens if the name belongs to another consumer by now.
        """
        async with self._changing(self.name):
            if only is None and name in self.offline_consumers.reasons:
                await lifecycle.delete_offline(self, name)
            elif only is None or self.consumers.get(name) is only:
                await self.consumer(name).delete()
