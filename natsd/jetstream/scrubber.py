"""The scrub of a server: from time to time, all stored files are read and verified.

    scrub_interval ─▶ for each stream: its full blocks, oldest first, then its consumers
                      after each of them a pause, so that `scrub_speed` is kept
                      damage: repaired from other replicas or from memory, or else reported

Promise
- One file is read at a time, in a thread; the event loop only starts it and takes the result.
- Streams, consumers and blocks that come, go or change meanwhile are no reason to stop.
- The first scrub begins FIRST_S after the start, or sooner if the interval is shorter. The next one
  begins `scrub_interval` after the end of the one before.
- A new interval or speed counts from the moment of the reload.

What is verified is what a start and `natsd store check` verify (store/maintenance/scrub.py).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from natsd.config.jetstream_options import NO_SCRUB, JetStreamOptions
from natsd.core.durations import format_duration_ns
from natsd.jetstream.server_resources import ServerResources
from natsd.store.consumer.consumer_store import ConsumerStore
from natsd.store.consumer.staged_consumer_store import StagedConsumerStore
from natsd.store.errors import StoreError
from natsd.store.maintenance.scrub import Scrubbed, scrub_consumer

if TYPE_CHECKING:
    from natsd.jetstream.account import JetStreamAccount
    from natsd.jetstream.stream.stream import Stream

_logger = logging.getLogger(__name__)

FIRST_S: Final = 600.0
SMALL_BYTES: Final = 64 << 10
"""What a consumer's files count for: they are small, and opening them takes time."""


@dataclass(slots=True)
class Scrub:
    """One scrub: how far it is, or what it has found.

    Times are ns since the Unix epoch; `ended_ns` is 0 while it runs. `repaired` and `left` are
    numbers of damaged places.
    """

    began_ns: int
    ended_ns: int = 0
    streams: int = 0
    blocks: int = 0
    consumers: int = 0
    bytes: int = 0
    repaired: int = 0
    left: int = 0

    def add(self, scrubbed: Scrubbed) -> None:
        """Count what was read."""
        self.bytes += scrubbed.bytes
        self.repaired += scrubbed.found - scrubbed.left
        self.left += scrubbed.left


class Scrubber:
    """Scrubs the stores of one server between `configure` and `close`."""

    def __init__(
        self, jetstream: ServerResources, accounts: Mapping[str, "JetStreamAccount"]
    ) -> None:
        self._jetstream = jetstream
        self._accounts = accounts
        self._interval_s = 0.0  # 0: never
        self._speed = 1
        self._task: asyncio.Task[None] | None = None
        self.running: Scrub | None = None
        """The scrub that runs now."""
        self.last: Scrub | None = None
        """The last one that has ended."""
        self.ended = 0
        """Number of scrubs that have ended."""

    def configure(self, options: JetStreamOptions) -> None:
        """Scrub as often and as fast as the options say; one that runs goes on."""
        self._speed = options.scrub_speed
        is_off = options.scrub_interval == NO_SCRUB
        interval_s = 0.0 if is_off else options.scrub_interval.total_seconds()
        if interval_s == self._interval_s:
            return
        self._interval_s = interval_s
        if not interval_s:
            self._stop()
        elif self.running is None:
            self._stop()
            self._task = asyncio.get_running_loop().create_task(self._run(), name="natsd-scrub")

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def close(self) -> None:
        """End the scrub that runs; there is none after that."""
        task = self._task
        self._stop()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        await asyncio.sleep(min(self._interval_s, FIRST_S))
        while True:
            await self.scrub()
            await asyncio.sleep(self._interval_s)

    async def scrub(self) -> Scrub:
        """Scrub everything once, and return what was found."""
        self.running = scrub = Scrub(self._jetstream.scheduler.now_ns())
        try:
            for account in list(self._accounts.values()):
                for stream in list(account.streams.values()):
                    await self._scrub_stream(account, stream, scrub)
            scrub.ended_ns = self._jetstream.scheduler.now_ns()
            self.last = scrub
            self.ended += 1
        finally:
            self.running = None
        _report(scrub)
        return scrub

    async def _scrub_stream(
        self, account: "JetStreamAccount", stream: "Stream", scrub: Scrub
    ) -> None:
        """Scrub a stream's blocks and consumers, as long as it is there."""
        volume, random_bytes = self._jetstream.volume, self._jetstream.random_bytes
        scrub.streams += 1
        for store in stream.file_stores:
            for block_id in store.scrub.block_ids():
                if account.streams.get(stream.name) is not stream:
                    return  # it was deleted, or replaced by what another replica has
                scrub.blocks += 1
                await self._pace(scrub, partial(store.scrub.scrub, block_id))
        for consumer in list(stream.consumers.values()):
            files = consumer.store
            if isinstance(files, StagedConsumerStore):
                files = files.committed
            if isinstance(files, ConsumerStore):
                scrub.consumers += 1
                await self._pace(scrub, partial(scrub_consumer, volume, files, random_bytes))

    async def _pace(self, scrub: Scrub, verify: Callable[[], Awaitable[Scrubbed]]) -> None:
        """Verify a file, and pause for as long as it may take at `scrub_speed`."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            scrubbed = await verify()
        except (StoreError, OSError) as error:
            _logger.warning("JetStream: a scrub leaves a file out: %s", error)
            scrubbed = Scrubbed()
        scrub.add(scrubbed)
        pause_s = (scrubbed.bytes or SMALL_BYTES) / self._speed - (loop.time() - began_s)
        await asyncio.sleep(max(pause_s, 0))


def _report(scrub: Scrub) -> None:
    """Log what a scrub has found."""
    took = format_duration_ns(scrub.ended_ns - scrub.began_ns)
    what = f"{scrub.blocks:,} blocks ({scrub.bytes:,} bytes) and {scrub.consumers:,} consumers"
    if not (scrub.repaired or scrub.left):
        _logger.info("JetStream: scrubbed %s in %s: no damage", what, took)
        return
    level = logging.ERROR if scrub.left else logging.WARNING
    text = "JetStream: scrubbed %s in %s: %d damaged places are repaired, %d are left"
    _logger.log(level, text, what, took, scrub.repaired, scrub.left)
