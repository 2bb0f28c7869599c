"""From the entries of an archive to a stream's directory, which nobody serves yet.

    entries ──▶ StreamBuilder ──▶ <somewhere>.new/  meta.json  msgs/  obs/  duplicates.db
                                  and then its place among the streams: renamed

Promise
- Nothing is believed: names, configurations, states and messages are checked as they come, and
  what does not add up is a DamagedEncoding, an ApiError or a StoreError.
- Messages go through a file store of the volume, so they are encrypted and compressed as the
  stream's are to be, in slices that leave the loop its turns.
- All of it is on disk when `finish` returns; `give_up` leaves nothing. Directories whose names end
  with `.new` mean nothing after a crash.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec

from natsd.jetstream.archive.contents import (
    CONSUMER_META,
    CONSUMER_STATE,
    CONSUMERS,
    IDS,
    MESSAGES_STATE,
    META,
    ArchivedConsumer,
    decode_state,
    is_block,
    tracker_of,
)
from natsd.jetstream.asset_file import write_asset
from natsd.jetstream.consumer.files import STATE, consumer_directory
from natsd.jetstream.models.base import Model
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.go_json import InvalidJson, decode
from natsd.jetstream.models.stream import Storage, StreamConfig
from natsd.jetstream.names import NAME_BYTES_MAX, byte_length, is_valid_asset_name
from natsd.jetstream.stream.duplicates_file import leave_duplicates
from natsd.jetstream.stream.files import MESSAGES, StreamAsset
from natsd.jetstream.stream.limits import UNCOUNTED_BYTES, is_compressed
from natsd.store import consumer_files
from natsd.store.consumer_tracker import ConsumerTracker
from natsd.store.disk import make_directories
from natsd.store.errors import DamagedEncoding, InvalidConsumerState
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.snapshot import append_image, end_as
from natsd.store.snapshot_image import open_image
from natsd.store.store import Limits
from natsd.store.vault import Vault
from natsd.store.volume import Volume

M = TypeVar("M", bound=Model)
ConsumerCheck = Callable[[ArchivedConsumer, StreamConfig, Mapping[str, ConsumerConfig]], None]
"""Whether the stream may have the consumer beside these; raises ApiError."""


class StreamBuilder:
    """`begin`, `take` for each entry, `finish` or `give_up`."""

    def __init__(
        self,
        volume: Volume,
        vault: Vault,
        directory: Path,
        place: Path,
        random_bytes: Callable[[int], bytes],
        options: FileOptions,
        *,
        config: StreamConfig | None = None,
        check_consumer: ConsumerCheck = lambda *_: None,
    ) -> None:
        self.directory = directory
        self.asset = StreamAsset(config=StreamConfig(), created=0)
        self.is_whole = False
        self._volume = volume
        self._vault = vault
        self._place = place
        self._random_bytes = random_bytes
        self._options = options
        self._config = config
        self._check_consumer = check_consumer
        self._store: FileStore | None = None
        self._consumer: ArchivedConsumer | None = None
        self._consumers: dict[str, ConsumerConfig] = {}
        self._message_ids = b""

    @property
    def stored_bytes(self) -> int:
        """Of messages, so far."""
        return 0 if self._store is None else self._store.log.live_bytes

    @property
    def num_messages(self) -> int:
        """So far."""
        return 0 if self._store is None else self._store.log.msgs

    @property
    def num_consumers(self) -> int:
        """So far."""
        return len(self._consumers)

    async def begin(self) -> None:
        """Make the directory. Raises OSError."""
        await self._volume.read(self._volume.make_directory, self.directory)

    async def take(self, name: str, body: bytes) -> None:
        """The next entry. Raises DamagedEncoding, ApiError, StoreError, OSError."""
        if self._store is None:
            if name != META:
                raise DamagedEncoding(f"the archive begins with {name!r}")
            await self._take_stream(body)
        elif self.is_whole:
            raise DamagedEncoding(f"{name!r} stands behind the end of the messages")
        elif name == MESSAGES_STATE:
            self._take_end(self._store, body)
        elif is_block(name):
            await self._take_block(self._store, body)
        elif name == IDS:
            self._message_ids = body
        elif name.startswith(CONSUMERS) and name.endswith(CONSUMER_META):
            self._take_consumer(body)
        elif name.startswith(CONSUMERS) and name.endswith(CONSUMER_STATE):
            await self._take_consumer_state(body)
        else:
            raise DamagedEncoding(f"the archive holds {name!r}, which is not known here")

    async def finish(self) -> StreamAsset:
        """All entries were taken. Raises DamagedEncoding, StoreError, OSError."""
        if self._store is None or not self.is_whole or self._consumer is not None:
            raise DamagedEncoding("the archive is not whole")
        await self._store.close()
        await self._volume.committer.forget_below(self.directory)
        await self._volume.read(self._write_rest)
        return self.asset

    async def give_up(self) -> None:
        """Remove all of it. Raises StoreError, OSError."""
        if self._store is not None:
            with contextlib.suppress(Exception):  # whatever it was, the files go
                await self._store.destroy()
        await self._volume.remove_tree(self.directory)

    # Entries

    async def _take_stream(self, body: bytes) -> None:
        asset = _decode(StreamAsset, body)
        if self._config is not None:
            if asset.config.name != self._config.name:
                raise DamagedEncoding("stream names do not match")
            asset = asset.model_copy(update={"config": self._config})
        if asset.config.name != self._place.name or asset.config.storage is not Storage.FILE:
            raise DamagedEncoding("the archive is not of a file stream of that name")
        self.asset = asset
        self._store = await FileStore.open(
            self._volume,
            self.directory / MESSAGES,
            Limits(uncounted_bytes=UNCOUNTED_BYTES[Storage.FILE]),
            self._random_bytes,
            replace(self._options, compress=is_compressed(asset.config)),
        )

    async def _take_block(self, store: FileStore, body: bytes) -> None:
        block = await self._volume.read(open_image, body)
        for _ in append_image(store.log, block):
            if store.is_over_limit:
                await store.room()
            else:
                await asyncio.sleep(0)

    def _take_end(self, store: FileStore, body: bytes) -> None:
        try:
            end_as(store.log, decode_state(body))
        except (msgspec.MsgspecError, OverflowError) as error:
            raise DamagedEncoding(f"{MESSAGES_STATE} is not understood: {error}") from None
        self.is_whole = True

    def _take_consumer(self, body: bytes) -> None:
        consumer = _decode(ArchivedConsumer, body)
        name = consumer.name
        if self._consumer is not None or name in self._consumers:
            raise DamagedEncoding(f"consumer {name!r} is out of place")
        if not is_valid_asset_name(name) or byte_length(name) > NAME_BYTES_MAX or name == "..":
            raise DamagedEncoding(f"{name!r} is no name of a consumer")
        self._check_consumer(consumer, self.asset.config, self._consumers)
        self._consumer = consumer

    async def _take_consumer_state(self, body: bytes) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            raise DamagedEncoding("the state of no consumer")
        tracker = tracker_of(consumer.config)
        try:
            tracker.decode(body)
            tracker.state().validate()
        except (DamagedEncoding, InvalidConsumerState) as error:
            raise DamagedEncoding(f"the state of consumer {consumer.name!r}: {error}") from None
        await self._volume.read(self._write_consumer, consumer, tracker)
        self._consumers[consumer.name] = consumer.config

    # In threads

    def _write_consumer(self, consumer: ArchivedConsumer, tracker: ConsumerTracker) -> None:
        disk = self._volume.disk
        directory = consumer_directory(self.directory, consumer.name)
        make_directories(disk, directory)
        log = consumer_files.create(disk, directory / STATE, tracker, self._random_bytes)
        log.file.close()
        place = consumer_directory(self._place, consumer.name)
        write_asset(self._vault, directory, consumer.asset, place=place)

    def _write_rest(self) -> None:
        vault, place = self._vault, self._place
        if self._message_ids:
            leave_duplicates(vault, self.directory, self._message_ids, place=place)
        write_asset(vault, self.directory, self.asset, place=place)


def _decode(model: type[M], body: bytes) -> M:
    try:
        return decode(model, body)
    except InvalidJson as error:
        raise DamagedEncoding(f"the archive is not understood: {error}") from None
