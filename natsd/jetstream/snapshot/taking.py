"""A stream frozen at one moment: messages are frozen, everything else is copied.

The consumers' delivered and acknowledged messages are copied before the messages are frozen: a
message that a consumer knows and that was removed in between is forgotten at the restore, and no
waiting message is missed.

Messages that wait for their Nats-Delay belong to the very moment at which messages are frozen: they
are noted then, and held on disk until their own store is frozen. A message that becomes due in
between is therefore neither lost nor stored twice.
"""

import asyncio
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from natsd.jetstream.consumer.files import ConsumerAsset
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.stream import StreamConfig, StreamState
from natsd.jetstream.schedules.delays import DelayedEntry
from natsd.jetstream.schedules.scheduled_messages import ScheduledMessages
from natsd.jetstream.snapshot.contents import ConsumerImage, SnapshotConsumer, StreamImage
from natsd.jetstream.stream.files import DELAYED, MESSAGES, StreamAsset
from natsd.jetstream.stream.info import state_of
from natsd.store.backup.frozen_store import FrozenStore
from natsd.store.consumer.tracking import ConsumerTracker
from natsd.store.file_store import FileStore
from natsd.store.log_store import LogStore
from natsd.store.recovery.found_damage import FoundDamage


class TrackedStore(Protocol):
    """A consumer's state, as far as a snapshot needs it."""

    @property
    def tracker(self) -> ConsumerTracker:
        """What was delivered and acknowledged."""


class FreezableConsumer(Protocol):
    """A consumer, as far as a snapshot needs it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def asset(self) -> ConsumerAsset:
        """What its `meta.json` says."""

    @property
    def store(self) -> TrackedStore:
        """Its state."""

    @property
    def directory(self) -> Path | None:
        """The directory of its files; None: it is in no snapshot."""


class FreezableStream(Protocol):
    """A stream, as far as a snapshot of it needs it."""

    config: StreamConfig
    created_ns: int
    store: LogStore
    scheduled: ScheduledMessages | None

    @property
    def consumers(self) -> Mapping[str, FreezableConsumer]:
        """The consumers, by name."""

    @property
    def damage(self) -> list[FoundDamage]:
        """The damage that was found in the stream's files."""

    @property
    def public_consumers(self) -> Sized:
        """The consumers that infos count and list."""

    def encode_message_ids(self) -> bytes:
        """Return the ids in the duplicate window."""


@dataclass(frozen=True, slots=True)
class TakenStream:
    """A frozen stream that must be released.

    `frozen` holds its stores by the names of their directories, in the order of a snapshot.
    """

    frozen: dict[str, FrozenStore]
    image: StreamImage
    state: StreamState

    async def release(self) -> None:
        """Release the frozen stores; a second call does nothing. Raises OSError."""
        for frozen in self.frozen.values():
            await frozen.release()


async def freeze_stream(
    stream: FreezableStream, new_directory: Callable[[], Path], *, with_consumers: bool
) -> TakenStream:
    """Freeze a file stream at the present moment.

    New directories hold the necessary files until it is released. Raises StoreError, OSError.
    """
    store = stream.store
    assert isinstance(store, FileStore)
    consumers = tuple(await consumer_images(stream)) if with_consumers else ()
    moment = _Moment(stream)
    await moment.prepare()
    try:
        messages = await store.freeze(new_directory(), moment.note)
        try:
            delayed = await moment.freeze_delayed(new_directory)
        except BaseException:
            await messages.release()
            raise
    finally:
        moment.end()
    asset = StreamAsset(config=stream.config, created=stream.created_ns)
    state = state_of(messages.state, stream.damage, len(stream.public_consumers))
    image = StreamImage(asset, consumers, moment.message_ids)
    return TakenStream({**delayed, MESSAGES: messages}, image, state)


class _Moment:
    """State noted at the moment when the messages are frozen, and held until `end`."""

    def __init__(self, stream: FreezableStream) -> None:
        self._stream = stream
        self._delays = stream.scheduled.delays if stream.scheduled is not None else None
        self._waiting: list[DelayedEntry] | None = None
        self._is_over = False
        self.message_ids = b""

    async def prepare(self) -> None:
        """Wait until all delayed messages are known."""
        if self._delays is not None:
            await self._delays.found_all()

    def note(self) -> None:
        """Note the state; called at the moment when the messages are frozen."""
        if self._is_over:  # the caller of the freeze has been cancelled
            return
        self.message_ids = self._stream.encode_message_ids()
        if self._delays is not None:
            self._waiting = self._delays.hold()

    async def freeze_delayed(self, new_directory: Callable[[], Path]) -> dict[str, FrozenStore]:
        """Freeze the store of the messages that were delayed then; empty if there were none.

        Raises StoreError, OSError.
        """
        if self._delays is None or not (self._waiting or self._delays.is_replicated):
            return {}
        assert self._waiting is not None
        return {DELAYED: await self._delays.freeze(new_directory(), self._waiting)}

    def end(self) -> None:
        """Release the held messages."""
        self._is_over = True
        if self._delays is not None and self._waiting is not None:
            self._delays.let_go()


async def consumer_images(stream: FreezableStream) -> list[ConsumerImage]:
    """Return the consumers that have files; the event loop goes on after each."""
    images = []
    for consumer in list(stream.consumers.values()):
        if consumer.directory is not None:
            asset = consumer.asset
            found = SnapshotConsumer(
                name=consumer.name, config=asset.config, created=asset.created, resume=asset.resume
            )
            images.append(ConsumerImage(found, consumer.store.tracker.encode()))
            await asyncio.sleep(0)
    return images


async def check_messages(taken: TakenStream) -> None:
    """Read all messages. Raises ApiError 10064 if some of them are damaged."""
    lost = 0
    for frozen in taken.frozen.values():
        for index in range(frozen.num_blocks):
            lost += (await frozen.image(index, keep=True)).lost
    if lost:
        text = f"snapshot check detected {lost} bad messages"
        raise api_error(ErrorId.JSStreamSnapshotErrF, err=text)
