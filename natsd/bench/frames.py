"""The protocol frames that load generators send and expect, encoded once, before any clock runs.

Every frame of one run has the same length, on the way in and on the way out: a receiver counts
bytes and divides. `FrameShape` describes what arrives:

    MSG <subject> <sid> <payload bytes>\\r\\n<payload>\\r\\n

Subjects and sids that vary within a run vary in digits only, never in width.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

CONNECT = (
    b'CONNECT {"verbose":false,"pedantic":false,"lang":"python","version":"1",'
    b'"name":"natsd-bench","protocol":1,"headers":true,"no_responders":true}\r\n'
)
PING = b"PING\r\n"
PONG = b"PONG\r\n"
SID = b"1"

FLEET_SID_BASE = 1_000_000
"""Wildcard subscription i has sid 1,000,000 + i: seven digits, whatever i is."""


def payload(payload_bytes: int) -> bytes:
    """A payload that cannot be mistaken for protocol."""
    return b"x" * payload_bytes


def pub(subject: bytes, body: bytes, reply: bytes = b"") -> bytes:
    """One PUB frame."""
    head = b"PUB " + subject + (b" " + reply if reply else b"")
    return b"%s %d\r\n%s\r\n" % (head, len(body), body)


def hpub(subject: bytes, headers: bytes, body: bytes, reply: bytes = b"") -> bytes:
    """One HPUB frame; `headers` are whole lines without the first and the empty one."""
    block = b"NATS/1.0\r\n" + headers + b"\r\n"
    head = b"HPUB " + subject + (b" " + reply if reply else b"")
    total = len(block) + len(body)
    return b"%s %d %d\r\n%s%s\r\n" % (head, len(block), total, block, body)


def sub(subject: bytes, sid: bytes = SID, queue: bytes = b"") -> bytes:
    """One SUB line."""
    head = b"SUB " + subject + (b" " + queue if queue else b"")
    return b"%s %s\r\n" % (head, sid)


def msg(subject: bytes, body: bytes, sid: bytes = SID, reply: bytes = b"") -> bytes:
    """The MSG frame a subscriber receives."""
    head = b"MSG " + subject + b" " + sid + (b" " + reply if reply else b"")
    return b"%s %d\r\n%s\r\n" % (head, len(body), body)


def fleet_subject(number: int) -> bytes:
    """The literal subject that device `number` of the wildcard rows publishes on."""
    return b"fleet.%06d.temperature" % number


def fleet_subscriptions(numbers: Iterable[int]) -> bytes:
    """One wildcard SUB per device; even ones end in `*`, odd ones in `>`."""
    return b"".join(
        sub(
            b"fleet.%06d.%s" % (n, b">" if n % 2 else b"*"),
            b"%d" % (FLEET_SID_BASE + n),
        )
        for n in numbers
    )


@dataclass(frozen=True)
class FrameShape:
    """What one received frame looks like: its constant length and the pattern it must match."""

    frame_bytes: int
    pattern: bytes

    @classmethod
    def literal(cls, frame: bytes) -> "FrameShape":
        """Every frame is exactly `frame`."""
        return cls(len(frame), re.escape(frame))

    @classmethod
    def fleet(cls, body: bytes) -> "FrameShape":
        """Frames of the wildcard rows: digits vary."""
        frame = msg(fleet_subject(0), body, b"%d" % FLEET_SID_BASE)
        pattern = rb"MSG fleet\.\d{6}\.temperature \d{7} %d\r\n%s\r\n" % (
            len(body),
            re.escape(body),
        )
        return cls(len(frame), pattern)

    def agrees(self, sample: bytes) -> bool:
        """Whether the start of a stream is a row of such frames, the last perhaps cut.

        Server PINGs may stand between frames.
        """
        frames = sample.replace(PING, b"")
        whole = len(frames) // self.frame_bytes
        match = re.compile(b"(?:%s){%d}" % (self.pattern, whole), re.DOTALL).match(frames)
        return match is not None and match.end() == whole * self.frame_bytes

    def whole_frames(self, stream_bytes: int, pings_max: int = 2) -> tuple[int, bool]:
        """How many frames a stream of so many bytes holds, and whether it ends on a boundary.

        A server may have slipped a few PINGs of its own into the stream.
        """
        count, rest = divmod(stream_bytes, self.frame_bytes)
        return count, rest % len(PING) == 0 and rest // len(PING) <= pings_max
