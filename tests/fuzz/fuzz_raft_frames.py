"""A frame of another server, with the messages of RAFT groups in its body.

Input: a frame. Whatever is no frame raises one of two exceptions; a message that was read is
encoded to bytes that are read as the same message.
"""

import contextlib

from natsd.raft.entry import Entry, EntryKind, Health, Membership, Snapshot
from natsd.raft.frames import (
    FrameReader,
    FrameWriter,
    MalformedFrameError,
    MalformedMessageError,
    MessageEncoder,
    decode,
    read_body,
    read_frame,
)
from natsd.raft.membership import encode_membership
from natsd.raft.messages import Append, AppendReply, Heartbeat, InstallSnapshot, Message

MODULES = ["natsd.raft.frames"]
MEMBERSHIP = Membership(frozenset({1, 2}), frozenset({3}))
ENTRIES = (
    Entry(8, 3, EntryKind.NORMAL, b"a"),
    Entry(9, 3, EntryKind.MEMBERSHIP, encode_membership(MEMBERSHIP)),
    Entry(10, 5, EntryKind.NORMAL, b""),
)


def frame_of(*messages: Message) -> bytes:
    writer = FrameWriter(7, 99, 1 << 20, MessageEncoder())
    for message in messages:
        writer.add(b"group", message)
    (frame,) = writer.take()
    return frame


SEEDS = [
    frame_of(),
    frame_of(Heartbeat(1, 2, 3, 4, 5), AppendReply(2, 1, 3, False, 7, 6, 2, Health.LOG_LOST)),
    frame_of(Append(1, 2, 5, 7, 3, 7, ENTRIES)),
    frame_of(Append(1, 2, 5, 7, 3, 7, ())),
    frame_of(InstallSnapshot(1, 2, 3, Snapshot(4, 2, MEMBERSHIP, b"state"))),
]


def check(data: bytes) -> None:
    with contextlib.suppress(MalformedFrameError, MalformedMessageError):
        body = FrameReader().take(read_frame(data))
        for _, message in read_body(body or b""):
            assert decode(b"".join(MessageEncoder().encode(message))) == message
