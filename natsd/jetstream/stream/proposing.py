"""What makes a stream propose its changes to a committer, as the leader of its replicas.

Every change is proposed where it is made, in the turn in which it is made:

    publishes, batches, skips          publish.pyx, atomic_batches.pyx
    removals                           the store says why after each slice (`LogStore.on_removed`)
    delayed messages that are gone     schedules/delays.py
    configurations                     stream.py, consumer/consumer.py, consumer/lifecycle.py
    a restored stream                  snapshot/replicating.py
    deliveries, acknowledgements       the consumer's tracker (`ConsumerTracker.listener`)
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from natsd.jetstream.commands.commands import (
    Command,
    Delete,
    EnforceLimits,
    ExpireMessages,
    PurgeMessages,
    Runs,
)
from natsd.jetstream.commands.committer import CommandCommitter
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.schedules.scheduled_messages import ScheduledMessages
from natsd.jetstream.sourcing.committed_positions import CommittedPositions
from natsd.jetstream.stream.agreement import Agreement
from natsd.jetstream.stream.committed import CommittedState
from natsd.jetstream.stream.state import Proposer, StreamReaders
from natsd.store.log_store import LogStore
from natsd.store.mem_store import MemStore
from natsd.store.store import RemovalCause

if TYPE_CHECKING:
    from natsd.jetstream.consumer.consumer import Consumer

COMMANDS: Final[dict[RemovalCause, Callable[[Runs], Command]]] = {
    RemovalCause.DELETED: partial(Delete, is_erased=False),
    RemovalCause.ERASED: partial(Delete, is_erased=True),
    RemovalCause.PURGED: PurgeMessages,
    RemovalCause.EXPIRED: ExpireMessages,
    RemovalCause.OVER_LIMIT: EnforceLimits,
}


class ProposingStream(Protocol):
    """A stream, as far as its proposals need it."""

    store: LogStore
    readers: StreamReaders
    config: StreamConfig
    committed: CommittedState | None
    committed_positions: CommittedPositions | None
    agreement: Agreement | None
    scheduled: ScheduledMessages | None

    @property
    def consumers(self) -> "Mapping[str, Consumer]":
        """The consumers, by name."""


def begin_proposing(stream: ProposingStream, committer: CommandCommitter, index: int = 0) -> None:
    """Propose every change of the stream from now on; all earlier changes are committed.

    `index` is that of the last command before. Nothing is shown that is not committed.
    """
    if isinstance(stream.store, MemStore):
        stream.store.begin_commits()
    stream.committed = CommittedState(stream.config, stream.committed_positions)
    proposer = Proposer(committer, stream.readers.log, index, stream.committed.take)
    stream.readers.begin_proposing(proposer)
    if stream.scheduled is not None:
        stream.scheduled.delays.begin_proposing(proposer)
    stream.committed.on_delayed = partial(_note_delayed, stream)
    stream.agreement = Agreement(proposer)

    def removed(cause: RemovalCause) -> None:
        proposer.propose_removals(COMMANDS[cause])

    stream.store.on_removed = removed


def _note_delayed(stream: ProposingStream, command: Command) -> None:
    if stream.scheduled is not None:
        stream.scheduled.delays.note_committed(command)


def end_proposing(stream: ProposingStream) -> None:
    """Propose nothing any more; what is there is shown once it is durable."""
    stream.store.on_removed = None
    stream.committed = None
    if stream.agreement is not None:
        stream.agreement.end()
        stream.agreement = None
    for consumer in stream.consumers.values():
        consumer.store.tracker.listener = None
    stream.readers.begin_proposing(None)
