"""What a stream's replicas have committed of its configuration and consumers.

A leader decides and applies ahead of the commit. Here stands what it goes back to when it steps
down; the messages' part of that is the store's (`LogStore.undo`).
"""

import contextlib
from dataclasses import dataclass
from functools import singledispatchmethod
from typing import TypeAlias

from natsd.jetstream.commands.commands import (
    Command,
    CreateConsumer,
    DeleteConsumer,
    PauseConsumer,
    PublishBatch,
    ReconfigureStream,
    ResetConsumer,
    StreamCommand,
    UpdateConsumer,
)
from natsd.jetstream.commands.tracker_entries import TrackerCommand, apply_to_tracker
from natsd.jetstream.consumer.changes import with_required_level
from natsd.jetstream.consumer.files import ConsumerAsset
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.go_json import decode
from natsd.jetstream.models.stream import StreamConfig
from natsd.store.consumer.consumer_store import ConsumerStore
from natsd.store.consumer.memory_consumer_store import MemoryConsumerStore
from natsd.store.consumer.staged_consumer_store import StagedConsumerStore
from natsd.store.errors import StoreError

ConsumerState: TypeAlias = ConsumerStore | MemoryConsumerStore | StagedConsumerStore


@dataclass(slots=True)
class CommittedConsumer:
    """A consumer as of the commit; its state is in `store.committed`."""

    asset: ConsumerAsset
    store: StagedConsumerStore


class CommittedState:
    """Configuration and consumers as of the last committed command."""

    def __init__(self, config: StreamConfig) -> None:
        self.config = config
        self.consumers: dict[str, CommittedConsumer] = {}
        self._made: dict[str, list[CommittedConsumer]] = {}  # not committed, in their order

    def found(self, name: str, asset: ConsumerAsset, store: ConsumerState) -> None:
        """Note a consumer that existed when the stream began to propose."""
        assert isinstance(store, StagedConsumerStore)
        self.consumers[name] = CommittedConsumer(asset, store)

    def made(self, name: str, asset: ConsumerAsset, store: ConsumerState) -> None:
        """Note a consumer whose creation is proposed next."""
        assert isinstance(store, StagedConsumerStore)
        self._made.setdefault(name, []).append(CommittedConsumer(asset, store))

    @singledispatchmethod
    def take(self, command: Command) -> None:
        """Note that the command is committed; commands come in their order."""
        if isinstance(command, TrackerCommand):
            known = self.consumers[command.name]
            apply_to_tracker(command, known.store.committed.tracker)
            known.store.moved()
        else:
            assert isinstance(command, StreamCommand)

    @take.register
    def _(self, command: PublishBatch) -> None:
        for each in command.commands:
            self.take(each)

    @take.register
    def _(self, command: ReconfigureStream) -> None:
        self.config = decode(StreamConfig, command.config)

    @take.register
    def _(self, command: CreateConsumer) -> None:
        made = self._made[command.name]
        self.consumers[command.name] = made.pop(0)
        if not made:
            del self._made[command.name]

    @take.register
    def _(self, command: DeleteConsumer) -> None:
        del self.consumers[command.name]

    @take.register
    def _(self, command: UpdateConsumer) -> None:
        self._configure(command.name, decode(ConsumerConfig, command.config))

    @take.register
    def _(self, command: PauseConsumer) -> None:
        config = self.consumers[command.name].asset.config
        paused = config.model_copy(update={"pause_until": command.until_ns})
        self._configure(command.name, with_required_level(paused))

    def _configure(self, name: str, config: ConsumerConfig) -> None:
        known = self.consumers[name]
        known.asset = known.asset.model_copy(update={"config": config})
        known.store.committed.tracker.max_deliver = max(config.max_deliver, 0)

    @take.register
    def _(self, command: ResetConsumer) -> None:
        known = self.consumers[command.name]
        with contextlib.suppress(StoreError):  # deleted since, or it failed: its readers know
            known.store.committed.reset(command.next_sequence - 1)
        known.store.moved()
