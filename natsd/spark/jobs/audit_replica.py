"""One replica of an audit: the plans of its streams, and the checks of all files but blocks.

    journal.0 .1        replayed in memory; a part that does not verify is damage
    …/streams/<stream>/meta.json  msgs/key.db  msgs/index.db  obs/<consumer>/…

Promise
- No byte changes; a directory that a server uses, or whose keys are missing, is reported as unread.
- Spark's tasks read the blocks (audit_tasks.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from natsd.spark.jobs.audit_findings import DAMAGE, MISSING, Audited, AuditFinding
from natsd.spark.stored.snapshot_plan import find_snapshot, read_snapshot
from natsd.spark.stored.store_plan import StoreDirectory
from natsd.spark.stored.stored_ranges import (
    StoreKeys,
    StoreNotReadable,
)
from natsd.spark.stored.stored_stream_plan import StoredStreamPlan
from natsd.store.errors import StoreError
from natsd.store.maintenance.check import Report

DEFAULT_WINDOW_NS: Final = 120 * 10**9


@dataclass(slots=True)
class Replica:
    """Plans of a replica's streams, by name.

    `windows_ns` holds the duplicate windows in ns, only of streams that enforce unique message ids
    themselves. `unread` names streams that could not be read; `is_read` is false if the whole
    replica could not be read.
    """

    name: str
    plans: dict[str, StoredStreamPlan] = field(default_factory=dict)
    windows_ns: dict[str, int] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    is_read: bool = True

    def lacks(self, stream: str) -> bool:
        """Return whether the replica was read and does not have the stream."""
        return self.is_read and stream not in self.plans and stream not in self.unread


def plan_replica(
    path: Path,
    name: str,
    streams: Iterable[str] | None,
    account: str,
    keys: StoreKeys,
    audited: Audited,
) -> Replica:
    """Plan a replica's streams, and check its other files; findings are added to `audited`."""
    replica = Replica(name)
    try:
        if find_snapshot(path) is not None:
            plan, config = read_snapshot(path)
            _take(replica, plan, config)
        else:
            with StoreDirectory(path, keys) as directory:
                _look_into(directory, replica, streams, account, audited)
    except (StoreNotReadable, StoreError, OSError) as error:
        audited.unread.append(f"{name}: {error}")
        replica.is_read = False
    return replica


def _look_into(
    directory: StoreDirectory,
    replica: Replica,
    streams: Iterable[str] | None,
    account: str,
    audited: Audited,
) -> None:
    for damage in directory.replayed.damage:
        audited.add(
            AuditFinding(
                DAMAGE, replica.name, "", 0, 0, damage.what, str(damage.path), damage.offset
            )
        )
    for stream in directory.streams(account):
        if streams is not None and stream not in streams:
            continue
        try:
            _take(replica, directory.plan(stream, account), directory.config(stream, account))
            report = directory.check_files(stream, account)
        except (StoreNotReadable, StoreError, OSError) as error:
            audited.unread.append(f"{replica.name}: {stream}: {error}")
            replica.unread.add(stream)
            continue
        _note(replica, stream, report, audited)


def _take(replica: Replica, plan: StoredStreamPlan, config: dict[str, Any]) -> None:
    replica.plans[plan.stream] = plan
    if not (config.get("mirror") or config.get("sources")):  # the origins check ids
        window = config.get("duplicate_window")
        replica.windows_ns[plan.stream] = int(window) if window else DEFAULT_WINDOW_NS


def _note(replica: Replica, stream: str, report: Report, audited: Audited) -> None:
    for found in report.findings:
        audited.add(
            AuditFinding(
                DAMAGE,
                replica.name,
                stream,
                found.first_sequence,
                found.last_sequence,
                found.what,
                found.file,
                found.offset,
                found.length,
            )
        )
    audited.unread += [f"{replica.name}: {stream}: {line}" for line in report.unchecked]
    for first, last, where in replica.plans[stream].damage:
        audited.add(AuditFinding(MISSING, replica.name, stream, first, last, where))


def names_of(paths: list[Path]) -> list[str]:
    """Return short distinct names for the paths: without their common beginning."""
    absolute = [str(path.absolute()) for path in paths]
    if len(absolute) < 2:
        return absolute
    common = os.path.commonpath(absolute)
    return [os.path.relpath(path, common) if path != common else path for path in absolute]
