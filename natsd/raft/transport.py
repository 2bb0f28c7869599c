"""What the driver needs of a network, and which server a member is on.

A member id names its server: `server << 16 | incarnation`. A member that lost its vote comes back
under the next incarnation.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Protocol

INCARNATION_BITS = 16
SERVER_BITS = 47
Receive = Callable[[bytes], None]


class Transport(Protocol):
    """Frames to and from other servers; frames may be lost, doubled and reordered."""

    frame_bytes_max: int
    """Longest frame that `send` takes."""

    def send(self, server: int, frame: bytes) -> None:
        """Send a frame to a server; if that is not possible, it is lost."""

    def is_reachable(self, server: int) -> bool:
        """Tell whether frames to a server may arrive; False: it is known that they do not."""

    def listen(self, receive: Receive) -> None:
        """Call `receive` with each frame to this server from now on."""

    def close(self) -> None:
        """Send and receive nothing more."""


def server_key(name: str) -> int:
    """Return the number that stands for the server of this name."""
    digest = int.from_bytes(sha256(name.encode()).digest()[:8], "big")
    return digest >> (64 - SERVER_BITS) or 1


def member_id(server: int, incarnation: int = 0) -> int:
    """Return the id of a server's member of a group."""
    assert 0 < server < 1 << SERVER_BITS and 0 <= incarnation < 1 << INCARNATION_BITS
    return server << INCARNATION_BITS | incarnation


def server_of(member: int) -> int:
    """Return the server that a member is on."""
    return member >> INCARNATION_BITS
