"""What a backup consists of: its manifest, and the record of each stream.

    manifest   one for each backup; names for each stream the piece that holds its record
    record     the entries of the stream's snapshot (jetstream/snapshot/contents.py), in order:
               their bodies, or the pieces that hold them

The record of a stream that did not change is the same piece in each backup. All is encoded as JSON.
"""

from __future__ import annotations

import enum
from typing import Final, TypeVar

import msgspec

from natsd.backup.errors import DamagedPiece
from natsd.store.errors import DamagedEncoding

VERSION: Final = 1
INLINE_BYTES: Final = 16 << 10
"""Longest body that a record holds itself: many small streams need few files."""

T = TypeVar("T")


class Kind(enum.StrEnum):
    """What a record holds."""

    SNAPSHOT = "snapshot"  # entries of a natsd snapshot
    FOREIGN = "nats-server"  # the bytes of a snapshot of nats-server, cut into pieces
    MEMORY = "memory"  # the configuration of a stream in memory, no messages


class Body(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of an entry: its bytes, or the name of the piece that holds them.

    `stored` is the size of the piece's file.
    """

    inline: bytes = b""
    piece: str = ""
    stored: int = 0


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of a snapshot.

    A block has its key (block_keys.py), and counts: its messages, their size in bytes, and how many
    more of them were damaged.
    """

    name: str
    body: Body
    key: bytes = b""
    msgs: int = 0
    size: int = 0
    lost: int = 0


class StreamRecord(msgspec.Struct, frozen=True):
    """Everything of a stream; `config` and `state` are JSON as the snapshot request answers."""

    kind: Kind
    config: bytes
    state: bytes
    entries: tuple[Entry, ...] = ()


class StreamCopy(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stream of a backup: the piece of its record, and what the record holds.

    `lost` is the number of messages that were damaged where the backup was taken from.
    """

    account: str
    stream: str
    record: Body
    kind: Kind = Kind.SNAPSHOT
    msgs: int = 0
    size: int = 0
    last_sequence: int = 0
    consumers: int = 0
    lost: int = 0

    @property
    def title(self) -> str:
        """The account, if it is known, and the name of the stream, for texts."""
        return f"{self.account} > {self.stream}" if self.account else self.stream


class FileCopy(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of the configuration: a relative path, and the piece that holds the file."""

    path: str
    body: Body


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A backup. Times are ns since the Unix epoch.

    `source` is where it was taken from; `problems` has a line for each stream that is not in it, or
    not wholly.
    """

    version: int
    id: str
    began_ns: int
    ended_ns: int
    source: str
    streams: tuple[StreamCopy, ...]
    files: tuple[FileCopy, ...] = ()
    problems: tuple[str, ...] = ()

    def pieces(self) -> set[str]:
        """Return the names of the pieces of the manifest itself, without those in records."""
        bodies = [each.record for each in self.streams] + [each.body for each in self.files]
        return {body.piece for body in bodies if body.piece}


def encode(value: msgspec.Struct) -> bytes:
    """Return the value as JSON."""
    return msgspec.json.encode(value)


def decode(kind: type[T], data: bytes, where: str) -> T:
    """Return the value of that type. Raises DamagedPiece, which names `where` it is."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, DamagedEncoding) as error:
        raise DamagedPiece(f"{where} is not understood: {error}") from None
