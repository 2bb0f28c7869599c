"""What a stream's replicas have committed of its configuration and consumers.

A leader decides and applies ahead of the commit. Here stands what it goes back to when it steps
down; the messages' part of that is the store's (`LogStore.undo`).
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatchmethod
from typing import TypeAlias

from natsd.jetstream.commands.commands import (
    ChangeTracker,
    Command,
    CreateConsumer,
    DeleteConsumer,
    PauseConsumer,
    Publish,
    PublishBatch,
    ReconfigureStream,
    RemoveDelayed,
    ResetConsumer,
    StreamCommand,
    UpdateConsumer,
)
from natsd.jetstream.consumer.changes import with_required_level
from natsd.jetstream.consumer.files import ConsumerAsset
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.go_json import decode
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.sourcing.committed_positions import CommittedPositions
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

    def __init__(self, config: StreamConfig, positions: CommittedPositions | None = None) -> None:
        """Begin with what all earlier commands made; `positions` are those of the sources."""
        self.config = config
        self._positions = positions
        self.on_delayed: Callable[[Command], object] = lambda _command: None
        """Called with each command that concerns delayed messages."""
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

    def take(self, command: Command) -> None:
        """Note that the command is committed; commands come in their order."""
        if isinstance(command, Publish):
            if self._positions is not None and self._positions.is_any:
                self._positions.note(command.headers)
            if command.is_delayed:
                self.on_delayed(command)
            return
        self._take(command)

    @singledispatchmethod
    def _take(self, command: Command) -> None:
        assert isinstance(command, StreamCommand)

    @_take.register
    def _(self, command: PublishBatch) -> None:
        for each in command.commands:
            self.take(each)

    @_take.register
    def _(self, command: ChangeTracker) -> None:
        store = self.consumers[command.name].store
        store.committed.tracker.apply(command.entries)
        store.moved()

    @_take.register
    def _(self, command: RemoveDelayed) -> None:
        self.on_delayed(command)

    @_take.register
    def _(self, command: ReconfigureStream) -> None:
        self.config = decode(StreamConfig, command.config)

    @_take.register
    def _(self, command: CreateConsumer) -> None:
        made = self._made[command.name]
        self.consumers[command.name] = made.pop(0)
        if not made:
            del self._made[command.name]

    @_take.register
    def _(self, command: DeleteConsumer) -> None:
        del self.consumers[command.name]

    @_take.register
    def _(self, command: UpdateConsumer) -> None:
        self._configure(command.name, decode(ConsumerConfig, command.config))

    @_take.register
    def _(self, command: PauseConsumer) -> None:
        config = self.consumers[command.name].asset.config
        paused = config.model_copy(update={"pause_until": command.until_ns})
        self._configure(command.name, with_required_level(paused))

    def _configure(self, name: str, config: ConsumerConfig) -> None:
        known = self.consumers[name]
        known.asset = known.asset.model_copy(update={"config": config})
        known.store.committed.tracker.max_deliver = max(config.max_deliver, 0)

    @_take.register
    def _(self, command: ResetConsumer) -> None:
        known = self.consumers[command.name]
        with contextlib.suppress(StoreError):  # deleted since, or it failed: its readers know
            known.store.committed.reset(command.next_sequence - 1)
        known.store.moved()
