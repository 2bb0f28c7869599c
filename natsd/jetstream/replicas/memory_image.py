"""A stream in memory as entries for another replica, and the way back.

The entries are those of a snapshot (snapshot/contents.py). A bare image has no messages: of these
it has the last sequence only. It is what the RAFT snapshot of a stream in memory consists of.

Promise
- One block of messages is copied at a time, while the stream goes on. What is changed meanwhile may
  be in the image or not: the receiver gets the commands of these changes too.
- The image ends with its state, once the replicas have agreed to all that it may contain.
"""

from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from dataclasses import dataclass

from natsd.jetstream.account_resources import AccountResources
from natsd.jetstream.models.go_json import encode
from natsd.jetstream.models.stream import Storage, StreamConfig
from natsd.jetstream.schedules.delays import Delays
from natsd.jetstream.snapshot.builder import StreamBuilder
from natsd.jetstream.snapshot.contents import (
    IDS,
    POSITIONS,
    ConsumerImage,
    MessageCount,
    SnapshotConsumer,
    StreamImage,
)
from natsd.jetstream.snapshot.replicating import trust_leader, unfinished
from natsd.jetstream.sourcing.positions import Positions
from natsd.jetstream.stream.files import DELAYED, MESSAGES, StreamAsset
from natsd.jetstream.stream.limits import store_limits, without_limits
from natsd.jetstream.stream.storage import store_options
from natsd.jetstream.stream.stream import Stream
from natsd.store.backup.block_images import BLOCK_BYTES_LIMIT, closed_bytes
from natsd.store.backup.live_image import LiveImage
from natsd.store.block.blocks import MsgBlock, copy_messages
from natsd.store.consumer.tracking import ConsumerTracker
from natsd.store.log.message_log import MessageLog
from natsd.store.mem_store import MemStore
from natsd.store.store import Limits, StoreState


class _Copy:
    """The messages of a log up to the last one at this moment, block by block."""

    def __init__(self, log: MessageLog) -> None:
        self.state = log.state()
        self._blocks = list(log.all_blocks)

    def images(self, numbers: Collection[int] | None = None) -> Iterator[LiveImage]:
        """Copy one block after the other; with `numbers`, these messages only."""
        first, last = self.state.first_sequence, self.state.last_sequence
        for block in self._blocks:
            begin, end = max(block.base_sequence, first), min(block.last_sequence, last)
            image = MsgBlock(1, 0, begin, BLOCK_BYTES_LIMIT)
            if numbers is None:
                copy_messages(block, image, begin, end, BLOCK_BYTES_LIMIT)
            else:
                for number in sorted(each for each in numbers if begin <= each <= end):
                    copy_messages(block, image, number, number, BLOCK_BYTES_LIMIT)
            if image.message_count:
                yield LiveImage(closed_bytes(image), image.message_count, image.live_bytes)


def bare_entries(
    stream: Stream, image: StreamImage, end: StoreState
) -> Iterator[tuple[str, bytes]]:
    """Return the entries of a stream that has lost all messages; `end` says what the last was."""
    yield from image.entries()
    yield from _positions(stream)
    delays = _delays_of(stream, image)
    if delays is not None:
        yield MessageCount(DELAYED, delays.log.state()).state_entry()
    yield MessageCount(MESSAGES, end).state_entry()


async def memory_entries(stream: Stream, image: StreamImage) -> AsyncGenerator[tuple[str, bytes]]:
    """Yield the entries of a stream. Raises NotCommitted if it stops to lead meanwhile."""
    for entry in image.entries():
        yield entry
    delays = _delays_of(stream, image)
    if delays is not None:
        await delays.found_all()
        waiting = [each.number for each in delays.hold()]
    messages = _Copy(stream.store.log)
    if delays is not None:
        try:
            counts, copy = MessageCount(DELAYED, delays.log.state()), _Copy(delays.log)
            for block in copy.images(waiting):
                yield counts.add(block), block.data
        finally:
            delays.let_go()
        yield counts.state_entry()
    async for entry in known_entries(stream, messages.state.last_sequence):
        yield entry
    counts = MessageCount(MESSAGES, messages.state)
    for block in messages.images():
        yield counts.add(block), block.data
    await stream.agreed()
    yield counts.state_entry()


async def known_entries(stream: Stream, upto: int) -> AsyncGenerator[tuple[str, bytes]]:
    """Yield what is known of messages up to that sequence, also of those that were removed."""
    if ids := await stream.known_ids.encode_all(upto):
        yield IDS, ids
    for entry in _positions(stream):
        yield entry


def _positions(stream: Stream) -> Iterator[tuple[str, bytes]]:
    positions = stream.committed_positions
    if positions is not None and positions.is_any:
        yield POSITIONS, encode(positions.now())


def _delays_of(stream: Stream, image: StreamImage) -> Delays | None:
    if stream.scheduled is None or not image.asset.config.allow_msg_schedules:
        return None
    return stream.scheduled.delays


@dataclass(frozen=True, slots=True)
class BuiltInMemory:
    """A stream that was built, in memory."""

    asset: StreamAsset
    messages: MemStore
    delayed: MemStore | None
    consumers: Sequence[ConsumerImage]
    message_ids: bytes
    positions: Positions

    async def install(self, stream: Stream) -> Stream:
        """Put it in the place of `stream`, and return it. Raises StoreError, OSError."""
        return await stream.follow_built(
            self.asset,
            self.messages,
            self.delayed,
            self.consumers,
            self.message_ids,
            self.positions,
        )


class MemoryBuilder(StreamBuilder):
    """Builder of a stream in memory: `take` for each entry, then `built`."""

    storage = Storage.MEMORY

    def __init__(self, account: AccountResources, config: StreamConfig) -> None:
        jetstream = account.jetstream
        super().__init__(
            jetstream.volume,
            jetstream.vault,
            unfinished(account),
            account.files.stream(config.name),
            jetstream.random_bytes,
            store_options(account, config),
            check_consumer=trust_leader,
        )
        self._images: list[ConsumerImage] = []

    async def built(self) -> BuiltInMemory:
        """Return what was built. Raises DamagedEncoding if entries are missing."""
        await self._check_whole()
        messages, delayed = self._stores[MESSAGES], self._stores.get(DELAYED)
        assert isinstance(messages, MemStore)
        assert delayed is None or isinstance(delayed, MemStore)
        messages.log.set_limits(without_limits(store_limits(self.asset.config)))
        return BuiltInMemory(
            self.asset, messages, delayed, self._images, self._message_ids, self._positions
        )

    async def _open(self, name: str, limits: Limits) -> MemStore:
        return MemStore(limits)

    async def _keep_consumer(self, consumer: SnapshotConsumer, tracker: ConsumerTracker) -> None:
        self._images.append(ConsumerImage(consumer, tracker.encode()))
