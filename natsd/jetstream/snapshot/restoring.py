"""A running restore: chunks arrive as requests, and each is answered once it is stored.

    ◀── a chunk, on $JS.SNAPSHOT.RESTORE.<stream>.<id>, with a reply subject
    ──▶ an empty answer: the next chunk may come; or an error: the restore has ended
    ◀── an empty message: the snapshot is complete
    ──▶ the answer to a create: the stream exists, or the reason why it does not

A snapshot that nats-server made begins with S2's identifier; its files are collected first, and
become a stream when all have come (nats_server/snapshot_reader.py).

Promise
- The stream appears complete and verified, or nothing of it stays.
- If the same chunk comes twice in a row, because its sender missed the answer, it is answered and
  not stored again (snappy_frames.py explains why repetition can be recognized).
- A client that is silent for STALL_NS, or slower than Pace allows, ends the restore. So do chunks
  that arrive faster than they can be stored, beyond QUEUED_BYTES_MAX, and memory beyond the limit
  of all transfers together (transfer_memory.py).
- At the end all received data is freed, without a run of the garbage collector.
- The account's storage limits are checked while messages come, not only at the end.

Source: nats-server's `processStreamRestore`; answers were compared with a running nats-server 2.14.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from natsd.accounts import Account
from natsd.core.routing import InvalidSubject
from natsd.jetstream.errors import ApiError, ErrorId, api_error
from natsd.jetstream.models.go_json import encode
from natsd.jetstream.models.response import ErrorBody
from natsd.jetstream.models.responses import StreamCreateResponse
from natsd.jetstream.models.stream import StreamInfo
from natsd.jetstream.snapshot.builder import StreamBuilder
from natsd.jetstream.snapshot.transfer_memory import Pace, Share
from natsd.jetstream.stream.publishing import Usage
from natsd.jetstream.stream.state import Alarm, Scheduler
from natsd.store.backup.snappy_frames import REPEATED_BYTES_MIN
from natsd.store.backup.snapshot_file import SnapshotReader
from natsd.store.commit.volume import Volume
from natsd.store.disk.disk import is_out_of_space
from natsd.store.errors import ForeignSnapshot, StoreError, StoreFull

STALL_NS: Final = 5_000_000_000
QUEUED_BYTES_MAX: Final = 64 << 20
UNPACKED_AT_ONCE: Final = 256 << 10
"""Part of a chunk that is unpacked at once; unpacked it may be many times as large."""

_logger = logging.getLogger(__name__)

Install = Callable[[StreamBuilder], Awaitable[StreamInfo]]
"""Callback that turns the built directory into a stream and returns its info; raises ApiError."""


class CollectedSnapshot(Protocol):
    """A snapshot in nats-server's format, as `NatsServerSnapshot` describes it."""

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that the next step needs."""

    @property
    def stored_bytes(self) -> int:
        """Bytes of messages that there may be."""

    async def take(self, part: bytes, check: Callable[[], None]) -> None:
        """Take the next bytes, and call `check` when more is held or stored."""

    async def build(self, builder: StreamBuilder, check: Callable[[], None]) -> None:
        """Build the stream, after the last part."""

    async def remove(self) -> None:
        """Remove the received files."""


class RestoreStopped(Exception):
    """The restore ends without an answer to the client; the message is the reason."""


class Restoring:
    """A restore; call `run` once. It removes the built files unless they became a stream.

    The chunks arrive in `account`; `owner` is the name of the account that gets the stream.
    The stream is going to be on `copies` servers. `collect` makes the collector of a snapshot in
    nats-server's format.
    """

    def __init__(
        self,
        account: Account,
        owner: str,
        scheduler: Scheduler,
        volume: Volume,
        usage: Usage,
        copies: int,
        subject: str,
        name: str,
        builder: StreamBuilder,
        collect: Callable[[], CollectedSnapshot],
        install: Install,
        share: Share,
    ) -> None:
        self._client = account.internal_client
        self._title = f"restore for stream '{owner} > {name}'"
        self._scheduler = scheduler
        self._volume = volume
        self._usage = usage
        self._copies = copies
        self._builder = builder
        self._collect = collect
        self._collected: CollectedSnapshot | None = None
        self._install = install
        self._share = share
        self._pace = Pace(scheduler.now_ns())
        self._reader = SnapshotReader()
        self._queue = deque[tuple[str | None, bytes]]()
        self._queued_bytes = 0
        self._pending_bytes = 0  # of an entry that is not complete yet, or a collected snapshot
        self._last = b""  # the last chunk, to recognize its repetition
        self._reply: str | None = None  # reply subject of the chunk that is being stored
        self._is_stalled = False
        self._is_flooded = False
        self._is_refused = False
        self._refused: str | None = None  # reply subject of the chunk for which there is no memory
        self._changed = asyncio.Event()
        self._alarm = Alarm(scheduler, self._stalled)
        self.bytes_received = 0
        self._subscription = self._client.subscribe(subject, self._received)

    async def run(self) -> bool:
        """Receive the snapshot and install the stream; return whether the stream exists now.

        Raises the errors of removing files.
        """
        response: StreamCreateResponse | None = None
        try:
            info = await self._receive_all()
            response = StreamCreateResponse(info=info)
        except RestoreStopped as stopped:
            # A log that keeps its records would keep the error's frames, and with them the received
            # data.
            _logger.warning("JetStream: %s %s", self._title, str(stopped))
        except (ApiError, StoreError, OSError) as error:
            _logger.warning("JetStream: %s failed: %s", self._title, str(error))
            response = StreamCreateResponse(error=ErrorBody.of(_api_error(error)))
        finally:
            self._let_go()
            if self._collected is not None:
                await self._collected.remove()
            is_installed = response is not None and response.info is not None
            if not is_installed:
                await self._builder.give_up()
        if response is not None and self._reply is not None:
            self._publish(self._reply, encode(response))
        return is_installed

    def _let_go(self) -> None:
        """Free received data, and references to this object so that it is freed with its task."""
        self._alarm.cancel()
        self._client.unsubscribe(self._subscription)
        del self._alarm, self._subscription, self._reader
        self._queue.clear()
        self._last = b""
        self._share.close()

    async def _receive_all(self) -> StreamInfo:
        while True:
            self._reply, chunk = await self._next()
            if self._reply is None:
                raise RestoreStopped("requires reply subject for each chunk")
            if not chunk:
                return await self._finish()
            await self._take(chunk)
            if not self._pace.moved(len(chunk), self._scheduler.now_ns()):
                raise RestoreStopped("is stalled")
            self._publish(self._reply, b"")

    async def _take(self, chunk: bytes) -> None:
        self.bytes_received += len(chunk)
        is_repeated = chunk == self._last and (
            len(chunk) >= REPEATED_BYTES_MIN or self._reader.is_ended
        )
        self._last = chunk
        if is_repeated:
            return
        for at in range(0, len(chunk), UNPACKED_AT_ONCE):
            await self._take_piece(chunk[at : at + UNPACKED_AT_ONCE])

    async def _take_piece(self, piece: bytes) -> None:
        if self._collected is None:
            try:
                entries = await self._volume.read(self._reader.feed, piece)
            except ForeignSnapshot:
                self._collected = self._collect()
                piece = self._reader.unread
        if self._collected is not None:
            await self._collected.take(piece, self._check_collected)
            return
        self._hold(self._reader.pending_bytes)
        for name, body in entries:
            await self._builder.take(name, body)
            self._check_room(self._builder.stored_bytes)

    def _check_collected(self) -> None:
        """Check memory and limits while a snapshot is collected and built. Raises ApiError."""
        assert self._collected is not None
        self._hold(self._collected.held_bytes)
        self._check_room(max(self._collected.stored_bytes, self._builder.stored_bytes))

    def _hold(self, pending_bytes: int) -> None:
        """Count queued and pending bytes. Raises ApiError 10023 beyond the limit."""
        self._pending_bytes = pending_bytes
        if not self._share.hold(self._queued_bytes + self._pending_bytes):
            raise api_error(ErrorId.JSInsufficientResourcesErr)

    async def _finish(self) -> StreamInfo:
        if self._collected is None:
            self._reader.finish()
        else:
            await self._collected.build(self._builder, self._check_collected)
        await self._builder.finish()
        return await self._install(self._builder)

    def _check_room(self, more: int) -> None:
        server = self._usage.server
        assert server is not None
        of_account = more * self._usage.counted_copies(self._copies)
        if self._usage.is_over(is_memory=False, more=of_account) or server.is_over(
            is_memory=False, more=more
        ):
            raise api_error(ErrorId.JSStorageResourcesExceededErr)

    def _publish(self, reply: str, data: bytes) -> None:
        with contextlib.suppress(InvalidSubject):
            self._client.publish(reply, data)

    # Events that wake `run`

    async def _next(self) -> tuple[str | None, bytes]:
        self._alarm.set(self._scheduler.now_ns() + STALL_NS)
        while not (self._queue or self._is_flooded or self._is_refused):
            if self._is_stalled:
                raise RestoreStopped("is stalled")
            self._changed.clear()
            await self._changed.wait()
        self._alarm.cancel()
        if self._is_flooded:
            raise RestoreStopped("received more than could be taken: chunks must wait for answers")
        if self._is_refused:
            self._reply = self._refused
            raise api_error(ErrorId.JSInsufficientResourcesErr)
        reply, chunk = self._queue.popleft()
        self._queued_bytes -= len(chunk) + 1
        return reply, chunk

    def _received(self, _subject: str, reply: str | None, _headers: bytes, data: bytes) -> None:
        queued = self._queued_bytes + len(data) + 1
        if queued > QUEUED_BYTES_MAX:
            self._is_flooded = True
        elif not self._share.hold(queued + self._pending_bytes):
            self._is_refused = True
            self._refused = reply
        else:
            self._queued_bytes = queued
            self._queue.append((reply, data))
        self._changed.set()

    def _stalled(self, _now_ns: int) -> None:
        self._is_stalled = True
        self._changed.set()


def _api_error(error: ApiError | StoreError | OSError) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, StoreFull) or is_out_of_space(error):
        return api_error(ErrorId.JSStorageResourcesExceededErr)
    return api_error(ErrorId.JSStreamRestoreErrF, err=error)
