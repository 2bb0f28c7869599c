"""A restored stream for its replicas: the entries of its snapshot, each as a Restore command.

    leader      files in their place ─▶ frozen ─▶ propose(Restore(name, body)) for each entry
    follower    apply: StreamBuilder.take(name, body); after the last one, the built stream

Promise
- The entries are those of contents.py, in their order, and come before every other command of the
  stream: a follower begins with the state that the leader found in the restored files.
- One block of messages is in memory at a time.
"""

import base64
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from natsd.core.steps import Steps
from natsd.jetstream.account_resources import AccountResources
from natsd.jetstream.commands.commands import Command, Restore
from natsd.jetstream.consumer.engine_settings import store_options as consumer_options
from natsd.jetstream.consumer.files import STATE as CONSUMER_DIRECTORY
from natsd.jetstream.consumer.files import FoundConsumer, find_consumers
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.server_resources import ServerResources
from natsd.jetstream.snapshot.builder import ConsumerCheck, StreamBuilder
from natsd.jetstream.snapshot.contents import (
    STATE,
    ConsumerImage,
    MessageCount,
    SnapshotConsumer,
    StreamImage,
)
from natsd.jetstream.stream.duplicates_file import read_duplicates
from natsd.jetstream.stream.files import DELAYED, MESSAGES, StreamAsset
from natsd.jetstream.stream.storage import open_delayed_store, store_options
from natsd.store.backup.frozen_store import FrozenStore
from natsd.store.consumer.consumer_store import ConsumerStore
from natsd.store.file_store import FileStore
from natsd.store.log_store import LogStore

LAST_ENTRY: Final = f"{MESSAGES}/{STATE}"
ID_BYTES: Final = 15  # 20 characters in base64


class RestoredStream(Protocol):
    """A restored stream, as far as its replicas need it."""

    config: StreamConfig
    created_ns: int
    store: LogStore
    jetstream: ServerResources

    @property
    def account(self) -> AccountResources:
        """The account."""

    @property
    def directory(self) -> Path:
        """The directory of the stream's files."""

    def propose(self, command: Command) -> None:
        """Propose a change that was made."""


def builder_of(
    account: AccountResources,
    name: str,
    check_consumer: ConsumerCheck,
    *,
    config: StreamConfig,
    is_given: bool = True,
) -> StreamBuilder:
    """Return a builder of the stream `name`; `is_given`: with `config`, not the snapshot's."""
    jetstream = account.jetstream
    return StreamBuilder(
        jetstream.volume,
        jetstream.vault,
        unfinished(account),
        account.files.stream(name),
        jetstream.random_bytes,
        store_options(account, config),
        config=config if is_given else None,
        check_consumer=check_consumer,
    )


def replica_builder(account: AccountResources, config: StreamConfig) -> StreamBuilder:
    """Return a builder of a replica: it takes what its leader sends, which the leader checked."""
    return builder_of(account, config.name, trust_leader, config=config, is_given=False)


def trust_leader(
    _consumer: SnapshotConsumer, _stream: StreamConfig, _others: Mapping[str, ConsumerConfig]
) -> Steps[None]:
    """Check nothing: the leader did."""
    yield from ()


def unfinished(account: AccountResources) -> Path:
    """Return the path of a new, unused directory."""
    return account.files.snapshots / identity(account)


def identity(account: AccountResources) -> str:
    """Return twenty random characters that cannot be guessed."""
    return base64.urlsafe_b64encode(account.jetstream.random_bytes(ID_BYTES)).decode()


async def propose_restored(stream: RestoredStream) -> None:
    """Propose the state of a restored file stream whose consumers are not open yet.

    Raises StoreError, OSError.
    """
    jetstream = stream.jetstream
    consumers = tuple([each async for each in _consumers(stream)])
    ids = await jetstream.volume.read(read_duplicates, jetstream.vault, stream.directory)
    asset = StreamAsset(config=stream.config, created=stream.created_ns)
    messages = await _freeze(stream, stream.store)
    try:
        for name, body in StreamImage(asset, consumers, ids or b"").entries():
            stream.propose(Restore(name, body))
        if stream.config.allow_msg_schedules:
            await _propose_delayed(stream)
        await _propose_messages(stream, MESSAGES, messages)
    finally:
        await messages.release()


async def _propose_delayed(stream: RestoredStream) -> None:
    store = await open_delayed_store(stream.account, stream.config)
    try:
        if store.log.msgs:
            frozen = await _freeze(stream, store)
            try:
                await _propose_messages(stream, DELAYED, frozen)
            finally:
                await frozen.release()
    finally:
        await store.close()


async def _freeze(stream: RestoredStream, store: LogStore) -> FrozenStore:
    assert isinstance(store, FileStore)
    return await store.freeze(unfinished(stream.account))


async def _propose_messages(stream: RestoredStream, name: str, frozen: FrozenStore) -> None:
    counts = MessageCount(name, frozen.state)
    for index in range(frozen.num_blocks):
        image = await frozen.image(index)
        entry = counts.add(image)
        if entry:
            stream.propose(Restore(entry, bytes(image.data)))
    stream.propose(Restore(*counts.state_entry()))


async def _consumers(stream: RestoredStream) -> AsyncIterator[ConsumerImage]:
    volume = stream.jetstream.volume
    found = await volume.read(find_consumers, stream.jetstream.vault, stream.directory)
    for each in found:
        assert each.asset is not None  # the builder wrote it
        yield ConsumerImage(
            SnapshotConsumer(
                name=each.name,
                config=each.asset.config,
                created=each.asset.created,
                resume=each.asset.resume,
            ),
            await _tracker_of(stream, each),
        )


async def _tracker_of(stream: RestoredStream, found: FoundConsumer) -> bytes:
    """Return the encoded state of a consumer. Raises StoreError, OSError."""
    assert found.asset is not None
    assert not found.is_blank  # the builder wrote its state
    store = await ConsumerStore.open(
        stream.jetstream.volume,
        found.directory / CONSUMER_DIRECTORY,
        consumer_options(found.asset.config),
        stream.jetstream.random_bytes,
    )
    try:
        return store.tracker.encode()
    finally:
        await store.abandon()
