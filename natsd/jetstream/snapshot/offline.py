"""Snapshots without a server: from a stream in a store directory, and back into one.

Promise
- Writing a snapshot changes no byte of the directory; the changes that a server would make at a
  start are made on a copy in memory (store/overlay_disk.py). Reading a snapshot back is all or
  nothing.
- A directory that a server uses is refused (DirectoryLocked).
- Damage is reported, one line each, and damaged messages are not in the snapshot.

Everything here blocks on the disk. The entries are described in contents.py.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, Final, Protocol

from natsd.core.quoting import quoted
from natsd.core.steps import Steps, at_once
from natsd.jetstream.account_resources import why_no_directory
from natsd.jetstream.asset_file import read_asset
from natsd.jetstream.consumer.admission import check_work_queue
from natsd.jetstream.consumer.config import check_config as check_consumer_config
from natsd.jetstream.consumer.defaults import Ceilings
from natsd.jetstream.consumer.files import (
    STATE,
    ConsumerAsset,
    UnsupportedConsumers,
    find_consumers,
)
from natsd.jetstream.errors import ApiError
from natsd.jetstream.models.account import AccountLimits
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.go_json import InvalidJson, decode
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.names import is_valid_asset_name
from natsd.jetstream.snapshot.builder import StreamBuilder
from natsd.jetstream.snapshot.contents import (
    META,
    ConsumerImage,
    MessageCount,
    SnapshotConsumer,
    StreamImage,
    encode_plan,
    is_chosen,
    tracker_of,
)
from natsd.jetstream.stream.config import ConfigRules, check_config
from natsd.jetstream.stream.duplicates_file import read_duplicates
from natsd.jetstream.stream.files import (
    DELAYED,
    MESSAGES,
    AccountFiles,
    StreamAsset,
    install_stream,
)
from natsd.store.backup.block_keys import plan_block
from natsd.store.backup.live_image import LiveImage, live_image
from natsd.store.backup.snapshot_file import SnapshotReader, SnapshotWriter
from natsd.store.block.stored_blocks import StoredBlock, StoredBlocks
from natsd.store.commit.volume import LOCK_NAME, Volume
from natsd.store.consumer import consumer_files
from natsd.store.consumer.tracking import ConsumerTracker
from natsd.store.crypto.keys import OperatorKeys, Random, open_data_key
from natsd.store.crypto.vault import Vault
from natsd.store.disk.disk import Disk
from natsd.store.errors import ConsumerStateDamaged, DamagedEncoding
from natsd.store.file_store import FileOptions
from natsd.store.maintenance.check import (
    Finding,
    context_of,
    finding_of,
    recover_stream,
    stored_blocks,
)
from natsd.store.maintenance.overlay_disk import OverlayDisk
from natsd.store.recovery.full_scan import Recovered
from natsd.store.store import StoreState
from natsd.store.wal.replay import replay

PART_BYTES: Final = 256 << 10
RESTORED: Final = "offline"

Entry = tuple[str, bytes]
"""Name and body of an entry."""
Progress = Callable[[int, int], object]
"""Callback with the amount done and the amount to do, in any unit."""


class EntryWriter(Protocol):
    """A writer of snapshots in some format; each method returns the next bytes of the file."""

    def begin(self) -> bytes:
        """Return the first bytes."""

    def entry(self, name: str, body: bytes) -> bytes:
        """Return the bytes for an entry; the entries are those of contents.py."""

    def end(self) -> bytes:
        """Return the last bytes."""


class NotPossible(Exception):
    """The operation is not possible; the message is the reason, in one line."""


@dataclass(slots=True)
class Transferred:
    """Contents of a snapshot, and the damage that was found, one line each."""

    stream: str = ""
    messages: int = 0
    consumers: int = 0
    delayed: int = 0
    damage: list[str] = field(default_factory=list)


def volume_of(disk: Disk, directory: Path) -> Path:
    """Return the store directory that contains a stream's directory. Raises NotPossible."""
    for parent in directory.parents:
        if disk.exists(parent / LOCK_NAME):
            return parent
    raise NotPossible(f"{directory} is in no store directory: none above it has {LOCK_NAME}")


def write_snapshot(
    disk: Disk,
    directory: Path,
    out: IO[bytes],
    keys: OperatorKeys,
    random: Random,
    progress: Progress,
    writer: EntryWriter | None = None,
) -> Transferred:
    """Write a snapshot of the stream in that directory to `out`, in natsd's format by default.

    Raises NotPossible, DirectoryLocked, AssetDamaged, StoreError, OSError.
    """
    root = volume_of(disk, directory)
    with open_volume(disk, root) as overlay:
        writer = writer or SnapshotWriter()
        taking = StreamTaking(overlay, root, directory, keys, random)
        out.write(writer.begin())
        for entry in taking.entries(progress):
            out.write(writer.entry(*entry))
        out.write(writer.end())
        return taking.done


@contextlib.contextmanager
def open_volume(disk: Disk, root: Path) -> Iterator[OverlayDisk]:
    """Hold the lock of a store directory within the context, and yield what a server would read.

    Raises DirectoryLocked, OSError.
    """
    lock = disk.lock(root / LOCK_NAME)
    try:
        overlay = OverlayDisk(disk)
        replay(overlay, root)
        yield overlay
    finally:
        lock.release()


@dataclass(slots=True)
class _OpenStore:
    """The messages of a stream, or its delayed messages: what a server would recover."""

    name: str
    found: Recovered
    files: StoredBlocks

    def ranges(self) -> Iterator[tuple[StoredBlock, int, int]]:
        """Yield each block with the first and the last sequence that count in it."""
        found = self.found
        ends = [later.block.base_sequence - 1 for _, later in pairwise(found.blocks)]
        for number, stored in enumerate(found.blocks):
            block = stored.block
            last = min([block.last_sequence, found.last_sequence, *ends[number : number + 1]])
            yield stored, max(block.base_sequence, found.first_sequence), last

    def plan(self) -> bytes:
        """Return the keys of all blocks (block_keys.py)."""
        return b"".join(
            plan_block(
                stored.block.seed,
                stored.block.base_sequence,
                stored.block.durable_size,
                stored.block.durable_chain,
                first,
                last,
                self.found.dead,
            )
            for stored, first, last in self.ranges()
        )

    def image(self, stored: StoredBlock, first: int, last: int) -> LiveImage:
        """Read a block and return its live messages."""
        read = self.files.read(stored, stored.physical_end, 0)
        return live_image(read.scan, first, last, self.found.dead)


Choose = Callable[[bytes], bytes]
"""Callback that takes the body of `plan.json` and returns the choice (contents.py: `is_chosen`)."""


class StreamTaking:
    """Reader of one stream, for its snapshot; `done` says what was read so far."""

    def __init__(
        self,
        disk: OverlayDisk,
        root: Path,
        directory: Path,
        keys: OperatorKeys,
        random: Random,
    ) -> None:
        self._disk = disk
        self._root = root
        self._directory = directory
        self._keys = keys
        self._random = random
        self._vault = Vault(disk, root, random, keys)
        self.done = Transferred()

    def entries(self, progress: Progress, choose: Choose | None = None) -> Iterator[Entry]:
        """Yield the entries of the snapshot; with `choose`, only the blocks that it chooses.

        Raises NotPossible, AssetDamaged, StoreError, OSError.
        """
        yield from self._image().entries()
        names = [DELAYED] if self._disk.exists(self._directory / DELAYED) else []
        stores = [self._open(name) for name in (*names, MESSAGES)]
        choice: bytes | None = None
        if choose is not None:
            choice = choose(encode_plan({store.name: store.plan() for store in stores}))
        planned = 0
        for store in stores:
            yield from self._messages(store, progress, choice, planned)
            planned += len(store.found.blocks)

    def _image(self) -> StreamImage:
        asset = read_asset(self._vault, self._directory, StreamAsset)
        consumers = tuple(self._consumers())
        ids = read_duplicates(self._vault, self._directory)
        self.done.stream, self.done.consumers = asset.config.name, len(consumers)
        return StreamImage(asset, consumers, ids or b"")

    def _consumers(self) -> Iterator[ConsumerImage]:
        try:
            consumers = find_consumers(self._vault, self._directory)
        except UnsupportedConsumers as error:
            raise NotPossible(str(error)) from None
        for found in consumers:
            if found.asset is None:
                self.done.damage.append(found.why_not)
                continue
            tracker = tracker_of(found.asset.config)
            state, starting = found.directory / STATE, found.asset.starting
            if starting is not None and found.is_blank:
                tracker.set_starting(starting)
                yield _image_of(found.name, found.asset, tracker)
                continue
            try:
                log, recovery = consumer_files.recover(
                    self._disk,
                    state,
                    tracker,
                    self._random,
                    place=context_of(self._root, state),
                )
            except ConsumerStateDamaged as error:
                self.done.damage.append(f"{error}; the consumer is left out")
                continue
            log.file.close()
            self.done.damage += map(str, recovery.damage)
            yield _image_of(found.name, found.asset, tracker)

    def _open(self, name: str) -> _OpenStore:
        directory = self._directory / name
        context = context_of(self._root, directory)
        opened = open_data_key(self._disk, directory, context, self._keys, self._random)
        data_key = opened.data_key if opened else None
        findings: list[Finding] = []
        found = recover_stream(self._disk, self._root, directory, data_key, self._random, findings)
        findings += map(finding_of, found.damage)
        self.done.damage += map(str, findings)
        files = stored_blocks(self._disk, self._root, directory, data_key, self._random)
        return _OpenStore(name, found, files)

    def _messages(
        self, store: _OpenStore, progress: Progress, choice: bytes | None, planned: int
    ) -> Iterator[Entry]:
        """Yield the blocks of a store, before which the plan has `planned` blocks, and totals."""
        counts = MessageCount(store.name, _state_of(store.found))
        for number, (stored, first, last) in enumerate(store.ranges()):
            progress(number, len(store.found.blocks))
            if choice is not None and not is_chosen(choice, planned + number):
                continue
            image = store.image(stored, first, last)
            if name := counts.add(image, 0 if choice is None else number + 1):
                yield name, image.data
        if store.name == MESSAGES:
            self.done.messages = counts.msgs
        else:
            self.done.delayed = counts.msgs
        if store.name == MESSAGES or counts.msgs or choice is not None:
            yield counts.state_entry()


def _image_of(name: str, asset: ConsumerAsset, tracker: ConsumerTracker) -> ConsumerImage:
    consumer = SnapshotConsumer(
        name=name, config=asset.config, created=asset.created, resume=asset.resume
    )
    return ConsumerImage(consumer, tracker.encode())


def _state_of(found: Recovered) -> StoreState:
    return StoreState(last_sequence=found.last_sequence, last_time_ns=found.last_time_ns)


def read_snapshot(
    disk: Disk,
    snapshot: IO[bytes],
    root: Path,
    account: str,
    keys: OperatorKeys,
    random: Random,
    progress: Progress,
) -> Transferred:
    """Add the snapshot's stream to the account.

    Raises NotPossible, DirectoryLocked, StoreError, OSError; nothing has changed in that case.
    """
    if reason := why_no_directory(account):
        raise NotPossible(f"account {quoted(account)}: {reason}")
    return asyncio.run(_read(disk, snapshot, root, account, keys, random, progress))


async def _read(
    disk: Disk,
    snapshot: IO[bytes],
    root: Path,
    account: str,
    keys: OperatorKeys,
    random: Random,
    progress: Progress,
) -> Transferred:
    loop = asyncio.get_running_loop()
    volume = Volume.open(disk, root, random, loop=loop)
    try:
        vault = Vault(disk, root, random, keys)
        return await _build(volume, vault, snapshot, AccountFiles(root / account), progress)
    finally:
        await volume.close()


async def _build(
    volume: Volume, vault: Vault, snapshot: IO[bytes], files: AccountFiles, progress: Progress
) -> Transferred:
    reader, builder = SnapshotReader(), None
    size = snapshot.seek(0, 2)
    snapshot.seek(0)
    try:
        while part := snapshot.read(PART_BYTES):
            for name, body in reader.feed(part):
                builder = builder or await _begin(volume, vault, files, name, body)
                await builder.take(name, body)
            progress(snapshot.tell(), size)
        reader.finish()
        if builder is None:
            raise DamagedEncoding("the snapshot holds no stream")
        done = Transferred(messages=builder.num_messages, delayed=builder.num_delayed)
        asset = await builder.finish()
        place = files.stream(asset.config.name)
        done.stream, done.consumers = asset.config.name, builder.num_consumers
        install_stream(volume.disk, builder.directory, place)
    except BaseException:
        if builder is not None:
            await builder.give_up()
        raise
    return done


def check_consumer(
    consumer: SnapshotConsumer, stream: StreamConfig, others: Mapping[str, ConsumerConfig]
) -> Steps[None]:
    """Check the rules that hold for consumers in every account. Raises NotPossible."""
    try:
        yield from check_work_queue(consumer.config, stream, others)
        yield from check_consumer_config(consumer.config, stream, Ceilings(), is_recovering=True)
    except ApiError as error:
        raise NotPossible(f"consumer {consumer.name!r}: {error}") from None


async def _begin(
    volume: Volume, vault: Vault, files: AccountFiles, name: str, body: bytes
) -> StreamBuilder:
    """Begin a builder for the stream that the first entry names."""
    if name != META:
        raise DamagedEncoding(f"the snapshot begins with {name!r}")
    try:
        config = decode(StreamAsset, body).config
        at_once(check_config(config, ConfigRules(AccountLimits())))
    except InvalidJson as error:
        raise DamagedEncoding(f"{META} is not understood: {error}") from None
    except ApiError as error:
        raise NotPossible(f"{META}: {error}") from None
    stream = config.name
    if not is_valid_asset_name(stream):
        raise DamagedEncoding(f"{stream!r} is no name of a stream")
    place = files.stream(stream)
    if volume.disk.exists(place):
        raise NotPossible(f"{place} exists")
    options = FileOptions(keys=vault.keys)
    built = files.snapshots / RESTORED
    volume.disk.rmtree(built)
    builder = StreamBuilder(
        volume, vault, built, place, vault.random, options, check_consumer=check_consumer
    )
    await builder.begin()
    return builder
