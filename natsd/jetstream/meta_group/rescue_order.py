"""The order to rescue groups that have lost a majority of their servers for good.

    natsd cluster rescue --yes ─▶ rescue.json ─▶ carried out at the server's start (rescuing.py)
                                                  └▶ rescues.jsonl: what was done, and what not

    rescue.json      format u8 = 1 │ RescueOrder as JSON, in two files (store/disk/twin_file.py)
    rescues.jsonl    one JSON object a line: a Record for each group

Both are in the directory of `member.json`. What reads and writes here blocks and raises OSError.
"""

import contextlib
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from natsd.jetstream.meta_group.assignments import Change
from natsd.store.crypto.vault import Vault
from natsd.store.disk.disk import Disk
from natsd.store.disk.twin_file import COPY_SUFFIX

ORDER_FILE: Final = "rescue.json"
RECORDS_FILE: Final = "rescues.jsonl"
MAGIC: Final = b"NATSDRSQ"
FORMAT: Final = b"\x01"
"""First byte of the order."""
RECORDS_MAX: Final = 1000
"""Records that are read; of more, the newest."""
META: Final = "the meta group"


class RescuedGroup(Struct, frozen=True):
    """A group that goes on with one server, and from where."""

    what: str  # META, "stream 'A > S'"
    group: str
    new_group: str  # empty: the stream is gone, and is dropped
    members: tuple[str, ...]  # names of its servers before
    server: str = ""  # the one that it goes on with
    last_index: int = 0  # of that server's log
    last_term: int = 0
    last_sequence: int = 0  # of the last message in that server's log; 0: none, or the meta group
    committed: int = 0  # index up to which that log says that entries are committed; more may be

    @property
    def uncertain(self) -> int:
        """Number of entries that are kept, and perhaps were never committed."""
        return self.last_index - self.committed

    @property
    def may_be_lost(self) -> str:
        """What the rescue may cost; nobody can tell how much of that there was."""
        if not self.new_group:
            return "all of it: no server is left that has it"
        if self.what == META:
            return f"streams created, changed or deleted beyond entry {self.last_index}"
        return (
            f"messages beyond sequence {self.last_sequence}, and acknowledgements and consumers"
            f" confirmed beyond entry {self.last_index}"
        )


class RescueOrder(Struct, frozen=True):
    """What a server is to do at its start."""

    time: str  # RFC 3339
    who: str  # user@host
    meta: str  # the meta group that the server is a member of
    new_meta: str  # its name after its rescue; empty: it has a majority, which makes the changes
    lost: tuple[str, ...]  # names of the servers that are lost for good
    dismissed: tuple[str, ...]  # these, and all that were removed before
    changes: tuple[Change, ...]
    groups: tuple[RescuedGroup, ...]


class Record(Struct, frozen=True):
    """What was done for one group, or why nothing was done."""

    time: str
    who: str
    lost: tuple[str, ...]
    group: RescuedGroup
    refused: str = ""  # why nothing was done; empty: it was done
    noted: str = ""  # when this was written, RFC 3339; `time` is when it was ordered

    def fields(self) -> dict[str, Any]:
        """Return what became of the group, as `/jsz` and the advisory show it."""
        shown = msgspec.to_builtins(self.group)
        if self.refused:
            return {**shown, "skipped": self.refused}
        return {**shown, "uncertain": self.group.uncertain, "may_be_lost": self.group.may_be_lost}


_orders = msgspec.json.Decoder(RescueOrder)
_records = msgspec.json.Decoder(Record)


def write_order(vault: Vault, directory: Path, order: RescueOrder) -> Path:
    """Write the order; it is on disk on return. Return its path."""
    path = directory / ORDER_FILE
    vault.write(path, MAGIC, FORMAT + msgspec.json.encode(order))
    return path


def read_order(vault: Vault, directory: Path) -> RescueOrder | None:
    """Return the order; None: there is none, or it cannot be used, which is logged."""
    body = vault.recall(directory / ORDER_FILE, MAGIC, "nothing is rescued; order it again")
    if body is None or body[:1] != FORMAT:
        return None
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
        order: RescueOrder = _orders.decode(body[1:])
        return order
    return None


def remove_order(disk: Disk, directory: Path) -> None:
    """Remove the order, which is carried out or refused."""
    for suffix in ("", COPY_SUFFIX):
        with contextlib.suppress(FileNotFoundError):
            disk.unlink(directory / (ORDER_FILE + suffix))
    disk.sync_dir(directory)


def add_records(disk: Disk, directory: Path, records: Iterable[Record]) -> None:
    """Add records to those that there are; they are on disk on return."""
    lines = map(msgspec.json.encode, records)
    file = disk.open(directory / RECORDS_FILE, create=True)
    try:
        file.pwrite(b"".join(line + b"\n" for line in lines), file.size())
        file.fdatasync()
    finally:
        file.close()
    disk.sync_dir(directory)


def read_records(directory: Path) -> Sequence[Record]:
    """Return what was done in this directory so far, the oldest first.

    A line that cannot be read is left out: a crash may have cut it off.
    """
    found = deque[Record](maxlen=RECORDS_MAX)
    with contextlib.suppress(FileNotFoundError):
        for line in (directory / RECORDS_FILE).read_bytes().splitlines():
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                found.append(_records.decode(line))
    return tuple(found)


def shown(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return the records as `/jsz` and the advisory show them: an object for each rescue."""
    return [
        {
            "time": noted,
            "ordered": ordered,
            "by": who,
            "lost_servers": lost,
            "groups": [each.fields() for each in group],
        }
        for (ordered, who, lost, noted), group in groupby(
            records, key=lambda each: (each.time, each.who, each.lost, each.noted or each.time)
        )
    ]
