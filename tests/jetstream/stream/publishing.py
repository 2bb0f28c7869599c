"""A stream's publish path without a server: a reactor, an account, a store and publishers."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from natsd import Server
from natsd.accounts import Account
from natsd.core.network import Reactor
from natsd.core.routing import Subscription
from natsd.jetstream.stream.publishing import Ingest, Usage
from natsd.jetstream.stream.settings import IngestSettings
from natsd.jetstream.stream.state import Scheduler, StreamReaders
from natsd.store.commit.volume import Volume
from natsd.store.disk.disk import Disk
from natsd.store.disk.real_disk import RealDisk
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.log_store import LogStore
from natsd.store.mem_store import MemStore
from natsd.store.store import Limits
from tests.jetstream.clock import Clock
from tests.waiting import eventually_within


@dataclass(frozen=True)
class Received:
    """A message received in the stream's account."""

    subject: str
    headers: bytes
    data: bytes


def header_block(headers: Mapping[str, str]) -> bytes:
    """Return a header block; no headers give an empty one."""
    if not headers:
        return b""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


class Bench:
    """One stream `S` with the subjects `s.>`, and the messages to `inbox.>` and `out.>`.

    The account is its own, or that of a server.
    """

    def __init__(
        self,
        store: LogStore,
        settings: IngestSettings,
        usage: Usage,
        server: Server | None = None,
    ) -> None:
        self.failures: list[str] = []
        self.clock = Clock()
        self.server = server
        if server is None:
            self.reactor = Reactor(asyncio.get_running_loop(), self.failures.append)
            self.account = Account("$G", self.reactor)
        else:
            self.reactor = server.reactor
            self.account = server.accounts["$G"]
        self.scheduler = Scheduler(self.reactor, self.clock)
        self.store = store
        self.readers = StreamReaders("S", store, self.account.publisher, self.scheduler)
        self.ingest = Ingest(self.readers, settings, usage)
        self.ingest.resume()
        self.received: list[Received] = []
        self._numbers = itertools.count(1)
        self.account.sublist.insert(Subscription("s.>", sink=self.ingest))
        for pattern in ("inbox.>", "out.>"):
            self.account.internal_client.subscribe(pattern, self._take)

    def _take(self, subject: str, _reply: str | None, headers: bytes, data: bytes) -> None:
        self.received.append(Received(subject, headers, data))

    def publish(
        self, subject: str, data: bytes = b"", *, reply: str | None = None, **headers: str
    ) -> str:
        """Publish with a new reply subject and return that; `Nats_Msg_Id="1"` is a header."""
        reply = f"inbox.{next(self._numbers)}" if reply is None else reply
        block = header_block({name.replace("_", "-"): value for name, value in headers.items()})
        self.publish_block(subject, data, block, reply)
        return reply

    def publish_block(self, subject: str, data: bytes, block: bytes, reply: str = "") -> None:
        taken = self.account.publisher.publish(
            subject.encode(), data, reply.encode() if reply else None, block
        )
        assert taken == 1

    def answers_to(self, reply: str) -> list[Received]:
        return [message for message in self.received if message.subject == reply]

    async def answer(self, reply: str) -> bytes:
        await eventually_within(lambda: self.answers_to(reply))
        (answer,) = self.answers_to(reply)
        return answer.data

    async def ask(self, subject: str, data: bytes = b"", **headers: str) -> Any:
        """Publish and return the decoded answer."""
        return json.loads(await self.answer(self.publish(subject, data, **headers)))

    async def store_all(self, *subjects: str) -> None:
        for subject in subjects:
            assert "error" not in await self.ask(subject)

    def contents(self) -> dict[int, str]:
        """Return sequence -> subject of the stored messages."""
        sequences = range(self.store.log.first_sequence, self.store.log.last_sequence + 1)
        found = {}
        for sequence in sequences:
            if self.store.log.has(sequence):
                message = self.store.load_cached(sequence)
                assert message is not None
                found[sequence] = message.subject
        return found

    async def close(self) -> None:
        self.ingest.close()
        self.readers.close()
        await self.store.close()
        self.scheduler.close()
        if self.server is None:
            self.account.close()
            self.reactor.close()
        assert not self.failures


@asynccontextmanager
async def memory_bench(
    *, limits: Limits | None = None, usage: Usage | None = None, **settings: Any
) -> AsyncIterator[Bench]:
    store = MemStore(limits or Limits(), block_bytes=600)
    chosen = IngestSettings(name="S", is_memory=True, **settings)
    bench = Bench(store, chosen, usage or Usage(Usage()))
    try:  # hypothesis ends some examples early
        yield bench
    finally:
        await bench.close()


@asynccontextmanager
async def file_bench(
    directory: Path,
    *,
    limits: Limits | None = None,
    usage: Usage | None = None,
    disk: Disk | None = None,
    block_bytes: int = 600,
    server: Server | None = None,
    **settings: Any,
) -> AsyncIterator[Bench]:
    loop = asyncio.get_running_loop()
    volume = Volume.open(disk or RealDisk(), directory, os.urandom, loop=loop)
    options = FileOptions(block_bytes)
    store = await FileStore.open(volume, directory / "S", limits or Limits(), os.urandom, options)
    bench = Bench(store, IngestSettings(name="S", **settings), usage or Usage(Usage()), server)
    yield bench
    await bench.close()
    await volume.close()
