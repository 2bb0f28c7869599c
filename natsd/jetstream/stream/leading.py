"""A change of leader: a stream that stops to lead its replicas, and one that begins.

    step_down   take nothing more ─▶ undo what is not committed, answer it with an error ─▶ Follower
    lead        all that was applied is durable ─▶ propose every change ─▶ take messages, deliver

Promise
- After `step_down` the stream is what the committed commands make: the messages, message ids,
  configuration and consumers. Nothing that was shown or answered is undone.
- Publishers whose message was committed get their acknowledgement; the others get an error, as do
  pull requests that wait.

Not undone are removals of delayed messages that were not committed (schedules/delays.py).

Source: nats-server's `stream.setLeader` and `consumer.setLeader`.
"""

from typing import TYPE_CHECKING

from natsd.core.steps import Breaks
from natsd.jetstream.commands.commands import PublishBatch, ReconfigureStream, StreamCommand
from natsd.jetstream.commands.committer import CommandCommitter, NotCommitted
from natsd.jetstream.consumer import lifecycle
from natsd.jetstream.stream.follower import Follower
from natsd.jetstream.stream.limits import store_limits
from natsd.jetstream.stream.proposing import begin_proposing, end_proposing

if TYPE_CHECKING:
    from natsd.jetstream.stream.committed import CommittedState
    from natsd.jetstream.stream.stream import Stream


async def step_down(stream: "Stream") -> Follower:
    """Go on as a follower, in the committed state. Raises StoreError, OSError, ApiError."""
    proposer, committed = stream.readers.proposer, stream.committed
    assert proposer is not None and committed is not None
    await stream.end_leading()
    index = proposer.committed
    stream.readers.stored_again = stream.readers.committed
    try:
        await stream.store.undo(NotCommitted())
    finally:
        stream.readers.stored_again = 0
    left = stream.readers.log.durable_index
    kept = [
        each for each in proposer.commands_behind(left) if not isinstance(each, ReconfigureStream)
    ]
    end_proposing(stream)
    await _undo_consumers(stream, committed)
    follower = Follower(stream)
    if stream.config != committed.config:
        await stream.follow_config(committed.config)
        follower.forget_limits()
    await follower.apply_again([_changes_of_messages(each) for each in kept], index)
    return follower


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
    for consumer in list(stream.consumers.values()):
        known = committed.consumers.get(consumer.name)
        if known is None or known.store is not consumer.store:
            await consumer.delete()
        else:
            await lifecycle.follow(consumer, known.asset)
        await breaks.take()
    for name, known in committed.consumers.items():
        if name not in stream.consumers:
            state = known.store.committed.tracker.encode()
            await lifecycle.make_again(stream, name, known.asset, state)
            await breaks.take()


def _changes_of_messages(command: StreamCommand) -> StreamCommand:
    """Return the command without the changes of consumers that a batch contains."""
    if isinstance(command, PublishBatch):
        return PublishBatch(tuple(e for e in command.commands if isinstance(e, StreamCommand)))
    return command
