"""A snapshot of a frozen stream, part by part: blocks are read, verified and packed in threads.

Promise
- While PACKED_AT_ONCE blocks are packed only one further block is read: memory stays bounded.
- Messages whose checksum fails are left out, and counted.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Final

from natsd.jetstream.snapshot.contents import MessageCount
from natsd.jetstream.snapshot.taking import TakenStream
from natsd.store.backup.frozen_store import FrozenStore
from natsd.store.backup.snapshot_file import SnapshotWriter
from natsd.store.commit.volume import Volume
from natsd.store.errors import StoreError

PACKED_AT_ONCE: Final = 2
READ_AHEAD_BYTES: Final = (PACKED_AT_ONCE + 1) * (8 << 20)
"""Bytes of raw blocks in memory; a block grows to 8 MiB."""

Packing = Callable[[], bytes]


class SnapshotSource:
    """Snapshot of a frozen stream, read once; call `close` at the end, even if not all was read."""

    def __init__(self, volume: Volume, taken: TakenStream) -> None:
        self.lost = 0
        self._volume = volume
        self._taken = taken
        self._writer = SnapshotWriter()
        self._parts = self._make_parts()
        self._next: asyncio.Task[bytes] | None = None

    async def next_part(self) -> bytes:
        """Return the next bytes of the snapshot; empty at its end. Raises OSError, StoreError."""
        self._next = self._next or self._start()
        part = await asyncio.shield(self._next)  # a thread may be reading: `close` waits for it
        self._next = self._start() if part else None
        return part

    async def close(self) -> None:
        """Drop what was read ahead, and release the frozen stream. Raises OSError."""
        if self._next is not None:
            with contextlib.suppress(StoreError, OSError):  # the result is not needed any more
                await self._next
        with contextlib.suppress(StoreError, OSError):
            await self._parts.aclose()
        await self._taken.release()

    def _start(self) -> asyncio.Task[bytes]:
        async def take() -> bytes:
            return await anext(self._parts, b"")

        return asyncio.get_running_loop().create_task(take())

    async def _make_parts(self) -> AsyncGenerator[bytes]:
        yield await self._volume.read(self._begin)
        for store, frozen in self._taken.frozen.items():
            counts = MessageCount(store, frozen.state)
            async with contextlib.aclosing(self._packed(counts, frozen)) as packed:
                async for part in packed:
                    yield part
            self.lost += counts.lost
            yield await self._volume.read(self._writer.entry, *counts.state_entry())
        yield await self._volume.read(self._writer.end)

    async def _packed(self, counts: MessageCount, frozen: FrozenStore) -> AsyncGenerator[bytes]:
        """Return the entries of a store's blocks.

        Checksums are computed in order; packing, which takes longest, is done for several blocks at
        once.
        """
        loop, packing = asyncio.get_running_loop(), deque[asyncio.Task[bytes]]()
        try:
            async with contextlib.aclosing(self._begun(counts, frozen)) as begun:
                async for pack in begun:
                    packing.append(loop.create_task(self._volume.read(pack)))
                    if len(packing) == PACKED_AT_ONCE:
                        yield await packing.popleft()
            while packing:
                yield await packing.popleft()
        finally:
            await asyncio.gather(*packing, return_exceptions=True)

    async def _begun(self, counts: MessageCount, frozen: FrozenStore) -> AsyncGenerator[Packing]:
        """Return a packing function per block with messages; the next block is read meanwhile."""
        loop, beginning = asyncio.get_running_loop(), None
        try:
            for index in range(frozen.num_blocks):
                pack = await (beginning or self._volume.read(self._begin_block, counts, frozen, 0))
                beginning = None
                if index + 1 < frozen.num_blocks:
                    read = self._volume.read(self._begin_block, counts, frozen, index + 1)
                    beginning = loop.create_task(read)
                if pack is not None:
                    yield pack
        finally:
            if beginning is not None:
                await asyncio.gather(beginning, return_exceptions=True)

    def _begin_block(self, counts: MessageCount, frozen: FrozenStore, index: int) -> Packing | None:
        """Read and verify a block and compute its checksum; in a thread, one block at a time."""
        image = frozen.read_image(index)
        name = counts.add(image)
        return self._writer.packing(name, image.data) if name else None

    def _begin(self) -> bytes:
        parts = [self._writer.begin()]
        parts += [self._writer.entry(*entry) for entry in self._taken.image.entries()]
        return b"".join(parts)
