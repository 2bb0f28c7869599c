"""Snapshot of a store: its content as a stream of bytes, for backup, for a move, for a new replica.

    stream     magic "NATSDSNP" │ version u16 │ frames
    frame      length u32 │ kind u8 │ body, `length` bytes │ XXH64 u64
               the checksum covers the frame before it too: its seed is that one's checksum
    kinds      1 LIMITS   msgspec JSON of Limits: first
               2 BLOCK    the bytes of a closed block (block.pyx): some messages, in order
               3 STATE    msgspec JSON of StoreState without `deleted`: last

All integers are little-endian. Sequences without a message are the gaps between the messages, and
those that the state has before the first message and behind the last. Messages appended after the
snapshot began are not in it; messages removed meanwhile may be in it.

A restore takes the whole snapshot or nothing: a frame that does not verify, is missing or out of
place, or a state that does not fit the messages, raises DamagedEncoding.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from struct import Struct

import msgspec

from natsd.store.backup.snapshots import append_from, copy_into, open_image
from natsd.store.block.blocks import MsgBlock
from natsd.store.block.cold_block import ColdBlock
from natsd.store.codec.records import checksum
from natsd.store.errors import DamagedEncoding
from natsd.store.log.message_log import MessageLog
from natsd.store.store import Limits, StoreState

MAGIC = b"NATSDSNP"
VERSION = 1
OPENING = Struct("<8sH")
FRAME = Struct("<IB")
CHECKSUM = Struct("<Q")
LIMITS, BLOCK, STATE = 1, 2, 3
BLOCK_BYTES = 128 << 10  # bytes of records in a frame: a slice of the loop
BLOCK_BYTES_LIMIT = (1 << 31) - 1
FRAME_BYTES_MAX = 1 << 30


class FrameWriter:
    """Encoder of frames, each chained to the one before."""

    def __init__(self) -> None:
        self._chain = 0

    def frame(self, kind: int, body: bytes) -> bytes:
        """Return one frame with its checksum."""
        covered = FRAME.pack(len(body), kind) + body
        self._chain = checksum(covered, self._chain)
        return covered + CHECKSUM.pack(self._chain)


async def write_snapshot(
    log: MessageLog, fetch: Callable[[MsgBlock], Awaitable[None]]
) -> AsyncIterator[bytes]:
    """Yield the log's content up to now, in slices; `fetch` loads a block into memory."""
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
    """Return the bytes of the block's file, closed: nothing is appended to it any more."""
    extent = block.take_extent(1, block.base_sequence, force=True, closing=True)
    assert extent is not None
    return bytes(memoryview(extent))


def append_image(log: MessageLog, block: MsgBlock) -> Iterator[None]:
    """Append a block's messages to the log, one slice at each step.

    Raises DamagedEncoding and StoreError.
    """
    sequence = append_from(log, block, 0, BLOCK_BYTES)
    while sequence:
        yield
        sequence = append_from(log, block, sequence, BLOCK_BYTES)


def end_as(log: MessageLog, state: StoreState, live_bytes: int) -> None:
    """Make the log end where the state says, after all messages were appended.

    `live_bytes` is the length of the live records in the blocks, with headers that the log dropped
    since they are no header block. Raises DamagedEncoding if the log then does not hold what the
    state says.
    """
    if state.last_sequence > log.last_sequence:
        log.skip(state.last_sequence - log.last_sequence)
    log.set_last_time(state.last_time_ns)
    there = log.msgs, live_bytes, log.last_sequence
    if there != (state.msgs, state.bytes, state.last_sequence):
        raise DamagedEncoding("the snapshot does not hold what its state says")


class SnapshotReader:
    """Reader of a snapshot that arrives cut anywhere; it appends to an empty log."""

    def __init__(self, log: MessageLog) -> None:
        self._log = log
        self._pending = bytearray()
        self._chain = 0
        self._opened = False
        self._limits: Limits | None = None
        self._state: StoreState | None = None
        self._live_bytes = 0  # of the messages in the blocks so far

    def feed(self, chunk: bytes) -> None:
        """Read the next bytes. Raises DamagedEncoding."""
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
        """Return the limits of the snapshot's store, after all bytes were fed.

        Raises DamagedEncoding if the snapshot is not whole.
        """
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
