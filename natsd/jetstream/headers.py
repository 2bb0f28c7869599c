"""Header names that Python code looks up or writes, and how one is looked up in a header block.

What a publish may carry is found by the compiled one-pass scanner, `stream/headers.pyx`.

Source: reference §6.1, §6.7, §6.9.
"""

from typing import Final

from natsd.jetstream.names import API_LEVEL

REQUIRED_API_LEVEL: Final = "Nats-Required-Api-Level"

# Of a consumer's idle heartbeats.
LAST_CONSUMER: Final = "Nats-Last-Consumer"
LAST_STREAM: Final = "Nats-Last-Stream"


# Digits that a level may have.
_LEVEL_DIGITS_MAX: Final = 9


def demands_too_much(block: bytes) -> bool:
    """Whether these headers require an API level that this server does not have."""
    level = header_value(block, REQUIRED_API_LEVEL)
    if not level:
        return False
    return not level.isdigit() or len(level) > _LEVEL_DIGITS_MAX or int(level) > API_LEVEL


def header_value(block: bytes, name: str) -> bytes | None:
    """The value of the first header of that name, exactly spelled; None when there is none."""
    if not block:
        return None
    start = block.find(b"\r\n" + name.encode() + b":")
    if start < 0:
        return None
    start += len(name) + 3
    end = block.find(b"\r\n", start)
    return block[start : end if end >= 0 else len(block)].lstrip(b" ")
