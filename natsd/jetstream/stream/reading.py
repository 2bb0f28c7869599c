"""Finding one stored message, for MSG.GET and for direct get.

Promise
- Only durable messages are answered. Where the newest message of a subject is not durable yet, the
  answer is that message, once it is durable: no client is sent an older message that it has already
  replaced.
- A message that is not in memory is read awaitably; a message that is damaged on disk counts as not
  found.

Source: ADR-31; nats-server's `jsMsgGetRequest` and `getDirectRequest`.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from natsd.jetstream.models.requests import StreamMsgGetRequest
from natsd.jetstream.stream.state import StreamReaders
from natsd.store.codec.records import StoredMessage
from natsd.store.errors import MessageNotFound, StoreEOF
from natsd.store.log_store import LogStore


class Wanted(Protocol):
    """The fields that name the message; empty, 0 or None where one does not apply."""

    @property
    def seq(self) -> int:
        """Sequence of the message, or the one at which the search begins."""

    @property
    def last_by_subj(self) -> str:
        """Subject or pattern whose last message is wanted."""

    @property
    def next_by_subj(self) -> str:
        """Subject or pattern of the first match from the start on."""

    @property
    def start_time(self) -> int | None:
        """Time of the start, in ns since 1970."""


async def find_message(readers: StreamReaders, wanted: Wanted) -> StoredMessage:
    """Return the message that the fields name. Raises MessageNotFound or StoreEOF."""
    store: LogStore = readers.store
    if wanted.last_by_subj:
        return await _last(readers, store, wanted.last_by_subj)
    sequence = wanted.seq
    if wanted.start_time is not None:
        sequence = await store.sequence_at(wanted.start_time)
    if wanted.next_by_subj:
        return await next_message(readers, wanted.next_by_subj, sequence)
    if not 0 < sequence <= readers.visible:
        raise MessageNotFound
    return await store.load(sequence)


async def next_message(readers: StreamReaders, pattern: str, sequence: int) -> StoredMessage:
    """Return the first durable match at or after `sequence`. Raises StoreEOF."""
    message, _ = await readers.store.load_next(pattern, sequence)
    if message.sequence > readers.visible:
        raise StoreEOF
    return message


async def _last(readers: StreamReaders, store: LogStore, pattern: str) -> StoredMessage:
    message = await _cached_first(store.load_last_cached, store.load_last, pattern)
    if message.sequence > readers.visible:
        await store.synced()
        await readers.shown()
    return message


async def _cached_first(
    cached: Callable[[str], StoredMessage | None],
    load: Callable[[str], Awaitable[StoredMessage]],
    pattern: str,
) -> StoredMessage:
    """Load a message, without giving up the event loop if it is in memory."""
    message = cached(pattern)
    return message if message is not None else await load(pattern)


def names_one_message(request: StreamMsgGetRequest) -> bool:
    """Tell whether the request names one message.

    Sequence, last of a subject and start time exclude each other; a next-of-subject may go with a
    sequence or a start time, where the search begins.
    """
    last, following = request.last_by_subj, request.next_by_subj
    sequence, has_start = request.seq, request.start_time is not None
    if request.batch > 0 or request.max_bytes > 0:
        return False
    if not (sequence or last or following or has_start):
        return False
    return not ((last and (sequence or has_start or following)) or (sequence and has_start))
