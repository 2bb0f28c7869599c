"""How a replica that lacks something gets it: from another replica, the whole stream or messages.

Any replica that has what is asked for may send it, not only the leader: a member of a RAFT group
that waits for the stream does not vote meanwhile, and without its vote there may be no leader.
"""

from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Protocol, TypeAlias

from natsd.jetstream.replicas.stream_image import BuiltStream
from natsd.jetstream.stream.stream import Stream
from natsd.store.sequence_set import SequenceSet

Source: TypeAlias = Callable[[int], Stream | None]
"""Returns the stream if it has so many commands, and lacks nothing."""

Members: TypeAlias = Callable[[], Iterable[int]]
"""Returns the members of the group."""


class CatchUp(Protocol):
    """The way of a whole stream, or of some of its messages, from and to the other replicas."""

    def offer(self, member: int, source: Source) -> None:
        """Tell others from now on whether this member has the stream, and send it to them."""

    async def interrupt(self) -> None:
        """End what is being sent: the stream is about to change other than by commands."""

    async def withdraw(self) -> None:
        """Tell nothing more, and end what is being sent."""

    async def ask(self, applied: int) -> dict[int, bool]:
        """Ask the other members whether they have so many commands; return what they answer."""

    async def fetch(self, stream: Stream, applied: int) -> BuiltStream:
        """Return the stream of a replica that has so many commands, built beside `stream`.

        It is as late as the committed state of that replica at this moment. Raises StoreError,
        OSError.
        """

    def copies(self, members: Members, store: int, lacking: SequenceSet) -> AsyncGenerator[bytes]:
        """Yield closed blocks with some of the messages, from one member after another.

        `store` is the place among the stream's `file_stores`. The caller takes from `lacking` what
        it has got.
        """
