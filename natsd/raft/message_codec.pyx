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

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

import struct

from natsd.raft.entry import Entry, EntryKind, Health, Snapshot
from natsd.raft.membership import decode_membership, encode_membership
from natsd.raft.messages import (
    Append,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
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

from natsd.store.codec.records cimport read_u32, read_u64, write_u32, write_u64

cdef enum:
    VERSION = 1
    MESSAGE_BYTES_MAX = 64 << 20
    ENTRIES_MAX = 1 << 20
    HEAD_BYTES = 26
    FIELDS_BYTES_MAX = 64
    BLOCK_BYTES = 24
    RUN_BYTES = 12
    LENGTH_BYTES = 4

SNAPSHOT = struct.Struct("<QQI")

# Number, class, and the fields behind sender, receiver and term: Q u64, ? bool u8, H health u8.
KINDS = (
    (1, PreVote, b"QQ"),
    (2, PreVoteReply, b"?HQ"),
    (3, Vote, b"QQ?"),
    (4, VoteReply, b"?"),
    (5, TimeoutNow, b""),
    (6, Append, b"QQQ"),  # and a block of entries
    (7, InstallSnapshot, b""),  # and a snapshot
    (8, AppendReply, b"?QQQH"),
    (9, Heartbeat, b"QQ"),
    (10, HeartbeatReply, b"QH"),
    (11, Quiesce, b"QQ"),
    (12, ReadRequest, b"Q"),
    (13, ReadReply, b"QQ"),
    (14, RepairRequest, b"QQ"),
    (15, RepairTarget, b"QQ"),
    (16, Written, b"Q"),
)
cdef dict ENCODERS = {kind: (number, fields) for number, kind, fields in KINDS}
cdef dict DECODERS = {number: (kind, fields) for number, kind, fields in KINDS}
cdef tuple HEALTHS = tuple(Health)
cdef object APPEND = Append
cdef object INSTALL_SNAPSHOT = InstallSnapshot
cdef object NORMAL = EntryKind.NORMAL
cdef object new_tuple = tuple.__new__  # Entry(…) takes twice as long


class MalformedMessageError(Exception):
    """The bytes are not those of a message of this version."""


cdef class MessageEncoder:
    """Encodes the messages of one driver."""

    cdef tuple entries
    cdef bytes block

    def __init__(self) -> None:
        self.entries = ()
        self.block = encode_entries(())

    def encode(self, message):
        """Return the bytes in two parts; the second may be shared with other messages."""
        cdef unsigned char head[HEAD_BYTES + FIELDS_BYTES_MAX]
        cdef Py_ssize_t size = put_head(head, message)
        return PyBytes_FromStringAndSize(<const char*> head, size), self.rest(message)

    cdef bytes rest(self, message):
        """Return what stands behind the fields."""
        if type(message) is APPEND:
            entries = (<tuple> message)[6]
            if entries is not self.entries:
                self.block = encode_entries(entries)
                self.entries = entries
            return self.block
        if type(message) is INSTALL_SNAPSHOT:
            return encode_snapshot(message.snapshot)
        return b""


cdef Py_ssize_t put_head(unsigned char* head, message) except -1:
    """Write all but the rest of a message; return its size, at most that of both parts."""
    cdef bytes fields
    cdef unsigned char field
    cdef unsigned char* at = head + HEAD_BYTES
    cdef Py_ssize_t position = 3
    number, fields = ENCODERS[type(message)]
    cdef tuple values = <tuple> message  # a cast: it is a subclass
    head[0] = VERSION
    head[1] = number
    write_u64(head + 2, values[0])
    write_u64(head + 10, values[1])
    write_u64(head + 18, values[2])
    for field in fields:
        if field == c"Q":
            write_u64(at, values[position])
            at += 8
        else:
            at[0] = values[position]
            at += 1
        position += 1
    return at - head


cdef bytes encode_entries(tuple entries):
    """Return the bytes of consecutive entries."""
    cdef uint64_t term, size = 0
    cdef uint32_t runs = 0, memberships = 0
    cdef Py_ssize_t position, count = len(entries)
    cdef object newest_term = None
    cdef tuple entry
    cdef bytes data, block
    for each in entries:
        entry = <tuple> each
        if entry[1] != newest_term:
            newest_term = entry[1]
            runs += 1
        if entry[2]:
            memberships += 1
        data = entry[3]
        size += PyBytes_GET_SIZE(data)
    block = PyBytes_FromStringAndSize(
        NULL, BLOCK_BYTES + RUN_BYTES * runs + 4 * memberships + LENGTH_BYTES * count + size
    )
    cdef unsigned char* at = <unsigned char*> PyBytes_AS_STRING(block)
    cdef unsigned char* run = at + BLOCK_BYTES - RUN_BYTES
    cdef unsigned char* membership = at + BLOCK_BYTES + RUN_BYTES * runs
    cdef unsigned char* length = membership + 4 * memberships
    cdef unsigned char* behind = length + LENGTH_BYTES * count
    write_u32(at, <uint32_t> count)
    write_u32(at + 4, <uint32_t> size)
    write_u32(at + 8, runs)
    write_u32(at + 12, memberships)
    write_u64(at + 16, entries[0][0] if count else 0)
    newest_term = None
    for position in range(count):
        entry = <tuple> entries[position]
        if entry[1] != newest_term:
            newest_term = entry[1]
            term = newest_term
            run += RUN_BYTES
            write_u64(run, term)
            write_u32(run + 8, 0)
        write_u32(run + 8, read_u32(run + 8) + 1)
        if entry[2]:
            write_u32(membership, <uint32_t> position)
            membership += 4
        data = entry[3]
        write_u32(length, <uint32_t> PyBytes_GET_SIZE(data))
        length += LENGTH_BYTES
        memcpy(behind, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        behind += PyBytes_GET_SIZE(data)
    return block


cdef bytes encode_snapshot(snapshot):
    """Return the bytes of a snapshot."""
    membership = encode_membership(snapshot.membership)
    return b"".join(
        (
            SNAPSHOT.pack(snapshot.index, snapshot.term, len(membership)),
            membership,
            snapshot.data,
        )
    )


def decode(bytes data not None):
    """Return the message that these bytes are. Raises MalformedMessageError."""
    return decode_at(<const unsigned char*> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef decode_at(const unsigned char* message, Py_ssize_t size):
    """Return the message in so many bytes. Raises MalformedMessageError."""
    if size > MESSAGE_BYTES_MAX:
        raise MalformedMessageError(f"{size} bytes are more than a message has")
    if size < HEAD_BYTES or message[0] != VERSION or message[1] not in DECODERS:
        raise MalformedMessageError("the version or the kind of a message is unknown")
    try:
        return decode_kind(message, size)
    except ValueError as error:
        raise MalformedMessageError(str(error)) from None


cdef decode_kind(const unsigned char* message, Py_ssize_t size):
    """Return a message of a known kind. Raises ValueError."""
    cdef const unsigned char* at = message + HEAD_BYTES
    cdef const unsigned char* end = message + size
    cdef bytes fields
    cdef unsigned char field
    kind, fields = DECODERS[message[1]]
    cdef list values = [read_u64(message + 2), read_u64(message + 10), read_u64(message + 18)]
    for field in fields:
        if end - at < (8 if field == c"Q" else 1):
            raise ValueError("a message is cut short")
        if field == c"Q":
            values.append(read_u64(at))
            at += 8
            continue
        if field == c"?":
            values.append(at[0] != 0)
        elif at[0] < <Py_ssize_t> len(HEALTHS):
            values.append(HEALTHS[at[0]])
        else:
            raise ValueError(f"a member's health is unknown: {at[0]}")
        at += 1
    if kind is APPEND:
        values.append(decode_entries(at, end, read_u64(message + HEAD_BYTES), values[2]))
    elif kind is INSTALL_SNAPSHOT:
        values.append(decode_snapshot(at[: end - at]))
    elif at != end:
        raise ValueError("a message is followed by something")
    return new_tuple(kind, values)


cdef tuple decode_entries(
    const unsigned char* at, const unsigned char* end, uint64_t prev_index, term_max
):
    """Return the entries of a block that ends at `end` and follows the entry at `prev_index`."""
    if end - at < BLOCK_BYTES:
        raise ValueError("a block of entries is cut short")
    cdef uint32_t count = read_u32(at), position, left = 0
    cdef uint64_t size = read_u32(at + 4), runs = read_u32(at + 8), memberships = read_u32(at + 12)
    cdef uint64_t index = read_u64(at + 16), term = 0, length
    cdef const unsigned char* run = at + BLOCK_BYTES
    cdef uint64_t heads = RUN_BYTES * runs + 4 * memberships + LENGTH_BYTES * <uint64_t> count
    if count > ENTRIES_MAX or heads + size != <uint64_t> (end - run):
        raise ValueError("a block of entries is cut short, or followed by something")
    if count and (index == 0 or index - 1 != prev_index or index + count < index):
        raise ValueError("the entries do not follow the one before them")
    cdef const unsigned char* lengths = run + RUN_BYTES * runs + 4 * memberships
    cdef const unsigned char* behind = lengths + LENGTH_BYTES * <uint64_t> count
    cdef list entries = []
    cdef object newest_term = None
    for position in range(count):
        while not left:
            if not runs or (newest_term is not None and read_u64(run) <= term):
                raise ValueError("terms fall, or are missing")
            runs -= 1
            term = read_u64(run)
            newest_term = term
            left = read_u32(run + 8)
            run += RUN_BYTES
        left -= 1
        length = read_u32(lengths + LENGTH_BYTES * <uint64_t> position)
        if length > <uint64_t> (end - behind):
            raise ValueError("the entries of a block do not fill it")
        entry = (index + position, newest_term, NORMAL, behind[:length])
        entries.append(new_tuple(Entry, entry))
        behind += length
    if runs or left or behind != end or (count and newest_term > term_max):
        raise ValueError("the entries of a block do not fill it, or their terms are too high")
    for position in range(<uint32_t> memberships):
        mark_membership(entries, read_u32(run + 4 * <uint64_t> position))
    return tuple(entries)


cdef int mark_membership(list entries, uint32_t position) except -1:
    """Make an entry one of a membership, which is refused here, not when it is appended."""
    if position >= <uint64_t> len(entries):
        raise ValueError("a membership is outside of its block")
    decode_membership(entries[position].data)
    entries[position] = entries[position]._replace(kind=EntryKind.MEMBERSHIP)
    return 0


cdef decode_snapshot(bytes data):
    """Return the snapshot that these bytes are."""
    if len(data) < SNAPSHOT.size:
        raise ValueError("a snapshot is cut short")
    index, term, membership_bytes = SNAPSHOT.unpack_from(data)
    end = SNAPSHOT.size + membership_bytes
    if end > len(data):
        raise ValueError("a snapshot is cut short")
    return Snapshot(index, term, decode_membership(data[SNAPSHOT.size : end]), data[end:])
