"""A source of backups: JetStream in this process, without a network; and reading it back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from natsd.backup.collecting import Collector
from natsd.backup.directory import BackupDirectory
from natsd.backup.errors import StreamGone
from natsd.backup.manifest import StreamCopy, StreamRecord
from natsd.backup.source import Progress, Restored
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.snapshot.contents import PLAN
from natsd.jetstream.snapshot.replicating import unfinished
from natsd.jetstream.snapshot.source import SnapshotSource
from natsd.jetstream.snapshot.taking import freeze_stream
from natsd.store.backup.snapshot_file import SnapshotReader
from tests.jetstream.serving import ACCOUNT, account_of

T = TypeVar("T")


class LiveStreams:
    """The streams of a JetStream whose loop runs in another thread."""

    title = "live"

    def __init__(self, jetstream: JetStream) -> None:
        self._jetstream = jetstream
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Do nothing."""

    def accounts(self) -> list[str]:
        return [ACCOUNT]

    def streams(self, account: str) -> list[str]:
        return sorted(account_of(self._jetstream).streams)

    def jwts(self) -> list[tuple[str, bytes]]:
        return []

    def damage(self) -> Iterator[str]:
        yield from ()

    def copy(
        self, account: str, stream: str, collector: Collector, progress: Progress
    ) -> StreamCopy:
        source = self._wait(self._freeze(stream))
        try:
            reader = SnapshotReader()
            while part := self._wait(source.next_part()):
                for name, body in reader.feed(part):
                    if name == PLAN:
                        source.choose(collector.choose(body))
                    else:
                        collector.take(name, body)
            reader.finish()
        finally:
            self._wait(source.close())
        return collector.finish(account, stream)

    async def _freeze(self, name: str) -> SnapshotSource:
        account = account_of(self._jetstream)
        if name not in account.streams:
            raise StreamGone(name)
        taken = await freeze_stream(
            account.streams[name], lambda: unfinished(account), with_consumers=True
        )
        return SnapshotSource(self._jetstream.volume, taken, is_chosen=True)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def restore(
        self,
        account: str,
        stream: str,
        record: StreamRecord,
        directory: BackupDirectory,
        size: int,
        progress: Progress,
        *,
        overwrites: bool,
    ) -> Restored:
        raise NotImplementedError
