"""The internal client, one per account, with which the server's own parts use NATS.

- Nothing is recursive: messages and callbacks are queued, and run at the end of the reactor's turn.
- If a callback raises, the exception is logged; the publisher and other subscribers notice nothing.
- Clients of the account cannot guess the reply subject of a request, and answer it in advance.
- All methods must be called on the server's event loop.
"""

import asyncio
import os
from collections.abc import Callable, Iterable
from typing import Final

from natsd.core.network import AccountPublisher, CallbackSink, Reactor, Session
from natsd.core.routing import InvalidSubject, Sink, SubList, Subscription

Handler = Callable[[str, str | None, bytes, bytes], object]
"""Called with subject, reply, header block (empty: none) and payload."""
Service = Callable[[str, str | None, bytes, bytes, Session | None], object]
"""Called with the arguments of a Handler and the connection that published; None: the server."""

INBOX_PREFIX: Final = "_INBOX.$internal."
INBOX_BYTES: Final = 12
"""Random bytes in a reply subject."""
_SEPARATORS: Final = frozenset(" \t\r\n")


class NoRespondersError(Exception):
    """The subject of a request has no subscription, or the server stops."""


class InternalClient:
    """Publishes, subscribes and sends requests inside one account."""

    def __init__(self, reactor: Reactor, sublist: SubList, publisher: AccountPublisher) -> None:
        self._reactor = reactor
        self._sublist = sublist
        self._publisher = publisher
        self._subscriptions: set[Subscription] = set()
        self._requests: set[asyncio.Future[bytes]] = set()

    def publish(
        self, subject: str, payload: bytes = b"", *, reply: str | None = None, headers: bytes = b""
    ) -> None:
        """Queue a message; `headers` is a whole header block (`NATS/1.0` line to empty line).

        Raises InvalidSubject if `subject` or `reply` is empty or holds whitespace. A subject that
        is malformed in another way reaches no subscriber, as when a client publishes it.
        """
        self._publisher.publish_later(
            wire_subject(subject), payload, None if reply is None else wire_subject(reply), headers
        )

    def subscribe(
        self, subject: str, handler: Handler, *, queue: str | None = None
    ) -> Subscription:
        """Call `handler` with each message on `subject`, as a member of `queue` if given.

        Raises InvalidSubject.
        """
        return self._subscribed(subject, queue, CallbackSink(self._reactor, handler))

    def serve(self, subject: str, service: Service, *, is_private: bool = False) -> Subscription:
        """Call `service` with each message and the connection that published it.

        If it `is_private`, clients of other servers do not reach it. Raises InvalidSubject.
        """
        sink = CallbackSink(self._reactor, service, tells_origin=True)
        return self._subscribed(subject, None, sink, is_private=is_private)

    def serve_all(
        self, subjects: Iterable[str], service: Service, *, refused: Iterable[str] = ()
    ) -> list[Subscription]:
        """Call `service` with each message on these subjects, as `serve` does.

        Messages whose subject begins with one of `refused` are not accepted. Raises InvalidSubject.
        """
        prefixes = tuple(wire_subject(prefix) for prefix in refused)
        sink = CallbackSink(self._reactor, service, tells_origin=True, refused=prefixes)
        return [self._subscribed(subject, None, sink) for subject in subjects]

    def _subscribed(
        self, subject: str, queue: str | None, sink: Sink, *, is_private: bool = False
    ) -> Subscription:
        subscription = Subscription(subject, queue, sid=b"0", sink=sink)
        subscription.is_private = is_private
        self._sublist.insert(subscription)
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; messages that are already queued still reach the handler."""
        self._subscriptions.discard(subscription)
        self._sublist.remove(subscription)
        subscription.detach()

    def has_interest(self, subject: str) -> bool:
        """Tell whether anybody listens on a subject, here or on another server."""
        return self._sublist.has_interest(subject)

    async def request(
        self, subject: str, payload: bytes = b"", *, timeout_s: float = 2.0, headers: bytes = b""
    ) -> bytes:
        """Send a request and return the payload of the first reply.

        Raises NoRespondersError at once if `subject` has no subscription, TimeoutError if no reply
        came within `timeout_s` seconds, InvalidSubject.
        """
        wire_subject(subject)
        if not self._sublist.has_interest(subject):
            raise NoRespondersError(f"nobody listens on {subject!r}")
        inbox = f"{INBOX_PREFIX}{os.urandom(INBOX_BYTES).hex()}"
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
        """Remove all subscriptions; pending requests raise NoRespondersError."""
        for answer in self._requests:
            if not answer.done():
                answer.set_exception(NoRespondersError("the server stops"))
        for subscription in list(self._subscriptions):
            self.unsubscribe(subscription)


def wire_subject(subject: str) -> bytes:
    """Return a subject as bytes of the wire.

    Raises InvalidSubject if it is empty or holds whitespace.
    """
    if not subject or not _SEPARATORS.isdisjoint(subject):
        raise InvalidSubject(f"{subject!r} is not one word")
    return subject.encode("utf-8", "surrogateescape")
