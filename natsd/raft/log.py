"""The log in memory: all entries behind the snapshot, and some before it.

    base         snapshot.index       stable        commit               last_index
     │ entries of   │                    │             │                     │
     │ followers    │ live entries       │             │                     │
     │ that lag     │                    │             │                     │
     ▼              ▼                    ▼             ▼                     ▼
     ├──────────────┼────────────────────┼─────────────┼─────────────────────┤
     in memory only   on disk              being written or to be written

- Entries are consecutive; terms never fall from one to the next.
- What is committed is never cut off: base ≤ snapshot.index ≤ handed_out ≤ commit ≤ last_index
  (the application may have applied more than that before a restart; then handed_out > commit).
- stable may be below commit: a majority may hold an entry that this disk does not hold yet.

The storage persists entries and never reads them again, except when it starts.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter

from natsd.raft.entry import Entry, EntryKind, Snapshot
from natsd.raft.membership import MembershipHistory

ENTRIES_PER_APPEND_MAX = 4096

term_of = itemgetter(1)
data_of = itemgetter(3)
new = tuple.__new__  # Entry(…) takes twice as long
NORMAL = EntryKind.NORMAL


def payload_bytes(entries: Sequence[Entry]) -> int:
    """Return the bytes of data in some entries."""
    if len(entries) == 1:  # as if there were many, it takes three times as long
        return len(entries[0][3])
    return sum(map(len, map(data_of, entries)))


class Log:
    """The log of one member, and how far it is on disk, committed, and given to the application."""

    __slots__ = (
        "_base",
        "_base_term",
        "_entries",
        "_sliced",
        "_unsaved_from",
        "_writes",
        "commit",
        "handed_out",
        "last_index",
        "last_term",
        "membership",
        "payload_bytes",
        "snapshot",
        "stable",
    )

    def __init__(self, snapshot: Snapshot, entries: Sequence[Entry], applied: int) -> None:
        self.snapshot = snapshot
        self._base, self._base_term = snapshot.index, snapshot.term
        self._entries = list(entries)
        assert not entries or entries[0].index == snapshot.index + 1
        self.membership = MembershipHistory(snapshot)
        self.membership.appended(tuple(entries))
        self.last_index, self.last_term = snapshot.index, snapshot.term
        self._set_last()
        self.payload_bytes = payload_bytes(entries)
        """Data in the live entries, which are those behind the snapshot."""
        self.commit = snapshot.index
        self.handed_out = max(snapshot.index, applied)
        self.stable = self.last_index
        self._unsaved_from = self.last_index + 1
        self._writes: deque[list[int]] = deque()  # [number of the effects, last index written]
        self._sliced: tuple[int, int, int, tuple[Entry, ...], int] | None = None

    @property
    def base(self) -> int:
        """Return the index before the first entry in memory."""
        return self._base

    @property
    def is_synced(self) -> bool:
        """Tell whether no write is under way or due."""
        return not self._writes and self._unsaved_from > self.last_index

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry; None: the log does not hold it."""
        position = index - self._base
        if position == 0:
            return self._base_term
        if 0 < position <= len(self._entries):
            return self._entries[position - 1].term
        return None

    def is_covered_by(self, last_index: int, last_term: int) -> bool:
        """Tell whether another log is at least as complete as this one, by its last entry."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def last_with_term_up_to(self, index: int, term: int) -> int:
        """Return the last index up to `index` whose term is not above `term`, as far as known."""
        if index < self._base:
            return index
        index = min(index, self.last_index)
        count = bisect_right(self._entries, term, 0, index - self._base, key=term_of)
        if count == 0 and self._base_term > term:
            return self._base - 1
        return self._base + count

    def slice(self, first: int, last: int, bytes_max: int) -> tuple[tuple[Entry, ...], int]:
        """Return entries from `first` up to at most `last`, at least one, and their bytes.

        Followers that are equally far get the same tuple, so that it is encoded once.
        """
        sliced = self._sliced
        if sliced is not None and sliced[:3] == (first, last, self.last_term):
            return sliced[3:]
        begin, end = first - self._base - 1, last - self._base
        assert 0 <= begin <= len(self._entries)
        entries = tuple(self._entries[begin : min(end, begin + ENTRIES_PER_APPEND_MAX)])
        sizes = list(accumulate(map(len, map(data_of, entries))))
        if sizes and sizes[-1] > bytes_max:
            count = max(1, bisect_right(sizes, bytes_max))
            entries, sizes = entries[:count], sizes[:count]
        size = sizes[-1] if sizes else 0
        self._sliced = (first, last, self.last_term, entries, size)
        return entries, size

    def append(self, term: int, kind: EntryKind, data: bytes) -> int:
        """Append one entry of this member's own term; return its index."""
        self.last_index = index = self.last_index + 1
        self.last_term = term
        self._entries.append(new(Entry, (index, term, kind, data)))
        self.payload_bytes += len(data)
        return index

    def append_all(self, term: int, datas: Sequence[bytes]) -> int:
        """Append an entry for each of `datas`; return the index of the last one."""
        first, kind = self.last_index + 1, NORMAL
        self._entries += [
            new(Entry, (index, term, kind, data)) for index, data in enumerate(datas, first)
        ]
        self._set_last()
        self.payload_bytes += sum(map(len, datas))
        return self.last_index

    def merge(self, prev_index: int, entries: tuple[Entry, ...]) -> bool:
        """Take a leader's entries behind an index that agrees with it; cut off what conflicts.

        Returns whether the membership may have changed.
        """
        begin = prev_index - self._base
        held = self._entries[begin : begin + len(entries)]
        agreeing = bisect_left(range(len(held)), True, key=lambda at: held[at][1] != entries[at][1])
        added = entries[agreeing:] if agreeing else entries
        if not added:
            return False
        changed = False
        if prev_index + agreeing < self.last_index:
            changed = self.truncate(prev_index + agreeing + 1)
        self._entries += added
        self._set_last()
        self.payload_bytes += payload_bytes(added)
        return self.membership.appended(added) or changed

    def truncate(self, index: int) -> bool:
        """Cut off `index` and what follows; return whether the membership has changed."""
        assert index > self.commit, "what is committed stays"
        position = index - self._base - 1
        self.payload_bytes -= payload_bytes(self._entries[position:])
        del self._entries[position:]
        self._set_last()
        self._unsaved_from = min(self._unsaved_from, index)
        self._forget_writes(index - 1)
        return self.membership.truncated(index)

    def commit_to(self, index: int) -> None:
        """Note that everything up to `index` is committed."""
        if index > self.commit:
            assert index <= self.last_index, "only what is held is committed"
            self.commit = index

    def restore(self, snapshot: Snapshot) -> None:
        """Replace the whole log by a leader's snapshot."""
        assert snapshot.index > self.commit
        self.snapshot = snapshot
        self._base, self._base_term = snapshot.index, snapshot.term
        self._entries = []
        self._sliced = None
        self.membership = MembershipHistory(snapshot)
        self._set_last()
        self.payload_bytes = 0
        self.commit = snapshot.index
        self.handed_out = snapshot.index
        self._unsaved_from = snapshot.index + 1
        self._forget_writes(0)

    def compact(self, snapshot: Snapshot, needed_from: int, trailing_bytes_max: int) -> None:
        """Take note of a snapshot that the driver has persisted; drop entries that it replaces.

        Entries from `needed_from` on stay as far as `trailing_bytes_max` allows. The snapshot is of
        entries that are on disk: otherwise a crash could leave it above entries that it replaced.
        """
        assert snapshot.index <= min(self.handed_out, self.commit, self.stable)
        assert snapshot.index >= self.snapshot.index
        assert self.term_at(snapshot.index) == snapshot.term
        drop = snapshot.index - self._base
        self.payload_bytes -= payload_bytes(self._entries[self.snapshot.index - self._base : drop])
        self.snapshot = snapshot
        self.membership.compacted(snapshot.index)
        kept_bytes = 0
        while drop > 0 and self._base + drop >= needed_from:
            kept_bytes += len(self._entries[drop - 1].data)
            if kept_bytes > trailing_bytes_max:
                break
            drop -= 1
        if drop > 0:
            self._base_term = self._entries[drop - 1].term
            del self._entries[:drop]
            self._base += drop
            self._sliced = None

    def take_unsaved(self) -> tuple[Entry, ...]:
        """Return the entries that are neither on disk nor being written."""
        if self._unsaved_from > self.last_index:
            return ()
        entries = tuple(self._entries[self._unsaved_from - self._base - 1 :])
        self._unsaved_from = self.last_index + 1
        return entries

    def live_up_to(self, index: int) -> list[Entry]:
        """Return the entries behind the snapshot, up to an index."""
        return self._entries[self.snapshot.index - self._base : index - self._base]

    @property
    def written(self) -> list[Entry]:
        """Return the live entries that are on disk or being written."""
        return self.live_up_to(self._unsaved_from - 1)

    def take_committed(self) -> tuple[Entry, ...]:
        """Return the committed entries that the application has not been given yet."""
        if self.handed_out >= self.commit:
            return ()
        begin, end = self.handed_out - self._base, self.commit - self._base
        self.handed_out = self.commit
        return tuple(self._entries[begin:end])

    def write_begun(self, number: int) -> None:
        """Note that the write with this number brings the disk up to the last entry."""
        self._writes.append([number, self.last_index])

    def write_up_to(self, number: int) -> int:
        """Return the last index that the write with this number brings to disk; 0: it is synced."""
        return next((last for each, last in self._writes if each == number), 0)

    def write_finished(self, number: int) -> None:
        """Note that the write with this number, and all before it, are synced."""
        while self._writes and self._writes[0][0] <= number:
            self.stable = max(self.stable, self._writes.popleft()[1])

    def _forget_writes(self, index: int) -> None:
        """Note that entries behind `index` on disk, and in writes under way, are obsolete."""
        self.stable = min(self.stable, index)
        for write in self._writes:
            write[1] = min(write[1], index)

    def _set_last(self) -> None:
        if self._entries:
            self.last_index, self.last_term = self._entries[-1][:2]
        else:
            self.last_index, self.last_term = self._base, self._base_term
