"""index.db: the state of a stream's storage at one commit, so that an open reads only newer data.

    file       0 magic "NATSDIDX" │ 8 version u16 │ 10 flags u16 (1: wrapped) │ 12 zero u32
              16 seed u64         │ 24 store id, 32 place (block_identity.py) │ 40 zero, 16 bytes
              56 XXH64 of 0..56
              64 sections, one after another; wrapped as in envelope.py if the store is encrypted

    section    a record (record.pxd) with the file's seed: its sequence counts the sections from 1,
               its subject names the section, its payload is the body

    "state"    commit u64 │ first u64 │ last u64 │ first_time_ns i64 │ last_time_ns i64
               │ births u32 │ messages u64 │ live bytes u64
               (births: counter of subjects that entered the subject index, subject_index.pxd)
    "blocks"   the blocks, as rebuild.pyx packs them
    "deleted"  an encoded SequenceSet: all sequences from first to last that have no message
    "expiries" { expires_ns i64 │ sequence u64 }…, the messages with an expiry of their own
    "damage"   JSON, the known damage of the blocks (found_damage.py)
    "subjects" as subject_snapshot.pyx writes them, in several sections
    "end"      the number of sections before this one, u64

Promise
- The file is written beside the old one (`index.db.new`), synced, and renamed over it; then the
  directory is synced. A crash leaves the old file or the new one. Only a store's first index.db,
  a note that lists no block and only records that the store has some, is written in place and not
  synced: after a power cut it may be as empty as it was created, or hold zeros, and then it
  proves nothing.
- The content is believed only as far as its checksums prove it: any flipped bit, cut or missing
  piece is `DamagedIndex`, and then the blocks are scanned as if there were no index.db. No fact
  is stored in index.db alone.
- index_recovery.py and recovery.py find out whether index.db describes the blocks that are there.

Source: docs/store.md; nats-server's `writeFullState` (its own index.db).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from natsd.store.codec.block_encoding import Seal, unwrap, wrap
from natsd.store.codec.records import StoredMessage, checksum, decode, encode
from natsd.store.disk.disk import Disk
from natsd.store.errors import DamagedEncoding

INDEX_NAME: Final = "index.db"
NEW_SUFFIX: Final = ".new"
HEADER_BYTES: Final = 64
MAGIC: Final = b"NATSDIDX"
VERSION: Final = 1
WRAPPED: Final = 1
OPEN: Final = 2

_HEADER = struct.Struct("<8sHHIQQQ16x")
_CHECKSUM = struct.Struct("<Q")
_STATE = struct.Struct("<QQQqqIQQ")
_STATE_FIELDS = (
    "commit_number",
    "first_sequence",
    "last_sequence",
    "first_time_ns",
    "last_time_ns",
    "births",
    "message_count",
    "live_bytes",
)
_BLOCK = struct.Struct("<IIQQQIIQQQQ")
_COUNT = struct.Struct("<Q")
_LENGTH = struct.Struct("<I")

Buffer: TypeAlias = bytes | bytearray | memoryview


class DamagedIndex(DamagedEncoding):
    """An index.db that does not verify; the blocks can still be read without it."""

    text = "index.db is damaged"

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(f"index.db: {what} at byte {offset}")
        self.offset = offset


class BlockImage(NamedTuple):
    """One block as of the commit.

    `flags` has the bits 1 (sealed) and 2 (open, see `is_open`); `size` is in logical bytes, up to
    the end of the block's last commit.
    """

    block_id: int
    flags: int
    seed: int
    base_sequence: int
    last_sequence: int
    size: int
    message_count: int
    live_bytes: int
    commit_number: int
    chain: int
    last_checksum: int

    @property
    def is_open(self) -> bool:
        """Whether later commits may have written to the block."""
        return bool(self.flags & OPEN)


@dataclass(slots=True)
class StoreImage:
    """A stream's storage as of the commit, without its subjects, which are kept in pieces."""

    store_id: int = 0
    place: int = 0
    commit_number: int = 0
    first_sequence: int = 0
    last_sequence: int = 0
    first_time_ns: int = 0
    last_time_ns: int = 0
    births: int = 0
    message_count: int = 0
    live_bytes: int = 0
    packed_blocks: bytes = b""
    deleted: bytes = b""
    expiries: bytes = b""
    damage: bytes = b""

    @property
    def blocks(self) -> list[BlockImage]:
        """The blocks, oldest first."""
        return list(map(BlockImage._make, _BLOCK.iter_unpack(self.packed_blocks)))


class IndexWriter:
    """Encoder of the file, in this order: `begin`, any number of `subjects`, `end`."""

    def __init__(self, seed: int, seal: Seal | None = None) -> None:
        self._seed = seed
        self._seal = seal
        self._sections = 0
        self._logical = HEADER_BYTES

    def begin(self, image: StoreImage) -> bytes:
        """Return the header and all sections before the subjects."""
        state = _STATE.pack(*(getattr(image, name) for name in _STATE_FIELDS))
        sections = (
            ("state", state),
            ("blocks", image.packed_blocks),
            ("deleted", image.deleted),
            ("expiries", image.expiries),
            ("damage", image.damage),
        )
        return self._header(image) + b"".join(self._section(name, body) for name, body in sections)

    def subjects(self, body: bytes) -> bytes:
        """Return one section that holds some of the subjects."""
        return self._section("subjects", body)

    def end(self) -> bytes:
        """Return the last section; a file without it does not verify."""
        return self._section("end", _COUNT.pack(self._sections))

    def _header(self, image: StoreImage) -> bytes:
        flags = 0 if self._seal is None else WRAPPED
        header = _HEADER.pack(MAGIC, VERSION, flags, 0, self._seed, image.store_id, image.place)
        return header + _CHECKSUM.pack(checksum(header))

    def _section(self, name: str, body: bytes) -> bytes:
        self._sections += 1
        record = encode(self._seed, self._sections, name, None, body, 0)
        start = self._logical
        self._logical += len(record)
        if self._seal is None:
            return record
        return wrap(record, start, self._seed, self._seal)


def read_index(data: bytes, seal: Seal | None = None) -> tuple[StoreImage, list[bytes]]:
    """Return the decoded image and the pieces of the subjects.

    `seal` is the store's encryption, None if the store is plain. Raises `DamagedIndex`.
    """
    logical, seed = _logical_bytes(data, seal)
    *_, store_id, place = _HEADER.unpack_from(data)
    image = StoreImage(store_id=store_id, place=place)
    subjects: list[bytes] = []
    for count, section in enumerate(_sections(logical, seed)):
        if section.subject == "end":
            if section.data != _COUNT.pack(count):
                raise DamagedIndex(len(data), "sections are missing")
            return image, subjects
        _take_section(section, image, subjects)
    raise DamagedIndex(len(data), "the end is missing")


def make_blank(disk: Disk, directory: Path) -> None:
    """Create the empty index.db of a new store. Blocks on the disk.

    It is created with the store so that the store's first commit, which publishers wait for, need
    not create it: on ext4, creating a thousand such files after as many were removed takes 0.5 s
    (2026-11-23).
    """
    disk.open(directory / INDEX_NAME, create=True).close()


def is_blank(data: bytes) -> bool:
    """Return whether the file was never written, or its bytes never reached the disk."""
    return not data.strip(b"\0")


def seed_of(data: bytes) -> int:
    """Return the file's seed, from which the key of an encrypted file is derived.

    Raises `DamagedIndex`.
    """
    if len(data) < HEADER_BYTES:
        raise DamagedIndex(len(data), "the header is cut short")
    header = data[: _HEADER.size]
    magic, version, _, _, seed, _, _ = _HEADER.unpack(header)
    if magic != MAGIC or _CHECKSUM.pack(checksum(header)) != data[_HEADER.size : HEADER_BYTES]:
        raise DamagedIndex(0, "the header does not verify")
    if version != VERSION:
        raise DamagedIndex(8, f"version {version} is not known")
    return int(seed)


def _logical_bytes(data: bytes, seal: Seal | None) -> tuple[Buffer, int]:
    seed = seed_of(data)
    flags = data[10] | data[11] << 8
    if bool(flags & WRAPPED) != (seal is not None):
        raise DamagedIndex(10, "it is encrypted and the store is not, or the other way round")
    if seal is None:
        return data, seed
    unwrapped = unwrap(data, seed, seal)
    if unwrapped.damage or unwrapped.torn:
        at = unwrapped.damage[0].offset if unwrapped.damage else unwrapped.physical_end
        raise DamagedIndex(at, "an envelope does not verify")
    return unwrapped.logical, seed


def _sections(logical: Buffer, seed: int) -> Iterator[StoredMessage]:
    at = HEADER_BYTES
    number = 1
    view = memoryview(logical)
    while at + _LENGTH.size <= len(view):
        (length,) = _LENGTH.unpack_from(view, at)
        section = decode(bytes(view[at : at + length]), seed)
        if section is None or section.sequence != number:
            raise DamagedIndex(at, "a section does not verify")
        yield section
        number += 1
        at += length


def _take_section(section: StoredMessage, image: StoreImage, subjects: list[bytes]) -> None:
    body = section.data
    match section.subject:
        case "state":
            for name, value in zip(_STATE_FIELDS, _STATE.unpack(body), strict=True):
                setattr(image, name, value)
        case "blocks":
            image.packed_blocks = body
        case "deleted":
            image.deleted = body
        case "expiries":
            image.expiries = body
        case "damage":
            image.damage = body
        case "subjects":
            subjects.append(body)
        case _:
            raise DamagedIndex(0, f"section {section.subject!r} is not known")
