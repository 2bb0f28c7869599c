"""The import of nats-server's store directory, or a snapshot, into natsd's, without a server.

    <source>/[jetstream/]<account>/streams/<stream>/ ─▶ <store>/<account>/streams/<stream>/

Promise
- Nothing in the source is written, created or locked.
- A stream that exists in the store already stays as it is; so a second import continues where the
  first one was stopped.
- What is not taken is in the report: streams, consumers, messages, and other directories.
- A source that another process has open is refused, as far as that can be told (/proc on Linux). A
  stream whose files change while they are read is not taken.

Everything here blocks on the disk.
"""

import asyncio
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from natsd.core.quoting import quoted
from natsd.jetstream.account_resources import why_no_directory
from natsd.jetstream.nats_server.snapshot_reader import NatsServerSnapshot
from natsd.jetstream.nats_server.stream_import import FoundStream, copy_stream, read_stream
from natsd.jetstream.nats_server.survey import Survey, survey
from natsd.jetstream.snapshot.builder import StreamBuilder
from natsd.jetstream.snapshot.offline import (
    PART_BYTES,
    RESTORED,
    NotPossible,
    Progress,
    check_consumer,
)
from natsd.jetstream.stream.files import AccountFiles, install_stream
from natsd.store.commit.volume import LOCK_NAME, Volume
from natsd.store.crypto.keys import OperatorKeys, Random
from natsd.store.crypto.vault import Vault
from natsd.store.disk.disk import Disk
from natsd.store.disk.places import STREAMS
from natsd.store.errors import StoreError
from natsd.store.file_store import FileOptions
from natsd.store.nats_server.encryption import Encryption
from natsd.store.nats_server.stream_files import BLOCK_SUFFIX, StreamFiles, Unusable

JETSTREAM: Final = "jetstream"
RAFT_GROUPS: Final = "_js_"
SNAPSHOTS: Final = "__snapshots__"
RECEIVED: Final = "received"

Stamps = dict[Path, tuple[int, int]]
"""Size in bytes and time of the last change, in ns, of each file."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The source, its keys, and which of its streams to import; no names: all of them."""

    source: Path
    keys: tuple[bytes, ...] = field(default=(), repr=False)
    accounts: Collection[str] = ()
    streams: Collection[str] = ()
    is_dry: bool = False


@dataclass(slots=True)
class ImportedStream:
    """One stream of the report; `reason` is why it was not taken, empty: it was taken.

    `damage`, `not_taken` and `notes` have one line each. Damage and what was not taken are losses,
    notes are not.
    """

    account: str
    stream: str
    messages: int = 0
    consumers: int = 0
    reason: str = ""
    damage: list[str] = field(default_factory=list)
    not_taken: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether all of the stream was taken."""
        return not (self.reason or self.damage or self.not_taken)


@dataclass(slots=True)
class ImportReport:
    """The streams in the order of their directories, and the directories that hold none."""

    streams: list[ImportedStream] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether all selected streams were taken as a whole."""
        return all(each.is_complete for each in self.streams)


def import_store(
    disk: Disk, selection: Selection, root: Path, keys: OperatorKeys, random: Random, show: Progress
) -> ImportReport:
    """Add the selected streams to the store in `root`; `keys` are those of the store.

    Raises NotPossible, DirectoryLocked, StoreError, OSError; streams that were complete by then
    stay.
    """
    source = _source(selection.source)
    report = ImportReport()
    found = list(_streams(source, selection, report))
    if not found and (selection.accounts or selection.streams):
        raise NotPossible(f"{source}: no such stream")
    if user := _user_of(source):
        raise NotPossible(f"{source} is in use by process {user}: stop that server first")
    if selection.is_dry:
        total = _Total(found, passes=1, show=show)
        for account, directory in found:
            files = StreamFiles(directory, Encryption(account, selection.keys))
            report.streams.append(_surveyed(files, account, root, total)[0])
        return report
    total = _Total(found, passes=2, show=show)
    return asyncio.run(_import(disk, found, selection, root, keys, random, report, total))


async def _import(
    disk: Disk,
    found: list[tuple[str, Path]],
    selection: Selection,
    root: Path,
    keys: OperatorKeys,
    random: Random,
    report: ImportReport,
    total: "_Total",
) -> ImportReport:
    volume = Volume.open(disk, root, random, loop=asyncio.get_running_loop())
    try:
        vault = Vault(disk, root, random, keys)
        for account, directory in found:
            files = StreamFiles(directory, Encryption(account, selection.keys))
            report.streams.append(await _import_stream(volume, vault, files, account, total))
    finally:
        await volume.close()
    return report


def import_snapshot(
    disk: Disk,
    snapshot: IO[bytes],
    root: Path,
    account: str,
    keys: OperatorKeys,
    random: Random,
    show: Progress,
) -> ImportedStream:
    """Add the stream of a snapshot that nats-server made; `keys` are those of the store in `root`.

    What is damaged is left out and told. Raises NotPossible, DamagedEncoding, DirectoryLocked,
    OSError.
    """
    if reason := why_no_directory(account):
        raise NotPossible(f"account {quoted(account)}: {reason}")
    return asyncio.run(_import_snapshot(disk, snapshot, root, account, keys, random, show))


async def _import_snapshot(
    disk: Disk,
    snapshot: IO[bytes],
    root: Path,
    account: str,
    keys: OperatorKeys,
    random: Random,
    show: Progress,
) -> ImportedStream:
    volume = Volume.open(disk, root, random, loop=asyncio.get_running_loop())
    received = NatsServerSnapshot(volume, AccountFiles(root / account).snapshots / RECEIVED)
    try:
        await received.remove()
        while part := snapshot.read(PART_BYTES):
            await received.take(part, lambda: None)
        files = received.files()
        total = _Total([(account, files.directory)], passes=2, show=show)
        return await _import_stream(volume, Vault(disk, root, random, keys), files, account, total)
    finally:
        await received.remove()
        await volume.close()


async def _import_stream(
    volume: Volume, vault: Vault, files: StreamFiles, account: str, total: "_Total"
) -> ImportedStream:
    before = _stamps(files.directory)
    line, found, surveyed = await volume.read(_surveyed, files, account, vault.root, total)
    if found is None or surveyed is None:
        return line
    target = AccountFiles(vault.root / account)
    built = target.snapshots / RESTORED
    volume.disk.rmtree(built)
    builder = StreamBuilder(
        volume,
        vault,
        built,
        target.stream(line.stream),
        vault.random,
        FileOptions(keys=vault.keys),
        check_consumer=check_consumer,
    )
    try:
        await builder.begin()
        await copy_stream(builder, volume, files, found, surveyed, total.read)
        if _stamps(files.directory) != before:
            raise NotPossible(f"{files.directory} changed while it was read: is a server running?")
        line.messages, line.consumers = builder.num_messages, builder.num_consumers
        await builder.finish()
        install_stream(volume.disk, built, target.stream(line.stream))
    except (NotPossible, StoreError) as error:
        await builder.give_up()
        line.messages = line.consumers = 0
        line.reason = str(error)
    except BaseException:
        await builder.give_up()
        raise
    return line


def _surveyed(
    files: StreamFiles, account: str, root: Path, total: "_Total"
) -> tuple[ImportedStream, FoundStream | None, Survey | None]:
    """Read the stream once; if the last two are None, the line says why it is not taken."""
    line = ImportedStream(account, files.name)
    place = AccountFiles(root / account).stream(files.name)
    try:
        if reason := why_no_directory(account):
            raise NotPossible(f"account {quoted(account)}: {reason}")
        if place.exists():
            raise NotPossible(f"{place} exists")
        found = read_stream(files)
        surveyed = survey(files, total.read)
    except (NotPossible, Unusable) as error:
        line.reason = str(error)
        return line, None, None
    line.messages, line.consumers = surveyed.messages, len(found.consumers)
    line.damage, line.not_taken = surveyed.damage, found.not_taken
    found.notes += surveyed.notes
    line.notes = found.notes
    return line, found, surveyed


# The source


def _source(directory: Path) -> Path:
    """Return the directory of the accounts. Raises NotPossible."""
    inner = directory / JETSTREAM
    source = inner if inner.is_dir() else directory
    if (source / LOCK_NAME).exists():
        raise NotPossible(f"{source} is a store of natsd, not of nats-server")
    return source


def _streams(
    source: Path, selection: Selection, report: ImportReport
) -> Iterator[tuple[str, Path]]:
    """Return account and directory of each selected stream; note what holds none."""
    for account in sorted(path for path in source.iterdir() if path.is_dir()):
        if selection.accounts and account.name not in selection.accounts:
            continue
        for directory in sorted(path for path in account.iterdir() if path.is_dir()):
            if directory.name == RAFT_GROUPS:
                report.skipped.append(f"{directory}: RAFT groups, which one server does not need")
            elif directory.name not in (STREAMS, SNAPSHOTS):
                report.skipped.append(f"{directory}: it is not known what it holds")
        if not (account / STREAMS).is_dir():
            continue
        for directory in sorted((account / STREAMS).iterdir()):
            if not directory.is_dir() or directory.name.startswith("."):  # a deleted stream
                continue
            if not selection.streams or directory.name in selection.streams:
                yield account.name, directory


def _user_of(source: Path) -> int:
    """Return the id of a process that has a file of the source open; 0: none is known."""
    processes = Path("/proc")
    if not processes.is_dir():
        return 0
    inside = f"{source.resolve()}{os.sep}"
    for process in processes.glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        try:
            descriptors = [os.readlink(each) for each in (process / "fd").iterdir()]
        except OSError:  # it is another user's, or has ended
            continue
        if any(each.startswith(inside) for each in descriptors):
            return int(process.name)
    return 0


def _stamps(directory: Path) -> Stamps:
    found: Stamps = {}
    for path in directory.rglob("*"):
        stat = path.lstat()
        found[path] = (stat.st_size, stat.st_mtime_ns)
    return found


class _Total:
    """The progress of all streams: bytes read, of the bytes to read in all passes."""

    def __init__(self, streams: list[tuple[str, Path]], *, passes: int, show: Progress) -> None:
        blocks = [path for _, stream in streams for path in stream.rglob(f"*{BLOCK_SUFFIX}")]
        self._all = sum(path.lstat().st_size for path in blocks) * passes
        self._show = show
        self._read = 0

    def read(self, size: int) -> None:
        """Count `size` more bytes."""
        self._read += size
        self._show(self._read, self._all)
