"""Verification of a backup: everything is read back, and its sums and counts are checked.

Promise
- Each damage is one line with the stream and the file; the other streams are verified all the same.
- A piece is read once, even if several streams or backups share it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import msgspec

from natsd.backup.collecting import is_consumer
from natsd.backup.directory import BackupDirectory
from natsd.backup.errors import DamagedPiece
from natsd.backup.manifest import Body, Entry, Kind, Manifest, StreamCopy, StreamRecord
from natsd.backup.pieces import StoredPiece
from natsd.backup.source import Progress
from natsd.jetstream.names import is_valid_asset_name
from natsd.jetstream.snapshot.contents import META, STATE, decode_state
from natsd.jetstream.stream.files import MESSAGES
from natsd.store.backup.snapshots import open_image
from natsd.store.errors import DamagedEncoding


@dataclass(slots=True)
class Verified:
    """What a verification read, and the damage, one line each."""

    streams: int = 0
    messages: int = 0
    read_bytes: int = 0
    damage: list[str] = field(default_factory=list)
    damaged_streams: set[tuple[str, str]] = field(default_factory=set)


class Verification:
    """The verification of one backup or of several.

    Blocks whose pieces are in `trusted` are not read: only their presence and size are checked.
    """

    def __init__(self, directory: BackupDirectory, trusted: frozenset[str] = frozenset()) -> None:
        self.result = Verified()
        self._directory = directory
        self._trusted = trusted
        self._blocks: dict[str, tuple[int, int]] = {}  # messages and bytes of verified blocks

    def run(self, manifest: Manifest, progress: Progress) -> None:
        """Verify a backup, and add what is found to `result`. Raises OSError."""
        size = sum(each.size for each in manifest.streams)
        done = 0
        for copy in manifest.streams:
            self.verify_stream(copy)
            done += copy.size
            progress(done, size)
        for file in manifest.files:
            try:
                self._read(file.body)
            except DamagedPiece as error:
                self.result.damage.append(f"{file.path}: {error}")

    def verify_stream(self, copy: StreamCopy) -> bool:
        """Verify a stream; return whether it is whole. Raises OSError."""
        self.result.streams += 1
        try:
            record = self._directory.record(copy.record)
            self._check(copy, record)
        except (DamagedPiece, DamagedEncoding, msgspec.MsgspecError) as error:
            self.result.damage.append(f"{copy.title}: {error}")
            self.result.damaged_streams.add((copy.account, copy.stream))
            return False
        self.result.messages += copy.msgs
        return True

    def _check(self, copy: StreamCopy, record: StreamRecord) -> None:
        """Check a record against its pieces and totals. Raises DamagedPiece, DamagedEncoding."""
        if record.kind is not copy.kind:
            raise DamagedPiece("the record is of another kind than the manifest says")
        if not is_valid_asset_name(copy.stream):
            raise DamagedPiece("no stream can have this name")
        if _stream_of(record.config) != copy.stream:
            raise DamagedPiece("the record is of another stream than the manifest says")
        counted: dict[str, tuple[int, int]] = {}
        last_sequence = copy.last_sequence
        for entry in record.entries:
            store, _, rest = entry.name.partition("/")
            if record.kind is Kind.FOREIGN:
                self._read(entry.body)
            elif entry.msgs:
                msgs, size = counted.get(store, (0, 0))
                found = self._count(entry)
                if found != (entry.msgs, entry.size):
                    raise DamagedPiece(f"{entry.name} holds {found[0]} messages, not {entry.msgs}")
                counted[store] = msgs + found[0], size + found[1]
            elif rest == STATE:
                state = decode_state(self._read(entry.body))
                if (state.msgs, state.bytes) != counted.get(store, (0, 0)):
                    raise DamagedPiece(f"{entry.name} does not fit the messages")
                if store == MESSAGES:
                    last_sequence = state.last_sequence
            elif entry.name == META:
                if _config_in(self._read(entry.body)) != json.loads(record.config):
                    raise DamagedPiece(f"{entry.name} has another configuration than the record")
            else:
                self._read(entry.body)
        consumers = sum(is_consumer(each.name) for each in record.entries)
        if record.kind is Kind.SNAPSHOT and (
            counted.get(MESSAGES, (0, 0))[0],
            consumers,
            last_sequence,
        ) != (copy.msgs, copy.consumers, copy.last_sequence):
            raise DamagedPiece("the record does not hold what the manifest says")

    def _count(self, entry: Entry) -> tuple[int, int]:
        """Return the messages and bytes of a block, from its content unless it is trusted."""
        body = entry.body
        if body.piece in self._blocks:
            return self._blocks[body.piece]
        if body.piece in self._trusted:
            self._check_presence(body)
            return entry.msgs, entry.size
        block = open_image(self._read(body))
        found = block.message_count, block.live_bytes
        if body.piece:
            self._blocks[body.piece] = found
        return found

    def _check_presence(self, body: Body) -> None:
        if not self._directory.pieces.has(StoredPiece(body.piece, body.stored)):
            raise DamagedPiece(f"{self._directory.pieces.path(body.piece)} is missing or cut")

    def _read(self, body: Body) -> bytes:
        if not body.piece:
            return body.inline
        content = self._directory.pieces.get_from_disk(body.piece)
        self.result.read_bytes += len(content)
        return content


def _stream_of(config: bytes) -> object:
    """Return the name in a stream's configuration; None: there is none."""
    try:
        return json.loads(config)["name"]
    except (ValueError, KeyError, TypeError):
        return None


def _config_in(asset: bytes) -> object:
    """Return the configuration in the entry that describes a stream; None: there is none."""
    try:
        return json.loads(asset)["config"]
    except (ValueError, KeyError, TypeError):
        return None


def pieces_of(directory: BackupDirectory, manifest: Manifest) -> set[str]:
    """Return the names of all pieces of a backup. Raises DamagedPiece or OSError."""
    found = manifest.pieces()
    for copy in manifest.streams:
        record = directory.record(copy.record)
        found |= {each.body.piece for each in record.entries if each.body.piece}
    return found
