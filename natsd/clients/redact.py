"""What a trace may show: payloads as Go quotes them, and CONNECT without its secrets."""

import re
from typing import Final

from natsd.core.quoting import quoted

_SECRET: Final = re.compile(
    rb'("(?:pass|auth_token|jwt|sig|nkey)"\s*:\s*")(?:[^"\\]|\\.)*(")', re.I
)


def redact_connect(text: bytes) -> bytes:
    """The JSON of a CONNECT with its credentials replaced."""
    return _SECRET.sub(rb"\1[REDACTED]\2", text)


def shown_payload(data: bytes, limit: int) -> str:
    """A payload in quotes; `limit` bytes of it, 0 for all."""
    cut = data if limit == 0 or len(data) <= limit else data[:limit] + b"..."
    return quoted(cut.decode(errors="replace"))
