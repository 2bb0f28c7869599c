"""index.db: what a stream's blocks hold, as of one commit, so that opening reads only what follows.

    file       0 magic "NATSDIDX" │ 8 version u16 │ 10 flags u16 (1: wrapped) │ 12 zero u32
              16 seed u64         │ 24 zero, 32 bytes                         │ 56 XXH64 of 0..56
              64 sections, one after the other; wrapped as in envelope.py where the store encrypts

    section    a record (record.pxd) with the file's seed: its sequence counts the sections from 1,
               its subject names the section, its payload is the body

    "state"    commit u64 │ first u64 │ last u64 │ last_time_ns i64 │ births u32 │ messages u64
    "blocks"   per block: id u32 │ flags u32 │ seed u64 │ base u64 │ last u64 │ skipped u64
               │ commit u64 │ chain u64 │ first_time_ns i64 │ last_time_ns i64 │ live_bytes u64
               │ messages u32 │ size u32
    "deleted"  an encoded SequenceSet: all from first to last that have no message
    "expiries" { expires_ns i64 │ sequence u64 }…, the messages with an expiry of their own
    "subjects" as subject_snapshot.pyx writes them, in several sections
    "end"      how many sections came before it, u64

Promise
- It is written beside the old one (`index.db.new`), synced, and renamed over it; the directory is
  synced. A crash leaves the old one or the new one.
- It says nothing about itself but what its checksums prove: any flipped bit, cut or missing piece
  is `DamagedIndex`, and then the blocks are scanned as if there were none. It is never the only
  place where something is written down.
- Whether it speaks of the blocks that are there is for recovery.py to find out.

Source: "Durability" of the design; nats-server 2.14 reference 11.2 (its index.db).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from natsd.store.envelope import Seal, unwrap, wrap
from natsd.store.errors import DamagedEncoding
from natsd.store.record import StoredMessage, checksum, decode, encode

INDEX_NAME: Final = "index.db"
NEW_SUFFIX: Final = ".new"
HEADER_BYTES: Final = 64
MAGIC: Final = b"NATSDIDX"
VERSION: Final = 1
WRAPPED: Final = 1
BLOCKS_PER_SECTION: Final = 512

_HEADER = struct.Struct("<8sHHIQ32x")
_CHECKSUM = struct.Struct("<Q")
_STATE = struct.Struct("<QQQqIQ")
_BLOCK = struct.Struct("<IIQQQQQQqqQII")
_COUNT = struct.Struct("<Q")
_LENGTH = struct.Struct("<I")

Buffer: TypeAlias = bytes | bytearray | memoryview


class DamagedIndex(DamagedEncoding):
    """An index.db that cannot be believed; the blocks can still be."""

    text = "index.db is damaged"

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(f"index.db: {what} at byte {offset}")
        self.offset = offset


@dataclass(frozen=True, slots=True)
class BlockImage:
    """One block at the commit. `size` is in logical bytes, up to the end of its last commit."""

    block_id: int
    flags: int
    seed: int
    base_sequence: int
    last_sequence: int
    max_skip_sequence: int
    commit_number: int
    chain: int
    first_time_ns: int
    last_time_ns: int
    live_bytes: int
    message_count: int
    size: int


@dataclass(slots=True)
class StoreImage:
    """A stream's storage at the commit, but for its subjects, which come in pieces."""

    commit_number: int = 0
    first_sequence: int = 0
    last_sequence: int = 0
    last_time_ns: int = 0
    births: int = 0
    message_count: int = 0
    blocks: list[BlockImage] = field(default_factory=list)
    deleted: bytes = b""
    expiries: bytes = b""


class IndexWriter:
    """Makes the bytes of the file, in order: `begin`, any number of `subjects`, `end`."""

    def __init__(self, seed: int, seal: Seal | None = None) -> None:
        self._seed = seed
        self._seal = seal
        self._sections = 0
        self._logical = HEADER_BYTES

    def begin(self, image: StoreImage) -> bytes:
        """The header and all but the subjects."""
        state = _STATE.pack(
            image.commit_number,
            image.first_sequence,
            image.last_sequence,
            image.last_time_ns,
            image.births,
            image.message_count,
        )
        pieces = [self._header(), self._section("state", state)]
        pieces += [self._section("blocks", body) for body in _packed_blocks(image.blocks)]
        pieces.append(self._section("deleted", image.deleted))
        pieces.append(self._section("expiries", image.expiries))
        return b"".join(pieces)

    def subjects(self, body: bytes) -> bytes:
        """Some of the subjects."""
        return self._section("subjects", body)

    def end(self) -> bytes:
        """Without this the file is not whole."""
        return self._section("end", _COUNT.pack(self._sections))

    def _header(self) -> bytes:
        flags = 0 if self._seal is None else WRAPPED
        header = _HEADER.pack(MAGIC, VERSION, flags, 0, self._seed)
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
    image = StoreImage()
    subjects: list[bytes] = []
    for count, section in enumerate(_sections(logical, seed)):
        if section.subject == "end":
            if section.data != _COUNT.pack(count):
                raise DamagedIndex(len(data), "sections are missing")
            return image, subjects
        _take_section(section, image, subjects)
    raise DamagedIndex(len(data), "the end is missing")


def seed_of(data: bytes) -> int:
    """The seed by which an encrypted file's key is derived; raises `DamagedIndex`."""
    if len(data) < HEADER_BYTES:
        raise DamagedIndex(len(data), "the header is cut short")
    header = data[: _HEADER.size]
    magic, version, _, _, seed = _HEADER.unpack(header)
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
            (
                image.commit_number,
                image.first_sequence,
                image.last_sequence,
                image.last_time_ns,
                image.births,
                image.message_count,
            ) = _STATE.unpack(body)
        case "blocks":
            image.blocks += [BlockImage(*fields) for fields in _BLOCK.iter_unpack(body)]
        case "deleted":
            image.deleted = body
        case "expiries":
            image.expiries = body
        case "subjects":
            subjects.append(body)
        case _:
            raise DamagedIndex(0, f"section {section.subject!r} is not known")


def _packed_blocks(blocks: list[BlockImage]) -> Iterator[bytes]:
    for start in range(0, len(blocks), BLOCKS_PER_SECTION):
        yield b"".join(_packed_block(block) for block in blocks[start : start + BLOCKS_PER_SECTION])


def _packed_block(block: BlockImage) -> bytes:
    return _BLOCK.pack(
        block.block_id,
        block.flags,
        block.seed,
        block.base_sequence,
        block.last_sequence,
        block.max_skip_sequence,
        block.commit_number,
        block.chain,
        block.first_time_ns,
        block.last_time_ns,
        block.live_bytes,
        block.message_count,
        block.size,
    )
