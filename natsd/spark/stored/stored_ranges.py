"""Parts of a stream's files that a task reads: a few blocks, and which of their messages are live.

    StoreRange ── place     where the files are, and the files with their keys
               ── request   which rows are wanted (ranges.py)
               ── blocks    BlockPart: a block's file, its sequences, the dead among them

These objects are plain and picklable: the driver creates them (store_plan.py, snapshot_plan.py), an
executor reads them (store_read.py) and must see the same files. Keys are not carried: only the
paths of their files. Importing this module is cheap.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from natsd.spark.ranges import DataLoss, RangeRequest

if TYPE_CHECKING:
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
