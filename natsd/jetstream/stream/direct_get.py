"""Direct get: the requests that the compiled half does not answer, and the exact status texts.

    $JS.API.DIRECT.GET.<stream>             a body that says which message, or which ones
    $JS.API.DIRECT.GET.<stream>.<subject>   the last message of the subject

Promise
- Every request is answered, an error with a status. At most `ASKED_MAX` requests of a stream are in
  work; further ones are answered 429.
- A request for many messages runs in slices, and ends at its `max_bytes`.
- The compiled half (direct.pyx) answers from memory; both halves show durable messages only.
- A read replica answers only clients of its own server, and says in each header block how old its
  state may be (staleness.py). Clients of other servers get their answers from replicas.

Source: ADR-31; nats-server's `processDirectGetRequest`, `getDirectRequest` and `getDirectMulti`.
"""

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from natsd.core.routing import InvalidSubject, Subscription
from natsd.core.wall_time import timestamp
from natsd.jetstream.headers import REQUIRED_API_LEVEL, demands_too_much, header_value
from natsd.jetstream.models.go_json import InvalidJson, decode
from natsd.jetstream.models.requests import StreamMsgGetRequest
from natsd.jetstream.names import (
    SYSTEM_QUEUE,
    direct_get_subjects,
)
from natsd.jetstream.stream.reading import find_message
from natsd.jetstream.stream.staleness import AgeLine, Staleness
from natsd.jetstream.stream.state import DirectBatch, DirectGet, StreamReaders
from natsd.store.codec.records import StoredMessage
from natsd.store.errors import MessageNotFound, StoreEOF, StoreError, TooManyResults
from natsd.store.log_store import LogStore

if TYPE_CHECKING:
    from natsd.jetstream.account_resources import AccountResources
    from natsd.jetstream.server_resources import ServerResources

ASKED_MAX: Final = 1024
BYTES_MAX: Final = 64 << 20
"""Bytes of one answer if the request names no `max_bytes`: the default of max_pending."""
BODY_BYTES_MAX: Final = 128 << 10
"""Longest request body, in bytes: decoding a longer one would hold the event loop too long."""
SUBJECTS_MAX: Final = 1024
CONGESTED_S: Final = 0.002
"""Seconds until a client that falls behind is sent more."""

_BEGIN: Final = b"NATS/1.0\r\n"


class BadDirectGet(Exception):
    """The request is answered with a status instead of a message; the text is the status."""


class ReadStream(Protocol):
    """A stream, as far as its direct gets need it."""

    store: LogStore
    readers: StreamReaders
    jetstream: "ServerResources"

    @property
    def name(self) -> str:
        """The stream's name in its account."""

    @property
    def account(self) -> "AccountResources":
        """The account."""


class DirectGets:
    """The direct gets of a stream, answered between `open` and `close`.

    `of` is the stream that this one mirrors; then its direct gets are answered.
    """

    def __init__(self, stream: ReadStream, of: str = "") -> None:
        self._stream = stream
        self._of = of or stream.name
        self._publisher = stream.account.publisher
        self._sink = DirectGet(stream.readers, self._ask)
        self._subscriptions: list[Subscription] = []
        self._staleness: Staleness | None = None
        self._answering: set[asyncio.Task[None]] = set()

    def open(self, staleness: Staleness | None = None) -> None:
        """Answer requests from now on; a second call does nothing.

        `staleness` is that of a read replica; None: the stream is the leader or a replica.
        """
        if self._subscriptions and self._staleness is staleness:
            return
        self.close()
        self._staleness = staleness
        self._sink.tell_staleness(None if staleness is None else staleness.line)
        for subject in direct_get_subjects(self._of):
            subscription = Subscription(subject, SYSTEM_QUEUE, sid=b"0", sink=self._sink)
            subscription.is_private = staleness is not None
            self._stream.account.account.sublist.insert(subscription)
            self._subscriptions.append(subscription)

    def close(self) -> None:
        """Stop answering."""
        self._stream.account.account.sublist.remove_batch(self._subscriptions)
        for subscription in self._subscriptions:
            subscription.detach()
        self._subscriptions.clear()
        for task in self._answering:
            task.cancel()

    # Requests

    def _ask(self, key: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        if len(self._answering) >= ASKED_MAX:
            self._status(reply, "429 Too Many Requests")
            return
        task = self._stream.jetstream.loop.create_task(self._answer(key, reply, headers, body))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, key: bytes, reply: bytes, headers: bytes, body: bytes) -> None:
        age = None if self._staleness is None else self._staleness.pinned()
        try:
            request = read_request(key.decode("utf-8", "surrogateescape"), headers, body)
            if request.multi_last:
                await self._send_last_ones(request, reply, age)
            elif request.batch:
                await self._send_batch(request, reply, age)
            else:
                message = await find_message(self._stream.readers, request)
                self._send(reply, message, request, age)
        except BadDirectGet as error:
            self._status(reply, str(error), age)
        except (MessageNotFound, StoreEOF, InvalidSubject):
            self._status(reply, "404 Message Not Found", age)
        except StoreError as error:
            self._status(reply, f"500 {error.text}", age)

    async def _send_batch(
        self, request: StreamMsgGetRequest, reply: bytes, age: AgeLine | None
    ) -> None:
        """Send matching messages in order, each with the number of later matches, then the end."""
        store, pattern = self._stream.store, request.next_by_subj or ">"
        sequence = request.seq
        if request.start_time is not None:
            sequence = await store.sequence_at(request.start_time)
        pending, _ = await store.num_pending(sequence, pattern)
        batch = self._batch(request, reply, age, pending, is_bare=request.no_hdr)
        batch.look_for(store.filter_of(pattern), sequence)
        if request.batch > 0:  # a batch below zero is answered with the count alone
            await self._send_all(batch)
            if not batch.sent:
                raise MessageNotFound
        self._end(reply, batch, age)

    async def _send_last_ones(
        self, request: StreamMsgGetRequest, reply: bytes, age: AgeLine | None
    ) -> None:
        """Send the last message of each matching subject, as of a sequence or a time.

        `no_hdr` does not apply to these.
        """
        store, upto = self._stream.store, await self._upto(request)
        patterns = [pattern for pattern in request.multi_last if pattern]
        if not patterns:
            raise BadDirectGet("404 No Results")
        try:
            sequences = await store.multi_last(patterns, upto, SUBJECTS_MAX)
        except TooManyResults:
            raise BadDirectGet("413 Too Many Results") from None
        except InvalidSubject:
            sequences = []
        if not sequences:
            raise BadDirectGet("404 No Results")
        wanted = [sequence for sequence in sequences if sequence >= request.seq]
        batch = self._batch(request, reply, age, len(wanted), is_bare=False)
        batch.take_list(wanted)
        await self._send_all(batch)
        self._end(reply, batch, age, f"\r\nNats-UpTo-Sequence: {upto}")

    def _batch(
        self,
        request: StreamMsgGetRequest,
        reply: bytes,
        age: AgeLine | None,
        pending: int,
        *,
        is_bare: bool,
    ) -> DirectBatch:
        return DirectBatch(
            self._stream.readers,
            self._publisher,
            reply,
            messages=request.batch,
            bytes_max=request.max_bytes or BYTES_MAX,
            pending=pending,
            is_bare=is_bare,
            staleness=age,
        )

    async def _send_all(self, batch: DirectBatch) -> None:
        """Send a batch in slices, at the pace at which the client reads."""
        while not batch.is_done:
            block = batch.send_some()
            if block is not None:
                await self._stream.store.fetch(block)
            elif not batch.is_done:
                await asyncio.sleep(CONGESTED_S if batch.is_congested else 0)

    def _end(self, reply: bytes, batch: DirectBatch, age: AgeLine | None, more: str = "") -> None:
        counts = f"Nats-Num-Pending: {batch.pending}\r\nNats-Last-Sequence: {batch.last}"
        self._status(reply, f"204 EOB\r\n{counts}{more}", age)

    async def _upto(self, request: StreamMsgGetRequest) -> int:
        """Return the last sequence to consider."""
        visible = self._stream.readers.visible
        if request.up_to_time is None:
            return min(request.up_to_seq or visible, visible)
        behind = await self._stream.store.sequence_at(request.up_to_time)
        if behind <= self._stream.readers.log.first_sequence:
            raise BadDirectGet("404 No Results")
        return min(behind - 1, visible)

    # Answers

    def _status(self, reply: bytes, status: str, age: AgeLine | None = None) -> None:
        line = b"" if age is None else age()
        self._publisher.publish(reply, headers=b"NATS/1.0 %b\r\n%b\r\n" % (status.encode(), line))

    def _send(
        self,
        reply: bytes,
        message: StoredMessage,
        request: StreamMsgGetRequest,
        age: AgeLine | None,
    ) -> None:
        headers = b""
        if not request.no_hdr:
            headers = described(self._stream.name, message, b"" if age is None else age())
        self._publisher.publish(reply, message.data, headers=headers)


def read_request(key: str, headers: bytes, body: bytes) -> StreamMsgGetRequest:
    """Return the request that the subject behind the stream's name, or the body, makes.

    Raises BadDirectGet.
    """
    if header_value(headers, REQUIRED_API_LEVEL) == b"" or demands_too_much(headers):
        raise BadDirectGet("412 Required Api Level")
    if not body and not key:
        raise BadDirectGet("408 Empty Request")
    if len(body) > BODY_BYTES_MAX:
        raise BadDirectGet("413 Request Too Large")
    try:
        request = decode(StreamMsgGetRequest, body, strict=False)
    except InvalidJson:
        raise BadDirectGet("408 Malformed Request") from None
    if key:
        if names_something(request):
            raise BadDirectGet("408 Bad Request")
        return request.model_copy(update={"last_by_subj": key})
    if not names_something(request) or is_bare(request):
        raise BadDirectGet("408 Empty Request")
    if contradicts_itself(request):
        raise BadDirectGet("408 Bad Request")
    return request


def names_something(request: StreamMsgGetRequest) -> bool:
    """Tell whether the request names a message, or a number of messages."""
    return request != StreamMsgGetRequest(max_bytes=request.max_bytes, no_hdr=request.no_hdr)


def is_bare(request: StreamMsgGetRequest) -> bool:
    """Tell whether the request says how many messages, but not which."""
    return not (
        request.seq
        or request.last_by_subj
        or request.next_by_subj
        or request.multi_last
        or request.start_time is not None
    )


def contradicts_itself(request: StreamMsgGetRequest) -> bool:
    """Tell whether the request names messages in ways that exclude each other."""
    last, following, many = request.last_by_subj, request.next_by_subj, request.multi_last
    has_start = request.start_time is not None
    return bool(
        (request.seq and (last or has_start))
        or (last and (has_start or following or request.batch > 0 or many))
        or (following and many)
        or (request.up_to_seq and request.up_to_time is not None)
    )


def described(stream: str, message: StoredMessage, line: bytes = b"") -> bytes:
    """Return the message's own headers, those that say which message it is, and one more line."""
    own = message.headers
    text = (
        f"Nats-Stream: {stream}\r\nNats-Subject: {message.subject}\r\n"
        f"Nats-Sequence: {message.sequence}\r\nNats-Time-Stamp: {timestamp(message.time_ns)}\r\n"
    )
    text_bytes = text.encode("utf-8", "surrogateescape")
    return (own[:-2] if own else _BEGIN) + text_bytes + line + b"\r\n"
