"""A restore of a backup's streams, one after another.

Promise
- The pieces of a stream are verified before anything is changed where it goes. A stream is restored
  as a whole or not at all, and is checked afterwards against the backup.
- A damaged stream does not stop the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from natsd.backup.composing import renamed
from natsd.backup.directory import BackupDirectory
from natsd.backup.errors import DamagedPiece, StreamFailed, StreamGone
from natsd.backup.manifest import Kind, StreamCopy, StreamRecord
from natsd.backup.source import Progress, Restored, Source
from natsd.backup.verifying import Verification


@dataclass(slots=True)
class RestoreReport:
    """The restored streams, and the problems, one line each."""

    restored: list[StreamCopy] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a stream goes: None means its own account, or its own name."""

    account: str | None = None
    stream: str | None = None


def restore(
    directory: BackupDirectory,
    copies: list[StreamCopy],
    target: Target,
    place: Source,
    for_stream: Callable[[str], Progress],
    *,
    overwrites: bool,
) -> RestoreReport:
    """Restore the streams. Raises BackupError if nothing more can be restored, or OSError."""
    report = RestoreReport()
    verification = Verification(directory)
    for copy in copies:
        if not verification.verify_stream(copy):
            report.problems.append(f"{verification.result.damage[-1]}; it is not restored")
            continue
        account = copy.account if target.account is None else target.account
        stream = target.stream or copy.stream
        try:
            record = directory.record(copy.record)
            if stream != copy.stream:
                record = renamed(directory, record, stream)
            found = place.restore(
                account,
                stream,
                record,
                directory,
                copy.size,
                for_stream(copy.title),
                overwrites=overwrites,
            )
            _check(copy, record, found, report)
        except (StreamFailed, StreamGone, DamagedPiece) as error:
            report.problems.append(f"{copy.title}: {error}")
        else:
            report.restored.append(copy)
    return report


def _check(copy: StreamCopy, record: StreamRecord, found: Restored, report: RestoreReport) -> None:
    """Compare a restored stream with the backup. Raises StreamFailed."""
    if copy.kind is Kind.MEMORY:
        report.notes.append(f"{copy.title}: in memory, restored without messages")
        return
    wanted = Restored(copy.msgs, copy.last_sequence, copy.consumers)
    if found in (wanted, replace(wanted, last_sequence=None)):
        return
    config = json.loads(record.config)
    may_expire = config.get("max_age") or config.get("allow_msg_ttl")
    if may_expire and found.messages is not None and found.messages < copy.msgs:
        report.notes.append(
            f"{copy.title}: {copy.msgs - found.messages} messages have expired since the backup"
        )
        return
    raise StreamFailed(f"the restored stream has {found}, but the backup {wanted}")
