"""Construction of a stream's directory from the entries of a snapshot, before it is served.

    entries ──▶ StreamBuilder ──▶ <somewhere>.new/  meta.json  msgs/  delayed/  obs/
                                                    duplicates.db
                                  and then its place among the streams: renamed

Promise
- No input is trusted: names, configurations, states and messages are checked as they come;
  inconsistent input raises a DamagedEncoding, an ApiError or a StoreError.
- Messages go through file stores of the volume, so they are encrypted and compressed like the
  future stream; the work is done in slices that let the event loop go on.
- Everything is on disk when `finish` returns; `give_up` removes everything. Directories whose names
  end with `.new` have no meaning after a crash.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec

from natsd.core.steps import Steps, run_cooperatively
from natsd.jetstream.asset_file import write_asset
from natsd.jetstream.consumer.files import STATE as CONSUMER_DIRECTORY
from natsd.jetstream.consumer.files import consumer_directory
from natsd.jetstream.models.base import Model
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.go_json import InvalidJson, decode
from natsd.jetstream.models.stream import Storage, StreamConfig
from natsd.jetstream.names import NAME_BYTES_MAX, byte_length, is_valid_asset_name
from natsd.jetstream.snapshot.contents import (
    CONSUMER_META,
    CONSUMER_STATE,
    CONSUMERS,
    IDS,
    META,
    POSITIONS,
    STATE,
    SnapshotConsumer,
    decode_state,
    tracker_of,
)
from natsd.jetstream.snapshot.delayed import check_delayed
from natsd.jetstream.sourcing.positions import Positions, keep_positions
from natsd.jetstream.stream.duplicates_file import keep_duplicates
from natsd.jetstream.stream.files import DELAYED, MESSAGES, StreamAsset
from natsd.jetstream.stream.limits import UNCOUNTED_BYTES, is_compressed, store_limits
from natsd.store.backup.block_images import append_image, end_as
from natsd.store.backup.snapshots import open_image
from natsd.store.block.stored_blocks import BLOCK_SUFFIX
from natsd.store.commit.volume import Volume
from natsd.store.consumer import consumer_files
from natsd.store.consumer.tracking import ConsumerTracker
from natsd.store.crypto.vault import Vault
from natsd.store.disk.disk import make_directories
from natsd.store.errors import DamagedEncoding, InvalidConsumerState
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.log.message_log import MessageLog
from natsd.store.log_store import LogStore
from natsd.store.maintenance.check import context_of
from natsd.store.store import Limits

M = TypeVar("M", bound=Model)
ConsumerCheck = Callable[
    [SnapshotConsumer, StreamConfig, Mapping[str, ConsumerConfig]], Steps[None]
]
"""Check whether the stream may have the consumer beside the given ones; raises ApiError."""


class StreamBuilder:
    """Builder of one stream's directory: `begin`, `take` for each entry, `finish` or `give_up`."""

    storage = Storage.FILE

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
        check_consumer: ConsumerCheck,
    ) -> None:
        self.directory = directory
        self.asset = StreamAsset(config=StreamConfig(), created=0)
        self._volume = volume
        self._vault = vault
        self._place = place
        self._random_bytes = random_bytes
        self._options = options
        self._config = config
        self._check_consumer = check_consumer
        self._stores: dict[str, LogStore] = {}  # by the names of their directories
        self._live_bytes: Counter[str] = Counter()  # of the blocks taken so far, by directory
        self._ended: set[str] = set()
        self._consumer: SnapshotConsumer | None = None
        self._consumers: dict[str, ConsumerConfig] = {}
        self._message_ids = b""
        self._positions = Positions()

    @property
    def stored_bytes(self) -> int:
        """Bytes of messages stored so far, including delayed messages."""
        return sum(store.log.live_bytes for store in self._stores.values())

    @property
    def num_messages(self) -> int:
        """Messages stored so far."""
        return self._count(MESSAGES)

    @property
    def num_delayed(self) -> int:
        """Delayed messages stored so far."""
        return self._count(DELAYED)

    @property
    def num_consumers(self) -> int:
        """Consumers stored so far."""
        return len(self._consumers)

    async def begin(self) -> None:
        """Create the directory. Raises OSError."""
        await self._volume.read(self._volume.make_directory, self.directory)

    async def take(self, name: str, body: bytes) -> None:
        """Take the next entry. Raises DamagedEncoding, ApiError, StoreError, OSError."""
        part, _, rest = name.partition("/")
        if not self._stores:
            if name != META:
                raise DamagedEncoding(f"the snapshot begins with {name!r}")
            await self.begin_stream(_decode(StreamAsset, body))
        elif MESSAGES in self._ended or part in self._ended:
            raise DamagedEncoding(f"{name!r} stands behind the end of the messages")
        elif part in (MESSAGES, DELAYED) and (rest == STATE or rest.endswith(BLOCK_SUFFIX)):
            await self._take_messages(part, body, is_end=rest == STATE)
        elif name == IDS:
            self._message_ids = body
        elif name == POSITIONS:
            self._positions = _decode(Positions, body)
        elif name.startswith(CONSUMERS) and name.endswith(CONSUMER_META):
            await self._take_consumer(body)
        elif name.startswith(CONSUMERS) and name.endswith(CONSUMER_STATE):
            await self._take_consumer_state(body)
        else:
            raise DamagedEncoding(f"the snapshot holds {name!r}, which is not known here")

    async def begin_stream(self, asset: StreamAsset) -> None:
        """Take the stream's configuration and creation time, before anything else of it.

        A configuration that was given to the builder takes the place of the stream's own. Raises
        DamagedEncoding if it is of another stream, StoreError, OSError.
        """
        if self._config is not None:
            if asset.config.name != self._config.name:
                raise DamagedEncoding("stream names do not match")
            asset = asset.model_copy(update={"config": self._config})
        if asset.config.name != self._place.name or asset.config.storage is not self.storage:
            raise DamagedEncoding(f"the snapshot is not of a {self.storage} stream of that name")
        self.asset = asset
        limits = Limits(uncounted_bytes=UNCOUNTED_BYTES[self.storage])
        self._stores[MESSAGES] = await self._open(MESSAGES, limits)

    async def add_consumer(self, consumer: SnapshotConsumer, tracker: ConsumerTracker) -> None:
        """Add a consumer with its state. Raises DamagedEncoding, ApiError, OSError."""
        await self._check(consumer)
        await self._keep_consumer(consumer, tracker)
        self._consumers[consumer.name] = consumer.config

    async def append(self, append: Callable[[MessageLog], Iterator[None]]) -> None:
        """Append messages to the stream, in slices between which the event loop goes on.

        Raises StoreError, OSError, and what `append` raises.
        """
        await _append(self._stores[MESSAGES], append)

    async def end_at(self, last_sequence: int, last_time_ns: int) -> None:
        """End the stream there, after all messages were appended, and enforce its limits.

        Messages that are over age are left to the stream's start. Raises StoreError, OSError.
        """
        store = self._stores[MESSAGES]
        if last_sequence > store.log.last_sequence:
            store.log.skip(last_sequence - store.log.last_sequence)
        store.log.set_last_time(last_time_ns)
        store.update_limits(replace(store_limits(self.asset.config), max_age_ns=0), 0)
        await store.settle()
        self._ended.add(MESSAGES)

    async def finish(self) -> StreamAsset:
        """Finish after the last entry and return the stream's configuration and creation time.

        Raises DamagedEncoding if entries are missing; StoreError, OSError.
        """
        await self._check_whole()
        for store in self._stores.values():
            await store.close()
        await self._volume.committer.forget_below(self.directory)
        await self._volume.read(self._write_rest)
        return self.asset

    async def _check_whole(self) -> None:
        if not self._ended or self._ended != self._stores.keys() or self._consumer is not None:
            raise DamagedEncoding("the snapshot is not whole")
        if DELAYED in self._stores:
            await check_delayed(self._stores[DELAYED], self.asset.config.name)

    async def give_up(self) -> None:
        """Remove everything that was built. Raises StoreError, OSError."""
        for store in self._stores.values():
            with contextlib.suppress(Exception):  # the files are removed in any case
                await store.destroy()
        await self._volume.remove_tree(self.directory)

    # Entries

    async def _open(self, name: str, limits: Limits) -> LogStore:
        return await FileStore.open(
            self._volume,
            self.directory / name,
            limits,
            self._random_bytes,
            replace(
                self._options,
                compress=is_compressed(self.asset.config),
                context=context_of(self._vault.root, self._place / name),
            ),
        )

    async def _take_messages(self, name: str, body: bytes, *, is_end: bool) -> None:
        if name not in self._stores:
            if not self.asset.config.allow_msg_schedules:
                raise DamagedEncoding("messages wait in the snapshot: it takes allow_msg_schedules")
            self._stores[name] = await self._open(name, Limits())
        if is_end:
            self._take_end(name, body)
            self._ended.add(name)
        else:
            await self._take_block(name, body)

    async def _take_block(self, name: str, body: bytes) -> None:
        store, block = self._stores[name], await self._volume.read(open_image, body)
        self._live_bytes[name] += block.live_bytes
        await _append(store, lambda log: append_image(log, block))

    def _take_end(self, name: str, body: bytes) -> None:
        try:
            end_as(self._stores[name].log, decode_state(body), self._live_bytes[name])
        except (msgspec.MsgspecError, OverflowError) as error:
            raise DamagedEncoding(f"{STATE} is not understood: {error}") from None

    def _count(self, name: str) -> int:
        store = self._stores.get(name)
        return 0 if store is None else store.log.msgs

    async def _take_consumer(self, body: bytes) -> None:
        consumer = _decode(SnapshotConsumer, body)
        await self._check(consumer)
        self._consumer = consumer

    async def _check(self, consumer: SnapshotConsumer) -> None:
        name = consumer.name
        if self._consumer is not None or name in self._consumers:
            raise DamagedEncoding(f"consumer {name!r} is out of place")
        if not is_valid_asset_name(name) or byte_length(name) > NAME_BYTES_MAX or name == "..":
            raise DamagedEncoding(f"{name!r} is no name of a consumer")
        if name != (consumer.config.durable_name or consumer.config.name or name):
            raise DamagedEncoding(f"consumer {name!r} is configured with another name")
        await run_cooperatively(self._check_consumer(consumer, self.asset.config, self._consumers))

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
        await self._keep_consumer(consumer, tracker)
        self._consumers[consumer.name] = consumer.config

    async def _keep_consumer(self, consumer: SnapshotConsumer, tracker: ConsumerTracker) -> None:
        await self._volume.read(self._write_consumer, consumer, tracker)

    # Functions that run in threads

    def _write_consumer(self, consumer: SnapshotConsumer, tracker: ConsumerTracker) -> None:
        disk = self._volume.disk
        directory = consumer_directory(self.directory, consumer.name)
        make_directories(disk, directory)
        place = consumer_directory(self._place, consumer.name)
        log = consumer_files.create(
            disk,
            directory / CONSUMER_DIRECTORY,
            tracker,
            self._random_bytes,
            place=self._volume.place_of(place / CONSUMER_DIRECTORY),
        )
        log.file.close()
        write_asset(self._vault, directory, consumer.asset, place=place)

    def _write_rest(self) -> None:
        vault, place = self._vault, self._place
        if self._message_ids:
            keep_duplicates(vault, self.directory, self._message_ids, place=place)
        if self._positions.sequences:
            keep_positions(vault, self.directory, self._positions, place=place)
        write_asset(vault, self.directory, self.asset, place=place)


async def _append(store: LogStore, append: Callable[[MessageLog], Iterator[None]]) -> None:
    for _ in append(store.log):
        if store.is_over_limit:
            await store.room()
        else:
            await asyncio.sleep(0)


def _decode(model: type[M], body: bytes) -> M:
    try:
        return decode(model, body)
    except InvalidJson as error:
        raise DamagedEncoding(f"the snapshot is not understood: {error}") from None
