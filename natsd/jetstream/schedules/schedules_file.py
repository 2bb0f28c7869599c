"""The file `schedules.db`, beside the stream's `meta.json`: the next times of its schedules.

    body   0 sequence u64: the file covers the stream's messages up to this one
           then for each schedule   sequence u64 │ at_ns i64 │ subject length u16 │ subject

Promise
- The file describes one moment. A start finds later changes in the messages, so the file is never
  wrong, only old.
- The file is not necessary: without it (damage) every message is searched.

The file is encrypted if there is a key. Functions that read or write it block, and raise OSError,
EncryptionError.
"""

import logging
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from natsd.core.steps import Steps, slices
from natsd.store.crypto.vault import Vault

SCHEDULES_FILE: Final = "schedules.db"
MAGIC: Final = b"NATSDSCH"
_UPTO: Final = struct.Struct("<Q")
_HEAD: Final = struct.Struct("<QqH")

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class KnownSchedules:
    """(subject, sequence, at_ns) of each schedule among the messages up to `upto`."""

    upto: int = 0
    schedules: list[tuple[bytes, int, int]] = field(default_factory=list)


class Known(Protocol):
    """A schedule with the members that the file stores."""

    subject: bytes
    sequence: int
    at_ns: int


def encode_schedules(upto: int, schedules: Sequence[Known]) -> Steps[bytearray]:
    """Encode the body of the file, in steps."""
    body = bytearray(_UPTO.pack(upto))
    for some in slices(schedules):
        for each in some:
            body += _HEAD.pack(each.sequence, each.at_ns, len(each.subject))
            body += each.subject
        yield
    return body


def decode_schedules(body: bytes) -> KnownSchedules:
    """Decode a body whose checksum is correct. Raises struct.error."""
    (upto,) = _UPTO.unpack_from(body)
    known, at = KnownSchedules(upto), _UPTO.size
    while at < len(body):
        sequence, at_ns, length = _HEAD.unpack_from(body, at)
        at += _HEAD.size
        known.schedules.append((body[at : at + length], sequence, at_ns))
        at += length
    return known


def leave_schedules(vault: Vault, directory: Path, body: bytearray) -> None:
    """Write the file for the next start; it is on disk on return."""
    vault.write(directory / SCHEDULES_FILE, MAGIC, bytes(body))


def read_schedules(vault: Vault, directory: Path) -> KnownSchedules:
    """Return the stored schedules; none if no copy of the file verifies."""
    path = directory / SCHEDULES_FILE
    instead = "schedules are found in the messages"
    body = vault.recall(path, MAGIC, instead)
    if body is None:
        return KnownSchedules()
    try:
        return decode_schedules(body)
    except struct.error as error:
        _logger.error("%s is not understood: %s; %s", path, error, instead)
        return KnownSchedules()
