"""The state of all groups, out of both sequences of segments, and what may be lost.

    state.*   the state of each group, newest version       ┐
    log.*     the state of each group, newest version       ├─> RecoveredGroup of each group
              entries by index, with the segment of each    │
    snapshots/ the snapshot that the group's state names     ┘

Promise
- Entries are given back from the one behind the snapshot up to the first that is missing.
- A batch that was synced and is lost costs those groups their soundness that had entries in it, as
  the next batch tells (TOUCHED). If no batch tells, it costs all groups theirs.
- Terms and votes are uncertain only if both sequences lost something (VOTE_LOST).
- Nothing is written here.
- Encrypted and plain logs are the same from here on: the readers open what is encrypted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from natsd.raft.entry import NOBODY, Entry, HardState, Health, Snapshot
from natsd.raft.storage.records import (
    ENTRY_KINDS,
    FILES,
    LOG_MAGIC,
    MEMBERSHIP,
    NORMAL,
    STATE,
    STATE_MAGIC,
    TOUCHED,
    Files,
    GroupState,
    Record,
    Touch,
    read_entry,
    read_files,
    read_state,
    read_touched,
    touched_by,
)
from natsd.raft.storage.sealing import LogKey
from natsd.raft.storage.segment_reader import ReadBatch, ReadSegment, read_segment, segment_number
from natsd.raft.storage.snapshot_files import read_snapshot, snapshot_path
from natsd.store.disk.disk import Disk
from natsd.store.wal.format import HEADER_BYTES

LOG_PREFIX = "log"
STATE_PREFIX = "state"
SNAPSHOTS = "snapshots"
UNKNOWN_LAST = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that were synced once and do not verify now, and what that may have cost."""

    path: Path
    offset: int
    what: str
    group: str = ""
    """Group that may have lost something; empty: this alone has cost none anything."""
    first_index: int = 0
    """First entry that may be lost; 0: the snapshot, or none."""

    def __str__(self) -> str:
        cost = f"; group {self.group} may have lost entries from {self.first_index} on"
        return f"{self.path}: {self.what} (at {self.offset}){cost if self.group else ''}"


@dataclass(frozen=True, slots=True)
class RecoveredGroup:
    """What a group's node starts from; `snapshot` None: it is lost, and all entries with it."""

    hard_state: HardState
    snapshot: Snapshot | None
    entries: list[Entry]
    damage: tuple[Damage, ...] = ()


@dataclass(slots=True)
class LostRange:
    """Entries that were in a lost batch."""

    first: int
    last: int
    path: Path
    offset: int


@dataclass(slots=True)
class FoundGroup:
    """A group while the segments are replayed."""

    state: GroupState = field(default_factory=lambda: GroupState(0, 0, HardState(0, NOBODY), 0, 0))
    entries: dict[int, tuple[Entry, int]] = field(default_factory=dict)
    last: int = 0  # highest index in `entries` that was not cut off
    lost: list[LostRange] = field(default_factory=list)
    is_behind_loss: bool = False
    """Some of the entries were read in a damaged batch, or behind a lost one."""
    has_lost_entries: bool = False
    """Entries were dropped that perhaps count."""

    def append(self, entry: Entry, segment: int) -> None:
        """Take an entry, which replaces those from there on."""
        self.cut(entry.index)
        self.entries[entry.index] = entry, segment
        self.last = entry.index
        for lost in self.lost:
            lost.last = min(lost.last, entry.index - 1)
        self.lost = [lost for lost in self.lost if lost.first <= lost.last]

    def cut(self, index: int) -> None:
        """Drop the entries from `index` on."""
        while self.last >= index:
            self.entries.pop(self.last, None)
            self.last -= 1

    def take_state(self, state: GroupState) -> None:
        """Take a state that the entries' sequence holds."""
        if state.replaced > self.state.replaced or state.is_removed:
            self.replace_log(is_found=state.is_removed or state.replaced == state.version)
        if state.version > self.state.version:
            self.state = state

    def replace_log(self, *, is_found: bool) -> None:
        """Drop all entries, which a snapshot replaced.

        `is_found` is False if the state with which it did so is not found in this sequence. If it
        is lost, entries behind it are not told from those that it replaced, and are dropped, too.
        """
        self.has_lost_entries = not is_found and (self.is_behind_loss or bool(self.lost))
        self.is_behind_loss = False
        self.entries.clear()
        self.lost.clear()
        self.last = 0

    def missing(self, touch: Touch, verified: Counter[int]) -> int:
        """Return the first entry of a lost batch that is not there; 0: all are there.

        Each write takes its entries out of `verified`: a batch may hold several of one index.
        """
        for index in range(touch.first, touch.last + 1):
            is_there = index in self.entries if touch.is_moved else verified[index] > 0
            if not is_there:
                return index
            verified[index] -= not touch.is_moved
        return 0


@dataclass(slots=True)
class Replay:
    """One sequence of segments, replayed in the order of its batches."""

    prefix: str
    groups: dict[bytes, FoundGroup] = field(default_factory=dict)
    damage: list[Damage] = field(default_factory=list)
    damaged_paths: set[Path] = field(default_factory=set)
    files: Files | None = None
    version: int = 0
    has_lost_unknown: bool = False
    """A lost batch is not described by the one behind it: it may have held anything."""
    is_whole: bool = True
    last_batch: int = 0
    last_touched: list[Touch] = field(default_factory=list)
    """What the last batch wrote."""
    segments: list[tuple[Path, int, int]] = field(default_factory=list)  # path, number, end
    unbegun: list[Path] = field(default_factory=list)  # files of segments without a header
    last_segment: int = 0
    _lost_place: tuple[Path, int] | None = None  # the batch before is lost
    _verified: dict[bytes, Counter[int]] = field(default_factory=dict)  # entries of a damaged batch
    _last_records: list[Record] = field(default_factory=list)
    _end_damage: list[tuple[Path, int, str]] = field(default_factory=list)  # no batch is behind it

    def begin_again(self) -> Replay:
        """Return a replay that begins with a segment whose head says all; keep the names of files.

        Some of the segments before may be gone, since they are not needed.
        """
        return Replay(
            self.prefix,
            damaged_paths=self.damaged_paths,
            segments=self.segments,
            unbegun=self.unbegun,
        )

    def report(self, path: Path, offset: int, what: str) -> None:
        """Report damage, whether or not it has cost something."""
        self.damage.append(Damage(path, offset, what))
        self.damaged_paths.add(path)

    def lose(self, path: Path, offset: int, what: str) -> None:
        """Report a batch, or some, that may have held anything."""
        self.report(path, offset, what)
        self.is_whole = False
        self.has_lost_unknown = True

    def segment(self, read: ReadSegment, end: int) -> None:
        """Replay a segment; `end` is where it ends as the next one says, 0: that is unknown."""
        for offset, what in read.damage:
            self.report(read.path, offset, what)
        if not self.last_batch and _has_lost_its_first(read, end):
            self.lose(read.path, HEADER_BYTES, "the first batches are lost")
        for batch in read.batches:
            if not end or batch.offset < end:
                self._batch(read, batch)
        self.segments.append((read.path, read.number, end or read.end))
        if read.end_damage and not end:
            self._end_damage.append((read.path, read.end, read.end_damage))

    def _batch(self, read: ReadSegment, batch: ReadBatch) -> None:
        expected = self.last_batch + 1 if self.last_batch else batch.number
        if batch.number < expected:
            return
        if batch.number > expected:
            self.report(read.path, batch.offset, f"{batch.number - expected} batches are missing")
            self.is_whole = False
            self._forget_lost()
            self.has_lost_unknown |= batch.number - expected > 1
            self._lost_place, self._verified = (read.path, batch.offset), {}
        self.last_batch = batch.number
        self._last_records = batch.records
        self._end_damage.clear()  # the numbers of the batches tell what is lost there
        self.is_whole &= batch.is_whole
        self._records(read, batch.records)
        self._forget_lost()
        if not batch.is_whole:
            self.report(read.path, batch.offset, "a batch does not verify")
            self._lost_place = read.path, batch.offset
            self._verified = {}
            for kind, name, index, data in batch.records:
                if kind in (NORMAL, MEMBERSHIP):
                    group, _ = read_entry((kind, name, index, data))
                    self._verified.setdefault(group, Counter())[index] += 1

    def _forget_lost(self) -> None:
        """Note that nothing describes the lost batch before, if there was one."""
        if self._lost_place is not None:
            self.has_lost_unknown = True
            self._lost_place = None

    def finish(self) -> None:
        """Note the end of the sequence."""
        self._forget_lost()
        for path, end, what in self._end_damage:
            self.lose(path, end, what)
        self.last_touched = touched_by(self._last_records)
        self._last_records = []

    def _records(self, read: ReadSegment, records: Iterable[Record]) -> None:
        for record in records:
            kind, name, number, data = record
            if kind in ENTRY_KINDS:
                self._entry(record, read.number)
            elif kind == STATE:
                state = read_state(data)
                self.version = max(self.version, state.version)
                self.groups.setdefault(name, FoundGroup()).take_state(state)
            elif kind == FILES:
                self.files = read_files(number, data)
                self.version = max(self.version, self.files.version)
            elif kind == TOUCHED and self._lost_place is not None:
                self._apply_touched(read_touched(data))

    def _entry(self, record: Record, segment: int) -> None:
        group, entry = read_entry(record)
        found = self.groups.setdefault(group, FoundGroup())
        found.is_behind_loss |= not self.is_whole
        if record[0] <= MEMBERSHIP:
            found.append(entry, segment)
        else:
            found.entries[entry.index] = entry, segment
            found.last = max(found.last, entry.index)

    def _apply_touched(self, touched: list[Touch]) -> None:
        """Cut the logs that had entries in the lost batch before, where the first is missing."""
        assert self._lost_place is not None
        path, offset = self._lost_place
        for touch in touched:
            found = self.groups.setdefault(touch.group, FoundGroup())
            missing = found.missing(touch, self._verified.get(touch.group, Counter()))
            if missing:
                if not touch.is_moved:
                    found.cut(missing)
                found.lost.append(LostRange(missing, touch.last, path, offset))
        self._lost_place = None


def read_sequence(
    disk: Disk, directory: Path, prefix: str, magic: bytes, oldest: int, key: LogKey | None
) -> Replay:
    """Replay the segments from `oldest` on.

    Blocks; raises `OSError`, LogsUnreadableError and EncryptionError.
    """
    replay = Replay(prefix)
    numbers = sorted(filter(None, (segment_number(n, prefix) for n in disk.listdir(directory))))
    paths = [(number, directory / f"{prefix}.{number}") for number in numbers if number >= oldest]
    pending: ReadSegment | None = None
    for number, path in paths:
        read = read_segment(disk, path, number, magic, key)
        if read.is_unbegun:
            replay.unbegun.append(path)
            continue
        if pending is not None:
            replay.segment(pending, _end_before(read))
        if prefix == STATE_PREFIX and read.batches and read.batches[0].is_whole:
            replay = replay.begin_again()
        pending = read
    if pending is not None:
        replay.segment(pending, 0)
    replay.finish()
    replay.last_segment = numbers[-1] if numbers else 0
    return replay


def _has_lost_its_first(read: ReadSegment, end: int) -> bool:
    """Tell whether a segment has lost its first batches: no numbers before them tell it."""
    if read.batches:
        return read.batches[0].offset > HEADER_BYTES
    return end > HEADER_BYTES if end else bool(read.end_damage)


def _end_before(read: ReadSegment) -> int:
    """Return where the segment before this one ends; 0: unknown."""
    if read.batches:
        for kind, _, oldest, data in read.batches[0].records:
            if kind == FILES:
                return read_files(oldest, data).end_before
    return 0


@dataclass(slots=True)
class Recovered:
    """All that a start has found."""

    log: Replay
    state: Replay
    groups: dict[bytes, RecoveredGroup] = field(default_factory=dict)
    states: dict[bytes, GroupState] = field(default_factory=dict)
    places: dict[bytes, list[int]] = field(default_factory=dict)
    """Segment of each entry of a group."""
    damage: list[Damage] = field(default_factory=list)
    removed: set[bytes] = field(default_factory=set)
    damaged_snapshots: set[Path] = field(default_factory=set)

    @property
    def version(self) -> int:
        """Newest version of a state."""
        return max(self.log.version, self.state.version)

    @property
    def is_sure_of_groups(self) -> bool:
        """Whether a group that is not found does not exist."""
        return self.state.is_whole or self.log.is_whole


def recover(disk: Disk, directory: Path, key: LogKey | None) -> Recovered:
    """Read everything; `key` is that of the logs, None: they are plain.

    Blocks; raises `OSError`, LogsUnreadableError and EncryptionError.
    """
    state = read_sequence(disk, directory, STATE_PREFIX, STATE_MAGIC, 0, key)
    oldest = state.files.oldest if state.files else 0
    log = read_sequence(disk, directory, LOG_PREFIX, LOG_MAGIC, oldest, key)
    if log.files is not None and log.files.oldest > oldest:
        oldest = log.files.oldest
        log = read_sequence(disk, directory, LOG_PREFIX, LOG_MAGIC, oldest, key)
    _check_files(directory, state, log, oldest)
    found = Recovered(log, state, damage=state.damage + log.damage)
    for name in sorted(log.groups.keys() | state.groups.keys()):
        group_state = _newest_state(name, log, state)
        if group_state is None or group_state.is_removed:
            found.removed.add(name)
        else:
            _recover_group(disk, directory, found, name, group_state, key)
    return found


def _check_files(directory: Path, state: Replay, log: Replay, oldest: int) -> None:
    """Note segments, or a whole sequence, that must be there and are not."""
    numbers = [number for _, number, _ in log.segments]
    newest = max((each.files.newest for each in (state, log) if each.files), default=0)
    if newest and (not numbers or numbers[-1] < newest):
        log.lose(directory / f"{LOG_PREFIX}.{newest}", 0, "the segment is missing")
    if oldest and oldest not in numbers:
        log.lose(directory / f"{LOG_PREFIX}.{oldest}", 0, "the segment is missing")
    if log.last_batch > 1 and not state.last_batch:
        state.lose(directory / f"{STATE_PREFIX}.1", 0, "no segment of states is there")


def _newest_state(name: bytes, log: Replay, state: Replay) -> GroupState | None:
    """Return a group's newest state; None: the group has been removed."""
    none = FoundGroup().state
    by_log = log.groups[name].state if name in log.groups else none
    by_state = state.groups[name].state if name in state.groups else none
    if not by_state.version and state.is_whole and by_log.version <= state.version:
        return None
    newest = max(by_log, by_state, key=lambda each: each.version)
    return newest if newest.version else None


def _recover_group(
    disk: Disk,
    directory: Path,
    found: Recovered,
    name: bytes,
    state: GroupState,
    key: LogKey | None,
) -> None:
    log = found.log
    group, label = log.groups.get(name, FoundGroup()), name.decode("utf-8", "surrogateescape")
    damage: list[Damage] = []
    if state.replaced > group.state.replaced:
        group.replace_log(is_found=False)  # it did not reach this sequence, or is lost in it
    if group.has_lost_entries:
        at, what = log.damage[-1], "the state that begins the log is lost"
        damage.append(Damage(at.path, at.offset, what, label, state.snapshot_index + 1))
    snapshots = directory / SNAPSHOTS
    index, term = state.snapshot_index, state.snapshot_term
    snapshot, what = read_snapshot(disk, snapshots, name, index, term, key)
    if what:
        path = snapshot_path(snapshots, name, index, term)
        damage.append(Damage(path, 0, what, "" if snapshot else label, 0 if snapshot else 1))
        found.damaged_snapshots.add(path)
    entries, places = _consecutive(group, index)
    behind = index + len(entries) + 1
    damage += _losses(found, group, label, index, behind)
    if snapshot is None:
        entries, places = [], []
        state = state._replace(snapshot_index=0, snapshot_term=0)
    health = state.hard_state.health
    if any(each.group for each in damage):
        health = max(health, Health.LOG_LOST)
    if not (found.log.is_whole or found.state.is_whole):
        health = Health.VOTE_LOST
    hard_state = state.hard_state._replace(health=health)
    found.groups[name] = RecoveredGroup(hard_state, snapshot, entries, tuple(damage))
    found.damage += damage
    found.states[name] = state._replace(hard_state=hard_state)
    found.places[name] = places


def _losses(
    found: Recovered, group: FoundGroup, label: str, index: int, behind: int
) -> list[Damage]:
    """Return what the group may have lost behind its snapshot; `behind` is the first gap."""
    losses = [
        Damage(lost.path, lost.offset, "a batch is lost", label, max(lost.first, index + 1))
        for lost in group.lost
        if lost.last > index
    ]
    if found.log.has_lost_unknown:
        at = found.log.damage[-1]
        losses.append(Damage(at.path, at.offset, at.what, label, index + 1))
    elif not losses and any(each >= behind for each in group.entries):
        place = found.log.segments[-1][0]
        losses.append(Damage(place, 0, "entries are missing", label, behind))
    return losses


def _consecutive(group: FoundGroup, index: int) -> tuple[list[Entry], list[int]]:
    """Return the entries behind `index` up to the first gap, and the segment of each."""
    entries: list[Entry] = []
    places: list[int] = []
    while (here := group.entries.get(index + len(entries) + 1)) is not None:
        entries.append(here[0])
        places.append(here[1])
    return entries, places
