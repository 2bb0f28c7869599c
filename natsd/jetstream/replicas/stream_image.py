"""A stream as its replicas have committed it: entries for another replica, and their way back.

    replica that has it                           replica that was left behind
    freeze ─▶ (name, body), (name, body), … ─▶ StreamBuilder ─▶ a directory beside the stream's
    copy   ─▶ (name, body), (name, body), … ─▶ MemoryBuilder ─▶ the parts of a stream in memory

The entries are those of a snapshot (snapshot/contents.py), with one block of messages in memory at
a time. What the leader has only proposed is in none of them. The message ids are those of the
messages of the image, also of messages that were removed; the positions of sources may be later.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sized
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from natsd.jetstream.consumer.files import ConsumerAsset
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.replicas.manifest import Manifest, encode_manifest
from natsd.jetstream.replicas.memory_image import (
    BuiltInMemory,
    MemoryBuilder,
    bare_entries,
    known_entries,
    memory_entries,
)
from natsd.jetstream.schedules.scheduled_messages import ScheduledMessages
from natsd.jetstream.snapshot.contents import (
    ConsumerImage,
    MessageCount,
    SnapshotConsumer,
    StreamImage,
)
from natsd.jetstream.snapshot.replicating import replica_builder, unfinished
from natsd.jetstream.snapshot.taking import consumer_images, freeze_stream
from natsd.jetstream.stream.files import MESSAGES, StreamAsset
from natsd.jetstream.stream.state import visible_state
from natsd.jetstream.stream.stream import Stream
from natsd.store.consumer.tracking import ConsumerTracker
from natsd.store.log_store import LogStore
from natsd.store.recovery.found_damage import FoundDamage
from natsd.store.store import StoreState


class BuiltStream(Protocol):
    """A stream that was built from its entries."""

    async def install(self, stream: Stream) -> Stream:
        """Put it in the place of `stream`, and return it. Raises StoreError, OSError."""


@dataclass(frozen=True, slots=True)
class BuiltInFiles:
    """A stream that was built on disk, in a directory beside that of the stream."""

    asset: StreamAsset
    directory: Path

    async def install(self, stream: Stream) -> Stream:
        """Put it in the place of `stream`, and return it. Raises StoreError, OSError."""
        return await stream.follow_restored(self.asset, self.directory)


class _State(NamedTuple):
    tracker: ConsumerTracker


class _Consumer(NamedTuple):
    name: str
    asset: ConsumerAsset
    store: _State
    directory: Path  # that of the stream: those in memory are in the image too


class _Committed:
    """The committed part of a stream, as `freeze_stream` takes it."""

    def __init__(self, stream: Stream) -> None:
        self.config: StreamConfig = stream.config
        self.created_ns = stream.created_ns
        self.store: LogStore = stream.store
        self.scheduled: ScheduledMessages | None = stream.scheduled
        self.damage: list[FoundDamage] = stream.damage
        committed = stream.committed
        if committed is None:
            found = [(each.name, each.asset, each.store) for each in stream.consumers.values()]
        else:
            self.config = committed.config
            found = [
                (name, each.asset, each.store.committed)
                for name, each in committed.consumers.items()
            ]
        self._consumers = {
            name: _Consumer(name, asset, _State(store.tracker), stream.directory)
            for name, asset, store in found
        }

    @property
    def consumers(self) -> Mapping[str, _Consumer]:
        """The consumers, by name."""
        return self._consumers

    @property
    def public_consumers(self) -> Sized:
        """All of them: the count is not used."""
        return self._consumers

    def encode_message_ids(self) -> bytes:
        """Return none: `entries_of` has an entry with the committed ones."""
        return b""


async def first_state(stream: Stream) -> bytes:
    """Return the data of the first snapshot of a group that begins with a stream.

    Raises StoreError.
    """
    await stream.store.synced()
    return encode_manifest(await manifest_of(stream, 0))


async def manifest_of(stream: Stream, applied: int) -> Manifest:
    """Return the manifest of a stream that has so many commands, or more."""
    end = _committed_state(stream)
    if stream.is_filed:
        return Manifest(applied, end.last_sequence, tuple(_assets(stream).entries()))
    image = await _image(stream)
    end = _committed_state(stream)
    return Manifest(applied, end.last_sequence, tuple(bare_entries(stream, image, end)))


def _committed_state(stream: Stream) -> StoreState:
    log = stream.readers.log
    return visible_state(log, min(stream.readers.committed, log.last_sequence))


def _assets(stream: Stream) -> StreamImage:
    """Return the configurations of the stream and of its consumers, without states."""
    committed = _Committed(stream)
    consumers = [
        ConsumerImage(
            SnapshotConsumer(
                name=each.name,
                config=each.asset.config,
                created=each.asset.created,
                resume=each.asset.resume,
            ),
            b"",
        )
        for each in committed.consumers.values()
    ]
    asset = StreamAsset(config=committed.config, created=stream.created_ns)
    return StreamImage(asset, tuple(consumers))


async def _image(stream: Stream) -> StreamImage:
    committed = _Committed(stream)
    asset = StreamAsset(config=committed.config, created=stream.created_ns)
    return StreamImage(asset, tuple(await consumer_images(committed)))


async def entries_of(stream: Stream) -> AsyncGenerator[tuple[str, bytes]]:
    """Yield names and bodies of the entries of a stream. Raises StoreError, OSError."""
    if not stream.is_filed:
        async with aclosing(memory_entries(stream, await _image(stream))) as entries:
            async for entry in entries:
                yield entry
        return
    taken = await freeze_stream(
        _Committed(stream), partial(unfinished, stream.account), with_consumers=True
    )
    try:
        for entry in taken.image.entries():
            yield entry
        async for entry in known_entries(stream, taken.frozen[MESSAGES].state.last_sequence):
            yield entry
        for name, frozen in taken.frozen.items():
            counts = MessageCount(name, frozen.state)
            for index in range(frozen.num_blocks):
                image = await frozen.image(index)
                if block := counts.add(image):
                    yield block, bytes(image.data)
            yield counts.state_entry()
    finally:
        await taken.release()


async def build(stream: Stream, entries: AsyncIterator[tuple[str, bytes]]) -> BuiltStream:
    """Build the stream of these entries; it is on disk on return if it has files.

    Raises DamagedEncoding, StoreError, OSError.
    """
    if not stream.is_filed:
        return await build_in_memory(stream, entries)
    builder = replica_builder(stream.account, stream.config)
    await builder.begin()
    try:
        async for name, body in entries:
            await builder.take(name, body)
        asset = await builder.finish()
    except BaseException:
        await builder.give_up()
        raise
    return BuiltInFiles(asset, builder.directory)


async def build_in_memory(
    stream: Stream, entries: AsyncIterator[tuple[str, bytes]]
) -> BuiltInMemory:
    """Build the stream in memory of these entries. Raises DamagedEncoding, StoreError."""
    builder = MemoryBuilder(stream.account, stream.config)
    async for name, body in entries:
        await builder.take(name, body)
    return await builder.built()
