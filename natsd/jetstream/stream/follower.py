"""A follower: a stream that has not begun, and gets its state from the commands of its leader.

Promise
- Only `apply` changes the stream: it takes no messages, enforces no limit, expires nothing and
  delivers nothing.
- Commands are applied one at a time, in the order of their indexes, without a gap. A command that
  cannot be applied raises StoreError or OSError: the follower must not go on.
- `apply` reads no clock. It may read blocks that are not in memory, and awaits that.

Source: RAFT's state machine; nats-server's `applyStreamEntries` and `applyConsumerEntries`.
"""

from collections.abc import Iterable, Mapping
from functools import singledispatchmethod
from typing import TYPE_CHECKING

from natsd.core.steps import Breaks, Steps, run_cooperatively
from natsd.jetstream.commands.commands import (
    Acknowledge,
    Command,
    CreateConsumer,
    Delete,
    DeleteConsumer,
    Deliver,
    EnforceLimits,
    ExpireMessages,
    ForgetDeliveries,
    Hold,
    LetGo,
    PassOver,
    PauseConsumer,
    Publish,
    PublishBatch,
    PurgeAll,
    PurgeMessages,
    ReconfigureStream,
    Release,
    RemoveDelayed,
    ResetConsumer,
    Restore,
    Runs,
    Skip,
    Terminate,
    UpdateConsumer,
)
from natsd.jetstream.commands.tracker_entries import TrackerCommand, apply_to_tracker
from natsd.jetstream.consumer import lifecycle
from natsd.jetstream.consumer.config import filters_of
from natsd.jetstream.consumer.start_position import StartPosition
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.go_json import decode
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.snapshot.builder import StreamBuilder
from natsd.jetstream.snapshot.contents import SnapshotConsumer
from natsd.jetstream.snapshot.replicating import LAST_ENTRY, builder_of
from natsd.jetstream.stream.limits import without_limits
from natsd.jetstream.stream.publishing import apply_publish, begin_together, end_together
from natsd.store.block.cold_block import ColdBlock

if TYPE_CHECKING:
    from natsd.jetstream.stream.stream import Stream


class Follower:
    """The applying of commands to a stream that was created and has not begun."""

    def __init__(self, stream: "Stream") -> None:
        self.stream = stream
        self._restoring: StreamBuilder | None = None  # of a snapshot of which entries are missing
        self.forget_limits()

    @property
    def applied(self) -> int:
        """Index of the last command that was applied; 0: none."""
        return self.stream.readers.log.applied_index

    def forget_limits(self) -> None:
        """Leave it to the leader what is removed."""
        store = self.stream.store
        store.log.set_limits(without_limits(store.limits))

    async def apply(self, index: int, command: Command) -> None:
        """Change the stream as the command says. Raises StoreError, OSError."""
        assert index == self.applied + 1
        await self._apply(command)
        self.stream.readers.log.applied_index = index

    async def apply_again(self, commands: Iterable[Command], index: int) -> None:
        """Apply committed commands that were undone; the last applied one has that index.

        Raises StoreError, OSError.
        """
        for command in commands:
            await self._apply(command)
        self.stream.readers.log.applied_index = index

    @singledispatchmethod
    async def _apply(self, command: Command) -> None:
        raise AssertionError(command)

    # Messages

    @_apply.register
    async def _(self, command: Publish) -> None:
        apply_publish(self.stream.ingest, command)
        await self._remove(command.removed)

    @_apply.register
    async def _(self, command: PublishBatch) -> None:
        together: list[Command] = []
        for each in command.commands:
            if isinstance(each, PurgeAll):  # what came before it is gone
                await self._apply_together(together)
                await self._apply(each)
                together = []
            else:
                together.append(each)
        await self._apply_together(together)

    async def _apply_together(self, commands: list[Command]) -> None:
        ingest = self.stream.ingest
        publishes = [each for each in commands if isinstance(each, Publish)]
        if publishes:
            begin_together(ingest, publishes)
            try:
                for each in publishes:
                    apply_publish(ingest, each)
            finally:
                end_together(ingest)
        for command in commands:
            if isinstance(command, Publish):
                await self._remove(command.removed)
            else:
                await self._apply(command)

    @_apply.register
    async def _(self, command: Skip) -> None:
        self.stream.ingest.skip(command.last - self.stream.readers.log.last_sequence)

    @_apply.register(PurgeMessages)
    @_apply.register(ExpireMessages)
    @_apply.register(EnforceLimits)
    @_apply.register(Release)
    async def _(self, command: PurgeMessages | ExpireMessages | EnforceLimits | Release) -> None:
        await self._remove(command.removed)

    @_apply.register
    async def _(self, command: Delete) -> None:
        await self._remove(command.removed, erase=command.is_erased)

    @_apply.register
    async def _(self, command: PurgeAll) -> None:
        store = self.stream.store
        store.log.clear(command.next_sequence)
        store.changed()

    @_apply.register
    async def _(self, command: RemoveDelayed) -> None:
        assert self.stream.scheduled is not None
        await self.stream.scheduled.delays.drop(command.removed)

    @_apply.register
    async def _(self, command: ReconfigureStream) -> None:
        await self.stream.follow_config(decode(StreamConfig, command.config))
        self.forget_limits()

    async def _remove(self, runs: Runs, *, erase: bool = False) -> None:
        store, breaks = self.stream.store, Breaks()
        for sequence in _sequences(runs):
            while True:
                try:
                    store.log.delete(sequence, erase=erase)
                    break
                except ColdBlock as cold:
                    await store.fetch(cold.block)
            await breaks.take()
        if runs:
            store.changed()
            self.stream.ingest.count_usage()

    @_apply.register
    async def _(self, command: Restore) -> None:
        stream = self.stream
        if self._restoring is None:
            self._restoring = builder_of(
                stream.account, stream.name, _is_checked, config=stream.config, is_given=False
            )
            await self._restoring.begin()
        builder = self._restoring
        await builder.take(command.name, command.body)
        if command.name == LAST_ENTRY:
            asset, self._restoring = await builder.finish(), None
            self.stream = await stream.follow_restored(asset, builder.directory)
            self.forget_limits()

    # Consumers

    @_apply.register
    async def _(self, command: CreateConsumer) -> None:
        stream, config = self.stream, decode(ConsumerConfig, command.config)
        start = StartPosition(command.next_sequence, resume=command.resume)
        new = lifecycle.NewConsumer(command.name, config, command.created_ns, start)
        wanted = await run_cooperatively(stream.readers.list_filters(filters_of(config)))
        try:
            stream.consumers[command.name] = await lifecycle.make(stream, new, wanted)
        except BaseException:
            stream.readers.unlist(wanted)
            raise

    @_apply.register
    async def _(self, command: UpdateConsumer) -> None:
        consumer = self.stream.consumers[command.name]
        await consumer.update(decode(ConsumerConfig, command.config))

    @_apply.register
    async def _(self, command: PauseConsumer) -> None:
        consumer = self.stream.consumers[command.name]
        await consumer.update(consumer.paused_config(command.until_ns))

    @_apply.register
    async def _(self, command: DeleteConsumer) -> None:
        await self.stream.consumers[command.name].delete()

    @_apply.register
    async def _(self, command: ResetConsumer) -> None:
        self.stream.consumers[command.name].store.reset(command.next_sequence - 1)

    @_apply.register(Deliver)
    @_apply.register(Acknowledge)
    @_apply.register(PassOver)
    @_apply.register(ForgetDeliveries)
    @_apply.register(Hold)
    @_apply.register(LetGo)
    @_apply.register(Terminate)
    async def _(self, command: TrackerCommand) -> None:
        store = self.stream.consumers[command.name].store
        apply_to_tracker(command, store.tracker)
        store.commit()


def _is_checked(
    _consumer: SnapshotConsumer, _stream: StreamConfig, _others: Mapping[str, ConsumerConfig]
) -> Steps[None]:
    """Check nothing: the leader did."""
    yield from ()


def _sequences(runs: Runs) -> Iterable[int]:
    return (sequence for first, last in runs for sequence in range(first, last + 1))
