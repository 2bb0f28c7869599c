"""Entries on their way from one replica to another: in frames, no more than there is room for.

    frame   number u32 │ kind u8 │ [name length u16 │ name] │ a part of the entry's body
    kind    1: begins an entry (a name follows)   2: ends it   4: all entries are there   8: failed

Promise
- At most WINDOW_BYTES are under way. A side that hears nothing from the other for SILENCE_S ends
  the transfer; so does a frame that is missing.
- A side that is interrupted says so, whatever it has sent: the other one need not wait.
- Frames come from another server: bytes that are no frame end the transfer with TransferFailed.
"""

import asyncio
import contextlib
import struct
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from functools import partial
from typing import Any, Final, NamedTuple

from natsd.accounts.internal_client import InternalClient
from natsd.store.errors import StoreError

FRAME_BYTES: Final = 256 << 10
WINDOW_BYTES: Final = 8 << 20
SILENCE_S: Final = 10.0

HEAD: Final = struct.Struct("<IB")
NAME: Final = struct.Struct("<H")
RECEIVED: Final = struct.Struct("<Q")
BEGINS, ENDS, LAST, FAILED = 1, 2, 4, 8


class TransferFailed(StoreError):
    """What was asked for did not arrive whole."""


class Frame(NamedTuple):
    """A frame that was read."""

    number: int
    kind: int
    name: str
    part: bytes


def frames_of(name: str, body: bytes, first: int) -> list[bytes]:
    """Return the frames of an entry; the first one has the number `first`."""
    encoded = name.encode()
    found = []
    for number, at in enumerate(range(0, len(body), FRAME_BYTES) or (0,)):
        is_last = at + FRAME_BYTES >= len(body)
        kind = (BEGINS if number == 0 else 0) | (ENDS if is_last else 0)
        head = HEAD.pack(first + number, kind)
        if number == 0:
            head += NAME.pack(len(encoded)) + encoded
        found.append(head + body[at : at + FRAME_BYTES])
    return found


def read_frame(data: bytes) -> Frame:
    """Return a frame from its bytes. Raises TransferFailed."""
    try:
        number, kind = HEAD.unpack_from(data)
        if not kind & BEGINS:
            return Frame(number, kind, "", data[HEAD.size :])
        begin = HEAD.size + NAME.size
        end = begin + NAME.unpack_from(data, HEAD.size)[0]
        return Frame(number, kind, data[begin:end].decode(), data[end:])
    except (struct.error, UnicodeDecodeError) as error:
        raise TransferFailed("these are not the bytes of a frame") from error


def refuse(client: InternalClient, inbox: str, why: str, number: int = 0) -> None:
    """Say why nothing more comes, in the frame of that number."""
    client.publish(inbox, HEAD.pack(number, FAILED) + why.encode())


class Flow:
    """The frames of one transfer, and what the fetcher has acknowledged of them."""

    def __init__(self, client: InternalClient, inbox: str, acks: str) -> None:
        self.number = 0
        self._client = client
        self._inbox = inbox
        self._sent = self._received = 0
        self._is_acknowledged = asyncio.Event()
        self._acks = acks
        self._subscription = client.subscribe(acks, self._acknowledged)

    def close(self) -> None:
        """Listen no more."""
        self._client.unsubscribe(self._subscription)

    def _acknowledged(self, _subject: str, _reply: str | None, _head: bytes, data: bytes) -> None:
        if len(data) == RECEIVED.size:
            self._received = max(self._received, RECEIVED.unpack(data)[0])
            self._is_acknowledged.set()

    async def send_all(self, entries: AsyncGenerator[tuple[str, bytes]]) -> None:
        """Send these entries, then say that they are all, or why they are not."""
        try:
            async with contextlib.aclosing(entries):
                async for name, body in entries:
                    for frame in frames_of(name, body, self.number):
                        await self.send(frame)
            self.publish(HEAD.pack(self.number, LAST))
        except TimeoutError:  # the other side is gone
            return
        except (StoreError, OSError) as error:
            self.refuse(str(error))

    def refuse(self, why: str) -> None:
        """Say why nothing more comes."""
        refuse(self._client, self._inbox, why, self.number)

    async def send(self, frame: bytes) -> None:
        """Publish a frame once there is room. Raises TimeoutError."""
        async with asyncio.timeout(SILENCE_S):
            while self._sent - self._received > WINDOW_BYTES:
                self._is_acknowledged.clear()
                await self._is_acknowledged.wait()
        self.publish(frame)

    def publish(self, frame: bytes) -> None:
        """Publish a frame at once."""
        self._client.publish(self._inbox, frame, reply=self._acks)
        self._sent += len(frame)
        self.number += 1


class Sending:
    """The transfers from this side that are under way."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, flow: Flow, send: Coroutine[Any, Any, None]) -> None:
        """Run `send`, which sends in that flow."""
        task = asyncio.get_running_loop().create_task(send)
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, flow))

    def _ended(self, flow: Flow, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():  # perhaps before its first step, so it could not say this itself
            flow.refuse("the stream changes")
        flow.close()

    async def interrupt(self) -> None:
        """End them all; the other sides are told."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Receiving:
    """The frames that have arrived; each is acknowledged when it was taken."""

    def __init__(self, client: InternalClient, silence_s: float = 0) -> None:
        """Give the other side up when nothing arrives for `silence_s`; 0: for SILENCE_S."""
        self._client = client
        self._silence_s = silence_s or SILENCE_S
        self._frames: deque[tuple[str | None, bytes]] = deque()
        self._is_there = asyncio.Event()
        self._received = 0

    def take(self, _subject: str, acks: str | None, _headers: bytes, data: bytes) -> None:
        """Keep a frame."""
        self._frames.append((acks, data))
        self._is_there.set()

    async def _next(self) -> Frame:
        while not self._frames:
            self._is_there.clear()
            try:
                async with asyncio.timeout(self._silence_s):
                    await self._is_there.wait()
            except TimeoutError:
                raise TransferFailed("the replica sends nothing more") from None
        acks, data = self._frames.popleft()
        self._received += len(data)
        if acks is not None:
            self._client.publish(acks, RECEIVED.pack(self._received))
        return read_frame(data)

    async def entries(self) -> AsyncIterator[tuple[str, bytes]]:
        """Yield the entries. Raises TransferFailed."""
        name, parts, number = "", list[bytes](), 0
        while True:
            frame = await self._next()
            if frame.kind & FAILED:
                raise TransferFailed(frame.part.decode(errors="replace"))
            if frame.number != number:
                raise TransferFailed(f"frame {number} is missing")
            number += 1
            if frame.kind & LAST:
                return
            if frame.kind & BEGINS:
                name, parts = frame.name, []
            parts.append(frame.part)
            if frame.kind & ENDS:
                yield name, b"".join(parts)
