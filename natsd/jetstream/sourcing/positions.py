"""Positions of a stream's sources: read from its messages, and stored beside them.

    <stream>/sources.db     as of the stream's sequence `upto`: index name ─▶ sequence of the source
    the messages above      `Nats-Stream-Source` of the messages stored since then

Promise
- The file was correct, and its messages on disk, when the stream ended at `upto`; the messages
  above `upto` complete it. If the stream ends before `upto`, the file is ignored.
- Without a file all messages are read backwards until every source was found.
- The file is small, has two copies, is encrypted if there is a key, and appears completely or not
  at all.

The functions for the file block, and raise OSError, EncryptionError. Source: nats-server's
`startingSequenceForSources`, and `streamAndSeq` for the older forms of the header.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import Field

from natsd.jetstream.models.base import Model, Uint64
from natsd.jetstream.models.go_json import InvalidJson, decode, encode
from natsd.jetstream.sourcing.receiving import LastPositions
from natsd.store.crypto.vault import Vault
from natsd.store.log_store import LogStore

POSITIONS_FILE: Final = "sources.db"
MAGIC: Final = b"NATSDSRC"
_ACK: Final = "$JS.ACK."

_logger = logging.getLogger(__name__)


class Positions(Model):
    """Content of the file."""

    upto: Uint64 = 0
    sequences: dict[str, Uint64] = Field(default_factory=dict)


def keep_positions(
    vault: Vault, directory: Path, positions: Positions, *, place: Path | None = None
) -> None:
    """Replace the file; it is on disk on return.

    `place` is the final directory, if `directory` is a temporary one.
    """
    path = (place or directory) / POSITIONS_FILE
    vault.write(directory / POSITIONS_FILE, MAGIC, encode(positions), place=path)


def read_positions(vault: Vault, directory: Path) -> Positions | None:
    """Return the stored positions; None if no copy of the file verifies."""
    path = directory / POSITIONS_FILE
    instead = "positions are found in the messages"
    body = vault.recall(path, MAGIC, instead)
    if body is None:
        return None
    try:
        return decode(Positions, body)
    except InvalidJson as error:
        _logger.error("%s is not understood: %s; %s", path, error, instead)
        return None


async def find_positions(
    store: LogStore, names: Collection[str], kept: Positions | None
) -> dict[str, int]:
    """Return the last sequence of each source, by index name; 0: it has sent no message yet.

    A source without any known position is missing. Raises StoreError.
    """
    log = store.log
    if kept is not None and kept.upto > log.last_sequence:
        kept = None
    seen = _Seen(set(names))
    if names:
        above = kept.upto if kept is not None and set(names) <= kept.sequences.keys() else 0
        await store.run(LastPositions(log, above, seen.note))
    before = {} if kept is None else kept.sequences
    known = {name: before[name] for name in names if name in before}
    return known | {name: max(found, known.get(name, 0)) for name, found in seen.found.items()}


@dataclass(slots=True)
class _Seen:
    """Sources found during the backward search."""

    wanted: set[str]
    found: dict[str, int] = field(default_factory=dict)

    def note(self, value: bytes) -> bool:
        """Note a header's value; return whether all sources were found."""
        name, sequence = parse_source(value.decode("utf-8", "surrogateescape"))
        for each in [each for each in self.wanted if _is_of(each, name)]:
            self.wanted.remove(each)
            self.found[each] = sequence
        return not self.wanted


def _is_of(index_name: str, name: str) -> bool:
    """Return whether the name is that of the source; older headers contain only the stream."""
    return index_name == name or (" " not in name and index_name.partition(" ")[0] == name)


def parse_source(value: str) -> tuple[str, int]:
    """Return index name (stream name in older forms) and sequence; ("", 0): not a source."""
    if value.startswith(_ACK):  # the header is the message's reply subject
        tokens = value.split(".")
        first = 2 if len(tokens) == 9 else 4
        if len(tokens) != 9 and len(tokens) < 11:
            return "", 0
        return tokens[first], _number(tokens[first + 3])
    fields = value.split(" ")
    if len(fields) == 2:
        return fields[0], _number(fields[1])
    if len(fields) >= 4:
        return f"{fields[0]} {fields[2]} {fields[3]}", _number(fields[1])
    return "", 0


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 20 else 0
