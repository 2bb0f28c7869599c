"""Parts of a stream's files that a task reads: a few blocks, and which of their messages are live.

    StoreRange ── place     where the files are, and the files with their keys
               ── request   which rows are wanted (ranges.py)
               ── blocks    BlockPart: a block's file, its sequences, the dead among them

These objects are plain and picklable: the driver creates them (store_plan.py, snapshot_plan.py), an
executor reads them (store_read.py) and must see the same files. Keys are not carried: only the
paths of their files. Importing this module is cheap.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from natsd.spark.ranges import DataLoss, RangeRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from natsd.store.crypto.keys import OperatorKeys


class StoreNotReadable(Exception):
    """The request cannot be read without a server; the one-line text says why and what to do."""


class StoreChanged(StoreNotReadable):
    """The files are no longer those that the plan was made of."""


class DamagedMessages(DataLoss):
    """Messages of the range do not verify; `where` names the file and the offset."""

    def __init__(self, stream: str, first: int, last: int, where: str) -> None:
        super().__init__(stream, first, last)
        self.where = where
        which = f"message {first}" if first == last else f"messages {first} to {last}"
        self.args = (
            f'{which} of stream "{stream}" cannot be read: {where}; take them from a replica or a '
            "snapshot, or set failOnDataLoss to false to leave them out",
        )

    def __reduce__(self) -> tuple[type[DamagedMessages], tuple[str, int, int, str]]:  # type: ignore[override]  # one more argument
        return (DamagedMessages, (self.stream, self.first, self.last, self.where))


@dataclass(frozen=True)
class StoreKeys:
    """The files with the keys of encrypted streams; empty: none. `cipher` is `chacha` or `aes`."""

    key_file: str = ""
    prev_key_file: str = ""
    cipher: str = ""

    def operator(self) -> OperatorKeys:
        """Read the key files and return the keys. Blocks. Raises StoreNotReadable."""
        from natsd.store.crypto.keys import Cipher, OperatorKeys

        ciphers = {
            "": Cipher.CHACHA20_POLY1305,
            "chacha": Cipher.CHACHA20_POLY1305,
            "chachapoly": Cipher.CHACHA20_POLY1305,
            "aes": Cipher.AES_256_GCM,
        }
        cipher = ciphers.get(self.cipher.lower())
        if cipher is None:
            raise StoreNotReadable(f'cipher "{self.cipher}" is not known: it is chacha or aes')
        return OperatorKeys(_key(self.key_file), _key(self.prev_key_file), cipher)


def _key(path: str) -> bytes | None:
    """Return the bytes of the file without the newline at its end, which editors add."""
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            return file.read().rstrip(b"\r\n")
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreNotReadable(f"the key file {path} cannot be read: {reason}") from None


NO_KEYS: Final = StoreKeys()


@dataclass(frozen=True)
class StorePlace:
    """Place of a stream's files: `directory` below the volume `root`, or the file `snapshot`."""

    stream: str
    root: str = ""
    directory: str = ""
    snapshot: str = ""
    keys: StoreKeys = NO_KEYS


@dataclass(frozen=True)
class BlockPart:
    """Messages `first` to `last` of a block, except those in `dead` (an encoded SequenceSet).

    - `rows`: number of live messages; `size_bytes`: bytes of their records.
    - `end`: bytes of the file that belong to the block; `proven`: bytes of the block that were
      committed.
    - `seed` identifies the block. In a store it is the random number in the block's header, with
      which the checksums of all its records are seeded. In a snapshot it is the checksum of the
      `end` bytes to which the block's frames at `offset` unpack.
    - `patch`: bytes that replace the file's at `patch_offset`, because the volume's journal has a
      newer version.
    - `damage`: known losses: first and last sequence, and a text that names the place.
    """

    file: str
    block_id: int
    seed: int
    first: int
    last: int
    rows: int
    size_bytes: int
    end: int
    proven: int
    dead: bytes
    offset: int = 0
    patch_offset: int = 0
    patch: bytes = field(default=b"", repr=False)
    damage: tuple[tuple[int, int, str], ...] = ()


@dataclass(frozen=True)
class StoreRange:
    """The blocks that one task reads, oldest first."""

    place: StorePlace
    request: RangeRequest
    blocks: tuple[BlockPart, ...] = ()

    @property
    def rows(self) -> int:
        """Maximum number of rows; the request may select fewer."""
        return sum(part.rows for part in self.blocks)


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
        from natsd.spark.stored.store_read import sequence_at

        return sequence_at(self, time_ns)

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
