"""A consumer: its configuration, its engine, and its subscriptions.

    $JS.API.CONSUMER.MSG.NEXT.<s>.<c> ─▶ pull sink ──┐
    $JS.ACK.<s>.<c>.> ────────────────▶ ack sink ────┼─▶ engine ──▶ deliver subject, or inboxes
    $JS.FC.<s>.<c>.* ─────────────────▶ flow control ┘      │
                                                            └──▶ store: what was delivered and acked

Promise
- `config` is the configuration on disk; it changes as a whole, and is in force when `update`
  returns.
- A push consumer learns of subscribers to its deliver subject from the SubList, a pull consumer of
  its requests from the engine; nothing is polled. One alarm per consumer says when to check whether
  it is still used.
- Once it ends (`delete`, `abandon`, `close`) it receives and sends nothing more.

lifecycle.py makes consumers. Source: nats-server's `consumer`; docs/store.md.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from natsd.accounts.internal_client import INBOX_BYTES, INBOX_PREFIX
from natsd.core.routing import Sink, Subscription
from natsd.core.steps import run_cooperatively
from natsd.jetstream.advisories import consumer_deleted, consumer_paused
from natsd.jetstream.asset_file import write_asset
from natsd.jetstream.commands.commands import (
    Command,
    DeleteConsumer,
    PauseConsumer,
    ResetConsumer,
    UpdateConsumer,
)
from natsd.jetstream.consumer.changes import check_update, with_required_level
from natsd.jetstream.consumer.config import filters_of, is_push
from natsd.jetstream.consumer.dead_letters import DeadLetters
from natsd.jetstream.consumer.delivery import CONSUMER_DELETED, SERVER_SHUTDOWN, ConsumerEngine
from natsd.jetstream.consumer.engine_settings import engine_settings
from natsd.jetstream.consumer.events import ConsumerEvents
from natsd.jetstream.consumer.files import ConsumerAsset
from natsd.jetstream.consumer.inactivity import (
    Threshold,
    busy_until_ns,
    looks_again_at,
    with_threshold,
)
from natsd.jetstream.consumer.info import consumer_info
from natsd.jetstream.consumer.metadata import dead_letter_subject, read_replica
from natsd.jetstream.consumer.start_position import (
    StartPosition,
    find_continued,
    reset_sequence,
)
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.consumer import AckPolicy, ConsumerConfig, ConsumerInfo
from natsd.jetstream.models.go_json import encode
from natsd.jetstream.models.responses import ConsumerPauseResponse
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.names import ack_subjects, flow_control_subjects, pull_subject
from natsd.jetstream.short_hash import short_hash
from natsd.jetstream.stream.committed import CommittedState
from natsd.jetstream.stream.staleness import Staleness
from natsd.jetstream.stream.state import Alarm, ReaderFilters, StreamReaders, TrackerRun
from natsd.store.consumer.consumer_store import ConsumerStore
from natsd.store.consumer.memory_consumer_store import MemoryConsumerStore
from natsd.store.consumer.staged_consumer_store import StagedConsumerStore
from natsd.store.disk.disk import UnsyncedRename
from natsd.store.errors import StoreError

if TYPE_CHECKING:
    from natsd.jetstream.account_resources import AccountResources
    from natsd.jetstream.server_resources import ServerResources

_logger = logging.getLogger(__name__)

LEADERSHIP_CHANGE: Final = "Leadership Change"
"""What nats-server answers the waiting requests of a consumer that has another leader."""

_SID: Final = b"0"


class Floor(NamedTuple):
    """Stream sequence up to which everything is acknowledged of the consumer made at that time."""

    name: str
    created_ns: int
    sequence: int


class ConsumedStream(Protocol):
    """A stream, as far as a consumer of it needs it."""

    config: StreamConfig
    readers: StreamReaders
    consumers: "dict[str, Consumer]"
    jetstream: "ServerResources"
    committed: CommittedState | None  # what the replicas have; None: one replica

    @property
    def account(self) -> "AccountResources":
        """The account."""

    def propose(self, command: Command) -> None:
        """Propose a change that was made."""

    async def delete_consumer(self, name: str, *, only: "Consumer | None" = None) -> None:
        """Delete a consumer; nothing happens if the name is not that of `only` any more."""


class Consumer:
    """A consumer, which delivers after `begin` and then `begin_watching`.

    `directory` is None for a consumer in memory. `wanted` are the configuration's filters, listed
    with the stream's readers; the consumer owns them from now on.
    """

    def __init__(
        self,
        stream: ConsumedStream,
        name: str,
        asset: ConsumerAsset,
        store: ConsumerStore | MemoryConsumerStore,
        directory: Path | None,
        wanted: ReaderFilters,
    ) -> None:
        jetstream = stream.jetstream
        self.stream = stream
        self.name = name
        self.config = asset.config
        self.created_ns = asset.created
        self.own_store = store  # what is committed, if the stream has replicas
        self.store: ConsumerStore | MemoryConsumerStore | StagedConsumerStore = store
        proposer = stream.readers.proposer
        self.server = read_replica(asset.config)
        """The server whose read replica serves the consumer; empty: the stream's leader does."""
        self.is_own = bool(self.server) and self.server == jetstream.server_name
        """Whether that is this server: then the state is in its files alone."""
        self.has_own_state = False
        """Whether a read replica of this server has served it: then the state here is right.

        Otherwise the state is what the stream's leader was told last (`note_floor`).
        """
        self.staleness: Staleness | None = None  # of the read replica, while it delivers
        self.on_unused: Callable[[], Awaitable[None]] = self._delete
        """Removes the consumer if it was not used for too long."""
        if stream.readers.is_replica:
            self.begin_as_replica()
        if proposer is not None:
            self.store = StagedConsumerStore(store)
            self.store.tracker.listener = TrackerRun(proposer, name)
        self.directory = directory
        self._resume = asset.resume
        self._starting = asset.starting
        self._random_bytes = jetstream.random_bytes
        self._scheduler = jetstream.scheduler
        self._sublist = stream.account.account.sublist
        self.engine = self._new_engine(wanted)
        self._letters: DeadLetters | None = None
        self._keep_letters()
        self._subscriptions: list[Subscription] = []
        self.is_bound = False  # push: the deliver subject has a subscriber
        self._watched = ("", "")  # the deliver subject and group that are watched
        self._used_ns = 0
        self._threshold = Threshold(0)
        self._alarm = Alarm(self._scheduler, self._look_for_use)
        self._end_of_pause = Alarm(self._scheduler, self._tell_paused)
        self._is_begun = False  # otherwise it follows its leader, and does nothing by itself
        self._is_ended = False
        self._changing = asyncio.Lock()
        self._removal: asyncio.Task[None] | None = None

    def _new_engine(self, wanted: ReaderFilters | None = None) -> ConsumerEngine:
        stream = self.stream
        return ConsumerEngine(
            stream.readers,
            self.name,
            engine_settings(self.config, stream.config),
            self.store,
            ConsumerEvents(stream.account, stream.config.name, self.name),
            wanted,
        )

    @property
    def is_serving(self) -> bool:
        """Whether it takes requests and acknowledgements here."""
        return self._is_begun and not self._is_ended

    @property
    def asset(self) -> ConsumerAsset:
        """The content of its `meta.json`, if it has files."""
        return ConsumerAsset(
            config=self.config,
            created=self.created_ns,
            resume=self._resume,
            starting=self._starting,
        )

    # Creation and end

    def begin(self, start: StartPosition) -> None:
        """Take requests and acknowledgements, and answer them."""
        self._is_begun = True
        self._subscribe()
        self.engine.start(start.sequence, start.last_per_subject, start.resume)
        self._pause_until(self.config.pause_until)

    def begin_as_replica(self) -> None:
        """Write the state behind the log of the stream's replicas, if that has its changes."""
        if not self.is_own:
            self.own_store.write_behind()

    def begin_on_read_replica(self, start: StartPosition, staleness: Staleness) -> None:
        """Deliver what this server's read replica has, until `stand_still`."""
        self.staleness, self.has_own_state = staleness, True
        self.engine.mark_with(staleness.line)
        self.begin(start)
        self.begin_watching()

    def stand_still(self) -> None:
        """Deliver and take nothing until it begins again; waiting requests are answered.

        It goes on as a follower does: its configuration changes, and its state stays.
        """
        if self.is_serving:
            self._is_begun = False
            self._cease(LEADERSHIP_CHANGE)
            self.store.commit()
            self.staleness = None
            self.is_bound = False
            self.engine, self._letters = self._new_engine(), None
            self._keep_letters()

    @property
    def floor(self) -> Floor:
        """Up to where everything is acknowledged, while it delivers."""
        return Floor(self.name, self.created_ns, self.engine.ack_floor().stream)

    def note_floor(self, floor: Floor) -> None:
        """As the stream's leader, keep how far the consumer is at the server that serves it.

        Raises StoreError.
        """
        if (
            floor.created_ns == self.created_ns
            and floor.sequence != self.store.tracker.floor_stream
        ):
            self.store.reset(floor.sequence)
            self.stream.propose(ResetConsumer(self.name, floor.sequence + 1))

    def begin_watching(self) -> None:
        """Watch the deliver subject, so that pushing begins, and start to check for disuse.

        Pushing begins in a later turn of the event loop: the creator is answered first.
        """
        if not self._is_ended:
            self._begin_counting_disuse()
            self._watch()

    async def delete(self) -> None:
        """Delete the consumer, on disk too on return; waiting requests are answered.

        Raises ApiError; then the consumer is there as before.
        """
        if self._is_ended:
            return
        directory, volume = self.directory, self.stream.jetstream.volume
        removed = await self._rename_removed(directory) if directory is not None else None
        await self.abandon()
        self.stream.propose(DeleteConsumer(self.name))
        if directory is not None and removed is not None:
            await volume.finish_removal(directory, removed)

    async def _rename_removed(self, directory: Path) -> Path:
        volume = self.stream.jetstream.volume
        try:
            return await volume.rename_removed(directory)
        except OSError as error:
            _logger.error("JetStream: %s is not removed: %s", self, error)
            if isinstance(error, UnsyncedRename) and isinstance(self.own_store, ConsumerStore):
                volume.committer.refuse(self.own_store, error)
            raise api_error(ErrorId.JSStreamGeneralErrorF, err=error) from error

    async def abandon(self) -> None:
        """End and close a deleted consumer; the caller removes its files."""
        if self._is_ended:
            return
        self._end(CONSUMER_DELETED)
        await self.store.abandon()
        self._tell_deleted()

    def _tell_deleted(self) -> None:
        stream = self.stream
        # The leader tells of a consumer that a read replica serves: that server may be away.
        if self._is_begun if not self.server else stream.readers.proposer is not None:
            consumer_deleted(stream.account, stream.config.name, self.name)

    def change_leader(self) -> None:
        """End, but leave the store open: a new object goes on with it."""
        if self._is_ended:
            return
        self._end(LEADERSHIP_CHANGE)
        if isinstance(self.store, StagedConsumerStore):
            self.store.give_up()

    async def close(self) -> None:
        """Close the consumer: all that it knows is on disk on return."""
        if self._is_ended:
            return
        self._end(SERVER_SHUTDOWN)
        try:
            await self.store.close()
        except (StoreError, OSError) as error:
            _logger.error("JetStream: %s: %s", self, error)

    def _end(self, status: str) -> None:
        self._is_ended = True
        self._cease(status)
        if self.stream.consumers.get(self.name) is self:
            del self.stream.consumers[self.name]

    def _cease(self, status: str) -> None:
        self._alarm.cancel()
        self._end_of_pause.cancel()
        self._unwatch()
        for subscription in self._subscriptions:
            self._sublist.remove(subscription)
            subscription.detach()
        self._subscriptions.clear()
        self.engine.stop(status)
        if self._letters is not None:
            self._letters.close()

    def _subscribe(self) -> None:
        stream, config, engine = self.stream.config.name, self.config, self.engine
        self._listen(pull_subject(stream, self.name), engine.inbox.pull_sink)
        account = short_hash(self.stream.account.account.name.encode())
        domain = self.stream.jetstream.options.domain
        if config.ack_policy not in (AckPolicy.NONE, AckPolicy.FLOW_CONTROL):
            for subject in ack_subjects(stream, self.name, domain, account):
                self._listen(subject, engine.inbox.ack_sink)
        if config.flow_control:
            for subject in flow_control_subjects(stream, self.name, domain, account):
                self._listen(subject, engine.inbox.flow_control_sink)

    def _keep_letters(self) -> None:
        """Start or stop copying dead letters, as the configuration says."""
        subject, before = dead_letter_subject(self.config), self._letters
        if before is not None and subject:
            before.subject = subject
        elif before is not None:
            self._letters = None
            self.engine.copy_dead_letters(None)
            before.close()
        elif subject:
            inbox = f"{INBOX_PREFIX}{self._random_bytes(INBOX_BYTES).hex()}"
            stream = self.stream
            self._letters = DeadLetters(
                stream.account, stream.readers, self.name, subject, self.engine, inbox
            )
            self.engine.copy_dead_letters(self._letters)

    def _listen(self, subject: str, sink: Sink) -> None:
        subscription = Subscription(subject, sid=_SID, sink=sink)
        self._subscriptions.append(subscription)
        self._sublist.insert(subscription)

    # Changes

    async def update(self, config: ConsumerConfig) -> None:
        """Apply a complete and checked configuration; it is on disk and in force on return.

        Raises ApiError if the old one cannot become the new one.
        """
        async with self._changing:
            self._check_update(config)
            await self._replace(config)

    async def follow(self, config: ConsumerConfig) -> None:
        """Apply a configuration that the stream's leader has checked, as `update` does."""
        async with self._changing:
            await self._replace(config)

    async def pause(self, until_ns: int) -> ConsumerPauseResponse:
        """Deliver nothing before `until_ns`; a past time resumes. It is on disk on return."""
        async with self._changing:
            config = self.paused_config(until_ns)
            self._check_update(config)
            await self._replace(config, PauseConsumer(self.name, until_ns))
        remaining_ns = max(until_ns - self._scheduler.now_ns(), 0)
        return ConsumerPauseResponse(
            paused=remaining_ns > 0, pause_until=until_ns, pause_remaining=remaining_ns
        )

    def paused_config(self, until_ns: int) -> ConsumerConfig:
        """Return the configuration with a pause until `until_ns`."""
        return with_required_level(self.config.model_copy(update={"pause_until": until_ns}))

    async def reset(self, wanted: int) -> int:
        """Deliver again from a sequence on, 0: from behind the ack floor; return that sequence.

        Earlier deliveries and acknowledgements are forgotten; waiting requests stay. It is on disk
        on return. Raises ApiError 10014, 10204, 10104.
        """
        async with self._changing:
            readers, resume = self.stream.readers, self._resume
            floor = self.engine.ack_floor().stream
            sequence = await reset_sequence(self.config, wanted, floor, readers.store)
            start = await find_continued(
                filters_of(self.config),
                readers.store,
                readers.log,
                readers.visible,
                delivered=sequence - 1,
                resume=resume,
            )
            if not self.is_serving:
                raise api_error(ErrorId.JSConsumerNotFoundErr)
            is_durable = False
            try:
                self.store.reset(sequence - 1)
                self.stream.propose(ResetConsumer(self.name, sequence))
                self.engine.begin_anew(start.sequence, start.last_per_subject, start.resume)
                await self.store.synced()
                is_durable = True
            except StoreError as error:
                _logger.error("JetStream: %s is not reset: %s", self, error)
                raise api_error(ErrorId.JSConsumerStoreFailedErrF, err=error) from error
            finally:
                self.engine.go_on(is_durable)
        return sequence

    def unpin(self, group: str) -> None:
        """Unpin the pinned client of a priority group. Raises ApiError 10160."""
        if group not in self.config.priority_groups:
            raise api_error(ErrorId.JSConsumerInvalidPriorityGroupErr)
        self.engine.unpin(group)

    def _check_update(self, config: ConsumerConfig) -> None:
        if self._is_ended:
            raise api_error(ErrorId.JSConsumerDoesNotExist)
        check_update(self.config, config, is_bound=self._is_wanted())

    async def _replace(self, config: ConsumerConfig, pause: PauseConsumer | None = None) -> None:
        if self._is_ended:
            raise api_error(ErrorId.JSConsumerDoesNotExist)
        config = with_threshold(config)
        if config == self.config:
            return
        settings = engine_settings(config, self.stream.config)
        wanted = await self._list_filters(settings.filters)
        try:
            await self._write(config)
            if self._is_ended:
                raise api_error(ErrorId.JSConsumerDoesNotExist)
        except BaseException:
            if wanted is not None:
                self.stream.readers.unlist(wanted)
            raise
        self.stream.propose(pause or UpdateConsumer(self.name, encode(config)))
        before, self.config = self.config, config
        self.engine.configure(settings, wanted)
        self._keep_letters()
        if self._is_begun:
            self._act_on(before, config)

    def _act_on(self, before: ConsumerConfig, config: ConsumerConfig) -> None:
        """Do what a new configuration asks for besides the engine's work."""
        if before.pause_until != config.pause_until:
            self._pause_until(config.pause_until)
            self._tell_paused(self._scheduler.now_ns())
        self._watch()
        if (before.inactive_threshold, before.durable_name) != (
            config.inactive_threshold,
            config.durable_name,
        ):
            self._begin_counting_disuse()

    async def _list_filters(self, filters: tuple[str, ...]) -> ReaderFilters | None:
        """List new filters with the stream's readers; None: they are the same as before."""
        if filters == self.engine.settings.filters:
            return None
        return await run_cooperatively(self.stream.readers.list_filters(filters))

    async def write_asset(self, asset: ConsumerAsset | None = None) -> None:
        """Write `meta.json`, if the consumer has files; None: its present asset. Raises OSError."""
        if self.directory is not None:
            volume, vault = self.stream.jetstream.volume, self.stream.jetstream.vault
            await volume.read(write_asset, vault, self.directory, asset or self.asset)

    async def _write(self, config: ConsumerConfig) -> None:
        try:
            await self.write_asset(self.asset.model_copy(update={"config": config}))
        except OSError as error:
            _logger.error("JetStream: %s is not changed: %s", self, error)
            raise api_error(ErrorId.JSConsumerStoreFailedErrF, err=error) from error

    def _pause_until(self, until_ns: int) -> None:
        if until_ns > self._scheduler.now_ns():
            self.engine.pause(until_ns)
            self._end_of_pause.set(until_ns)
        else:
            self.engine.resume()
            self._end_of_pause.cancel()

    def _tell_paused(self, now_ns: int) -> None:
        """Publish an advisory: the pause has begun, changed or ended."""
        stream, until_ns = self.stream, self.config.pause_until
        is_paused = until_ns > now_ns
        consumer_paused(
            stream.account, stream.config.name, self.name, until_ns, is_paused=is_paused
        )

    # Interest in the deliver subject, and disuse

    def _is_wanted(self) -> bool:
        """Tell whether the deliver subject has a subscriber, also by a wildcard."""
        subject = self.config.deliver_subject
        return bool(subject) and self._sublist.has_interest(subject)

    def _watch(self) -> None:
        """Watch the subscribers of the present deliver subject."""
        watched = (self.config.deliver_subject, self.config.deliver_group)
        if not is_push(self.config) or watched == self._watched:
            return
        self._unwatch()
        self._watched = watched
        subject, group = watched
        self.is_bound = self._sublist.watch(subject, self._listened_to, queue=group or None)
        asyncio.get_running_loop().call_soon(self._tell_engine)
        self._count_disuse()

    def _unwatch(self) -> None:
        subject, group = self._watched
        if subject:
            self._sublist.unwatch(subject, self._listened_to, queue=group or None)
            self._watched = ("", "")

    def _listened_to(self, is_there: bool) -> None:
        """Note that the first subscriber came, or the last one left; the SubList calls this."""
        self.is_bound = is_there
        self._tell_engine()
        self._count_disuse()

    def _tell_engine(self) -> None:
        if not self._is_ended:
            self.engine.set_push_interest(self.is_bound)

    def _begin_counting_disuse(self) -> None:
        """Set the threshold of a new consumer, or a new threshold, and count from now."""
        chance = int.from_bytes(self._random_bytes(4))
        self._threshold = Threshold.of(self.config, chance)
        self._count_disuse()

    def _count_disuse(self) -> None:
        """Count disuse from now on, unless the deliver subject has a subscriber."""
        self._used_ns = self._scheduler.now_ns()
        if self.is_bound or self._threshold.span_ns == 0:
            self._alarm.cancel()
        else:
            self._alarm.set(self._used_ns + self._threshold.span_ns)

    def _look_for_use(self, now_ns: int) -> None:
        """Remove the consumer if it is unused, or check again later."""
        if self._is_ended or self.is_bound:
            return
        if self._letters is not None and self._letters.count:
            self._alarm.set(now_ns + self._threshold.span_ns)
            return
        busy_ns = 0 if is_push(self.config) else busy_until_ns(self.store.state(), self.config)
        due_ns = looks_again_at(self._threshold, self._used_ns, self.engine, busy_ns, now_ns=now_ns)
        if due_ns:
            self._alarm.set(due_ns)
        else:
            self._removal = asyncio.get_running_loop().create_task(self._remove_unused())

    async def _remove_unused(self) -> None:
        try:
            await self.on_unused()
        except Exception:
            _logger.exception("JetStream: %s is unused and could not be removed", self)

    async def _delete(self) -> None:
        await self.stream.delete_consumer(self.name, only=self)

    def count_disuse_anew(self) -> None:
        """Check for disuse again after another threshold: it could not be removed."""
        if self.is_serving:
            self._count_disuse()

    # Info

    def info(self, config: msgspec.Raw | None = None) -> ConsumerInfo:
        """Return the info as of now, with this text of the configuration; None: without.

        Raises ApiError 10014 if the consumer has ended.
        """
        if self._is_ended:
            raise api_error(ErrorId.JSConsumerNotFoundErr)
        return consumer_info(self, self.stream.config.name, self._scheduler.now_ns(), config)

    async def counted(self) -> None:
        """Return once `info` is exact: the engine may be counting pending messages."""
        await self.engine.counted()

    def __repr__(self) -> str:
        account = self.stream.account.account.name
        return f"consumer {account} > {self.stream.config.name} > {self.name}"
