"""A backup of a source's streams into a directory.

Promise
- A stream that cannot be copied, or is gone, does not stop the others; it is a problem that the
  backup names. A lost connection, or a full disk, ends the backup without a manifest; the next one
  continues with what was stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

from natsd.backup.collecting import Collector
from natsd.backup.directory import BackupDirectory
from natsd.backup.errors import DamagedPiece, StreamFailed, StreamGone
from natsd.backup.manifest import (
    VERSION,
    Body,
    Entry,
    FileCopy,
    Kind,
    Manifest,
    StreamCopy,
)
from natsd.backup.source import Progress, Source

Names = Sequence[str]
ForStream = Callable[[str], Progress]
"""Returns the progress callback for the stream of that title."""


@dataclass(slots=True)
class Taken:
    """A finished backup; `sent_bytes` came from the source, `written_bytes` went into pieces.

    `trusted` are the pieces that the backup before has, too.
    """

    manifest: Manifest
    sent_bytes: int = 0
    written_bytes: int = 0
    trusted: frozenset[str] = frozenset()


class BackupRun:
    """One backup; call `run` once, with the directory locked."""

    def __init__(
        self, directory: BackupDirectory, source: Source, now_ns: Callable[[], int]
    ) -> None:
        self._directory = directory
        self._source = source
        self._now_ns = now_ns
        self._older = directory.newest_first()
        self._before: dict[tuple[str, str], StreamCopy] = {}
        self._stored = directory.known_blocks()
        self._problems: list[str] = []
        self._sent_bytes = 0
        self._trusted: set[str] = set()

    def run(
        self,
        accounts: Names,
        streams: Names,
        files: Sequence[tuple[str, bytes]],
        for_stream: ForStream,
    ) -> Taken:
        """Copy the streams and write the manifest.

        Empty `accounts` or `streams` mean all. `files` are those of the configuration. Raises
        BackupError or OSError.
        """
        began_ns = self._now_ns()
        backup_id = self._directory.new_id(began_ns)
        copies: list[StreamCopy] = []
        with self._directory.open_journal() as journal:
            journal.write(b"\n")  # the line before may be cut
            for account in accounts or self._source.accounts():
                for stream in self._source.streams(account):
                    if streams and stream not in streams:
                        continue
                    copy = self._copy(account, stream, journal, for_stream)
                    if copy is not None:
                        copies.append(copy)
        manifest = Manifest(
            VERSION,
            backup_id,
            began_ns,
            self._now_ns(),
            self._source.title,
            tuple(copies),
            tuple(self._file(*file) for file in files),
            tuple(self._problems),
        )
        self._directory.write(manifest)
        written_bytes = self._directory.pieces.written_bytes
        return Taken(manifest, self._sent_bytes, written_bytes, frozenset(self._trusted))

    def _copy(
        self, account: str, stream: str, journal: IO[bytes], for_stream: ForStream
    ) -> StreamCopy | None:
        """Copy a stream. Return None if it is not in the backup."""
        title = f"{account} > {stream}" if account else stream
        known = self._known(account, stream)
        collector = Collector(self._directory, known, journal)
        try:
            copy = self._source.copy(account, stream, collector, for_stream(title))
        except StreamGone:
            self._problems.append(f"{title}: deleted before it could be copied")
            return None
        except StreamFailed as error:
            self._problems.append(f"{title}: {error}")
            return None
        finally:
            collector.close()
            self._sent_bytes += collector.sent_bytes
            self._problems += [f"{title}: {line}" for line in self._source.damage()]
        if copy.lost:
            self._problems.append(f"{title}: {copy.lost} damaged messages are not in the backup")
        if copy.kind is Kind.MEMORY:
            self._problems.append(f"{title}: in memory, so only its configuration is in the backup")
        return copy

    def _known(self, account: str, stream: str) -> dict[bytes, Entry]:
        """Return the blocks of the stream that the directory has, by their keys."""
        before = self._last_copy(account, stream)
        if before is None:
            return self._stored
        try:
            record = self._directory.record(before.record)
        except DamagedPiece:
            return self._stored
        blocks = {each.key: each for each in record.entries if each.key}
        self._trusted |= {each.body.piece for each in blocks.values() if each.body.piece}
        return blocks | self._stored

    def _last_copy(self, account: str, stream: str) -> StreamCopy | None:
        """Return the stream in the newest backup that has it; a backup may have few streams."""
        while (account, stream) not in self._before:
            manifest = next(self._older, None)
            if manifest is None:
                return None
            for copy in manifest.streams:
                self._before.setdefault((copy.account, copy.stream), copy)
        return self._before[account, stream]

    def _file(self, path: str, content: bytes) -> FileCopy:
        piece = self._directory.pieces.put(content)
        return FileCopy(path, Body(piece=piece.name, stored=piece.stored))
