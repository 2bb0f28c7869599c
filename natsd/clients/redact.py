"""Texts for protocol trace lines in the log: CONNECT without secrets, payloads quoted as in Go."""

import re
from typing import Final

from natsd.core.quoting import quoted

_SECRET: Final = re.compile(
    rb'("(?:pass|auth_token|jwt|sig|proxy_sig|nkey)"\s*:\s*")(?:[^"\\]|\\.)*(")', re.I
)


def redact_connect(text: bytes) -> bytes:
    """Return the JSON of a CONNECT with its credentials replaced by `[REDACTED]`."""
    return _SECRET.sub(rb"\1[REDACTED]\2", text)


def shown_payload(data: bytes, limit: int) -> str:
    """Return the first `limit` bytes of a payload (0: all) in quotes; `...` marks a cut."""
    cut = data if limit == 0 or len(data) <= limit else data[:limit] + b"..."
    return quoted(cut.decode(errors="replace"))
