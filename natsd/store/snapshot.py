"""A store's contents as a stream of bytes, for backup, for a move, for a new replica.

    stream     magic "NATSDSNP" │ version u16 │ frames
    frame      length u32 │ kind u8 │ body, `length` bytes │ XXH64 u64
               the checksum covers the frame before it too: its seed is that one's checksum
    kinds      1 LIMITS   msgspec JSON of Limits: first
               2 BLOCK    the bytes of a closed block (natsd.store.block): some messages, in order
               3 STATE    msgspec JSON of StoreState without `deleted`: last

All integers are little-endian. Sequences without a message are the gaps between those with one, and
what the state says lies before and behind. What is appended after the snapshot began is not in it;
of what is removed meanwhile some may be.

A restore takes all of it or nothing: a frame that does not verify, is missing or out of place, or a
state that is not that of the messages, is a DamagedEncoding.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from struct import Struct

import msgspec

from natsd.store.block import MsgBlock
from natsd.store.errors import ColdBlock, DamagedEncoding
from natsd.store.log import MessageLog
from natsd.store.record import checksum
from natsd.store.snapshot_image import append_from, copy_into, open_image
from natsd.store.store import Limits, StoreState

MAGIC = b"NATSDSNP"
VERSION = 1
OPENING = Struct("<8sH")
FRAME = Struct("<IB")
CHECKSUM = Struct("<Q")
LIMITS, BLOCK, STATE = 1, 2, 3
BLOCK_BYTES = 128 << 10  # of records in a frame: a slice
BLOCK_BYTES_LIMIT = (1 << 31) - 1
FRAME_BYTES_MAX = 1 << 30


class FrameWriter:
    """Frames, each chained to the one before."""

    def __init__(self) -> None:
        self._chain = 0

    def frame(self, kind: int, body: bytes) -> bytes:
        """One frame, checksum included."""
        covered = FRAME.pack(len(body), kind) + body
        self._chain = checksum(covered, self._chain)
        return covered + CHECKSUM.pack(self._chain)


async def write_snapshot(
    log: MessageLog, fetch: Callable[[MsgBlock], Awaitable[None]]
) -> AsyncIterator[bytes]:
    """The log's contents up to now, in slices; `fetch` brings a block into memory."""
    writer = FrameWriter()
    sequence, last, last_time_ns = log.first_sequence, log.last_sequence, log.last_time_ns
    msgs = total_bytes = first = 0
    yield OPENING.pack(MAGIC, VERSION)
    yield writer.frame(LIMITS, msgspec.json.encode(log.limits))
    while sequence <= last:
        block = MsgBlock(1, 0, sequence, BLOCK_BYTES_LIMIT)
        sequence = await _fill(log, block, sequence, last, fetch)
        if block.message_count:
            first = first or block.live_sequences()[0]
            msgs += block.message_count
            total_bytes += block.live_bytes
            yield writer.frame(BLOCK, closed_bytes(block))
        await asyncio.sleep(0)
    state = StoreState(
        msgs=msgs,
        bytes=total_bytes,
        first_sequence=first or last + 1,
        last_sequence=last,
        last_time_ns=last_time_ns,
    )
    yield writer.frame(STATE, msgspec.json.encode(state))


async def _fill(
    log: MessageLog,
    block: MsgBlock,
    sequence: int,
    last: int,
    fetch: Callable[[MsgBlock], Awaitable[None]],
) -> int:
    while True:
        try:
            return copy_into(log, block, sequence, last, BLOCK_BYTES)
        except ColdBlock as cold:
            if block.message_count:
                return block.last_sequence + 1
            await fetch(cold.block)


def closed_bytes(block: MsgBlock) -> bytes:
    """The file of a block that nothing is appended to any more."""
    extent = block.take_extent(1, block.base_sequence, force=True, closing=True)
    assert extent is not None
    return bytes(memoryview(extent))


def append_image(log: MessageLog, block: MsgBlock) -> Iterator[None]:
    """Append a block's messages, a slice at each step. Raises DamagedEncoding, StoreError."""
    sequence = append_from(log, block, 0, BLOCK_BYTES)
    while sequence:
        yield
        sequence = append_from(log, block, sequence, BLOCK_BYTES)


def end_as(log: MessageLog, state: StoreState, live_bytes: int) -> None:
    """All messages are there: end where the state says. `live_bytes`: those of the blocks that were
    appended, with headers that were left away. Raises DamagedEncoding if the log does not hold what
    the state says then."""
    if state.last_sequence > log.last_sequence:
        log.skip(state.last_sequence - log.last_sequence)
    log.set_last_time(state.last_time_ns)
    there = log.msgs, live_bytes, log.last_sequence
    if there != (state.msgs, state.bytes, state.last_sequence):
        raise DamagedEncoding("the snapshot does not hold what its state says")


class SnapshotReader:
    """Takes a snapshot's bytes, cut anywhere, and appends its messages to an empty log."""

    def __init__(self, log: MessageLog) -> None:
        self._log = log
        self._pending = bytearray()
        self._chain = 0
        self._opened = False
        self._limits: Limits | None = None
        self._state: StoreState | None = None
        self._live_bytes = 0  # of the blocks so far

    def feed(self, chunk: bytes) -> None:
        """The next bytes. Raises DamagedEncoding."""
        self._pending += chunk
        if not self._opened and len(self._pending) >= OPENING.size:
            magic, version = OPENING.unpack_from(self._pending)
            if magic != MAGIC or version != VERSION:
                raise DamagedEncoding("not a snapshot, or of an unknown version")
            del self._pending[: OPENING.size]
            self._opened = True
        while self._opened and (frame := self._take_frame()) is not None:
            self._apply(*frame)

    def finish(self) -> Limits:
        """All was fed: the limits that the store had. Raises DamagedEncoding if that was not a
        whole snapshot."""
        if self._state is None or self._limits is None or self._pending:
            raise DamagedEncoding("the snapshot is not whole")
        return self._limits

    def _take_frame(self) -> tuple[int, bytes] | None:
        if len(self._pending) < FRAME.size:
            return None
        length, kind = FRAME.unpack_from(self._pending)
        if length > FRAME_BYTES_MAX:
            raise DamagedEncoding("a frame of the snapshot is too long")
        end = FRAME.size + length
        if len(self._pending) < end + CHECKSUM.size:
            return None
        (written,) = CHECKSUM.unpack_from(self._pending, end)
        self._chain = checksum(bytes(self._pending[:end]), self._chain)
        if written != self._chain:
            raise DamagedEncoding("a frame of the snapshot does not verify")
        body = bytes(self._pending[FRAME.size : end])
        del self._pending[: end + CHECKSUM.size]
        return kind, body

    def _apply(self, kind: int, body: bytes) -> None:
        expected = (LIMITS,) if self._limits is None else (BLOCK, STATE)
        if self._state is not None or kind not in expected:
            raise DamagedEncoding("a frame of the snapshot is out of place")
        try:
            if kind == LIMITS:
                self._limits = msgspec.json.decode(body, type=Limits)
            elif kind == BLOCK:
                block = open_image(body)
                self._live_bytes += block.live_bytes
                for _ in append_image(self._log, block):
                    pass
            else:
                self._state = msgspec.json.decode(body, type=StoreState)
                end_as(self._log, self._state, self._live_bytes)
        except msgspec.MsgspecError as error:
            raise DamagedEncoding(f"the snapshot is not understood: {error}") from None
