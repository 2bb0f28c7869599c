"""A follower: a stream that has not begun, and gets its state from the commands of its leader.

Promise
- Only `apply` changes the stream: it takes no messages, enforces no limit, expires nothing and
  delivers nothing.
- Commands are applied one at a time, in the order of their indexes, without a gap. A command that
  cannot be applied raises StoreError or OSError: the follower must not go on.
- After a restart, commands come again whose changes are in the files already, some or all of them:
  the commands from `start_from` on make the same state as if they came once. Each part of the
  state (messages, each consumer) may be as of another command, but none as of an earlier one.
- A message that differs from the one that is stored under its sequence raises Diverged.
- `apply` reads no clock. It may read blocks that are not in memory, and awaits that.

Source: RAFT's state machine; nats-server's `applyStreamEntries` and `applyConsumerEntries`.
"""

from collections.abc import Iterable
from functools import singledispatchmethod
from pathlib import Path
from typing import TYPE_CHECKING

from natsd.core.steps import Breaks, run_cooperatively
from natsd.jetstream.commands.commands import (
    ChangeTracker,
    Command,
    CreateConsumer,
    Delete,
    DeleteConsumer,
    EnforceLimits,
    ExpireMessages,
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
    UpdateConsumer,
)
from natsd.jetstream.consumer import lifecycle
from natsd.jetstream.consumer.config import filters_of
from natsd.jetstream.consumer.start_position import StartPosition
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.go_json import decode
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.snapshot.builder import StreamBuilder
from natsd.jetstream.snapshot.replicating import LAST_ENTRY, replica_builder
from natsd.jetstream.stream.files import StreamAsset
from natsd.jetstream.stream.limits import without_limits
from natsd.jetstream.stream.publishing import (
    apply_publish,
    apply_publishes,
    begin_together,
    end_together,
)
from natsd.store.block.cold_block import ColdBlock
from natsd.store.errors import StoreError

if TYPE_CHECKING:
    from natsd.jetstream.consumer.consumer import Consumer
    from natsd.jetstream.stream.stream import Stream


class Diverged(StoreError):
    """The stream is not what its leader's commands make."""


class Follower:
    """The applying of commands to a stream that was created and has not begun."""

    def __init__(self, stream: "Stream") -> None:
        self._restoring: StreamBuilder | None = None  # of a snapshot of which entries are missing
        self.follow(stream)

    @property
    def applied(self) -> int:
        """Index of the last command that was applied; 0: none."""
        return self.stream.readers.log.applied_index

    def start_from(self, index: int) -> None:
        """Have `apply` go on behind that index; the files may have later changes."""
        self.stream.readers.log.applied_index = index

    async def replace(self, asset: StreamAsset, built: Path) -> None:
        """Put a stream that was built in the place of this one. Raises StoreError, OSError."""
        self.follow(await self.stream.follow_restored(asset, built))

    def follow(self, stream: "Stream") -> None:
        """Go on with a stream that took the place of this one."""
        self.stream = stream
        stream.begin_as_replica()
        stream.begin_noting_positions()
        if stream.scheduled is not None:
            stream.scheduled.delays.replicate()
        self.forget_limits()

    def forget_limits(self) -> None:
        """Leave it to the leader what is removed."""
        store = self.stream.store
        store.log.set_limits(without_limits(store.limits))

    async def apply(self, index: int, command: Command) -> None:
        """Change the stream as the command says. Raises StoreError, OSError."""
        assert index == self.applied + 1
        await self._apply(command)
        self.stream.readers.log.applied_index = index

    def apply_publishes(self, commands: bytes, at: int, count: int) -> tuple[int, int]:
        """Apply publishes as they are encoded; see `publishing.apply_publishes`.

        The first other command is left to `apply`, as is one that comes again. Raises StoreError.
        """
        applied, at = apply_publishes(self.stream.ingest, commands, at, count)
        self.stream.readers.log.applied_index += applied
        return applied, at

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
        if await self._is_new(command):
            apply_publish(self.stream.ingest, command)
        else:
            self._note(command)
        await self._remove(command.removed)

    def _note(self, command: Publish) -> None:
        """Note what the stream knows of a message that comes again: it may be removed."""
        self.stream.known_ids.note_removed(command)
        if command.is_delayed and self.stream.scheduled is not None:
            self.stream.scheduled.delays.take(
                command.sequence, command.subject, command.headers, command.data, command.time_ns
            )
        if self.stream.ingest.noting is not None:
            self.stream.ingest.noting(command.headers)

    async def _is_new(self, command: Publish) -> bool:
        """Return whether the message is not stored yet. Raises Diverged."""
        log = self.stream.readers.log
        if command.sequence > log.last_sequence:
            if command.sequence > log.last_sequence + 1:
                raise Diverged(f"message {log.last_sequence + 1} is missing")
            return True
        if log.has(command.sequence):
            stored = await self.stream.store.load(command.sequence)
            if (stored.time_ns, stored.data) != (command.time_ns, command.data):
                raise Diverged(f"message {command.sequence} differs from that of the leader")
        return False

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
        if publishes and await self._is_new(publishes[0]):
            begin_together(ingest, publishes)
            try:
                for each in publishes:
                    apply_publish(ingest, each)
            finally:
                end_together(ingest)
        else:
            for each in publishes:
                self._note(each)
        for command in commands:
            if isinstance(command, Publish):
                await self._remove(command.removed)
            else:
                await self._apply(command)

    @_apply.register
    async def _(self, command: Skip) -> None:
        missing = command.last - self.stream.readers.log.last_sequence
        if missing > 0:
            self.stream.ingest.skip(missing)

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
        store, next_sequence = self.stream.store, command.next_sequence
        if next_sequence > store.log.last_sequence:
            store.log.clear(next_sequence)
            store.changed()
        else:  # it comes again, and these are later messages
            first = store.log.first_sequence
            await self._remove(((first, next_sequence - 1),) if first < next_sequence else ())

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
        for sequence in _sequences(runs, store.log.first_sequence):
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
            self._restoring = replica_builder(stream.account, stream.config)
            await self._restoring.begin()
        builder = self._restoring
        await builder.take(command.name, command.body)
        if command.name == LAST_ENTRY:
            asset, self._restoring = await builder.finish(), None
            await self.replace(asset, builder.directory)

    # Consumers

    @_apply.register
    async def _(self, command: CreateConsumer) -> None:
        stream, config = self.stream, decode(ConsumerConfig, command.config)
        if stream.own_consumers.comes_again(command.name, command.created_ns):
            return
        known = stream.consumers.get(command.name)
        if known is not None and known.created_ns == command.created_ns:
            return
        if known is not None:  # it was made later, and is made again; or it moves
            await known.delete()
        start = StartPosition(command.next_sequence, resume=command.resume)
        new = lifecycle.NewConsumer(command.name, config, command.created_ns, start)
        wanted = await run_cooperatively(stream.readers.list_filters(filters_of(config)))
        try:
            stream.consumers[command.name] = await lifecycle.make(stream, new, wanted)
        except BaseException:
            stream.readers.unlist(wanted)
            raise
        if stream.consumers[command.name].is_own:
            stream.own_consumers.made()

    def _consumer(self, name: str) -> "Consumer | None":
        """Return the consumer that a command changes; None: it is gone, or a later one is there."""
        return None if self.stream.own_consumers.is_ahead(name) else self.stream.consumers.get(name)

    @_apply.register
    async def _(self, command: UpdateConsumer) -> None:
        consumer = self._consumer(command.name)
        if consumer is not None:
            await consumer.follow(decode(ConsumerConfig, command.config))

    @_apply.register
    async def _(self, command: PauseConsumer) -> None:
        consumer = self._consumer(command.name)
        if consumer is not None:
            await consumer.follow(consumer.paused_config(command.until_ns))

    @_apply.register
    async def _(self, command: DeleteConsumer) -> None:
        consumer = self._consumer(command.name)
        if consumer is not None:
            await consumer.delete()

    @_apply.register
    async def _(self, command: ResetConsumer) -> None:
        consumer = self._consumer(command.name)
        if consumer is not None and not consumer.has_own_state:
            consumer.store.reset(command.next_sequence - 1)

    @_apply.register
    async def _(self, command: ChangeTracker) -> None:
        consumer = self._consumer(command.name)
        if consumer is not None:
            consumer.store.tracker.apply(command.entries)
            consumer.store.commit()


def _sequences(runs: Runs, begin: int) -> Iterable[int]:
    """Return the sequences of the runs, from `begin` on."""
    return (sequence for first, last in runs for sequence in range(max(first, begin), last + 1))
