"""Header names that Python code reads or writes, and lookup of a header in a header block.

The headers of a publish are found by the compiled one-pass scanner, `stream/headers.pyx`.

Source: the header constants of nats-server's stream.go and jetstream_api.go.
"""

import re
from typing import Final

from natsd.jetstream.names import API_LEVEL

REQUIRED_API_LEVEL: Final = "Nats-Required-Api-Level"
CLIENT_INFO: Final = "Nats-Request-Info"
CHOOSE_BLOCKS: Final = "Natsd-Choose-Blocks"
"""On a request for a snapshot: its receiver chooses the blocks (snapshot/contents.py)."""

# Headers of a consumer's idle heartbeats.
LAST_CONSUMER: Final = "Nats-Last-Consumer"
LAST_STREAM: Final = "Nats-Last-Stream"

# Headers of message schedules, and of the messages that they produce (ADR-51).
SCHEDULE: Final = "Nats-Schedule"
SCHEDULE_TIME_ZONE: Final = "Nats-Schedule-Time-Zone"
SCHEDULE_TARGET: Final = "Nats-Schedule-Target"
SCHEDULE_SOURCE: Final = "Nats-Schedule-Source"
SCHEDULE_TTL: Final = "Nats-Schedule-TTL"
SCHEDULE_ROLLUP: Final = "Nats-Schedule-Rollup"
SCHEDULER: Final = "Nats-Scheduler"
SCHEDULE_NEXT: Final = "Nats-Schedule-Next"
NEXT_PURGE: Final = b"purge"

DELAY: Final = "Nats-Delay"
DELAYED: Final = "Nats-Delayed"  # on delayed messages: the stream, and the sequence of the ack

MESSAGE_ID: Final = "Nats-Msg-Id"
MESSAGE_TTL: Final = "Nats-TTL"
ROLLUP: Final = "Nats-Rollup"
EMPTY_BLOCK: Final = b"NATS/1.0\r\n\r\n"


def with_header(block: bytes, name: str, value: bytes) -> bytes:
    """Append a header line to the block and return it; an empty block becomes a new one."""
    line = name.encode() + b": " + value + b"\r\n"
    return (block or EMPTY_BLOCK)[:-2] + line + b"\r\n"


def without_headers(block: bytes, *prefixes: bytes) -> bytes:
    """Return the block without the lines that start with a prefix; empty if no line is left."""
    first, *lines = block.split(b"\r\n")
    kept = [line for line in lines if not line.startswith(prefixes)]
    return b"\r\n".join([first, *kept]) if any(kept) else b""


# A comparable level: everything that Go's strconv.Atoi reads, except a nineteenth digit.
_LEVEL: Final = re.compile(rb"[+-]?0*[0-9]{1,18}")


def demands_too_much(block: bytes) -> bool:
    """Return whether the headers require an API level that this server lacks or cannot read."""
    level = header_value(block, REQUIRED_API_LEVEL)
    if not level:
        return False
    return _LEVEL.fullmatch(level) is None or int(level.lstrip(b"+0") or b"0") > API_LEVEL


def header_value(block: bytes, name: str) -> bytes | None:
    """Return the value of the first header with exactly this name; None if there is none."""
    if not block:
        return None
    start = block.find(b"\r\n" + name.encode() + b":")
    if start < 0:
        return None
    start += len(name) + 3
    end = block.find(b"\r\n", start)
    return block[start : end if end >= 0 else len(block)].lstrip(b" ")
