"""The committer: who makes a proposed command final, so that it can be shown and never undone.

    one replica         no committer: what is applied is committed at once
    several replicas    a committer for each stream: RAFT's log, once a majority has the command

A stream without a committer makes no command objects: its changes are applied where they are
decided, and each costs one test of a pointer.
"""

from typing import Protocol

from natsd.jetstream.commands.commands import Command
from natsd.store.errors import StoreError


class NotCommitted(StoreError):
    """This server leads the stream's replicas no more, and undid what they had not committed."""

    text = "JetStream system temporarily unavailable"


class CommittedStream(Protocol):
    """A stream whose changes have a committer."""

    @property
    def name(self) -> str:
        """The stream's name in its account."""

    def commit(self, index: int) -> None:
        """Show what is durable and committed: commands up to `index` are committed."""


class CommandCommitter(Protocol):
    """The committer of one stream's commands."""

    def propose(self, command: Command) -> None:
        """Take the stream's next command, which its leader has applied already.

        Commands come in the order in which they were applied; the call returns nothing and does not
        wait. It must not change the stream. Once a majority has a command, the committer calls
        `CommittedStream.commit`; until then nothing of it is shown or answered.
        """
