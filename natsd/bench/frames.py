r"""The protocol frames that load generators send and expect, encoded before any clock runs.

Every frame of one run has the same length, both as it is sent and as it is received, so that a
receiver counts frames by dividing the number of bytes. `FrameShape` describes a received frame:

    MSG <subject> <sid> <payload bytes>\r\n<payload>\r\n

Subjects and sids that vary within a run vary only in digits, never in width.
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
"""The sid of wildcard subscription i is 1,000,000 + i, so that each sid has seven digits."""


def payload(payload_bytes: int) -> bytes:
    """Return a payload of this many bytes that cannot be mistaken for protocol."""
    return b"x" * payload_bytes


def pub(subject: bytes, body: bytes, reply: bytes = b"") -> bytes:
    """Return one PUB frame."""
    head = b"PUB " + subject + (b" " + reply if reply else b"")
    return b"%s %d\r\n%s\r\n" % (head, len(body), body)


def hpub(subject: bytes, headers: bytes, body: bytes, reply: bytes = b"") -> bytes:
    """Return one HPUB frame; `headers` are whole lines, without NATS/1.0 and the empty line."""
    block = b"NATS/1.0\r\n" + headers + b"\r\n"
    head = b"HPUB " + subject + (b" " + reply if reply else b"")
    total = len(block) + len(body)
    return b"%s %d %d\r\n%s%s\r\n" % (head, len(block), total, block, body)


def sub(subject: bytes, sid: bytes = SID, queue: bytes = b"") -> bytes:
    """Return one SUB line."""
    head = b"SUB " + subject + (b" " + queue if queue else b"")
    return b"%s %s\r\n" % (head, sid)


def msg(subject: bytes, body: bytes, sid: bytes = SID, reply: bytes = b"") -> bytes:
    """Return the MSG frame that a subscriber receives."""
    head = b"MSG " + subject + b" " + sid + (b" " + reply if reply else b"")
    return b"%s %d\r\n%s\r\n" % (head, len(body), body)


def fleet_subject(number: int) -> bytes:
    """Return the literal subject that device `number` of the wildcard rows publishes on."""
    return b"fleet.%06d.temperature" % number


def fleet_subscriptions(numbers: Iterable[int]) -> bytes:
    """Return one wildcard SUB per device; even devices end in `*`, odd ones in `>`."""
    return b"".join(
        sub(
            b"fleet.%06d.%s" % (n, b">" if n % 2 else b"*"),
            b"%d" % (FLEET_SID_BASE + n),
        )
        for n in numbers
    )


@dataclass(frozen=True)
class FrameShape:
    """The shape of a received frame: its constant length, and a pattern that it must match."""

    frame_bytes: int
    pattern: bytes

    @classmethod
    def literal(cls, frame: bytes) -> "FrameShape":
        """Return the shape of a run in which every frame is exactly `frame`."""
        return cls(len(frame), re.escape(frame))

    @classmethod
    def fleet(cls, body: bytes) -> "FrameShape":
        """Return the shape of the frames in the wildcard rows, in which digits vary."""
        frame = msg(fleet_subject(0), body, b"%d" % FLEET_SID_BASE)
        pattern = rb"MSG fleet\.\d{6}\.temperature \d{7} %d\r\n%s\r\n" % (
            len(body),
            re.escape(body),
        )
        return cls(len(frame), pattern)

    def agrees(self, sample: bytes) -> bool:
        """Return whether the start of a stream consists of such frames; the last one may be cut.

        PINGs of the server may stand between frames.
        """
        frames = sample.replace(PING, b"")
        whole = len(frames) // self.frame_bytes
        match = re.compile(b"(?:%s){%d}" % (self.pattern, whole), re.DOTALL).match(frames)
        return match is not None and match.end() == whole * self.frame_bytes

    def whole_frames(self, stream_bytes: int, pings_max: int = 2) -> tuple[int, bool]:
        """Return how many frames `stream_bytes` bytes hold, and whether they end at a boundary.

        The stream may also contain up to `pings_max` PINGs of the server.
        """
        count, rest = divmod(stream_bytes, self.frame_bytes)
        return count, rest % len(PING) == 0 and rest // len(PING) <= pings_max
