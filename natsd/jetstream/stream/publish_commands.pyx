"""Publishes as commands: made of an entry on the leader, and applied as one on the other replicas.

Source: docs/architecture.md ("Commands").
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from natsd.jetstream.stream.checks cimport Entry, IS_DELAYED
from natsd.store.codec.records cimport record_size
from natsd.store.log.message_log cimport NEEDS_BLOCK

from natsd.jetstream.commands.commands import Publish
from natsd.jetstream.commands.encoding import KINDS, VERSION

cdef enum:
    NUMBER_BYTES_MAX = 10       # of a number of 64 bits

cdef struct Runs:               # encoded: gap and length less 1 of each
    uint64_t count
    const unsigned char* at
    const unsigned char* end

cdef unsigned char ENCODING_VERSION = VERSION
cdef unsigned char PUBLISH_KIND = next(kind for kind, each in KINDS.items() if each is Publish)


cdef object publish_command(Entry* entry, tuple removed):
    return Publish(
        sequence=entry.sequence,
        time_ns=entry.time_ns,
        subject=entry.subject[:entry.subject_len],
        headers=entry.headers[:entry.headers_len] if entry.headers_len else b"",
        data=entry.data[:entry.data_len] if entry.data_len else b"",
        expires_ns=entry.expires_ns,
        message_id=entry.message_id[:entry.message_id_len] if entry.message_id_len else b"",
        is_skipped=entry.is_skipped,
        is_delayed=entry.scheduling & IS_DELAYED != 0,
        removed=removed,
    )


cdef int follow(Ingest ingest, Entry* entry) except -1:
    ingest.apply(entry)
    if ingest.noting is not None and entry.headers_len:
        ingest.noting(entry.headers[:entry.headers_len])
    return 0


def apply_publish(Ingest ingest not None, command not None) -> None:
    """Apply a Publish command of the leader, but for the removal of the messages that it replaces.

    Raises StoreError.
    """
    cdef Entry entry
    cdef bytes subject = command.subject, headers = command.headers, data = command.data
    cdef bytes message_id = command.message_id
    memset(&entry, 0, sizeof(Entry))
    entry.subject, entry.subject_len = subject, len(subject)
    entry.headers, entry.headers_len = headers, len(headers)
    entry.data, entry.data_len = data, len(data)
    entry.message_id, entry.message_id_len = message_id, len(message_id)
    entry.sequence = command.sequence
    entry.time_ns = command.time_ns
    entry.expires_ns = command.expires_ns
    entry.is_skipped = command.is_skipped
    entry.scheduling = IS_DELAYED if command.is_delayed else 0
    follow(ingest, &entry)
    ingest.count_bytes()


cdef inline char* put_number(char* to, uint64_t number) noexcept:
    while number > 0x7F:
        to[0] = <char> (number & 0x7F | 0x80)
        number >>= 7
        to += 1
    to[0] = <char> number
    return to + 1


cdef inline char* put_signed(char* to, int64_t number) noexcept:
    return put_number(
        to, 2 * <uint64_t> number if number >= 0 else 2 * <uint64_t> -number - 1
    )


cdef inline char* put_bytes(char* to, bytes value):
    cdef Py_ssize_t size = PyBytes_GET_SIZE(value)
    to = put_number(to, size)
    memcpy(to, PyBytes_AS_STRING(value), size)
    return to + size


def encode_publish(command not None) -> bytes:
    """Return what `commands.encoding.encode` returns for a Publish command."""
    cdef bytes subject = command.subject, headers = command.headers, data = command.data
    cdef bytes message_id = command.message_id
    cdef tuple removed = command.removed
    cdef uint64_t end = 0, first, last
    cdef Py_ssize_t room = NUMBER_BYTES_MAX * (8 + 2 * len(removed)) + 4 + (
        len(subject) + len(headers) + len(data) + len(message_id)
    )
    cdef bytes encoded = PyBytes_FromStringAndSize(NULL, room)
    cdef char* begin = PyBytes_AS_STRING(encoded)
    cdef char* to = begin + 2
    begin[0], begin[1] = <char> ENCODING_VERSION, <char> PUBLISH_KIND
    to = put_number(to, command.sequence)
    to = put_signed(to, command.time_ns)
    to = put_bytes(to, subject)
    to = put_bytes(to, headers)
    to = put_bytes(to, data)
    to = put_signed(to, command.expires_ns)
    to = put_bytes(to, message_id)
    to[0], to[1] = <char> command.is_skipped, <char> command.is_delayed
    to = put_number(to + 2, len(removed))
    for first, last in removed:
        to = put_number(to, first - end)
        to = put_number(to, last - first)
        end = last
    return encoded[:to - begin]


def count_fitting(list commands not None, Py_ssize_t bytes_max) -> int:
    """Return how many encoded commands have at most that many bytes together, but at least 1."""
    cdef Py_ssize_t size = 0
    cdef int count = 0
    cdef bytes command
    for command in commands:
        size += PyBytes_GET_SIZE(command)
        if size > bytes_max and count:
            break
        count += 1
    return count


def join_commands(list commands not None) -> bytes:
    """Return the entry of encoded commands (replicas/log_entry.py)."""
    cdef uint32_t number = <uint32_t> len(commands)
    cdef Py_ssize_t size = sizeof(uint32_t)
    cdef bytes command, entry
    cdef char* to
    for command in commands:
        size += sizeof(uint32_t) + PyBytes_GET_SIZE(command)
    entry = PyBytes_FromStringAndSize(NULL, size)
    to = PyBytes_AS_STRING(entry)
    memcpy(to, &number, sizeof(uint32_t))
    to += sizeof(uint32_t)
    for command in commands:
        number = <uint32_t> PyBytes_GET_SIZE(command)
        memcpy(to, &number, sizeof(uint32_t))
        memcpy(to + sizeof(uint32_t), PyBytes_AS_STRING(command), number)
        to += sizeof(uint32_t) + number
    return entry


cdef inline const unsigned char* read_number(
    const unsigned char* p, const unsigned char* end, uint64_t* number
) noexcept:
    """Read a number below 2^63 as commands/encoding.py writes it; NULL: it is none."""
    cdef int shift = 0
    number[0] = 0
    while p < end and shift < 63:
        number[0] |= <uint64_t> (p[0] & 0x7F) << shift
        shift += 7
        p += 1
        if p[-1] < 0x80:
            return p
    return NULL


cdef inline const unsigned char* read_bytes(
    const unsigned char* p, const unsigned char* end, const char** at, Py_ssize_t* size
) noexcept:
    """Read bytes with their number; NULL: they are cut off."""
    cdef uint64_t length
    p = read_number(p, end, &length)
    if p == NULL or length > <uint64_t> (end - p):
        return NULL
    at[0] = <const char*> p
    size[0] = <Py_ssize_t> length
    return p + length


cdef inline int64_t signed_of(uint64_t number) noexcept:
    """Return the signed number that is encoded as this one."""
    return -<int64_t> ((number + 1) >> 1) if number & 1 else <int64_t> (number >> 1)


cdef bint read_publish(
    const unsigned char* p, const unsigned char* end, Entry* entry, Runs* removed
) noexcept:
    """Fill the entry, and what it replaces, from an encoded Publish; False: it is none."""
    cdef uint64_t time, expires, left
    memset(entry, 0, sizeof(Entry))
    if end - p < 4 or p[0] != ENCODING_VERSION or p[1] != PUBLISH_KIND:
        return False
    p = read_number(p + 2, end, &entry.sequence)
    if p != NULL:
        p = read_number(p, end, &time)
    if p != NULL:
        p = read_bytes(p, end, &entry.subject, &entry.subject_len)
    if p != NULL:
        p = read_bytes(p, end, &entry.headers, &entry.headers_len)
    if p != NULL:
        p = read_bytes(p, end, &entry.data, &entry.data_len)
    if p != NULL:
        p = read_number(p, end, &expires)
    if p != NULL:
        p = read_bytes(p, end, &entry.message_id, &entry.message_id_len)
    # is_skipped, is_delayed, and the removed messages
    if p == NULL or end - p < 3 or p[0] > 1 or p[1] > 1:
        return False
    entry.time_ns = signed_of(time)
    entry.expires_ns = signed_of(expires)
    entry.is_skipped = p[0]
    entry.scheduling = IS_DELAYED if p[1] else 0
    p = read_number(p + 2, end, &removed.count)
    removed.at = p
    removed.end = end
    left = 2 * removed.count
    while p != NULL and left:
        p = read_number(p, end, &time)
        left -= 1
    return p == end


cdef bint remove_runs(Ingest ingest, Runs* removed) except? False:
    """Remove the messages of the runs; False: a block must be read before."""
    cdef const unsigned char* p = removed.at
    cdef uint64_t _at, gap, length, first, sequence, end = 0
    for _at in range(removed.count):
        p = read_number(p, removed.end, &gap)
        p = read_number(p, removed.end, &length)
        first, end = end + gap, end + gap + length
        for sequence in range(
            max(first, ingest.log.edges.first), min(end, ingest.log.edges.last) + 1
        ):
            if ingest.log.remove(sequence, False) == NEEDS_BLOCK:
                return False
    if removed.count and (ingest.log.needs_care or not ingest.log.is_told):
        ingest.log.tell()
    return True


def apply_publishes(Ingest ingest not None, bytes commands not None, Py_ssize_t at, int count):
    """Apply Publish commands as they are encoded, and return how many, and the offset behind them.

    `at` is the offset of the first of `count` commands, each behind its length as four bytes
    (replicas/log_entry.py). The first one that is none that comes next ends this, as does one that
    replaces a message whose block must be read first: its own message is stored already then.
    Raises StoreError.
    """
    cdef const unsigned char* p = <const unsigned char*> PyBytes_AS_STRING(commands)
    cdef const unsigned char* end = p + PyBytes_GET_SIZE(commands)
    cdef Entry entry
    cdef Runs removed
    cdef uint32_t length
    cdef int applied = 0
    p += at
    while applied < count and end - p > 4:
        memcpy(&length, p, 4)
        if length > end - p - 4 or not read_publish(p + 4, p + 4 + length, &entry, &removed):
            break
        if entry.sequence != ingest.log.edges.last + 1:
            break
        follow(ingest, &entry)
        if not remove_runs(ingest, &removed):
            break
        applied += 1
        p += 4 + length
    if applied:
        ingest.count_bytes()
    return applied, p - <const unsigned char*> PyBytes_AS_STRING(commands)


def begin_together(Ingest ingest not None, commands not None) -> None:
    """Begin to apply an atomic batch: a crash leaves all of its messages, or none.

    `commands` are its Publish commands. `end_together` must follow. Raises StoreError.
    """
    cdef uint64_t count = 0, size = 0
    for command in commands:
        count += 1
        size += record_size(
            len(command.subject), len(command.headers), len(command.data), command.expires_ns != 0
        )
    ingest.log.begin_together(count, size)


def end_together(Ingest ingest not None) -> None:
    """End an atomic batch: all of it was applied."""
    ingest.log.end_together()
