"""Where streams come from and go to: a running server (server.py), or files (files.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from natsd.backup.collecting import Collector
from natsd.backup.directory import BackupDirectory
from natsd.backup.manifest import StreamCopy, StreamRecord

Progress = Callable[[int, int], object]
"""Callback with the bytes done and the bytes to do."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restored stream holds; `messages` is None where that is unknown."""

    messages: int | None
    last_sequence: int | None
    consumers: int | None


class Source(Protocol):
    """Streams that can be copied and restored; everything blocks."""

    def close(self) -> None:
        """Close the connection, or release the files."""

    @property
    def title(self) -> str:
        """Where the streams are, for people."""

    def accounts(self) -> list[str]:
        """Return the names of all accounts with JetStream. Raises BackupError."""

    def streams(self, account: str) -> list[str]:
        """Return the names of the account's streams. Raises BackupError."""

    def jwts(self) -> list[tuple[str, bytes]]:
        """Return paths and contents of the accounts' JWTs (configuration.py)."""

    def damage(self) -> Iterator[str]:
        """Yield a line for each damage that was found since the last call."""

    def copy(
        self, account: str, stream: str, collector: Collector, progress: Progress
    ) -> StreamCopy:
        """Give the stream to the collector and return what the manifest says about it.

        Raises StreamGone, StreamFailed, or another BackupError that ends the backup.
        """

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
        """Make the stream from its record; `size` is that of its messages, in bytes.

        Raises StreamFailed, or another BackupError that ends the restore.
        """
