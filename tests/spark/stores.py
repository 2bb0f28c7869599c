"""Stores of these tests: a volume in a directory, used without a server and without asyncio."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa

from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.stream.files import AccountFiles, StreamAsset, create_stream
from natsd.spark.ranges import RangeRequest
from natsd.spark.rows.columns import NAMES
from natsd.spark.stored.store_plan import StoreDirectory
from natsd.spark.stored.store_read import read_store
from natsd.spark.stored.stored_ranges import (
    NO_KEYS,
    StoreKeys,
)
from natsd.spark.stored.stored_stream_plan import StoredStreamPlan
from natsd.store.codec.records import StoredMessage
from natsd.store.commit.volume import Volume
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.crypto.vault import Vault
from natsd.store.disk.real_disk import RealDisk
from natsd.store.errors import StoreEOF
from natsd.store.file_store import FileOptions, FileStore
from natsd.store.store import Limits

T = TypeVar("T")
ACCOUNT = "$G"
BLOCK_BYTES = 2000
Row = tuple[Any, ...]


class Stored:
    """One stream of a volume; `store` is a FileStore, whose awaitables `run` carries out."""

    def __init__(
        self,
        root: Path,
        stream: str = "ORDERS",
        *,
        compress: bool = False,
        keys: OperatorKeys | None = None,
        block_bytes: int = BLOCK_BYTES,
        limits: Limits | None = None,
        config: StreamConfig | None = None,
    ) -> None:
        self.root = root
        self.stream = stream
        self.operator = keys or OperatorKeys()
        self._runner = asyncio.Runner()
        try:
            self.volume = self._runner.run(self._open_volume())
        except BaseException:
            self._runner.close()
            raise
        directory = AccountFiles(root / ACCOUNT).stream(stream)
        if not directory.exists():
            vault = Vault(RealDisk(), root, os.urandom, self.operator)
            asset = StreamAsset(config=config or StreamConfig(name=stream), created=0)
            create_stream(vault, directory, asset)
        self.directory = directory / "msgs"
        options = FileOptions(
            block_bytes,
            compress=compress,
            keys=self.operator,
            context=self.directory.relative_to(root).as_posix(),
        )
        self.store: FileStore = self.run(
            FileStore.open(self.volume, self.directory, limits or Limits(), os.urandom, options)
        )

    async def _open_volume(self) -> Volume:
        loop = asyncio.get_running_loop()
        return Volume.open(RealDisk(), self.root, os.urandom, loop=loop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(self, awaitable: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await awaitable

        return self._runner.run(awaited())

    def beside(self, stream: str) -> FileStore:
        """Open another stream's store in the same volume."""
        path = AccountFiles(self.root / ACCOUNT).stream(stream) / "msgs"
        return self.run(FileStore.open(self.volume, path, Limits(), os.urandom))

    def append(
        self, subject: str, data: bytes, headers: bytes | None = None, time_ns: int = 0
    ) -> int:
        async def appended() -> int:
            return self.store.append(subject, headers, data, time_ns)

        return self.run(appended())

    def publish(self, count: int, *, data: bytes = b"x" * 40, subjects: int = 7) -> None:
        """Append `count` messages `s.<n>`, one second apart, and sync them."""
        first = self.store.state().last_sequence + 1
        for number in range(first, first + count):
            self.append(f"s.{number % subjects}", b"%d " % number + data, None, number * 10**9)
        self.run(self.store.synced())

    def messages(self) -> list[StoredMessage]:
        return self.run(everything(self.store))

    def close(self) -> None:
        """Close the store and the volume in order."""
        self.run(self.store.close())
        self.run(self.volume.close())
        self._runner.close()

    def crashed_copy(self, root: Path) -> Path:
        """Return a copy of the files as a crash would leave them after a sync."""

        async def copied() -> None:
            shutil.copytree(self.root, root)

        self.run(self.store.synced())
        self.run(self.store._jobs.in_turn(copied))  # not in the middle of a compaction
        return root


async def everything(store: FileStore) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    try:
        while True:
            start = found[-1].sequence + 1 if found else 0
            found += await store.read_batch(start, 1 << 20, 1 << 30)
    except StoreEOF:
        return found


def key_file(path: Path, key: bytes) -> StoreKeys:
    path.write_bytes(key + b"\n")
    return StoreKeys(str(path))


def row_of(message: StoredMessage, stream: str = "ORDERS") -> Row:
    """Return a message as `rows` returns it; headers are a dictionary or None."""
    headers: dict[str, list[str]] = {}
    for line in (message.headers or b"").split(b"\r\n")[1:]:
        key, colon, value = line.partition(b":")
        if colon:
            headers.setdefault(key.decode(), []).append(value.strip().decode())
    return (
        stream,
        message.sequence,
        message.subject,
        message.time_ns,
        headers or None,
        message.data,
    )


READ = ("stream", "seq", "subject", "time_ns", "headers", "data")


def plan_of(root: Path, stream: str = "ORDERS", keys: StoreKeys | None = None) -> StoredStreamPlan:
    with StoreDirectory(root, keys or NO_KEYS) as directory:
        return directory.plan(stream)


def rows(
    plan: StoredStreamPlan,
    request: RangeRequest | None = None,
    *,
    partitions: int = 1,
    max_rows: int = 0,
    batch_rows: int = 10_000,
    **changes: Any,
) -> list[Row]:
    """Return the rows of all tasks of a read, one task after the other."""
    asked = replace(request or plan.request(), **changes)
    ranges = plan.ranges(asked, min_partitions=partitions, max_rows=max_rows)
    return [row for each in ranges for row in rows_of(read_store(each, READ, batch_rows))]


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    found = []
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        found += [
            tuple(dict(value) if name == "headers" and value else value for name, value in pairs)
            for pairs in (
                zip(batch.schema.names, row, strict=True) for row in zip(*columns, strict=True)
            )
        ]
    return found


__all__ = ["ACCOUNT", "NAMES", "Stored", "key_file", "plan_of", "row_of", "rows", "rows_of"]
