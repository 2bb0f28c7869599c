"""A running snapshot: chunks go to the deliver subject, a window at a time, each acknowledged.

    ──▶ chunk, reply $JS.SNAPSHOT.ACK.<stream>.<id>.<bytes>.<number>      from 1 on
    ◀── any message on that subject: one more chunk may be sent
    ──▶ an empty message with a status:  204                      complete
                                         408 No Interest          no subscriber (any more)
                                         408 No Flow Response     no acknowledgement for 5 s
                                         500 <reason>             the stream cannot be read

With a receiver that chooses blocks (contents.py), the sender waits behind the plan:

    ◀── $JS.SNAPSHOT.ACK.<stream>.<id>.CHOOSE: the chosen blocks (SnapshotSource.choose)

Promise
- At most `window_size` bytes, or one larger chunk, are unacknowledged; sizes are clamped to bounds.
- The receiver decides the pace; a receiver that is gone, is silent for ACK_TIMEOUT_NS, or is slower
  than Pace allows, ends the snapshot. Times are those of the scheduler's clock.
- The memory that a snapshot may need, `bytes_held`, counts towards the limit of all transfers until
  the snapshot ends.

Source: nats-server's `Server.streamSnapshot`; messages were compared with a running nats-server
2.14.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from natsd.accounts import Account
from natsd.core.routing import InvalidSubject
from natsd.jetstream.models.requests import StreamSnapshotRequest
from natsd.jetstream.snapshot.source import READ_AHEAD_BYTES, SnapshotSource
from natsd.jetstream.snapshot.transfer_memory import Pace, Share
from natsd.jetstream.stream.state import Alarm, Scheduler
from natsd.store.errors import StoreError

CHUNK_BYTES: Final = 128 << 10
CHUNK_BYTES_MIN: Final = 1 << 10
CHUNK_BYTES_MAX: Final = 1 << 20
WINDOW_BYTES: Final = 8 << 20
WINDOW_BYTES_MAX: Final = 32 << 20
ACK_TIMEOUT_NS: Final = 5_000_000_000
INTEREST_TIMEOUT_NS: Final = 2_000_000_000
"""Time that a receiver may take to subscribe."""

COMPLETE: Final = "204"
NO_INTEREST: Final = "408 No Interest"
NO_FLOW_RESPONSE: Final = "408 No Flow Response"
CHOOSE: Final = ".CHOOSE"
"""End of the subject on which a receiver chooses blocks, in place of that of a chunk."""


def sizes(request: StreamSnapshotRequest) -> tuple[int, int]:
    """Return the bytes of a chunk, and how many chunks may be unacknowledged."""
    chunk = min(max(request.chunk_size or CHUNK_BYTES, CHUNK_BYTES_MIN), CHUNK_BYTES_MAX)
    window = min(max(request.window_size or WINDOW_BYTES, CHUNK_BYTES_MIN), WINDOW_BYTES_MAX)
    return chunk, max(window // chunk, 1)


def bytes_held(request: StreamSnapshotRequest, stream_bytes: int) -> int:
    """Return the largest number of bytes that a snapshot holds in memory.

    They are its window, and the blocks that are read ahead, raw and packed.
    """
    chunk, window = sizes(request)
    return min(chunk * window, stream_bytes) + 2 * min(READ_AHEAD_BYTES, stream_bytes)


class _NotChosen(Exception):
    """The receiver has chosen no blocks in time."""


class SnapshotSending:
    """A snapshot that is being sent; call `run` once."""

    def __init__(
        self,
        account: Account,
        scheduler: Scheduler,
        source: SnapshotSource,
        request: StreamSnapshotRequest,
        ack_prefix: str,
        share: Share,
    ) -> None:
        self._account = account
        self._scheduler = scheduler
        self._source = source
        self._subject = request.deliver_subject
        self._chunk_bytes, self._window = sizes(request)
        self._ack_prefix = ack_prefix
        self._share = share
        self._pace = Pace(scheduler.now_ns())
        self._slots = self._window  # chunks that may be sent now
        self._is_wanted = False  # the deliver subject has a subscriber
        self._is_late = False
        self._changed = asyncio.Event()
        self._alarm = Alarm(scheduler, self._time_is_up)
        self.bytes_sent = 0

    async def run(self) -> str:
        """Send the whole snapshot and return the status that ended it.

        Raises the errors of closing the source.
        """
        client, sublist = self._account.internal_client, self._account.sublist
        acks = client.subscribe(f"{self._ack_prefix}.>", self._acknowledged)
        self._is_wanted = sublist.watch(self._subject, self._listened_to)
        try:
            status = await self._send_all()
        except _NotChosen:
            status = NO_FLOW_RESPONSE if self._is_wanted else NO_INTEREST
        except (StoreError, OSError) as error:
            status = f"500 {error}".replace("\r", " ").replace("\n", " ")
        finally:
            self._alarm.cancel()
            client.unsubscribe(acks)
            sublist.unwatch(self._subject, self._listened_to)
            del self._alarm  # it refers to this object, which is thus freed with its task
            try:
                await self._source.close()
            finally:
                self._share.close()
        self._publish(b"", headers=f"NATS/1.0 {status}\r\n\r\n".encode())
        return status

    async def _send_all(self) -> str:
        self._set_alarm(INTEREST_TIMEOUT_NS)
        while not (self._is_wanted or self._is_late):
            await self._until_changed()
        self._set_alarm(ACK_TIMEOUT_NS)
        number = 0
        async for chunk in self._chunks():
            while self._is_wanted and not self._slots and not self._is_late:
                await self._until_changed()
            if not self._is_wanted:
                return NO_INTEREST
            is_slow = not self._pace.moved(len(chunk), self._scheduler.now_ns())
            if is_slow or not self._slots:
                return NO_FLOW_RESPONSE
            self._slots -= 1
            number += 1
            reply = f"{self._ack_prefix}.{len(chunk)}.{number}"
            self._publish(chunk, reply=reply)
            self.bytes_sent += len(chunk)
            self._set_alarm(ACK_TIMEOUT_NS)
        return COMPLETE

    async def _until_chosen(self) -> None:
        while self._source.awaits_choice:
            if not self._is_wanted or self._is_late:
                raise _NotChosen
            await self._until_changed()

    async def _chunks(self) -> AsyncIterator[bytes]:
        """Return the snapshot in chunks of equal size.

        The last one may be shorter, and so may the one before a choice. Raises _NotChosen.
        """
        size, rest = self._chunk_bytes, b""
        while part := await self._source.next_part():
            view = memoryview(part)
            at = 0
            if rest:
                at = min(size - len(rest), len(view))
                rest += view[:at]
                if len(rest) == size:
                    yield rest
                    rest = b""
            if not rest:
                end = at + (len(view) - at) // size * size
                for start in range(at, end, size):
                    yield bytes(view[start : start + size])
                rest = bytes(view[end:])
            if self._source.awaits_choice:
                if rest:
                    yield rest
                rest = b""
                await self._until_chosen()
        if rest:
            yield rest

    def _publish(self, data: bytes, *, reply: str | None = None, headers: bytes = b"") -> None:
        with contextlib.suppress(InvalidSubject):
            self._account.internal_client.publish(self._subject, data, reply=reply, headers=headers)

    # Events that wake `run`

    async def _until_changed(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _set_alarm(self, after_ns: int) -> None:
        self._is_late = False
        self._alarm.set(self._scheduler.now_ns() + after_ns)

    def _acknowledged(self, subject: str, _reply: str | None, _head: bytes, data: bytes) -> None:
        if self._source.awaits_choice and subject.endswith(CHOOSE):
            self._source.choose(data)
            self._set_alarm(ACK_TIMEOUT_NS)
            self._changed.set()
            return
        self._slots = min(self._slots + 1, self._window)
        self._changed.set()

    def _listened_to(self, is_there: bool) -> None:
        self._is_wanted = is_there
        self._changed.set()

    def _time_is_up(self, _now_ns: int) -> None:
        self._is_late = True
        self._changed.set()
