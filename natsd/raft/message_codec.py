"""The bytes of a message.

    message    version u8 │ kind u8 │ sender u64 │ receiver u64 │ term u64 │ fields of the kind
    entries    count u32 │ bytes u32 │ term runs u32 │ membership entries u32 │ first index u64
               │ run: term u64, count u32 … │ position in the block of a membership entry u32 …
               │ length of each entry u32 … │ data of each entry …

All numbers are little-endian. Entries follow one another, so that indexes are not spelled out, and
terms rarely change. The block of entries is encoded once for all followers that get the same ones.

Source of the bytes is another server: `decode` raises `MalformedMessageError` for whatever is not
exactly a message of this version, and nothing else.
"""

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, pairwise, repeat
from typing import Any

from natsd.raft.entry import Entry, EntryKind, Health, Snapshot
from natsd.raft.log import data_of, term_of
from natsd.raft.membership import decode_membership, encode_membership
from natsd.raft.messages import (
    Append,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    Message,
    PreVote,
    PreVoteReply,
    Quiesce,
    ReadReply,
    ReadRequest,
    RepairRequest,
    RepairTarget,
    TimeoutNow,
    Vote,
    VoteReply,
    Written,
)

VERSION = 1
MESSAGE_BYTES_MAX = 64 << 20
ENTRIES_MAX = 1 << 20

HEAD = struct.Struct("<BBQQQ")
BLOCK = struct.Struct("<IIIIQ")
RUN = struct.Struct("<QI")
SNAPSHOT = struct.Struct("<QQI")

# Kind number, class, and the format of the fields behind sender, receiver and term.
KINDS: list[tuple[int, type, str]] = [
    (1, PreVote, "QQ"),
    (2, PreVoteReply, "?BQ"),
    (3, Vote, "QQ?"),
    (4, VoteReply, "?"),
    (5, TimeoutNow, ""),
    (6, Append, "QQQ"),  # and a block of entries
    (7, InstallSnapshot, ""),  # and a snapshot
    (8, AppendReply, "?QQQB"),
    (9, Heartbeat, "QQ"),
    (10, HeartbeatReply, "QB"),
    (11, Quiesce, "QQ"),
    (12, ReadRequest, "Q"),
    (13, ReadReply, "QQ"),
    (14, RepairRequest, "QQ"),
    (15, RepairTarget, "QQ"),
    (16, Written, "Q"),
]
ENCODERS = {kind: (number, struct.Struct(f"<{fields}")) for number, kind, fields in KINDS}
DECODERS: dict[int, tuple[Any, struct.Struct]] = {
    number: (kind, struct.Struct(f"<{fields}")) for number, kind, fields in KINDS
}
HEALTH_AT = {PreVoteReply: 4, AppendReply: 7, HeartbeatReply: 4}
BIG_ENDIAN = sys.byteorder == "big"


class MalformedMessageError(Exception):
    """The bytes are not those of a message of this version."""


class MessageEncoder:
    """Encodes the messages of one driver."""

    __slots__ = ("_block", "_entries")

    def __init__(self) -> None:
        self._entries: tuple[Entry, ...] = ()
        self._block = encode_entries(())

    def encode(self, message: Message) -> tuple[bytes, bytes]:
        """Return the bytes in two parts; the second may be shared with other messages."""
        number, fields = ENCODERS[type(message)]
        head = HEAD.pack(VERSION, number, *message[:3])
        if isinstance(message, Append):
            return head + fields.pack(*message[3:6]), self._encode_entries(message.entries)
        if isinstance(message, InstallSnapshot):
            return head, encode_snapshot(message.snapshot)
        return head + fields.pack(*message[3:]), b""

    def _encode_entries(self, entries: tuple[Entry, ...]) -> bytes:
        if entries is not self._entries:
            self._entries, self._block = entries, encode_entries(entries)
        return self._block


def encode_entries(entries: tuple[Entry, ...]) -> bytes:
    """Return the bytes of consecutive entries."""
    runs = list(term_runs(entries))
    memberships = [at for at, entry in enumerate(entries) if entry[2]]
    datas = list(map(data_of, entries))
    lengths = little_endian(array("I", map(len, datas)))
    size = sum(lengths) if not BIG_ENDIAN else sum(map(len, datas))
    first = entries[0].index if entries else 0
    return b"".join(
        [
            BLOCK.pack(len(entries), size, len(runs), len(memberships), first),
            *(RUN.pack(term, count) for term, count in runs),
            little_endian(array("I", memberships)).tobytes(),
            lengths.tobytes(),
            *datas,
        ]
    )


def term_runs(entries: tuple[Entry, ...]) -> Iterator[tuple[int, int]]:
    """Return each term with the number of consecutive entries that have it."""
    begin = 0
    while begin < len(entries):
        term = entries[begin].term
        end = bisect_right(entries, term, begin, key=term_of)
        yield term, end - begin
        begin = end


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return the bytes of a snapshot."""
    membership = encode_membership(snapshot.membership)
    return b"".join(
        [
            SNAPSHOT.pack(snapshot.index, snapshot.term, len(membership)),
            membership,
            snapshot.data,
        ]
    )


def decode(data: bytes) -> Message:
    """Return the message that these bytes are."""
    try:
        return _decode(data)
    except (struct.error, ValueError) as error:
        raise MalformedMessageError(str(error)) from None


def _decode(data: bytes) -> Message:
    if len(data) > MESSAGE_BYTES_MAX:
        raise MalformedMessageError(f"{len(data)} bytes are more than a message has")
    version, number, sender, receiver, term = HEAD.unpack_from(data)
    if version != VERSION or number not in DECODERS:
        raise MalformedMessageError(f"version {version}, kind {number} is unknown")
    kind, fields = DECODERS[number]
    values: list[Any] = [sender, receiver, term, *fields.unpack_from(data, HEAD.size)]
    at = HEAD.size + fields.size
    if kind is Append:
        entries = decode_entries(data, at)
        prev_index, prev_term, commit = values[3:]
        if entries and (entries[0].index != prev_index + 1 or entries[-1].term > term):
            raise ValueError("the entries do not follow the one before them")
        return Append(sender, receiver, term, prev_index, prev_term, commit, entries)
    if kind is InstallSnapshot:
        return InstallSnapshot(sender, receiver, term, decode_snapshot(data, at))
    if len(data) != at:
        raise MalformedMessageError("the message is followed by something")
    if kind in HEALTH_AT:
        values[HEALTH_AT[kind]] = Health(values[HEALTH_AT[kind]])
    message: Message = kind(*values)
    return message


def decode_entries(data: bytes, at: int) -> tuple[Entry, ...]:
    """Return the entries of a block that begins at `at` and ends with the data."""
    count, size, run_count, membership_count, first = BLOCK.unpack_from(data, at)
    at += BLOCK.size
    lengths_at = at + RUN.size * run_count + 4 * membership_count
    datas_at = lengths_at + 4 * count
    if count > ENTRIES_MAX or datas_at + size != len(data):
        raise ValueError("a block of entries is cut short, or followed by something")
    runs = list(RUN.iter_unpack(data[at : at + RUN.size * run_count]))
    memberships = array_from(data[at + RUN.size * run_count : lengths_at])
    ends = list(accumulate(array_from(data[lengths_at:datas_at]), initial=datas_at))
    if ends[-1] != len(data) or sum(run[1] for run in runs) != count:
        raise ValueError("the entries of a block do not fill it")
    if any(term >= after for (term, _), (after, _) in pairwise(runs)):
        raise ValueError("terms fall")
    new = tuple.__new__
    terms = repeat(runs[0][0]) if run_count == 1 else (t for t, n in runs for _ in range(n))
    kind = EntryKind.NORMAL
    entries = [
        new(Entry, (index, term, kind, data[begin:end]))
        for index, term, begin, end in zip(
            range(first, first + count), terms, ends, ends[1:], strict=False
        )
    ]
    for position in memberships:
        if position >= count:
            raise ValueError("a membership is outside of its block")
        entry = entries[position]
        decode_membership(entry.data)  # refused here, not when it is appended
        entries[position] = entry._replace(kind=EntryKind.MEMBERSHIP)
    return tuple(entries)


def decode_snapshot(data: bytes, at: int) -> Snapshot:
    """Return the snapshot that begins at `at` and ends with the data."""
    index, term, membership_bytes = SNAPSHOT.unpack_from(data, at)
    at += SNAPSHOT.size
    end = at + membership_bytes
    if end > len(data):
        raise ValueError("a snapshot is cut short")
    return Snapshot(index, term, decode_membership(data[at:end]), data[end:])


def array_from(data: bytes) -> "array[int]":
    """Return the numbers of an array of little-endian u32."""
    return little_endian(array("I", data))


def little_endian(numbers: "array[int]") -> "array[int]":
    """Return the numbers in the byte order of the wire, or back."""
    if BIG_ENDIAN:
        numbers.byteswap()
    return numbers
