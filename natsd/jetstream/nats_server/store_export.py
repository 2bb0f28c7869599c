"""The export of a store's streams into directories that `nats stream restore` takes.

    <store>/<account>/streams/<stream>/ ─▶ <target>/<account>/<stream>/  backup.json  stream.tar.s2

Promise
- No byte of the store changes. A directory that a server uses is refused.
- A stream's directory appears in the target when it is complete.
- What nats-server's files cannot hold, and damage, is in the report, one line each.

Everything here blocks on the disk.
"""

import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from natsd.jetstream.asset_file import AssetDamaged
from natsd.jetstream.nats_server.snapshot_writer import NatsServerWriter
from natsd.jetstream.snapshot.offline import NotPossible, Progress, write_snapshot
from natsd.jetstream.stream.files import AccountFiles
from natsd.store.commit.volume import LOCK_NAME
from natsd.store.crypto.keys import OperatorKeys, Random
from natsd.store.disk.disk import DIRECTORY_MODE, Disk
from natsd.store.disk.doubled_file import UNFINISHED_SUFFIX
from natsd.store.errors import StoreError

BACKUP: Final = "backup.json"
ARCHIVE: Final = "stream.tar.s2"


@dataclass(slots=True)
class ExportedStream:
    """One stream of the report; `reason` is why it was not written, empty: it was written."""

    account: str
    stream: str
    messages: int = 0
    consumers: int = 0
    reason: str = ""
    damage: list[str] = field(default_factory=list)
    not_taken: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether all of the stream was written."""
        return not (self.reason or self.damage or self.not_taken)


def export_store(
    disk: Disk,
    root: Path,
    target: Path,
    accounts: Collection[str],
    streams: Collection[str],
    keys: OperatorKeys,
    random: Random,
    now_s: int,
    show: Progress,
) -> list[ExportedStream]:
    """Export the streams with these names of these accounts; no names: all.

    Raises NotPossible, DirectoryLocked, OSError; streams that were written by then stay.
    """
    if not disk.exists(root / LOCK_NAME):
        raise NotPossible(f"{root} is no store directory: it has no {LOCK_NAME}")
    found = [
        (account, stream)
        for account in sorted(disk.listdir(root))
        if disk.is_directory(root / account) and (not accounts or account in accounts)
        for stream in sorted(AccountFiles(root / account).list_streams(disk))
        if not streams or stream in streams
    ]
    if not found:
        raise NotPossible(f"{root}: no such stream")
    report = []
    for account, stream in found:
        line = ExportedStream(account, stream)
        directory = AccountFiles(root / account).stream(stream)
        try:
            _export(disk, directory, target / account / stream, keys, random, now_s, show, line)
        except (NotPossible, AssetDamaged, StoreError) as error:
            line.reason = str(error)
        report.append(line)
    return report


def _export(
    disk: Disk,
    directory: Path,
    target: Path,
    keys: OperatorKeys,
    random: Random,
    now_s: int,
    show: Progress,
    line: ExportedStream,
) -> None:
    if target.exists():
        raise NotPossible(f"{target} exists")
    unfinished = target.with_name(target.name + UNFINISHED_SUFFIX)
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=DIRECTORY_MODE, parents=True)
    writer = NatsServerWriter(now_s)
    try:
        with (unfinished / ARCHIVE).open("wb") as out:
            done = write_snapshot(disk, directory, out, keys, random, show, writer)
            out.flush()
            os.fsync(out.fileno())
        (unfinished / BACKUP).write_bytes(writer.backup())
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    line.messages = done.messages - len(writer.left_out)
    line.consumers, line.damage = done.consumers, done.damage
    if done.delayed:
        line.not_taken.append(f"{directory}: {done.delayed} delayed messages")
    line.not_taken += [f"{directory}: message {each}: its subject" for each in writer.left_out]
