"""What a server has promised, accepted and learned while the meta group is founded, on disk.

    founding.json    format u8 = 1 │ Record as JSON; kept in two files (store/disk/twin_file.py)

Promise
- `write_record` returns once the record is on disk. If it raises, nothing may be answered.
- What `read_record` returns stays, whatever happens next: names that a killed process left behind
  are synced first.
- A record that does not verify is None, never an empty one: the server may have made promises that
  it no longer knows.

Everything here blocks. Source: the acceptor's state in Lamport, "Paxos Made Simple", section 2.2.
"""

import logging
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from natsd.store.crypto.vault import Vault
from natsd.store.disk.twin_file import twins_exist

RECORD_FILE: Final = "founding.json"
MAGIC: Final = b"NATSDFND"
FORMAT: Final = b"\x01"
"""First byte of the record and of messages."""
INSTEAD: Final = (
    "this server takes no part in founding a meta group and only joins one;"
    " if the cluster has none yet, stop the server, remove this file and its .copy, and start again"
)

_logger = logging.getLogger(__name__)


class Ballot(NamedTuple):
    """The number of a proposal; higher ones win."""

    number: int  # from 1
    name: str  # of the server that proposes: no two servers have the same ballot


NO_BALLOT: Final = Ballot(0, "")


class Founded(Struct, frozen=True, omit_defaults=True):
    """A meta group and the servers that it begins with."""

    group: str
    members: tuple[str, ...]  # names, sorted
    supersedes: tuple[str, ...] = ()  # groups that it is the rescue of
    lost: tuple[str, ...] = ()  # servers that were lost for good: they come back as other members


class Vote(Struct, frozen=True):
    """The acceptance of a value in a ballot; a ballot has one value."""

    ballot: Ballot
    value: Founded


class Record(Struct, frozen=True):
    """What a server must not forget."""

    promised: Ballot = NO_BALLOT  # it answers no lower ballot
    vote: Vote | None = None  # its last one
    founded: Founded | None = None  # the group that this server belongs to or will join


_records = msgspec.json.Decoder(Record)


def write_record(vault: Vault, directory: Path, record: Record) -> None:
    """Write the record into the directory; it is on disk on return. Raises OSError."""
    vault.write(directory / RECORD_FILE, MAGIC, FORMAT + msgspec.json.encode(record))


def read_record(vault: Vault, directory: Path) -> Record | None:
    """Return the record of the directory, which must exist.

    Return an empty record if there is no file, and None, with a line in the log, if there is one
    that cannot be used. Raises OSError.
    """
    path = directory / RECORD_FILE
    vault.disk.sync_dir(directory)
    if not twins_exist(vault.disk, path):
        return Record()
    body = vault.recall(path, MAGIC, INSTEAD)
    if body is None:
        return None
    try:
        if body[:1] != FORMAT:
            raise msgspec.ValidationError("unknown format")
        record: Record = _records.decode(body[1:])
    except msgspec.MsgspecError as error:
        _logger.error("%s is not understood: %s; %s", path, error, INSTEAD)
        return None
    return record
