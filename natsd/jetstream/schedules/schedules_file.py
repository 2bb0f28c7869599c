"""When which schedule fires next, as a stream knew it: `schedules.db`, beside its `meta.json`.

    body   0 sequence u64: what the stream had up to there is in here
           then for each schedule   sequence u64 │ at_ns i64 │ subject length u16 │ subject

Promise
- The file speaks of one moment. What came later is for the start to find in the messages, so it is
  never wrong, only old.
- It is worth having, not needed: without it (damage) every message is looked at.

Encrypted where there is a key. Everything here but the coding blocks, and raises OSError,
EncryptionError.
"""

import logging
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from natsd.core.steps import Steps, slices
from natsd.store.vault import Vault

SCHEDULES_FILE: Final = "schedules.db"
MAGIC: Final = b"NATSDSCH"
_UPTO: Final = struct.Struct("<Q")
_HEAD: Final = struct.Struct("<QqH")

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class KnownSchedules:
    """(subject, sequence, at_ns) of each schedule among the messages up to a sequence."""

    upto: int = 0
    schedules: list[tuple[bytes, int, int]] = field(default_factory=list)


class Known(Protocol):
    """A schedule, as the file has it."""

    subject: bytes
    sequence: int
    at_ns: int


def encode_schedules(upto: int, schedules: Sequence[Known]) -> Steps[bytearray]:
    """The body of the file."""
    body = bytearray(_UPTO.pack(upto))
    for some in slices(schedules):
        for each in some:
            body += _HEAD.pack(each.sequence, each.at_ns, len(each.subject))
            body += each.subject
        yield
    return body


def decode_schedules(body: bytes) -> KnownSchedules:
    """What a body says, which verified. Raises struct.error."""
    (upto,) = _UPTO.unpack_from(body)
    known, at = KnownSchedules(upto), _UPTO.size
    while at < len(body):
        sequence, at_ns, length = _HEAD.unpack_from(body, at)
        at += _HEAD.size
        known.schedules.append((body[at : at + length], sequence, at_ns))
        at += length
    return known


def leave_schedules(vault: Vault, directory: Path, body: bytearray) -> None:
    """Keep it for the next start; on disk on return."""
    vault.write(directory / SCHEDULES_FILE, MAGIC, bytes(body))


def read_schedules(vault: Vault, directory: Path) -> KnownSchedules:
    """What was left; nothing, if nothing verifies."""
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
