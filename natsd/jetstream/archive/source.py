"""An archive of a frozen stream, part by part: read, verified and packed in threads.

Promise
- While one block is packed the next one is read, and no further one: memory stays bounded.
- Messages that do not verify any more are left out, and counted.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from natsd.jetstream.archive.contents import MessageCount, StreamImage
from natsd.store.archive import ArchiveWriter
from natsd.store.errors import StoreError
from natsd.store.frozen_store import FrozenStore
from natsd.store.live_image import LiveImage
from natsd.store.volume import Volume


class ArchiveSource:
    """Used once; `close` when done, whether or not all was read."""

    def __init__(self, volume: Volume, frozen: FrozenStore, image: StreamImage) -> None:
        self.counts = MessageCount(frozen.state)
        self._volume = volume
        self._frozen = frozen
        self._image = image
        self._writer = ArchiveWriter()
        self._parts = self._make_parts()
        self._next: asyncio.Task[bytes] | None = None

    async def next_part(self) -> bytes:
        """The next bytes of the archive; none at its end. Raises OSError, StoreError."""
        self._next = self._next or self._start()
        part = await asyncio.shield(self._next)  # a thread may be reading: `close` waits for it
        self._next = self._start() if part else None
        return part

    async def close(self) -> None:
        """Give up what was read ahead, and what was frozen. Raises OSError."""
        if self._next is not None:
            with contextlib.suppress(StoreError, OSError):  # nobody asks for it any more
                await self._next
        with contextlib.suppress(StoreError, OSError):
            await self._parts.aclose()
        await self._frozen.release()

    def _start(self) -> asyncio.Task[bytes]:
        async def take() -> bytes:
            return await anext(self._parts, b"")

        return asyncio.get_running_loop().create_task(take())

    async def _make_parts(self) -> AsyncGenerator[bytes]:
        yield await self._volume.read(self._begin)
        async with contextlib.aclosing(self._images()) as images:
            async for image in images:
                if name := self.counts.add(image):
                    yield await self._volume.read(self._writer.entry, name, image.data)
        yield await self._volume.read(self._end)

    async def _images(self) -> AsyncGenerator[LiveImage]:
        """What lives of each block; the next one is being read already."""
        loop, reading = asyncio.get_running_loop(), None
        try:
            for index in range(self._frozen.num_blocks):
                image = await (reading or self._frozen.image(index))
                reading = None
                if index + 1 < self._frozen.num_blocks:
                    reading = loop.create_task(self._frozen.image(index + 1))
                yield image
        finally:
            if reading is not None:
                await asyncio.gather(reading, return_exceptions=True)

    def _begin(self) -> bytes:
        parts = [self._writer.begin()]
        parts += [self._writer.entry(*entry) for entry in self._image.entries()]
        return b"".join(parts)

    def _end(self) -> bytes:
        return self._writer.entry(*self.counts.state_entry()) + self._writer.end()
