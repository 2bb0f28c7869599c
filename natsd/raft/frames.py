"""The frames between two servers: the messages of all groups that a turn has for the other.

    frame     version u8 │ flags u8 (1 begins, 2 ends a body) │ server u64 │ boot u64 │ number u64
              │ a part of the body
    body      group name length u8 │ group name │ message length u32 │ message …

A body that is longer than the transport's frames goes in several, with consecutive numbers; if one
is lost, so is the body. `boot` is a random number of the sender's process. An empty body says that
the server is there.

Source of the bytes is another server: reading raises `MalformedFrameError` and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from natsd.raft.message_codec import MESSAGE_BYTES_MAX, MessageEncoder
from natsd.raft.messages import Message

VERSION = 1
HEAD = struct.Struct("<BBQQQ")
LENGTH = struct.Struct("<I")
BEGINS, ENDS = 1, 2
BODY_BYTES_MAX = 2 * MESSAGE_BYTES_MAX


class MalformedFrameError(Exception):
    """The bytes are not those of a frame of this version."""


class Frame(NamedTuple):
    """A frame that was read."""

    flags: int
    server: int
    boot: int
    number: int
    part: bytes


class FrameWriter:
    """The frames to one server."""

    __slots__ = ("_boot", "_bytes_max", "_encoder", "_number", "_parts", "_server")

    def __init__(self, server: int, boot: int, bytes_max: int, encoder: MessageEncoder) -> None:
        self._server, self._boot, self._bytes_max = server, boot, bytes_max
        self._encoder = encoder
        self._number = 0
        self._parts: list[bytes] = []

    def add(self, group: bytes, message: Message) -> None:
        """Add a message to the body."""
        head, rest = self._encoder.encode(message)
        length = LENGTH.pack(len(head) + len(rest))
        self._parts += (bytes((len(group),)), group, length, head, rest)

    def take(self) -> list[bytes]:
        """Return the frames of the body, and begin a new one."""
        body, self._parts = b"".join(self._parts), []
        size = self._bytes_max - HEAD.size
        frames = []
        for at in range(0, len(body), size) if body else (0,):
            flags = (BEGINS if at == 0 else 0) | (ENDS if at + size >= len(body) else 0)
            head = HEAD.pack(VERSION, flags, self._server, self._boot, self._number)
            frames.append(head + body[at : at + size])
            self._number += 1
        return frames


def read_frame(data: bytes) -> Frame:
    """Return a frame from its bytes."""
    if len(data) < HEAD.size or data[0] != VERSION:
        raise MalformedFrameError("these are not the bytes of a frame")
    _, flags, server, boot, number = HEAD.unpack_from(data)
    return Frame(flags, server, boot, number, data[HEAD.size :])


class FrameReader:
    """The bodies from one server."""

    __slots__ = ("_expected", "_parts", "_size")

    def __init__(self) -> None:
        self._expected = -1
        self._parts: list[bytes] = []
        self._size = 0

    def take(self, frame: Frame) -> bytes | None:
        """Return the body that this frame ends; None: it ends none, or parts are missing."""
        if frame.flags == BEGINS | ENDS:
            return frame.part
        if frame.flags & BEGINS:
            self._parts, self._size = [], 0
        elif frame.number != self._expected:
            self._parts, self._expected = [], -1
            return None
        self._expected = frame.number + 1
        self._size += len(frame.part)
        if self._size > BODY_BYTES_MAX:
            self._parts, self._expected = [], -1
            raise MalformedFrameError("a body is too long")
        self._parts.append(frame.part)
        if not frame.flags & ENDS:
            return None
        body, self._parts, self._expected = b"".join(self._parts), [], -1
        return body


def read_body(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the group and the bytes of each message."""
    at = 0
    while at < len(body):
        name_end = at + 1 + body[at]
        begin = name_end + LENGTH.size
        if begin > len(body):
            raise MalformedFrameError("a body is cut short")
        end = begin + LENGTH.unpack_from(body, name_end)[0]
        if end > len(body):
            raise MalformedFrameError("a body is cut short")
        yield body[at + 1 : name_end], body[begin:end]
        at = end
