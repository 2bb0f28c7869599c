"""The frames between two servers: the messages of all groups that a turn has for the other.

    frame     version u8 │ flags u8 (1 begins, 2 ends a body) │ server u64 │ boot u64 │ number u64
              │ a part of the body
    body      group name length u8 │ group name │ message length u32 │ message …

A body that is longer than the transport's frames goes in several, with consecutive numbers; if one
is lost, so is the body. `boot` is a random number of the sender's process. An empty body says that
the server is there.

Source of the bytes is another server: reading raises `MalformedFrameError`, MalformedMessageError
for what is in a message, and nothing else.

It is compiled because each entry of a group passes it six times on three servers: in Python that
took a tenth of the time that a message of its own takes on each of them.
"""

include "message_codec.pyx"

cdef enum:
    FRAME_VERSION = 1
    FRAME_HEAD_BYTES = 26
    BEGINS = 1
    ENDS = 2
    NAME_BYTES_MAX = 255
    BODY_BYTES_MAX = 2 * MESSAGE_BYTES_MAX


class MalformedFrameError(Exception):
    """The bytes are not those of a frame of this version."""


cdef class Frame:
    """A frame that was read."""

    cdef readonly int flags
    cdef readonly uint64_t server
    cdef readonly uint64_t boot
    cdef readonly uint64_t number
    cdef readonly bytes part


cdef class FrameWriter:
    """The frames to one server."""

    cdef MessageEncoder encoder
    cdef uint64_t server, boot, number
    cdef Py_ssize_t bytes_max, size
    cdef list parts

    def __init__(
        self, uint64_t server, uint64_t boot, Py_ssize_t bytes_max, MessageEncoder encoder not None
    ) -> None:
        self.server, self.boot, self.bytes_max = server, boot, bytes_max
        self.encoder = encoder
        self.number = 0
        self.parts = []

    def add(self, bytes group not None, message) -> None:
        """Add a message to the body."""
        cdef unsigned char head[1 + NAME_BYTES_MAX + 4 + HEAD_BYTES + FIELDS_BYTES_MAX]
        cdef Py_ssize_t name_bytes = PyBytes_GET_SIZE(group)
        assert name_bytes <= NAME_BYTES_MAX
        cdef unsigned char* at = head + 1 + name_bytes
        cdef Py_ssize_t size = put_head(at + 4, message)
        cdef bytes rest = self.encoder.rest(message)
        head[0] = <unsigned char> name_bytes
        memcpy(head + 1, PyBytes_AS_STRING(group), name_bytes)
        write_u32(at, <uint32_t> (size + PyBytes_GET_SIZE(rest)))
        self.parts.append(PyBytes_FromStringAndSize(<const char*> head, at + 4 + size - head))
        if rest:
            self.parts.append(rest)

    def take(self):
        """Return the frames of the body, and begin a new one."""
        cdef bytes body = b"".join(self.parts)
        cdef Py_ssize_t at = 0, total = PyBytes_GET_SIZE(body), size
        cdef int flags = BEGINS
        cdef list frames = []
        self.parts = []
        while at < total or flags & BEGINS:
            size = min(self.bytes_max - FRAME_HEAD_BYTES, total - at)
            if at + size == total:
                flags |= ENDS
            frames.append(self.frame(flags, PyBytes_AS_STRING(body) + at, size))
            self.number += 1
            at += size
            flags = 0
        return frames

    cdef bytes frame(self, int flags, const char* part, Py_ssize_t size):
        cdef bytes frame = PyBytes_FromStringAndSize(NULL, FRAME_HEAD_BYTES + size)
        cdef unsigned char* at = <unsigned char*> PyBytes_AS_STRING(frame)
        at[0] = FRAME_VERSION
        at[1] = <unsigned char> flags
        write_u64(at + 2, self.server)
        write_u64(at + 10, self.boot)
        write_u64(at + 18, self.number)
        memcpy(at + FRAME_HEAD_BYTES, part, size)
        return frame


def read_frame(bytes data not None) -> Frame:
    """Return a frame from its bytes. Raises MalformedFrameError."""
    cdef const unsigned char* at = <const unsigned char*> PyBytes_AS_STRING(data)
    if PyBytes_GET_SIZE(data) < FRAME_HEAD_BYTES or at[0] != FRAME_VERSION:
        raise MalformedFrameError("these are not the bytes of a frame")
    cdef Frame frame = Frame.__new__(Frame)
    frame.flags = at[1]
    frame.server = read_u64(at + 2)
    frame.boot = read_u64(at + 10)
    frame.number = read_u64(at + 18)
    frame.part = data[FRAME_HEAD_BYTES:]
    return frame


cdef class FrameReader:
    """The bodies from one server."""

    cdef object expected
    cdef list parts
    cdef Py_ssize_t size

    def __init__(self) -> None:
        self.forget()

    cdef void forget(self):
        self.parts, self.size, self.expected = [], 0, None

    def take(self, Frame frame not None):
        """Return the body that ends with this frame; None: more of it comes, or some is lost.

        Raises MalformedFrameError.
        """
        if frame.flags & BEGINS:
            self.forget()
            if frame.flags & ENDS:
                return frame.part
        elif self.expected is None or self.expected != frame.number:
            self.forget()
            return None
        self.size += PyBytes_GET_SIZE(frame.part)
        if self.size > BODY_BYTES_MAX:
            self.forget()
            raise MalformedFrameError("a body is too long")
        self.expected = frame.number + 1
        self.parts.append(frame.part)
        if not frame.flags & ENDS:
            return None
        body = b"".join(self.parts)
        self.forget()
        return body


def read_body(bytes body not None):
    """Yield the group and the message of each. Raises MalformedFrameError, MalformedMessageError.

    What stands before the malformed place has been given out then.
    """
    cdef Py_ssize_t at = 0, begin, end, size = PyBytes_GET_SIZE(body)
    cdef const unsigned char* start = <const unsigned char*> PyBytes_AS_STRING(body)
    while at < size:
        begin = at + 1 + start[at] + 4
        if begin > size:
            raise MalformedFrameError("a body is cut short")
        end = begin + read_u32(start + begin - 4)
        if end > size:
            raise MalformedFrameError("a body is cut short")
        yield body[at + 1 : begin - 4], decode_at(start + begin, end - begin)
        at = end
