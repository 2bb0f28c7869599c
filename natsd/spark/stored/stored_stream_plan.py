"""The plan of a stream's files: its sequences and blocks, and their division into ranges for tasks.

The driver makes it (store_plan.py, snapshot_plan.py). Importing this module is cheap.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from natsd.spark.ranges import DataLoss, RangeRequest
from natsd.spark.stored.stored_ranges import BlockPart, DamagedMessages, StorePlace, StoreRange

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class StoredStreamPlan:
    """A stream as a server would recover it: sequences `first_sequence` to `last_sequence`.

    In an empty stream, `last_sequence` is one less than `first_sequence`. `damage` lists losses
    that lie in none of the blocks' files: first and last sequence, and a text that names the place.
    """

    place: StorePlace
    first_sequence: int
    last_sequence: int
    blocks: tuple[BlockPart, ...]
    damage: tuple[tuple[int, int, str], ...] = ()

    @property
    def stream(self) -> str:
        """Name of the stream."""
        return self.place.stream

    @property
    def rows(self) -> int:
        """Number of live messages."""
        return sum(part.rows for part in self.blocks)

    @property
    def size_bytes(self) -> int:
        """Bytes of the records of live messages."""
        return sum(part.size_bytes for part in self.blocks)

    def request(self) -> RangeRequest:
        """Return the request for all messages of the stream."""
        return RangeRequest(self.stream, max(1, self.first_sequence), self.last_sequence)

    def ranges(
        self, request: RangeRequest, *, min_partitions: int = 1, max_rows: int = 0
    ) -> list[StoreRange]:
        """Divide the request into the ranges of tasks, in order.

        A range is a run of blocks; all have about equal bytes. There are at least `min_partitions`
        ranges if there are as many blocks, and each has at most `max_rows` rows (0: any). Raises
        DataLoss and DamagedMessages; for the last message of each subject it reads blocks, and
        raises what reading raises.
        """
        if request.fail_on_data_loss:
            self._check(request)
        within = [
            part
            for part in self.blocks
            if part.last >= request.first_sequence and part.first <= request.last_sequence
        ]
        if request.last_per_subject:
            from natsd.spark.stored.store_read import only_last_of_subjects

            within = only_last_of_subjects(StoreRange(self.place, request, tuple(within)))
            request = replace(request, last_per_subject=False)
        runs = cut(within, min_partitions, max_rows)
        return [StoreRange(self.place, request, tuple(run)) for run in runs]

    def sequence_at(self, time_ns: int) -> int:
        """Return the first sequence at or after a time in ns since the epoch, or the last + 1.

        If times do not ascend with sequences, it is the first such message of the block that the
        search finds. Reads blocks.
        """
        from natsd.spark.stored.store_read import first_at

        found = first_at(StoreRange(self.place, self.request(), self.blocks), time_ns)
        return self.last_sequence + 1 if found is None else found

    def _check(self, request: RangeRequest) -> None:
        gone = min(self.first_sequence - 1, request.last_sequence)
        if request.first_sequence <= gone:
            raise DataLoss(self.stream, request.first_sequence, gone)
        for first, last, where in self.damage:
            if first <= request.last_sequence and (last or first) >= request.first_sequence:
                raise DamagedMessages(self.stream, first, last or first, where)


def cut(
    parts: Iterable[BlockPart], min_partitions: int, max_rows: int = 0
) -> list[list[BlockPart]]:
    """Divide the parts, in order, into runs of about equal bytes; `max_rows` may divide a part."""
    if max_rows:
        parts = [piece for part in parts for piece in divided(part, max_rows)]
    parts = list(parts)
    total = sum(part.size_bytes for part in parts)
    share = -(-total // max(1, min_partitions))
    runs: list[list[BlockPart]] = []
    taken = rows = 0
    for at, part in enumerate(parts):
        is_over = bool(max_rows and rows + part.rows > max_rows)
        is_needed = len(parts) - at <= min_partitions - len(runs)
        if not runs or is_over or is_needed or taken + part.size_bytes // 2 >= share * len(runs):
            runs.append([])
            rows = 0
        runs[-1].append(part)
        taken += part.size_bytes
        rows += part.rows
    return runs


def divided(part: BlockPart, max_rows: int) -> list[BlockPart]:
    """Divide a part into pieces of `max_rows` messages; each piece reads the whole block's file."""
    from natsd.store.sequence_set import SequenceSet

    if part.rows <= max_rows:
        return [part]
    dead = SequenceSet.decode(part.dead)
    live = SequenceSet()
    live.add_range(part.first, part.last)
    live.difference_update(dead)
    pieces = []
    first = part.first
    while first <= part.last:
        before = live.rank(first - 1)
        span = range(first, part.last + 1)
        upto = bisect_left(span, before + max_rows, key=live.rank)
        last = span[upto] if upto < len(span) else part.last
        rows = live.rank(last) - before
        share = part.size_bytes * rows // part.rows
        pieces.append(replace(part, first=first, last=last, rows=rows, size_bytes=share))
        first = last + 1
    return pieces
