"""Frames on subjects of an account: each server listens on its own, and publishes to the others'.

    $NRG.F.<server, 12 hexadecimal digits>

The account is the system account, whose interest and messages routes carry between servers. A
server that is not connected has no subscription anywhere, so frames to it are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from natsd.raft.transport import Receive

SUBJECT = "$NRG.F.{:012x}"
FRAME_BYTES_MAX = 1 << 20
Subscription = TypeVar("Subscription")
Handler = Callable[[str, str | None, bytes, bytes], object]


class AccountClient(Protocol[Subscription]):
    """What is needed of an account's internal client."""

    def publish(self, subject: str, payload: bytes = b"") -> None:
        """Queue a message."""

    def subscribe(self, subject: str, handler: Handler) -> Subscription:
        """Call `handler` with subject, reply, headers and payload of each message."""

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription."""

    def has_interest(self, subject: str) -> bool:
        """Tell whether anybody listens, here or on another server."""


class AccountTransport(Generic[Subscription]):
    """The transport of one server."""

    def __init__(
        self,
        client: AccountClient[Subscription],
        server: int,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._client = client
        self._server = server
        self._subjects: dict[int, str] = {}
        self._subscription: Subscription | None = None
        self._receive: Receive | None = None

    def send(self, server: int, frame: bytes) -> None:
        """Publish a frame to a server."""
        self._client.publish(self._subject(server), frame)

    def is_reachable(self, server: int) -> bool:
        """Tell whether the server listens."""
        return self._client.has_interest(self._subject(server))

    def _subject(self, server: int) -> str:
        subject = self._subjects.get(server)
        if subject is None:
            subject = self._subjects[server] = SUBJECT.format(server)
        return subject

    def listen(self, receive: Receive) -> None:
        """Subscribe to this server's subject, and call `receive` with each frame."""
        assert self._subscription is None
        self._receive = receive
        self._subscription = self._client.subscribe(SUBJECT.format(self._server), self._on_message)

    def _on_message(self, subject: str, reply: str | None, headers: bytes, frame: bytes) -> None:
        if self._receive is not None:
            self._receive(frame)

    def close(self) -> None:
        """End the subscription."""
        self._receive = None
        if self._subscription is not None:
            self._client.unsubscribe(self._subscription)
            self._subscription = None
