"""A change of leader: a stream that stops to lead its replicas, and one that begins.

    step_down   take nothing more ─▶ undo what is not committed, answer it with an error ─▶ Follower
    lead        all that was applied is durable ─▶ propose every change ─▶ take messages, deliver

Promise
- After `step_down` the stream is what the committed commands make: the messages, delayed messages,
  message ids, configuration and consumers. Nothing that was shown or answered is undone.
- Publishers whose message was committed get their acknowledgement; the others get an error, as do
  pull requests that wait.

Source: nats-server's `stream.setLeader` and `consumer.setLeader`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from natsd.core.steps import Breaks
from natsd.jetstream.commands.commands import (
    Command,
    PublishBatch,
    ReconfigureStream,
    StreamCommand,
)
from natsd.jetstream.commands.committer import CommandCommitter, NotCommitted
from natsd.jetstream.consumer import lifecycle
from natsd.jetstream.errors import ApiError
from natsd.jetstream.stream.batches import forget_batches
from natsd.jetstream.stream.follower import Follower
from natsd.jetstream.stream.limits import store_limits
from natsd.jetstream.stream.proposing import begin_proposing, end_proposing
from natsd.store.disk.disk import is_transient
from natsd.store.errors import StoreError

if TYPE_CHECKING:
    from natsd.jetstream.stream.committed import CommittedState
    from natsd.jetstream.stream.stream import Stream

T = TypeVar("T")

RETRY_S: Final = 1.0

_logger = logging.getLogger(__name__)


class SteppedDown(NamedTuple):
    """A stream that follows, in the committed state up to changes that were not written yet."""

    follower: Follower
    undone: list[Command]
    """Committed changes that were undone."""
    committed: int
    """Index of the last committed command."""

    async def apply_again(self) -> Follower:
        """Apply what was undone; return the follower. Raises StoreError, OSError."""
        await self.follower.apply_again(self.undone, self.committed)
        self.follower.stream.readers.applied()
        return self.follower


async def step_down(stream: "Stream") -> SteppedDown:
    """Go on as a follower, in the committed state.

    What finds no space is tried again, so nothing is left half done. Raises StoreError, OSError,
    ApiError.
    """
    await stream.end_leading()
    proposer, committed = stream.readers.proposer, stream.committed
    if proposer is None or committed is None:  # it had not begun to lead
        return SteppedDown(Follower(stream), [], stream.readers.log.applied_index)
    stream.readers.stored_again = stream.readers.committed
    try:
        await _patiently(stream, lambda: stream.store.undo(NotCommitted()))
    finally:
        stream.readers.stored_again = 0
    forget_batches(stream)
    left = stream.readers.log.durable_index
    kept: list[Command] = []
    if stream.scheduled is not None:
        delays = stream.scheduled.delays
        delayed = await _patiently(stream, delays.undo)
        await _patiently(stream, delays.follow)
        kept += [command for at, command in delayed if at <= left]
    kept += [
        _changes_of_messages(each)
        for each in proposer.commands_behind(left)
        if not isinstance(each, ReconfigureStream)
    ]
    end_proposing(stream)
    await _undo_consumers(stream, committed)
    follower = Follower(stream)
    if stream.config != committed.config:
        await _patiently(stream, lambda: stream.follow_config(committed.config))
        follower.forget_limits()
    return SteppedDown(follower, kept, proposer.committed)


async def _patiently(stream: "Stream", do: Callable[[], Awaitable[T]]) -> T:
    """Return what `do` does, which is tried again as long as it finds no space. Raises the rest."""
    while True:
        try:
            return await do()
        except (StoreError, OSError, ApiError) as error:
            if not is_transient(error.__cause__ or error):
                raise
            _logger.warning("JetStream: stream %s steps down later: %s", stream.name, error)
        await asyncio.sleep(RETRY_S)


async def stop_leading(stream: "Stream") -> None:
    """Take and deliver nothing more; the state, which may be damaged, is left as it is.

    The files of the consumers are closed without writing.
    """
    await stream.end_leading()
    if stream.agreement is not None:
        stream.agreement.end()
    breaks = Breaks()
    for consumer in list(stream.consumers.values()):
        consumer.change_leader()
        await consumer.store.abandon()
        await breaks.take()


async def lead(follower: Follower, committer: CommandCommitter) -> "Stream":
    """Go on as the leader, after the last command that was applied. Raises StoreError."""
    stream, index = follower.stream, follower.applied
    await stream.store.synced()
    begin_proposing(stream, committer, index)
    breaks = Breaks()
    for consumer in list(stream.consumers.values()):
        await lifecycle.lead(consumer)
        await breaks.take()
    stream.store.update_limits(store_limits(stream.config), 0)
    await stream.begin()
    return stream


async def _undo_consumers(stream: "Stream", committed: "CommittedState") -> None:
    breaks = Breaks()
    undone: list[Callable[[], Awaitable[None]]] = []
    for consumer in list(stream.consumers.values()):
        known = committed.consumers.get(consumer.name)
        if known is None or known.store is not consumer.store:
            following = await lifecycle.replace(consumer, consumer.asset)
            undone.append(following.delete)
        else:
            following = await lifecycle.replace(consumer, known.asset)
            if consumer.asset != known.asset:
                undone.append(following.write_asset)
        await breaks.take()
    for undo in undone:
        await _patiently(stream, undo)
    for name, known in committed.consumers.items():
        if name not in stream.consumers:
            state = known.store.committed.tracker.encode()
            make = partial(lifecycle.make_again, stream, name, known.asset, state)
            await _patiently(stream, make)
            await breaks.take()


def _changes_of_messages(command: StreamCommand) -> StreamCommand:
    """Return the command without the changes of consumers that a batch contains."""
    if isinstance(command, PublishBatch):
        return PublishBatch(tuple(e for e in command.commands if isinstance(e, StreamCommand)))
    return command
