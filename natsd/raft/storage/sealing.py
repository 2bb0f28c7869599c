"""The encryption of the logs: of the records of each batch and of each snapshot, if there is a key.

    key.db          the data key of the directory, wrapped with the operator's key
    encrypting.db   the same key, while logs that were plain are being encrypted

    batch       records ─▶ pieces of about 64 KiB, each encoded as in a batch, and encrypted:
                SEALED   -   number of the piece,      nonce, 12 bytes │ ciphertext │ tag, 16 bytes
                             and of pieces << 32
    snapshot    random seed u64 │ nonce, 12 bytes │ ciphertext │ tag, 16 bytes

Promise
- In clear are the headers of segments, batches and pieces, FILL and END, and the names of files. So
  torn and damaged sectors are told apart as in plain logs, and without a key.
- Each segment has its own key, which follows from the data key, the number and the random seed of
  the segment; so has each snapshot. Each piece has its own random nonce of 96 bits, also if its
  batch is written anew, and a segment has about 100,000 pieces at most. So no nonce is used twice
  with one key.
- A piece opens only in its segment, its batch and its place there, a snapshot only under its name.
  Bytes in clear do not pass for encrypted ones.
- Bytes that are whole, as their checksum proves, and that the key does not open, are no damage:
  another key wrote them, or somebody has changed them. They raise an EncryptionError.
- While plain logs are being encrypted, a crash leaves files of both kinds, and each says which it
  is. `key.db` is written when no plain file is left that counts.

Source: natsd/store/crypto/keys.py, whose data keys and key files these are, and docs/store.md.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag

from natsd.raft.storage.records import END, FILL, SEALED, Record
from natsd.store.codec.block_encoding import PIECE_BYTES, TAG_BYTES, Seal
from natsd.store.crypto.keys import (
    ENCRYPTING_FILE,
    KEY_FILE,
    NONCE_BYTES,
    DataKey,
    OperatorKeys,
    Random,
    create_key_file,
    open_key_file,
    write_key_file,
)
from natsd.store.disk.disk import Disk
from natsd.store.disk.twin_file import remove_twins, twins_exist
from natsd.store.errors import KeyMissing, KeyUnexpected, KeyWrong
from natsd.store.wal.entries import decode_entries, encode_entries
from natsd.store.wal.format import BATCH_HEADER_BYTES, ENTRY_HEADER_BYTES

SEED_BYTES: Final = 8
PLACE: Final = struct.Struct("<QQ")
"""Number of the batch, and the offset of the SEALED record: authenticated with each piece."""
_COUNT_SHIFT: Final = 32

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SegmentSeal:
    """The encryption of one segment."""

    path: Path
    seed: int
    seal: Seal = field(repr=False)

    def sealed(self, batch: int, records: Iterable[Record]) -> list[Record]:
        """Return the SEALED records that hold these records of a batch."""
        pieces = list(_pieces(records))
        sealed: list[Record] = []
        for number, piece in enumerate(pieces):
            at = len(pieces) << _COUNT_SHIFT | number
            encoded = encode_entries(self.seed, piece)
            sealed.append((SEALED, b"", at, _encrypt(self.seal, encoded, PLACE.pack(batch, at))))
        return sealed

    def opened(self, batch: int, records: Sequence[Record]) -> tuple[list[Record], bool]:
        """Return the records in a batch's SEALED ones, with FILL and END, and whether all are here.

        Records in clear are left out, since they are none of this segment. Raises KeyWrong.
        """
        opened: list[Record] = []
        places: list[int] = []
        is_sealed = True
        for record in records:
            kind, _, at, data = record
            if kind == SEALED:
                places.append(at)
                opened += self._open(batch, at, data)
            elif kind in (FILL, END):
                opened.append(record)
            else:
                is_sealed = False
        count = len(places) << _COUNT_SHIFT
        return opened, is_sealed and places == [count | each for each in range(len(places))]

    def _open(self, batch: int, at: int, data: bytes) -> Iterator[Record]:
        encoded = _decrypt(self.seal, data, PLACE.pack(batch, at))
        if encoded is None:
            raise _not_opened(self.path)
        # As if a batch of these records began before them.
        for kind, name, offset, body in decode_entries(
            self.seed, encoded, -BATCH_HEADER_BYTES, len(encoded)
        ):
            if body is not None:
                yield kind, name, offset, body


@dataclass(frozen=True, slots=True)
class LogKey:
    """The key of the logs of one directory."""

    data_key: DataKey
    random: Random = field(repr=False)
    is_encrypting: bool = False
    """Plain files may be there, too: they are being encrypted."""

    def segment(self, path: Path, number: int, seed: int) -> SegmentSeal:
        """Return the encryption of a segment."""
        return SegmentSeal(path, seed, self.data_key.seal(seed, number, self.random))

    def sealed_snapshot(self, path: Path, body: bytes) -> bytes:
        """Return the encrypted body of a snapshot, whose name is that of `path`."""
        seed = self.random(SEED_BYTES)
        return seed + _encrypt(self._snapshot_seal(seed), body, path.name.encode())

    def opened_snapshot(self, path: Path, sealed: bytes) -> bytes:
        """Return the body of an encrypted snapshot. Raises KeyWrong."""
        seal = self._snapshot_seal(sealed[:SEED_BYTES])
        body = _decrypt(seal, sealed[SEED_BYTES:], path.name.encode())
        if body is None:
            raise _not_opened(path)
        return body

    def _snapshot_seal(self, seed: bytes) -> Seal:
        return self.data_key.seal(int.from_bytes(seed, "little"), 0, self.random)

    def check_plain(self, path: Path) -> None:
        """Check that a plain file may be there. Raises KeyUnexpected."""
        if not self.is_encrypting:
            raise KeyUnexpected(
                f"{path} is not encrypted, but {path.parent / KEY_FILE} says that all logs are:"
                " natsd has not written it"
            )


def key_is_missing(path: Path, directory: Path) -> KeyMissing:
    """Return the refusal of an encrypted file in a directory without a key file."""
    key_file = directory / KEY_FILE
    return KeyMissing(f"{path} is encrypted, but {key_file} is missing: put it back, or its copy")


def open_key(disk: Disk, directory: Path, operator: OperatorKeys, random: Random) -> LogKey | None:
    """Return the key of the logs in a directory; None: there is no key file, they are plain.

    The key file is wrapped with the operator's current key, and repaired, if needed. Blocks on the
    disk. Raises EncryptionError, OSError.
    """
    for name in (KEY_FILE, ENCRYPTING_FILE):
        path = directory / name
        if twins_exist(disk, path):
            opened = open_key_file(disk, path, directory.name, operator, random)
            for note in opened.notes:
                _logger.warning("%s", note)
            return LogKey(opened.data_key, random, is_encrypting=name == ENCRYPTING_FILE)
    return None


def begin_encrypting(
    disk: Disk, directory: Path, operator: OperatorKeys, random: Random
) -> LogKey | None:
    """Return a new key for plain logs; None: the operator has none. Blocks; raises OSError."""
    if operator.key is None:
        return None
    path = directory / ENCRYPTING_FILE
    data_key = create_key_file(disk, path, directory.name, operator, random)
    return LogKey(data_key, random, is_encrypting=True)


def end_encrypting(disk: Disk, directory: Path, operator: OperatorKeys, key: LogKey) -> None:
    """Note that no plain file is left that counts. Blocks; raises OSError."""
    path = directory / KEY_FILE
    if key.is_encrypting:
        disk.sync_dir(directory)  # what was removed must not come back under a key
        write_key_file(disk, path, directory.name, operator, key.data_key, key.random)
    if twins_exist(disk, directory / ENCRYPTING_FILE):
        remove_twins(disk, directory / ENCRYPTING_FILE)


def _pieces(records: Iterable[Record]) -> Iterator[list[Record]]:
    piece: list[Record] = []
    size = 0
    for record in records:
        piece.append(record)
        size += ENTRY_HEADER_BYTES + len(record[3])
        if size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _encrypt(seal: Seal, data: bytes, place: bytes) -> bytes:
    nonce = seal.random(NONCE_BYTES)
    return nonce + seal.aead.encrypt(nonce, data, place)


def _decrypt(seal: Seal, sealed: bytes, place: bytes) -> bytes | None:
    if len(sealed) < NONCE_BYTES + TAG_BYTES:
        return None
    try:
        return seal.aead.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], place)
    except InvalidTag:
        return None


def _not_opened(path: Path) -> KeyWrong:
    return KeyWrong(
        f"{path} is undamaged, but the key in {KEY_FILE} does not open it: {KEY_FILE} is that of"
        " other logs, or the file was changed"
    )
