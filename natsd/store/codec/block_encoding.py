"""The file format of a compressed or encrypted block: envelopes around its logical bytes.

The logical bytes of a block (record.pyx) are its 64-byte header and then records. A block that is
neither compressed nor encrypted stores them as they are. Otherwise the header stays in clear and
the rest is wrapped, piece by piece:

    ┌──────────────────┬──────────────┬──────────────┬─────┬──────────────────────┐
    │ block header, 64 │ envelope     │ envelope     │  …  │ zeros (preallocated) │
    └──────────────────┴──────────────┴──────────────┴─────┴──────────────────────┘

    envelope (little-endian)
      0  magic "NENV" · 4 flags u8 (1 compressed, 2 encrypted) · 5 cipher u8 · 6 zero u16
      8  physical length u32, all of the envelope · 12 logical length u32 · 16 logical offset u32
     20  nonce 12 bytes (zeros where nothing is encrypted) · 32 block seed u64
     40  XXH64 of bytes 0..40, seeded with the block's seed · 48 body …
         and behind the body: the AEAD's tag (16), or XXH64 of all before it, seeded (8)

Promise
- `unwrap` returns the bytes that were wrapped, or zeros for the stretches that do not verify, and
  reports where these are. It never returns bytes that do not verify.
- A piece ends where a record ends and holds about 64 KiB, or one record if that is larger, so
  damage loses only the records of one piece. The two marks that end an extent stand in envelopes of
  their own, so a flipped bit in one of them leaves the other.
- A damaged envelope does not lose the envelopes behind it. The reader goes on behind its length; if
  its header is damaged, it searches for the next header that verifies and has a higher logical
  offset. A payload cannot be taken for an envelope, since it does not know the block's seed.
- Each envelope holds the block's seed, which its key is derived from as well. So a block can be
  read after its header is lost. The envelope's header is authenticated together with the body.
- A piece that does not shrink is stored uncompressed. Memory: one copy of the logical bytes.

Source: nats-server's `StoreCompression` and `StoreCipher` (server/filestore.go), for what is
compressed and encrypted; the layout and the rules are natsd's own.
"""

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import cramjam
from cryptography.exceptions import InvalidTag

from natsd.store.codec.records import checksum, piece_bounds

Buffer: TypeAlias = bytes | bytearray | memoryview

BLOCK_HEADER_BYTES: Final = 64
HEADER: Final = struct.Struct("<4sBBHIII12sQ")
CHECKSUM: Final = struct.Struct("<Q")
HEADER_BYTES: Final = HEADER.size + CHECKSUM.size
MAGIC: Final = b"NENV"
COMPRESSED: Final = 1
ENCRYPTED: Final = 2
TAG_BYTES: Final = 16
NO_NONCE: Final = bytes(12)

PIECE_BYTES: Final = 64 * 1024
LOGICAL_BYTES_MAX: Final = 1 << 30  # the most that a header may claim; real blocks are far smaller


class Aead(Protocol):
    """An authenticated cipher with a 96-bit nonce and a 16-byte tag (as in `cryptography`)."""

    def encrypt(self, nonce: bytes, data: Buffer, associated_data: Buffer | None) -> bytes:
        """Return the encrypted data followed by the tag."""

    def decrypt(self, nonce: bytes, data: Buffer, associated_data: Buffer | None) -> bytes:
        """Return the decrypted data; raise InvalidTag if data or tag do not verify."""


@dataclass(frozen=True, slots=True)
class Seal:
    """The encryption of one block: cipher, its number on disk, and a source of fresh nonces."""

    cipher: int  # the cipher's number as it is written to disk
    aead: Aead
    random: Callable[[int], bytes]  # random(n) returns n unpredictable bytes


@dataclass(frozen=True, slots=True)
class EnvelopeDamage:
    """A damaged stretch of a file, and the logical bytes that are zeros because of it."""

    offset: int
    length: int
    logical_offset: int
    logical_length: int
    what: str


@dataclass(frozen=True, slots=True)
class _Span:
    """The place of a whole envelope, or of the clear header, in both forms of a block; in bytes."""

    logical: int
    logical_length: int
    physical: int
    physical_length: int


@dataclass(slots=True)
class Unwrapped:
    """The logical bytes of a block file.

    `logical` begins with the 64 clear bytes and has zeros where an envelope is damaged.
    `physical_end` is where the last whole envelope ends. Zeros follow it, unless `torn`: then bytes
    follow that are no envelope, since they are torn or damaged beyond recognition.
    """

    logical: bytearray
    damage: list[EnvelopeDamage]
    spans: list[_Span]
    physical_end: int
    torn: bool

    def physical_offset(self, logical_offset: int) -> int:
        """Return the offset in the file of this logical byte.

        The offset is exact where an envelope begins or ends; otherwise it is the beginning of the
        envelope that holds the byte.
        """
        index = bisect_right(self.spans, logical_offset, key=lambda span: span.logical) - 1
        span = self.spans[index]
        if span.physical == 0:
            return min(logical_offset, BLOCK_HEADER_BYTES)
        if logical_offset >= span.logical + span.logical_length:
            return span.physical + span.physical_length
        return span.physical

    def physical_range(self, logical_offset: int, length: int) -> tuple[int, int]:
        """Return the range (start, end) of the file that holds these logical bytes.

        It reaches from the beginning of the first envelope that holds, or should have held, any of
        the bytes to the end of the last one.
        """
        logical_end = logical_offset + length
        if logical_end <= BLOCK_HEADER_BYTES:
            return logical_offset, logical_end
        places = [(s.logical, s.logical_length, s.physical, s.physical_length) for s in self.spans]
        places += [(d.logical_offset, d.logical_length, d.offset, d.length) for d in self.damage]
        touched = [
            (physical, physical + physical_length)
            for logical, logical_length, physical, physical_length in places
            if logical < logical_end and logical_offset < logical + logical_length
        ]
        start = min((start for start, _ in touched), default=self.physical_end)
        return start, max((end for _, end in touched), default=start)


@dataclass(frozen=True, slots=True)
class _Header:
    """The header of an envelope."""

    flags: int
    cipher: int
    physical_length: int
    logical_length: int
    logical_offset: int
    nonce: bytes
    seed: int

    @property
    def trailer_bytes(self) -> int:
        """Bytes behind the body: the length of the AEAD's tag or of the checksum."""
        return TAG_BYTES if self.flags & ENCRYPTED else CHECKSUM.size


def wrap(
    logical: Buffer,
    logical_offset: int,
    seed: int,
    seal: Seal | None = None,
    *,
    compress: bool = False,
) -> bytes:
    """Return envelopes around whole records that stand at `logical_offset` of a block.

    Without `seal` nothing is encrypted.
    """
    view = memoryview(logical)
    return b"".join(
        _wrap_piece(view[start:end], logical_offset + start, seed, seal, compress)
        for start, end in piece_bounds(view, PIECE_BYTES)
    )


def wrap_block(
    logical: Buffer, seed: int, seal: Seal | None = None, *, compress: bool = True
) -> bytes:
    """Return the file of a whole block: its header in clear, and the rest in envelopes."""
    view = memoryview(logical)
    rest = view[BLOCK_HEADER_BYTES:]
    wrapped = wrap(rest, BLOCK_HEADER_BYTES, seed, seal, compress=compress)
    return bytes(view[:BLOCK_HEADER_BYTES]) + wrapped


def unwrap(data: Buffer, seed: int, seal: Seal | None = None) -> Unwrapped:
    """Read the file of a wrapped block with a known seed; for an unknown seed see `find_seed`."""
    return _Unwrapping(data, seed, seal).run()


def begins_with_envelope(data: Buffer) -> bool:
    """Return whether an envelope stands behind the block's header."""
    return _parse_header(memoryview(data), BLOCK_HEADER_BYTES, None) is not None


def begins_encrypted(data: Buffer) -> bool:
    """Return whether an encrypted envelope stands behind the block's header."""
    header = _parse_header(memoryview(data), BLOCK_HEADER_BYTES, None)
    return header is not None and bool(header.flags & ENCRYPTED)


def find_seed(data: Buffer) -> int | None:
    """Return the seed from an envelope, for a file with a damaged block header; None: unknown.

    Only two envelopes are believed: the one right behind the block header, and the one that ends
    where the data ends. An envelope inside a payload stands at neither place.
    """
    view = memoryview(data)
    first = _parse_header(view, BLOCK_HEADER_BYTES, None)
    if first is not None:
        return first.seed
    end = _end_of_data(view)
    for at in _candidates(bytes(view), BLOCK_HEADER_BYTES):
        header = _parse_header(view, at, None)
        # The checksum that ends the last envelope may itself end with zeros.
        if header is not None and end <= at + header.physical_length < end + TAG_BYTES:
            return header.seed
    return None


def _wrap_piece(
    piece: memoryview, logical_offset: int, seed: int, seal: Seal | None, compress: bool
) -> bytes:
    """Return one envelope around these records."""
    body: Buffer = piece
    flags = 0
    if compress:
        packed = bytes(cramjam.snappy.compress_raw(piece))
        if len(packed) < len(piece):
            body, flags = packed, COMPRESSED
    trailer_bytes = CHECKSUM.size if seal is None else TAG_BYTES
    header = HEADER.pack(
        MAGIC,
        flags | (0 if seal is None else ENCRYPTED),
        0 if seal is None else seal.cipher,
        0,
        HEADER_BYTES + len(body) + trailer_bytes,
        len(piece),
        logical_offset,
        nonce := NO_NONCE if seal is None else seal.random(len(NO_NONCE)),
        seed,
    )
    header += CHECKSUM.pack(checksum(header, seed))
    if seal is not None:
        return header + seal.aead.encrypt(nonce, body, header)
    plain = header + bytes(body)
    return plain + CHECKSUM.pack(checksum(plain, seed))


def _parse_header(view: memoryview, at: int, seed: int | None) -> _Header | None:
    """Return the envelope header at `at`; None if it does not verify or does not fit the file.

    With `seed` given, a header of another block is None too.
    """
    if at + HEADER_BYTES > len(view) or bytes(view[at : at + 4]) != MAGIC:
        return None
    _, *fields, own_seed = HEADER.unpack_from(view, at)
    flags, cipher, zero, physical_length, logical_length, logical_offset, nonce = fields
    if seed is not None and own_seed != seed:
        return None
    (expected,) = CHECKSUM.unpack_from(view, at + HEADER.size)
    if zero or checksum(bytes(view[at : at + HEADER.size]), own_seed) != expected:
        return None
    header = _Header(
        flags, cipher, physical_length, logical_length, logical_offset, nonce, own_seed
    )
    fits = HEADER_BYTES + header.trailer_bytes <= physical_length <= len(view) - at
    sane = logical_offset + logical_length <= LOGICAL_BYTES_MAX
    return header if fits and sane else None


def _candidates(data: bytes, at: int) -> Iterator[int]:
    """Yield the offsets from `at` on where the magic of an envelope stands."""
    while (at := data.find(MAGIC, at)) >= 0:
        yield at
        at += 1


def _end_of_data(view: memoryview) -> int:
    """Return the offset where the zeros at the end of the file begin."""
    return len(bytes(view).rstrip(b"\0"))


class _Unwrapping:
    """One pass over a file, from envelope to envelope."""

    def __init__(self, data: Buffer, seed: int, seal: Seal | None) -> None:
        self.view = memoryview(data)
        self.seed = seed
        self.seal = seal
        header = bytes(self.view[:BLOCK_HEADER_BYTES])
        self.logical = bytearray(header.ljust(BLOCK_HEADER_BYTES, b"\0"))
        self.spans = [_Span(0, BLOCK_HEADER_BYTES, 0, BLOCK_HEADER_BYTES)]
        self.damage: list[EnvelopeDamage] = []

    def run(self) -> Unwrapped:
        """Go through the whole file and return its logical bytes."""
        at = BLOCK_HEADER_BYTES
        end = _end_of_data(self.view)
        while at < end:
            found = self._next_header(at)
            if found is None:
                break
            start, header = found
            if start > at or header.logical_offset > len(self.logical):
                self._skip_to(at, start, header.logical_offset)
            self._take(start, header)
            at = start + header.physical_length
        return Unwrapped(self.logical, self.damage, self.spans, at, torn=at < end)

    def _next_header(self, at: int) -> tuple[int, _Header] | None:
        """Return the next envelope at or behind `at` and its offset; None if there is none.

        Its logical offset is at or above the end of the logical bytes so far.
        """
        header = self._header_at(at)
        if header is not None:
            return at, header
        for candidate in _candidates(bytes(self.view[at:]), 1):
            header = self._header_at(at + candidate)
            if header is not None:
                return at + candidate, header
        return None

    def _header_at(self, at: int) -> _Header | None:
        header = _parse_header(self.view, at, self.seed)
        if header is None or header.logical_offset < len(self.logical):
            return None
        return header

    def _skip_to(self, at: int, start: int, logical_offset: int) -> None:
        """Fill the logical bytes up to `logical_offset` with zeros, and note the damage."""
        lost = logical_offset - len(self.logical)
        what = "envelope header damaged" if start > at else "envelope missing"
        self.damage.append(EnvelopeDamage(at, start - at, len(self.logical), lost, what))
        self.logical.extend(bytes(lost))

    def _take(self, start: int, header: _Header) -> None:
        """Append the envelope's logical bytes, or zeros and a note of damage."""
        length = header.physical_length
        content = self._open(start, header)
        if content is None:
            what = "envelope does not verify"
            logical = header.logical_offset, header.logical_length
            self.damage.append(EnvelopeDamage(start, length, *logical, what))
            content = bytes(header.logical_length)
        self.spans.append(_Span(header.logical_offset, header.logical_length, start, length))
        self.logical += content

    def _open(self, start: int, header: _Header) -> Buffer | None:
        """Return the logical bytes of an envelope; None if it does not verify."""
        sealed = self.view[start : start + header.physical_length]
        body: Buffer | None
        if header.flags & ENCRYPTED:
            body = self._decrypt(sealed, header)
        else:
            (expected,) = CHECKSUM.unpack_from(sealed, len(sealed) - CHECKSUM.size)
            whole = checksum(bytes(sealed[: -CHECKSUM.size]), self.seed) == expected
            # An encrypted block has no clear envelopes: an attacker may have put this one there.
            body = sealed[HEADER_BYTES : -CHECKSUM.size] if whole and self.seal is None else None
        if body is not None and header.flags & COMPRESSED:
            body = _decompress(body, header.logical_length)
        return body if body is not None and len(body) == header.logical_length else None

    def _decrypt(self, sealed: memoryview, header: _Header) -> bytes | None:
        if self.seal is None or header.cipher != self.seal.cipher:
            return None
        try:
            return self.seal.aead.decrypt(
                header.nonce, sealed[HEADER_BYTES:], sealed[:HEADER_BYTES]
            )
        except InvalidTag:
            return None


def _decompress(body: Buffer, logical_length: int) -> bytes | None:
    try:
        if cramjam.snappy.decompress_raw_len(body) != logical_length:
            return None
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError:
        return None
