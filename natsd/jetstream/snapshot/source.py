"""A snapshot of a frozen stream, part by part: blocks are read, verified and packed in threads.

Promise
- While PACKED_AT_ONCE blocks are packed only one further block is read: memory stays bounded.
- Messages whose checksum fails are left out, and counted.
- A receiver that chooses blocks gets the plan first; nothing is read before it has chosen.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Final

from natsd.jetstream.snapshot.contents import PLAN, MessageCount, encode_plan, is_chosen
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

    def __init__(self, volume: Volume, taken: TakenStream, *, is_chosen: bool = False) -> None:
        """`is_chosen`: the receiver chooses the blocks (contents.py)."""
        self.lost = 0
        self.awaits_choice = False
        self._is_chosen = is_chosen
        self._is_plan = False  # the part that `next_part` returns next is the plan
        self._choice = b""
        self._volume = volume
        self._taken = taken
        self._writer = SnapshotWriter()
        self._parts = self._make_parts()
        self._next: asyncio.Task[bytes] | None = None

    async def next_part(self) -> bytes:
        """Return the next bytes of the snapshot; empty at its end. Raises OSError, StoreError.

        While `awaits_choice` is set, call `choose` first.
        """
        assert not self.awaits_choice
        self._next = self._next or self._start()
        part = await asyncio.shield(self._next)  # a thread may be reading: `close` waits for it
        self.awaits_choice, self._is_plan = self._is_plan, False
        self._next = self._start() if part and not self.awaits_choice else None
        return part

    def choose(self, choice: bytes) -> None:
        """Send only the chosen blocks (contents.py: `is_chosen`)."""
        self._choice = choice
        self.awaits_choice = False

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
        if self._is_chosen:
            plan = await self._volume.read(self._plan)
            self._is_plan = True
            yield plan
        planned = 0
        for store, frozen in self._taken.frozen.items():
            counts = MessageCount(store, frozen.state)
            indexes = [
                index
                for index in range(frozen.num_blocks)
                if not self._is_chosen or is_chosen(self._choice, planned + index)
            ]
            planned += frozen.num_blocks
            async with contextlib.aclosing(self._packed(counts, frozen, indexes)) as packed:
                async for part in packed:
                    yield part
            self.lost += counts.lost
            yield await self._volume.read(self._writer.entry, *counts.state_entry())
        yield await self._volume.read(self._writer.end)

    async def _packed(
        self, counts: MessageCount, frozen: FrozenStore, indexes: list[int]
    ) -> AsyncGenerator[bytes]:
        """Return the entries of a store's blocks.

        Checksums are computed in order; packing, which takes longest, is done for several blocks at
        once.
        """
        loop, packing = asyncio.get_running_loop(), deque[asyncio.Task[bytes]]()
        try:
            async with contextlib.aclosing(self._begun(counts, frozen, indexes)) as begun:
                async for pack in begun:
                    packing.append(loop.create_task(self._volume.read(pack)))
                    if len(packing) == PACKED_AT_ONCE:
                        yield await packing.popleft()
            while packing:
                yield await packing.popleft()
        finally:
            await asyncio.gather(*packing, return_exceptions=True)

    async def _begun(
        self, counts: MessageCount, frozen: FrozenStore, indexes: list[int]
    ) -> AsyncGenerator[Packing]:
        """Return a packing function per block with messages; the next block is read meanwhile."""
        loop, beginning = asyncio.get_running_loop(), None
        try:
            for at, index in enumerate(indexes):
                pack = await (
                    beginning or self._volume.read(self._begin_block, counts, frozen, index)
                )
                beginning = None
                if at + 1 < len(indexes):
                    read = self._volume.read(self._begin_block, counts, frozen, indexes[at + 1])
                    beginning = loop.create_task(read)
                if pack is not None:
                    yield pack
        finally:
            if beginning is not None:
                await asyncio.gather(beginning, return_exceptions=True)

    def _begin_block(self, counts: MessageCount, frozen: FrozenStore, index: int) -> Packing | None:
        """Read and verify a block and compute its checksum; in a thread, one block at a time."""
        image = frozen.read_image(index)
        name = counts.add(image, index + 1 if self._is_chosen else 0)
        return self._writer.packing(name, image.data) if name else None

    def _plan(self) -> bytes:
        plans = {store: frozen.plan() for store, frozen in self._taken.frozen.items()}
        return self._writer.entry(PLAN, encode_plan(plans))

    def _begin(self) -> bytes:
        parts = [self._writer.begin()]
        parts += [self._writer.entry(*entry) for entry in self._taken.image.entries()]
        return b"".join(parts)
