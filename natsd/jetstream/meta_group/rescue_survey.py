"""What a stopped server has of its groups, for a rescue: read from its store directory.

Promise
- No byte of the directory is changed.
- Entries that are in the log count, committed or not: a rescue commits them.

Everything here blocks on the disk.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from natsd.jetstream.commands.commands import Command, Publish, PublishBatch, PurgeAll, Skip
from natsd.jetstream.meta_group.assignments import Assignment, Assignments
from natsd.jetstream.meta_group.cluster import LOGS_DIRECTORY, MEMBER_DIRECTORY
from natsd.jetstream.meta_group.founding_record import Founded, read_record
from natsd.jetstream.meta_group.meta_group import MAGIC, MEMBER_FILE, OwnMember, check_member_files
from natsd.jetstream.meta_group.rescuing import commands_of, replayed
from natsd.jetstream.models.stream import Storage
from natsd.jetstream.replicas.log_entry import FIRST, command_at
from natsd.jetstream.replicas.manifest import decode_manifest
from natsd.jetstream.replicas.opening import may_be_incomplete
from natsd.jetstream.stream.files import AccountFiles
from natsd.raft.membership import MembershipHistory
from natsd.raft.rescue import why_not_rescuable
from natsd.raft.storage.errors import LogsUnreadableError
from natsd.raft.storage.opening import LOCK_NAME as LOGS_LOCK_NAME
from natsd.raft.storage.recovery import RecoveredGroup, recover
from natsd.raft.storage.sealing import open_key
from natsd.store.commit.volume import LOCK_NAME
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.crypto.vault import Vault
from natsd.store.disk.real_disk import RealDisk, lock_to_read
from natsd.store.errors import DamagedEncoding
from natsd.store.maintenance.overlay_disk import OverlayDisk


class RescueRefused(Exception):
    """Nothing can be rescued; the text is one line."""


class Position(Struct, frozen=True):
    """How far a server's log of a group goes."""

    last_index: int
    last_term: int
    committed: int  # index up to which entries are known to be committed; more may be
    voters: tuple[int, ...]  # members of the group, as this log has them
    learners: tuple[int, ...]
    last_sequence: int = 0  # of the last message in the log or before it; of the meta group: 0
    problem: str = ""  # why the group cannot go on with this log; empty: it can

    @property
    def completeness(self) -> tuple[int, int]:
        """What makes one log more complete than another."""
        return self.last_term, self.last_index


class Report(Struct, frozen=True):
    """What one server has of its groups, by their names."""

    server: str
    meta: str  # the meta group that it is a member of
    positions: dict[str, Position]


@dataclass(frozen=True, slots=True)
class Survey:
    """What this server has, and what its log of the meta group says."""

    report: Report
    founded: Founded | None
    assignments: Assignments


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Keep servers away from a store directory meanwhile. Raises RescueRefused, DirectoryLocked."""
    logs = root / LOGS_DIRECTORY / LOGS_LOCK_NAME
    if not logs.is_file():
        raise RescueRefused(f"{root} is not the directory of a server that was in a cluster")
    with contextlib.ExitStack() as stack:
        for path in (root / LOCK_NAME, logs):
            stack.callback(lock_to_read(path).release)
        yield


def survey(root: Path, server: str, keys: OperatorKeys) -> Survey:
    """Return what the server of that name has in its locked directory.

    `keys` are those that it is started with. Raises RescueRefused, EncryptionError, OSError.
    """
    overlay = OverlayDisk(RealDisk())
    vault = Vault(overlay, root, os.urandom, keys)
    logs = root / LOGS_DIRECTORY
    key = open_key(overlay, logs, keys, os.urandom)
    check_member_files(vault, root / MEMBER_DIRECTORY)
    body = vault.recall(root / MEMBER_DIRECTORY / MEMBER_FILE, MAGIC, "it is not used")
    if body is None:
        raise RescueRefused(f"{root} does not say which member of its cluster the server is")
    own = msgspec.json.decode(body, type=OwnMember)
    try:
        groups = {
            name.decode("utf-8", "surrogateescape"): group
            for name, group in recover(overlay, logs, key).groups.items()
        }
    except LogsUnreadableError as error:
        raise RescueRefused(str(error)) from error
    if own.group not in groups:
        raise RescueRefused(f"{root} has no log of the meta group {own.group}")
    assignments = _assignments(groups[own.group])
    if server not in assignments.servers:
        known = ", ".join(sorted(assignments.servers))
        raise RescueRefused(f"{server} is no server of this cluster; its servers are {known}")
    assigned = {each.group: each for each in assignments if each.group}
    positions = {name: _position(root, group, assigned.get(name)) for name, group in groups.items()}
    founded = read_record(vault, root / MEMBER_DIRECTORY)
    report = Report(server, own.group, positions)
    return Survey(report, None if founded is None else founded.founded, assignments)


def _assignments(group: RecoveredGroup) -> Assignments:
    """Return what the log of the meta group says, up to its end. Raises RescueRefused."""
    found = replayed(group)
    if found.failure is not None:
        raise RescueRefused(f"the log of the meta group is of a later version: {found.failure}")
    return found


def _position(root: Path, group: RecoveredGroup, assignment: Assignment | None) -> Position:
    snapshot, entries = group.snapshot, group.entries
    problem = why_not_rescuable(group.hard_state, snapshot)
    if snapshot is None:
        return Position(0, 0, 0, (), (), problem=problem)
    history = MembershipHistory(snapshot)
    history.appended(tuple(entries))
    sequence = 0
    if assignment is not None:
        sequence = _last_sequence(group)
        files = AccountFiles(root / assignment.account)
        is_filed = assignment.stream_config.storage is Storage.FILE
        if is_filed and may_be_incomplete(RealDisk(), files, assignment.name):
            problem = problem or "its files here lack something that no other server has now"
    last = entries[-1] if entries else snapshot
    return Position(
        last.index,
        last.term,
        snapshot.index,
        tuple(sorted(history.current.voters)),
        tuple(sorted(history.current.learners)),
        sequence,
        problem,
    )


def _last_sequence(group: RecoveredGroup) -> int:
    """Return the sequence of a stream's last message, as the log and its snapshot say."""
    for entry in reversed(commands_of(group)):
        try:
            found = max(map(_sequence_of, _commands(entry.data)), default=0)
        except DamagedEncoding:  # of a later version
            continue
        if found:
            return found
    assert group.snapshot is not None
    return decode_manifest(group.snapshot.data).last_sequence


def _commands(data: bytes) -> Iterator[Command]:
    at = FIRST
    while at < len(data):
        command, at = command_at(data, at)
        yield command


def _sequence_of(command: Command) -> int:
    match command:
        case Publish():
            return 0 if command.is_delayed else command.sequence
        case PublishBatch():
            return max(map(_sequence_of, command.commands), default=0)
        case Skip():
            return command.last
        case PurgeAll():
            return command.next_sequence - 1
    return 0
