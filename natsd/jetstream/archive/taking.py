"""A stream as of one moment: its messages frozen, and everything else copied.

What consumers delivered and what was acknowledged is copied before the messages are frozen: a
message that a consumer knows of and that went meanwhile is forgotten when it is restored, and none
that waits is missed.

What waits for its Nats-Delay is as of the very moment of the messages: it is noted then, and held
on disk until its own store is frozen. So what becomes due meanwhile is neither lost nor there
twice.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from natsd.jetstream.archive.contents import ArchivedConsumer, ConsumerImage, StreamImage
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.stream import StreamState
from natsd.jetstream.schedules.delays import Entry
from natsd.jetstream.stream.files import DELAYED, MESSAGES, StreamAsset
from natsd.jetstream.stream.info import state_of
from natsd.store.file_store import FileStore
from natsd.store.frozen_store import FrozenStore

if TYPE_CHECKING:
    from natsd.jetstream.stream.stream import Stream


@dataclass(frozen=True, slots=True)
class TakenStream:
    """`frozen`, by the names of their directories, in the order of an archive: to be released."""

    frozen: dict[str, FrozenStore]
    image: StreamImage
    state: StreamState

    async def release(self) -> None:
        """Give up what is held; a second call does nothing. Raises OSError."""
        for frozen in self.frozen.values():
            await frozen.release()


async def freeze_stream(
    stream: "Stream", new_directory: Callable[[], Path], *, with_consumers: bool
) -> TakenStream:
    """A file stream as of now; new directories hold what is needed until it is released. Raises
    StoreError, OSError."""
    store = stream.store
    assert isinstance(store, FileStore)
    consumers = tuple(await _consumers(stream)) if with_consumers else ()
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
    """What is noted as the messages are frozen, and held until `end`."""

    def __init__(self, stream: "Stream") -> None:
        self._stream = stream
        self._delays = stream.scheduled.delays if stream.scheduled is not None else None
        self._waiting: list[Entry] | None = None
        self._is_over = False
        self.message_ids = b""

    async def prepare(self) -> None:
        """It is known what waits."""
        if self._delays is not None:
            await self._delays.found_all()

    def note(self) -> None:
        """This is the moment."""
        if self._is_over:  # who froze it has been cancelled
            return
        self.message_ids = self._stream.encode_message_ids()
        if self._delays is not None:
            self._waiting = self._delays.hold()

    async def freeze_delayed(self, new_directory: Callable[[], Path]) -> dict[str, FrozenStore]:
        """The store of what waited in the moment, if anything did. Raises StoreError, OSError."""
        if self._delays is None or not self._waiting:
            return {}
        return {DELAYED: await self._delays.freeze(new_directory(), self._waiting)}

    def end(self) -> None:
        """Nothing is held any more."""
        self._is_over = True
        if self._delays is not None and self._waiting is not None:
            self._delays.let_go()


async def _consumers(stream: "Stream") -> list[ConsumerImage]:
    """Those that have files, each in a turn of the loop."""
    images = []
    for consumer in list(stream.consumers.values()):
        if consumer.directory is not None:
            asset = consumer.asset
            archived = ArchivedConsumer(
                name=consumer.name, config=asset.config, created=asset.created, resume=asset.resume
            )
            images.append(ConsumerImage(archived, consumer.store.tracker.encode()))
            await asyncio.sleep(0)
    return images


async def check_messages(taken: TakenStream) -> None:
    """Read all of them. Raises ApiError 10064 when some do not verify."""
    lost = 0
    for frozen in taken.frozen.values():
        for index in range(frozen.num_blocks):
            lost += (await frozen.image(index, keep=True)).lost
    if lost:
        text = f"snapshot check detected {lost} bad messages"
        raise api_error(ErrorId.JSStreamSnapshotErrF, err=text)
