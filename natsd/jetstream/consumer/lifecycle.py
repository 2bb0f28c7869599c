"""The creation, update and recovery of consumers.

    check   rules, limits, name, start position, time: a NewConsumer        decide
      │
    propose one server: applied at once
      │
    apply   files, engine, subscriptions: reads no clock, refuses nothing   apply_create

Promise
- A refusal comes before anything has changed; a success is answered when it is on disk.
- The consumers of a stream change one at a time: the stream sees to that.
- After a restart, damage of one consumer affects no other: a consumer that cannot be read, or does
  not start, is offline; the others continue where they were. A consumer's state that is ahead of
  its stream is cut back.

Source: nats-server's `addConsumerWithAssignment`.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from natsd.core.steps import run_cooperatively
from natsd.jetstream.advisories import consumer_created, consumer_deleted
from natsd.jetstream.asset_file import new_asset
from natsd.jetstream.commands.commands import CreateConsumer
from natsd.jetstream.consumer import files
from natsd.jetstream.consumer.admission import (
    check_room,
    check_work_queue,
    check_work_queue_update,
)
from natsd.jetstream.consumer.changes import is_same, with_required_level
from natsd.jetstream.consumer.config import check_config, filters_of
from natsd.jetstream.consumer.consumer import ConsumedStream, Consumer
from natsd.jetstream.consumer.dead_letter_target import CapturingAccount, check_target
from natsd.jetstream.consumer.defaults import Ceilings, with_defaults
from natsd.jetstream.consumer.engine_settings import engine_settings, store_options
from natsd.jetstream.consumer.files import ConsumerAsset, FoundConsumer
from natsd.jetstream.consumer.inactivity import with_threshold
from natsd.jetstream.consumer.metadata import on_read_replica
from natsd.jetstream.consumer.offline import OfflineConsumers
from natsd.jetstream.consumer.start_position import (
    StartPosition,
    find_continued,
    find_start,
)
from natsd.jetstream.errors import ApiError, ErrorId, api_error
from natsd.jetstream.gather_limited import gather_limited
from natsd.jetstream.models.account import AccountLimits
from natsd.jetstream.models.consumer import (
    AckPolicy,
    ConsumerAction,
    ConsumerConfig,
    DeliverPolicy,
)
from natsd.jetstream.models.go_json import encode
from natsd.jetstream.models.stream import Retention
from natsd.jetstream.names import NAME_BYTES_MAX, byte_length
from natsd.jetstream.short_hash import short_hash
from natsd.jetstream.stream.files import FiledStream
from natsd.jetstream.stream.staleness import Staleness
from natsd.jetstream.stream.state import ReaderFilters
from natsd.store.consumer.consumer_store import ConsumerStore
from natsd.store.consumer.memory_consumer_store import MemoryConsumerStore
from natsd.store.consumer.reconcile import cut_back
from natsd.store.disk.disk import is_out_of_space, is_transient
from natsd.store.errors import ConsumerStateDamaged, StoreError, StoreFull
from natsd.store.log_store import LogStore

_logger = logging.getLogger(__name__)

NAME_SEED_BYTES: Final = 16
RECOVERED_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class NewConsumer:
    """Everything that was decided about a consumer to create."""

    name: str
    config: ConsumerConfig
    created_ns: int
    start: StartPosition


class StreamOfConsumers(ConsumedStream, FiledStream, Protocol):
    """A stream, as far as the creation and the recovery of its consumers need it."""

    store: LogStore
    offline_consumers: OfflineConsumers

    def check_consumer_online(self, name: str) -> None:
        """Raise ApiError 10195 for a consumer that cannot be served."""


async def create(
    stream: StreamOfConsumers,
    account: CapturingAccount,
    config: ConsumerConfig,
    action: str = "",
    *,
    pedantic: bool = False,
) -> Consumer:
    """Return the consumer, new or updated; `action` "create" or "update" allows only one of these.

    Its files are on disk on return. Raises ApiError; then nothing has changed.
    """
    config = _as_sourcing(config, stream)
    stream.check_consumer_online(config.durable_name or config.name)
    existing = stream.consumers.get(config.durable_name or config.name)
    if existing is not None:
        config = _with_kept_fields(config, existing.config)
    ceilings = _ceilings(stream)
    config = with_defaults(with_required_level(config), stream.config, ceilings, pedantic=pedantic)
    await run_cooperatively(check_config(config, stream.config, ceilings))
    await run_cooperatively(check_target(config, stream, account))
    if existing is not None:
        await update(existing, config, action)
        return existing
    if action == ConsumerAction.UPDATE:
        raise api_error(ErrorId.JSConsumerDoesNotExist)
    return await apply_create(stream, await decide(stream, config))


async def update(consumer: Consumer, config: ConsumerConfig, action: str = "") -> None:
    """Give a consumer another configuration, complete and checked. Raises ApiError."""
    stream = consumer.stream
    if action == ConsumerAction.CREATE:
        if not is_same(config, consumer.config):
            raise api_error(ErrorId.JSConsumerAlreadyExists)
        config = consumer.config
    others = _Configs(stream)
    await run_cooperatively(check_work_queue_update(consumer.name, config, stream.config, others))
    await consumer.update(config)
    if config.sourcing:  # deliveries on their way are requested again
        await consumer.reset(0)


async def decide(stream: StreamOfConsumers, config: ConsumerConfig) -> NewConsumer:
    """Decide whether a consumer may be created, its name and its start. Raises ApiError."""
    others = _Configs(stream)
    check_room(stream.config, _limits(stream).max_consumers, others)
    await run_cooperatively(check_work_queue(config, stream.config, others))
    name = config.durable_name or config.name or _new_name(stream)
    if config.durable_name and byte_length(name) > NAME_BYTES_MAX:
        raise api_error(ErrorId.JSConsumerNameTooLongErrF, max=NAME_BYTES_MAX)
    if byte_length(name) > NAME_BYTES_MAX or not _is_text(name):
        raise _store_failed()  # nats-server leaves this to the file system
    start = await find_start(
        config,
        stream.store,
        stream.readers.log,
        stream.readers.visible,
        max_msgs_per_subject=stream.config.max_msgs_per_subject,
    )
    created_ns = stream.jetstream.scheduler.now_ns()
    return NewConsumer(name, with_threshold(config), created_ns, start)


async def apply_create(stream: StreamOfConsumers, new: NewConsumer) -> Consumer:
    """Create the decided consumer; it is on disk on return. Raises ApiError if the disk is full."""
    # raises before anything is made if they cannot be built
    engine_settings(new.config, stream.config)
    wanted = await run_cooperatively(stream.readers.list_filters(filters_of(new.config)))
    try:
        consumer = await make(stream, new, wanted)
    except BaseException:
        stream.readers.unlist(wanted)
        raise
    stream.consumers[new.name] = consumer
    if stream.committed is not None:
        stream.committed.made(consumer.name, consumer.asset, consumer.store)
        start, config = new.start, encode(new.config)
        stream.propose(
            CreateConsumer(new.name, config, new.created_ns, start.sequence, start.resume)
        )
    try:
        if not consumer.server:
            consumer.begin(new.start)
            await consumer.counted()
            consumer.begin_watching()
    except BaseException:
        await consumer.delete()
        raise
    consumer_created(stream.account, stream.config.name, new.name)
    return consumer


async def make(stream: StreamOfConsumers, new: NewConsumer, wanted: ReaderFilters) -> Consumer:
    """Make a consumer's files, if it has any, and the consumer, not yet begun. Raises ApiError."""
    is_filed = stream.is_filed and not (new.config.mem_storage or new.config.direct)
    directory = files.consumer_directory(stream.directory, new.name) if is_filed else None
    starting = new.start.sequence - 1
    asset = ConsumerAsset(
        config=new.config, created=new.created_ns, resume=new.start.resume, starting=starting
    )
    store: ConsumerStore | MemoryConsumerStore
    if directory is None:
        store = MemoryConsumerStore(store_options(new.config))
        store.set_starting_sequence(starting)
    else:
        try:
            meta = new_asset(stream.jetstream.vault, directory, asset)
            await stream.jetstream.volume.make_with_files(directory, meta)
        except (StoreError, OSError) as error:
            _logger.error("JetStream: consumer %s: %s", directory, error)
            raise _no_files(error) from error
        state, random_bytes = directory / files.STATE, stream.jetstream.random_bytes
        options = store_options(asset.config)
        volume = stream.jetstream.volume
        store = ConsumerStore.begin(volume, state, options, random_bytes, starting=starting)
    return Consumer(stream, new.name, asset, store, directory, wanted)


# After a restart


async def recover_all(stream: StreamOfConsumers, *, is_led: bool = False) -> None:
    """Recover the consumers in the stream's directory, some of them at a time.

    `is_led`: the stream follows a leader, and its consumers deliver nothing. Raises
    UnsupportedConsumers, OSError; then none of them delivers.
    """
    volume = stream.jetstream.volume
    found = await volume.read(files.find_consumers, stream.jetstream.vault, stream.directory)
    try:
        await gather_limited(partial(recover, stream, is_led=is_led), found, most=RECOVERED_AT_ONCE)
    except BaseException:
        for consumer in list(stream.consumers.values()):
            await consumer.close()
        raise


async def recover(
    stream: StreamOfConsumers, found: FoundConsumer, *, is_led: bool = False
) -> Consumer | None:
    """Recover a consumer, which delivers again unless `is_led`; None: it cannot be served.

    It is offline then, which is logged: its files stay, and the stream keeps its messages
    (offline.py). Raises StoreError, OSError for a passing lack of space, descriptors or memory.
    """
    if found.asset is None:
        _take_offline(stream, found.name, found.why_not)
        return None
    try:
        return await _bring_back(stream, found, found.asset, is_led=is_led)
    except (StoreError, OSError) as error:
        if is_transient(error):
            raise
        _take_offline(stream, found.name, str(error))
    except ApiError as error:
        _take_offline(stream, found.name, error.description)
    except Exception as error:
        _take_offline(stream, found.name, f"it does not start: {error!r}", error)
    return None


async def _bring_back(
    stream: StreamOfConsumers, found: FoundConsumer, asset: ConsumerAsset, *, is_led: bool
) -> Consumer:
    """Open a consumer and begin, unless the stream `is_led`.

    A consumer with a damaged state begins where it began when it was created: messages may be
    delivered twice, but none is lost.
    """
    store, start = await _open_files(stream, found, asset)
    wanted: ReaderFilters | None = None
    try:
        wanted = await run_cooperatively(stream.readers.list_filters(filters_of(asset.config)))
        consumer = Consumer(stream, found.name, asset, store, found.directory, wanted)
    except BaseException:
        if wanted is not None:
            stream.readers.unlist(wanted)
        await store.close()
        raise
    try:
        _report(consumer, store)
        if not consumer.is_own:  # otherwise the stream may lack what its log has: `serve` does it
            _fit(consumer)
        consumer.has_own_state = consumer.is_own and not found.is_blank
        stream.consumers[found.name] = consumer
        if stream.committed is not None:
            stream.committed.found(consumer.name, consumer.asset, consumer.store)
        if not (is_led or consumer.server):
            consumer.begin(start or await _continued(consumer, asset.resume))
            consumer.begin_watching()
    except BaseException:
        await consumer.close()
        raise
    return consumer


def _take_offline(
    stream: StreamOfConsumers, name: str, reason: str, unexpected: Exception | None = None
) -> None:
    stream.offline_consumers.add(name, reason)
    _logger.error(
        "JetStream: consumer '%s > %s > %s' is offline: %s",
        stream.account.name,
        stream.name,
        name,
        reason,
        exc_info=unexpected,
    )


async def _open_files(
    stream: StreamOfConsumers, found: FoundConsumer, asset: ConsumerAsset
) -> tuple[ConsumerStore, StartPosition | None]:
    """Open the consumer's state; also return its start if it has to begin anew."""
    volume, random_bytes = stream.jetstream.volume, stream.jetstream.random_bytes
    state, options = found.directory / files.STATE, store_options(asset.config)
    starting = asset.starting
    if found.is_blank and starting is not None:
        return ConsumerStore.begin(volume, state, options, random_bytes, starting=starting), None
    try:
        return await ConsumerStore.open(volume, state, options, random_bytes), None
    except ConsumerStateDamaged as error:
        _logger.error("JetStream: %s; %s begins anew", error, found.name)
    if await volume.read(volume.disk.exists, state):
        aside = await volume.read(files.set_state_aside, volume.disk, state)
        _logger.error("JetStream: the state of %s is set aside as %s", found.name, aside)
    readers = stream.readers
    end = min(await stream.store.sequence_at(asset.created) - 1, readers.visible)
    start = await find_start(
        asset.config,
        stream.store,
        readers.log,
        end,
        max_msgs_per_subject=stream.config.max_msgs_per_subject,
    )
    store = await ConsumerStore.create(
        volume, state, options, random_bytes, starting=start.sequence - 1
    )
    return store, start


def _report(consumer: Consumer, store: ConsumerStore) -> None:
    for damage in store.recovery.damage:
        _logger.warning("JetStream: %s: %s", consumer, damage)
    if store.recovery.set_aside is not None:
        _logger.warning("JetStream: %s: set aside as %s", consumer, store.recovery.set_aside)


def _fit(consumer: Consumer) -> None:
    """Cut back what the consumer knows of messages that the stream does not have."""
    readers, store = consumer.stream.readers, consumer.store
    if _is_yet_to_begin(consumer):
        return
    fitting = cut_back(store.state(), readers.log.last_sequence, readers.log.has)
    for change in fitting.changes:
        _logger.warning("JetStream: %s: %s", consumer, change)
    if fitting.changes:
        store.force_update(fitting.state)


def _is_yet_to_begin(consumer: Consumer) -> bool:
    """Tell whether nothing was delivered since its start, which may be a sequence to come."""
    policies = (DeliverPolicy.ALL, DeliverPolicy.BY_START_SEQUENCE)
    delivered = consumer.store.tracker.delivered_consumer
    return delivered == 0 and consumer.config.deliver_policy in policies


async def _continued(consumer: Consumer, resume: int) -> StartPosition:
    readers = consumer.stream.readers
    return await find_continued(
        filters_of(consumer.config),
        readers.store,
        readers.log,
        readers.visible,
        delivered=consumer.store.tracker.delivered_stream,
        resume=resume,
    )


# When the leader of the stream's replicas changes


async def lead(consumer: Consumer) -> None:
    """Go on as the leader of a consumer that followed one: it delivers from now on."""
    stream, asset = consumer.stream, consumer.asset
    leading = await replace(consumer, asset)
    assert stream.committed is not None
    stream.committed.found(leading.name, leading.asset, leading.store)
    if not leading.server:
        leading.begin(await _continued(leading, asset.resume))
        leading.begin_watching()


async def serve(consumer: Consumer, staleness: Staleness) -> None:
    """Deliver from this server's read replica, which has all that was committed before.

    The consumer goes on where it was. Raises StoreError.
    """
    _fit(consumer)
    start = await _continued(consumer, consumer.asset.resume)
    if consumer.stream.consumers.get(consumer.name) is consumer:
        consumer.begin_on_read_replica(start, staleness)


async def move(consumer: Consumer, server: str) -> Consumer:
    """As the stream's leader, have another server's read replica serve a consumer.

    It is made anew under its name, behind what is known to be acknowledged: whoever has the one of
    before removes it. Raises ApiError, StoreError, OSError; then nothing has changed.
    """
    stream, starting = consumer.stream, consumer.store.tracker.floor_stream
    created_ns = max(stream.jetstream.scheduler.now_ns(), consumer.created_ns + 1)
    asset = consumer.asset.model_copy(
        update={
            "config": on_read_replica(consumer.config, server),
            "created": created_ns,
            "starting": starting,
        }
    )
    wanted = await run_cooperatively(stream.readers.list_filters(filters_of(asset.config)))
    try:
        await consumer.write_asset(asset)
        if stream.committed is None or stream.consumers.get(consumer.name) is not consumer:
            raise api_error(ErrorId.JSClusterNotLeaderErr)
        consumer.own_store.reset(starting)
    except BaseException:
        stream.readers.unlist(wanted)
        raise
    moved = _replaced(consumer, asset, wanted)
    stream.committed.made(moved.name, asset, moved.store)
    stream.propose(
        CreateConsumer(moved.name, encode(asset.config), created_ns, starting + 1, asset.resume)
    )
    return moved


async def follow(consumer: Consumer, asset: ConsumerAsset) -> None:
    """Go on as a follower, with the committed state and the committed `asset`.

    Raises OSError.
    """
    changed = asset != consumer.asset
    following = await replace(consumer, asset)
    if changed:
        await following.write_asset()


async def make_again(
    stream: StreamOfConsumers, name: str, asset: ConsumerAsset, state: bytes
) -> None:
    """Make a follower's consumer whose deletion was not committed. Raises ApiError, StoreError."""
    start = StartPosition(1, resume=asset.resume)
    new = NewConsumer(name, asset.config, asset.created, start)
    wanted = await run_cooperatively(stream.readers.list_filters(filters_of(asset.config)))
    try:
        consumer = await make(stream, new, wanted)
    except BaseException:
        stream.readers.unlist(wanted)
        raise
    consumer.own_store.restore(state)
    stream.consumers[name] = consumer


async def replace(consumer: Consumer, asset: ConsumerAsset) -> Consumer:
    """End a consumer; return one with that asset that goes on with its store, and has not begun.

    Nothing is written.
    """
    readers = consumer.stream.readers
    wanted = await run_cooperatively(readers.list_filters(filters_of(asset.config)))
    return _replaced(consumer, asset, wanted)


def _replaced(consumer: Consumer, asset: ConsumerAsset, wanted: ReaderFilters) -> Consumer:
    stream = consumer.stream
    consumer.change_leader()
    following = Consumer(
        stream, consumer.name, asset, consumer.own_store, consumer.directory, wanted
    )
    is_same = following.created_ns == consumer.created_ns
    following.has_own_state = is_same and consumer.has_own_state
    stream.consumers[consumer.name] = following
    return following


async def delete_offline(stream: StreamOfConsumers, name: str) -> None:
    """Delete an offline consumer, on disk too on return; its messages are not kept any more.

    Raises ApiError.
    """
    directory, volume = files.consumer_directory(stream.directory, name), stream.jetstream.volume
    try:
        removed = await volume.rename_removed(directory)
    except OSError as error:
        _logger.error("JetStream: %s is not removed: %s", directory, error)
        raise api_error(ErrorId.JSStreamGeneralErrorF, err=error) from error
    stream.offline_consumers.remove(name)
    await volume.finish_removal(directory, removed)
    consumer_deleted(stream.account, stream.config.name, name)


# Steps of `create`


def _as_sourcing(config: ConsumerConfig, stream: StreamOfConsumers) -> ConsumerConfig:
    """Return the configuration for a source of another server.

    Its consumer is durable on a stream whose messages wait for consumers.
    """
    if not (config.direct and config.sourcing and config.name):
        return config
    if stream.config.retention is Retention.LIMITS:
        name = f"{config.name}-{_random_name(stream)}"
        return config.model_copy(update={"name": name})
    return config.model_copy(
        update={
            "direct": False,
            "durable_name": config.name,
            "ack_policy": AckPolicy.FLOW_CONTROL,
            "ack_wait": 0,
            "max_deliver": 0,
            "inactive_threshold": 0,
        }
    )


def _with_kept_fields(config: ConsumerConfig, old: ConsumerConfig) -> ConsumerConfig:
    """Return the configuration with the fields that a create request does not change.

    A pause has its own request.
    """
    kept = {"pause_until": old.pause_until}
    if config.sourcing and config.durable_name:
        fields = ("deliver_policy", "opt_start_seq", "opt_start_time")
        kept |= {field: getattr(old, field) for field in fields}
    return config.model_copy(update=kept)


class _Configs(Mapping[str, ConsumerConfig]):
    """The configurations of a stream's consumers, without a walk over all for each creation."""

    def __init__(self, stream: ConsumedStream) -> None:
        self._consumers = stream.consumers

    def __getitem__(self, name: str) -> ConsumerConfig:
        return self._consumers[name].config

    def __iter__(self) -> Iterator[str]:
        return iter(self._consumers)

    def __len__(self) -> int:
        return len(self._consumers)


def _ceilings(stream: StreamOfConsumers) -> Ceilings:
    limits = stream.jetstream.options.limits
    return Ceilings(
        max_ack_pending=limits.max_ack_pending,
        max_request_batch=limits.max_request_batch,
        account_max_ack_pending=_limits(stream).max_ack_pending,
    )


def _limits(stream: StreamOfConsumers) -> AccountLimits:
    """Return the account's limits for consumers of the stream."""
    return stream.account.tiers.limits_of(stream.config.num_replicas)


def _new_name(stream: StreamOfConsumers) -> str:
    while True:
        name = _random_name(stream)
        if name not in stream.consumers:
            return name


def _random_name(stream: StreamOfConsumers) -> str:
    return short_hash(stream.jetstream.random_bytes(NAME_SEED_BYTES))


def _is_text(name: str) -> bool:
    """Tell whether the name can be a file name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_files(error: Exception) -> ApiError:
    if isinstance(error, StoreFull) or is_out_of_space(error):
        return api_error(ErrorId.JSStorageResourcesExceededErr)
    return _store_failed()


def _store_failed() -> ApiError:
    return api_error(ErrorId.JSConsumerCreateErrF, err="error creating store for consumer")
