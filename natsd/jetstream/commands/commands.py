"""The commands: each is one change of a stream's or a consumer's state, with all that was decided.

    check ─▶ decide ─▶ propose(command) ─▶ the committer ─▶ apply(index, command)
    on the leader, against the proposed state               on every replica, in one order

Promise
- A command holds every decision: sequence, time, expiry, and the messages that go. Whoever applies
  it reads no clock, draws no random number and checks no limit; the commands of a stream, applied
  in order to an empty one, make the same messages, message ids and consumers.
- Messages that go are given by their sequences, not by the rule that they broke: which block is in
  memory, and where a slice of a long purge ended, decides nothing on another replica.
- A publish and what it replaces (a rollup, a limit) are one command: a replica has both or neither.
- Commands are values: frozen, compared by their fields, encoded by encoding.py.

Creation and deletion of a whole stream are changes of the meta layer (meta.py). The content of a
restored one is in Restore commands.

Source: RAFT's replicated state machine (Ongaro and Ousterhout, 2014, section 2); nats-server's
entry operations in `jetstream_cluster.go` (`streamMsgOp`, `purgeStreamOp`, `updateDeliveredOp`, …).
"""

from typing import TypeAlias

from msgspec import Struct

Runs: TypeAlias = tuple[tuple[int, int], ...]
"""Stream sequences as ascending runs (first, last), both included."""

# Commands that change messages


class Publish(Struct, frozen=True):
    """A message under its sequence; `removed` are the messages that it replaces.

    `is_skipped`: no consumer wants it, so that only its sequence is used up. `is_delayed`: it waits
    outside of the stream (schedules/delays.py), and uses up its sequence too.
    """

    sequence: int
    time_ns: int
    subject: bytes
    headers: bytes = b""
    data: bytes = b""
    expires_ns: int = 0  # 0: no lifetime of its own; -1: never expires
    message_id: bytes = b""  # remembered in the duplicate window; empty: none
    is_skipped: bool = False
    is_delayed: bool = False
    removed: Runs = ()


class PublishBatch(Struct, frozen=True):
    """Commands of which a replica stores all or none: the messages of an atomic batch."""

    commands: tuple["Command", ...]


class Skip(Struct, frozen=True):
    """Use up all sequences up to `last` without a message: a mirror's origin has none there."""

    last: int


class Delete(Struct, frozen=True):
    """Remove messages that a client deleted; `is_erased`: overwrite their bytes too."""

    removed: Runs
    is_erased: bool


class PurgeMessages(Struct, frozen=True):
    """Remove messages that a purge matched: those of one slice of its work."""

    removed: Runs


class PurgeAll(Struct, frozen=True):
    """Remove all messages; the next message gets `next_sequence`."""

    next_sequence: int


class ExpireMessages(Struct, frozen=True):
    """Remove messages that are past `max_age` or their own lifetime."""

    removed: Runs


class EnforceLimits(Struct, frozen=True):
    """Remove messages beyond a limit that was lowered, or not enforced at once."""

    removed: Runs


class Release(Struct, frozen=True):
    """Remove messages that no consumer needs any more (work-queue and interest retention)."""

    removed: Runs


class RemoveDelayed(Struct, frozen=True):
    """Remove delayed messages by their numbers: published, deleted or purged."""

    removed: Runs


class ReconfigureStream(Struct, frozen=True):
    """Give the stream a complete new configuration, as JSON."""

    config: bytes


class Restore(Struct, frozen=True):
    """Take an entry of the snapshot that the stream was restored from (snapshot/contents.py).

    The entries come in their order, and before every other command. The last one,
    `msgs/state.json`, makes the stream what the snapshot says, with its consumers.
    """

    name: str
    body: bytes


# Commands that change consumers


class CreateConsumer(Struct, frozen=True):
    """Create a consumer that delivers from `next_sequence` on.

    `config` is complete, as JSON. `resume`: up to there only the last message of each subject is
    delivered.
    """

    name: str
    config: bytes
    created_ns: int
    next_sequence: int
    resume: int


class UpdateConsumer(Struct, frozen=True):
    """Give a consumer a complete new configuration, as JSON."""

    name: str
    config: bytes


class PauseConsumer(Struct, frozen=True):
    """Have a consumer deliver nothing before `until_ns`; a past time resumes it."""

    name: str
    until_ns: int


class DeleteConsumer(Struct, frozen=True):
    """Delete a consumer."""

    name: str


class ResetConsumer(Struct, frozen=True):
    """Forget all deliveries and acknowledgements; deliver from `next_sequence` on."""

    name: str
    next_sequence: int


class ChangeTracker(Struct, frozen=True):
    """Make changes of what was delivered and acknowledged: entries of the consumer's log, in order.

    store/consumer/consumer_log.pxd has the entries.
    """

    name: str
    entries: bytes


Removal: TypeAlias = PurgeMessages | ExpireMessages | EnforceLimits | Release
"""A command that only removes messages of the stream."""

StreamCommand: TypeAlias = (
    Publish
    | PublishBatch
    | Skip
    | Delete
    | PurgeAll
    | Removal
    | RemoveDelayed
    | ReconfigureStream
    | Restore
)

ConsumerCommand: TypeAlias = (
    CreateConsumer | UpdateConsumer | PauseConsumer | DeleteConsumer | ResetConsumer | ChangeTracker
)

Command: TypeAlias = StreamCommand | ConsumerCommand
