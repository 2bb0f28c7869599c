"""The client that the server's own parts publish, subscribe and request with: one per account.

- Nothing is recursive: messages and callbacks are queued and carried out at the end of the
  reactor's turn.
- A callback that raises is logged; it disturbs neither the publisher nor other subscribers.
- It is used on the server's event loop only.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from natsd.core.internal import CallbackSink, IgnoringSink
from natsd.core.outlet import Outlet
from natsd.core.reactor import Reactor
from natsd.core.subject import InvalidSubject
from natsd.core.sublist import SubList
from natsd.core.subscription import Sink, Subscription
from natsd.core.wire import Wire

Handler = Callable[[str, str | None, bytes, bytes], object]
"""Called with subject, reply, header block (empty: none) and payload."""
Service = Callable[[str, str | None, bytes, bytes, Wire | None], object]
"""Called with the same, and with the connection that published; None: the server itself."""

INBOX_PREFIX: Final = "_INBOX.$internal."
_SEPARATORS: Final = frozenset(" \t\r\n")


class NoRespondersError(Exception):
    """Nobody listens on the subject of a request."""


class InternalClient:
    """Publish, subscribe and request inside one account."""

    def __init__(self, reactor: Reactor, sublist: SubList, outlet: Outlet) -> None:
        self._reactor = reactor
        self._sublist = sublist
        self._outlet = outlet
        self._subscriptions: set[Subscription] = set()
        self._requests: set[asyncio.Future[bytes]] = set()
        self._last_request = 0

    def publish(
        self, subject: str, payload: bytes = b"", *, reply: str | None = None, headers: bytes = b""
    ) -> None:
        """Queue a message; `headers` is a whole header block (`NATS/1.0` line to empty line).

        Raises InvalidSubject for what would break the protocol; what is malformed otherwise reaches
        nobody, as if a client had published it.
        """
        self._outlet.publish_later(
            wire_subject(subject), payload, None if reply is None else wire_subject(reply), headers
        )

    def subscribe(
        self, subject: str, handler: Handler, *, queue: str | None = None
    ) -> Subscription:
        """Have `handler` called with each message; raises InvalidSubject."""
        return self._subscribed(subject, queue, CallbackSink(self._reactor, handler))

    def serve(self, subject: str, service: Service) -> Subscription:
        """Have `service` called with each message, and with who sent it; raises InvalidSubject."""
        return self._subscribed(
            subject, None, CallbackSink(self._reactor, service, tells_origin=True)
        )

    def ignore(self, subject: str, *, refused: tuple[str, ...] = ()) -> Subscription:
        """Take messages and do nothing, so that their senders are not told that nobody listens.

        Messages whose subject begins with one of `refused` are not taken. Raises InvalidSubject.
        """
        return self._subscribed(subject, None, IgnoringSink(tuple(map(wire_subject, refused))))

    def _subscribed(self, subject: str, queue: str | None, sink: Sink) -> Subscription:
        subscription = Subscription(subject, queue, sid=b"0", sink=sink)
        self._sublist.insert(subscription)
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop; messages already queued for the handler still reach it."""
        self._subscriptions.discard(subscription)
        self._sublist.remove(subscription)
        subscription.detach()

    async def request(
        self, subject: str, payload: bytes = b"", *, timeout_s: float = 2.0, headers: bytes = b""
    ) -> bytes:
        """The payload of the first answer. Raises NoRespondersError at once, TimeoutError later."""
        wire_subject(subject)
        if not self._sublist.has_interest(subject):
            raise NoRespondersError(f"nobody listens on {subject!r}")
        self._last_request += 1
        inbox = f"{INBOX_PREFIX}{self._last_request}"
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def answered(_subject: str, _reply: str | None, _headers: bytes, data: bytes) -> None:
            if not answer.done():
                answer.set_result(data)

        subscription = self.subscribe(inbox, answered)
        self._requests.add(answer)
        try:
            self.publish(subject, payload, reply=inbox, headers=headers)
            async with asyncio.timeout(timeout_s):
                return await answer
        finally:
            self._requests.discard(answer)
            self.unsubscribe(subscription)

    def close(self) -> None:
        """Unsubscribe from everything; requests under way end with NoRespondersError."""
        for answer in self._requests:
            if not answer.done():
                answer.set_exception(NoRespondersError("the server stops"))
        for subscription in list(self._subscriptions):
            self.unsubscribe(subscription)


def wire_subject(subject: str) -> bytes:
    """The subject as it stands on the wire; it must be one word there."""
    if not subject or not _SEPARATORS.isdisjoint(subject):
        raise InvalidSubject(f"{subject!r} is not one word")
    return subject.encode("utf-8", "surrogateescape")
