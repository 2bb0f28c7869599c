"""The live part of one group's log: its entries behind the snapshot, and the segments they are in.

    snapshot_index = 10     entries 11 12 13 14 15 16 17
                            runs    └── log.3 ──┘ └ log.5 ┘      (11, 3) (15, 5)

The entries are the same objects that the group's node holds, so that they cost a reference each,
and can be written once more without being read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from natsd.raft.entry import NOBODY, Entry, HardState
from natsd.raft.log import payload_bytes
from natsd.raft.storage.records import GroupState

ENTRY_OVERHEAD_BYTES = 64  # about what an entry takes on disk beside its data


@dataclass(slots=True)
class Run:
    """Entries in one segment, from `first` up to the next run."""

    first: int
    segment: int


def bytes_of(entries: Sequence[Entry]) -> int:
    """Return about how many bytes entries take on disk."""
    return payload_bytes(entries) + ENTRY_OVERHEAD_BYTES * len(entries)


class GroupLog:
    """A group's state and its live entries."""

    __slots__ = ("entries", "live_bytes", "name", "runs", "state")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.state = GroupState(0, 0, HardState(0, NOBODY), 0, 0)
        self.entries: list[Entry] = []
        self.runs: list[Run] = []
        self.live_bytes = 0

    @property
    def first_index(self) -> int:
        """Index of the first entry, if there is any."""
        return self.state.snapshot_index + 1

    @property
    def last_index(self) -> int:
        """Index of the last entry, or of the snapshot if there is none."""
        return self.state.snapshot_index + len(self.entries)

    def append(self, entries: Sequence[Entry], segment: int) -> None:
        """Append entries that were written to this segment; they replace those from there on."""
        first = entries[0].index
        assert self.first_index <= first <= self.last_index + 1, "entries follow the log"
        self.truncate(first)
        self.entries += entries
        self.live_bytes += bytes_of(entries)
        if not self.runs or self.runs[-1].segment != segment:
            self.runs.append(Run(first, segment))

    def truncate(self, index: int) -> None:
        """Drop the entries from `index` on."""
        keep = index - self.first_index
        if keep < len(self.entries):
            self.live_bytes -= bytes_of(self.entries[keep:])
            del self.entries[keep:]
            self.runs = [run for run in self.runs if run.first < index]

    def change_state(self, state: GroupState) -> None:
        """Take a newer state; entries that its snapshot stands for are dropped."""
        if state.replaced > self.state.replaced:
            self.entries, self.runs, self.live_bytes = [], [], 0
        else:
            self._compact(state.snapshot_index)
        self.state = state

    def _compact(self, index: int) -> None:
        count = index - self.state.snapshot_index
        if count <= 0:
            return
        self.live_bytes -= bytes_of(self.entries[:count])
        del self.entries[:count]
        while len(self.runs) > 1 and self.runs[1].first <= index + 1:
            del self.runs[0]
        if self.entries:
            self.runs[0].first = index + 1
        else:
            self.runs.clear()

    def in_segment(self, segment: int, bytes_max: int) -> list[Sequence[Entry]]:
        """Return consecutive entries in that segment, up to about that many bytes, at least one."""
        found: list[Sequence[Entry]] = []
        for number, run in enumerate(self.runs):
            if run.segment != segment or bytes_max <= 0:
                continue
            behind = self.runs[number + 1 : number + 2]
            end = behind[0].first if behind else self.last_index + 1
            entries = self.entries[run.first - self.first_index : end - self.first_index]
            while len(entries) > 1 and bytes_of(entries) > bytes_max:
                del entries[len(entries) // 2 :]
            bytes_max -= bytes_of(entries)
            found.append(entries)
            if entries[-1].index + 1 < end:
                break
        return found

    def count_in_segment(self, segment: int) -> int:
        """Return the number of entries in that segment."""
        ends = [run.first for run in self.runs[1:]] + [self.last_index + 1]
        return sum(
            end - run.first
            for run, end in zip(self.runs, ends, strict=False)
            if run.segment == segment
        )

    def moved(self, first: int, last: int, segment: int) -> None:
        """Note that these entries, all in one run, were written to another segment once more."""
        number = next(at for at, run in enumerate(self.runs) if run.first == first)
        run = self.runs[number]
        behind = self.runs[number + 1].first if number + 1 < len(self.runs) else self.last_index + 1
        if last + 1 < behind:
            self.runs.insert(number + 1, Run(last + 1, run.segment))
        run.segment = segment
