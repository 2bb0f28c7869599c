"""Log of a table: the added and removed files, one log file for each change.

    _natsd/table.json                     description of the table: written once
    _natsd/log/000000000041.state.json    the state after change 41
    _natsd/log/000000000042.json          change 42: files added and removed, sequences they hold
    _natsd/staging/000000000043-1f…/      files of a change that is not in the log yet

Promise
- A change is committed when its log file exists. Its files are moved to their final paths
  afterwards; `unfinished` is the change for which this may be incomplete.
- Changes are numbered without a gap. After every STATE_EVERY changes the state is written and
  earlier log files are removed, so a table of any age is opened by reading a few files.
- One job writes a table at a time; a second job is refused when it would write the same change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from natsd.spark.jobs.errors import JobError
from natsd.spark.jobs.table_files import TableFiles

DIRECTORY: Final = "_natsd"
LOG: Final = f"{DIRECTORY}/log"
STATE_EVERY: Final = 64
_STATE_SUFFIX: Final = ".state.json"
_CHANGE_SUFFIX: Final = ".json"
_Read = TypeVar("_Read")


class StreamRange(msgspec.Struct, frozen=True):
    """Messages of one stream: their number, and their first and last sequence."""

    first: int
    last: int
    rows: int


class AddedFile(msgspec.Struct, frozen=True):
    """A file that a change adds: its final path, its staging path, and its bytes."""

    path: str
    staged: str
    size_bytes: int


class TableChange(msgspec.Struct, frozen=True):
    """One change; `streams` holds its new messages, none if files only replace others."""

    number: int
    at: str
    added: list[AddedFile]
    removed: list[str] = []
    streams: dict[str, StreamRange] = {}


class TableState(msgspec.Struct):
    """State after a change: the files with their bytes, and all messages ever added, by stream."""

    number: int = 0
    files: dict[str, int] = {}
    streams: dict[str, StreamRange] = {}
    unfinished: TableChange | None = None

    @property
    def rows(self) -> int:
        """Number of messages in the table."""
        return sum(stream.rows for stream in self.streams.values())

    @property
    def size_bytes(self) -> int:
        """Bytes of the table's files."""
        return sum(self.files.values())

    def apply(self, change: TableChange) -> None:
        """Apply the next change."""
        assert change.number == self.number + 1
        self.number = change.number
        for path in change.removed:
            self.files.pop(path, None)
        self.files |= {added.path: added.size_bytes for added in change.added}
        for name, new in change.streams.items():
            self.streams[name] = joined(self.streams.get(name), new)
        self.unfinished = change


class TableLog:
    """The log of one table, and the state that results from it."""

    def __init__(self, files: TableFiles) -> None:
        """Read the log. Raises JobError if it is damaged."""
        self._files = files
        names = files.names(LOG)
        states = [name for name in names if name.endswith(_STATE_SUFFIX)]
        self.state = self._read(states[-1], TableState) if states else TableState()
        for name in names:
            if not name.endswith(_STATE_SUFFIX) and name.endswith(_CHANGE_SUFFIX):
                self._take(name)

    def append(self, change: TableChange) -> None:
        """Commit a change. Raises JobError if another job has committed one with its number."""
        number = change.number
        self._files.create(f"{LOG}/{number:012}{_CHANGE_SUFFIX}", msgspec.json.encode(change))
        self.state.apply(change)
        if number % STATE_EVERY == 0:
            self._write_state()

    def _take(self, name: str) -> None:
        change = self._read(name, TableChange)
        if change.number <= self.state.number:
            return
        if change.number != self.state.number + 1:
            missing = f"{LOG}/{self.state.number + 1:012}{_CHANGE_SUFFIX}"
            raise JobError(f"{self._files.absolute(missing)}: it is missing from the table's log")
        self.state.apply(change)

    def _write_state(self) -> None:
        number = self.state.number
        self._files.create(f"{LOG}/{number:012}{_STATE_SUFFIX}", msgspec.json.encode(self.state))
        for name in self._files.names(LOG):
            if name < f"{number:012}{_STATE_SUFFIX}":
                self._files.remove(f"{LOG}/{name}")

    def _read(self, name: str, kind: type[_Read]) -> _Read:
        path = f"{LOG}/{name}"
        try:
            return msgspec.json.decode(self._files.read(path), type=kind)
        except msgspec.DecodeError as error:
            raise JobError(f"{self._files.absolute(path)}: it is damaged: {error}") from None


def joined(one: StreamRange | None, other: StreamRange) -> StreamRange:
    """Return the range that covers both, with the sum of their messages."""
    if one is None:
        return other
    return StreamRange(
        min(one.first, other.first), max(one.last, other.last), one.rows + other.rows
    )


def ranges_of(rows: Iterable[tuple[str, int, int, int]]) -> dict[str, StreamRange]:
    """Return the ranges of rows of (stream, first, last, count), by stream."""
    return {stream: StreamRange(first, last, count) for stream, first, last, count in rows}
