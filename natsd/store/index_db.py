"""index.db: what a stream's blocks hold, as of one commit, so that opening reads only what follows.

    file       0 magic "NATSDIDX" │ 8 version u16 │ 10 flags u16 (1: wrapped) │ 12 zero u32
              16 seed u64         │ 24 store id, 32 place (block_identity.py) │ 40 zero, 16 bytes
              56 XXH64 of 0..56
              64 sections, one after the other; wrapped as in envelope.py where the store encrypts

    section    a record (record.pxd) with the file's seed: its sequence counts the sections from 1,
               its subject names the section, its payload is the body

    "state"    commit u64 │ first u64 │ last u64 │ first_time_ns i64 │ last_time_ns i64
               │ births u32 │ messages u64 │ live bytes u64
    "blocks"   as rebuild.pyx packs them
    "deleted"  an encoded SequenceSet: all from first to last that have no message
    "expiries" { expires_ns i64 │ sequence u64 }…, the messages with an expiry of their own
    "damage"   JSON, what is known to be damaged
    "subjects" as subject_snapshot.pyx writes them, in several sections
    "end"      how many sections came before it, u64

Promise
- It is written beside the old one (`index.db.new`), synced, and renamed over it; the directory is
  synced. A crash leaves the old one or the new one. Only a store's first one, which tells of no
  block, and says that there are some, is written in place and not synced: a power cut may leave
  it as blank as it was made with the store, or zeros, and then it says nothing.
- It says nothing about itself but what its checksums prove: any flipped bit, cut or missing piece
  is `DamagedIndex`, and then the blocks are scanned as if there were none. It is never the only
  place where something is written down.
- Whether it speaks of the blocks that are there is for recovery.py to find out.

Source: "Durability" of the design; nats-server 2.14 reference 11.2 (its index.db).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from natsd.store.disk import Disk
from natsd.store.envelope import Seal, unwrap, wrap
from natsd.store.errors import DamagedEncoding
from natsd.store.record import StoredMessage, checksum, decode, encode

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
    """An index.db that cannot be believed; the blocks can still be."""

    text = "index.db is damaged"

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(f"index.db: {what} at byte {offset}")
        self.offset = offset


class BlockImage(NamedTuple):
    """One block at the commit. `size` is in logical bytes, up to the end of its last commit."""

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
        """More may have been written to it."""
        return bool(self.flags & OPEN)


@dataclass(slots=True)
class StoreImage:
    """A stream's storage at the commit, but for its subjects, which come in pieces."""

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
        """Oldest first."""
        return list(map(BlockImage._make, _BLOCK.iter_unpack(self.packed_blocks)))


class IndexWriter:
    """Makes the bytes of the file, in order: `begin`, any number of `subjects`, `end`."""

    def __init__(self, seed: int, seal: Seal | None = None) -> None:
        self._seed = seed
        self._seal = seal
        self._sections = 0
        self._logical = HEADER_BYTES

    def begin(self, image: StoreImage) -> bytes:
        """The header and all but the subjects."""
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
        """Some of the subjects."""
        return self._section("subjects", body)

    def end(self) -> bytes:
        """Without this the file is not whole."""
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
    """The image and the pieces of the subjects, or `DamagedIndex`."""
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
    """Make the file of a new store, so that its first commit, which others wait for, need not: of
    a thousand on ext4, after as many were removed, that takes 0.5 s (2026-11-23). Blocks."""
    disk.open(directory / INDEX_NAME, create=True).close()


def is_blank(data: bytes) -> bool:
    """Whether nothing was written, or it did not reach the disk."""
    return not data.strip(b"\0")


def seed_of(data: bytes) -> int:
    """The seed by which an encrypted file's key is derived; raises `DamagedIndex`."""
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
