"""Texts for protocol trace lines in the log: CONNECT without secrets, payloads quoted as in Go."""

import re
from typing import Final

from natsd.core.quoting import quoted

SHOWN_FIELDS: Final = frozenset(
    b"verbose pedantic echo headers no_responders protocol name lang version user account "
    b"new_account tls_required".split()
)
"""Fields of a CONNECT, in lower case, whose values the log shows."""
REDACTED: Final = b"[REDACTED]"
_NAME: Final = rb'\s*"([A-Za-z_]+)"\s*:\s*'
_VALUE: Final = rb'("(?:[^"\\]|\\.)*+"|[\w.+-]++)\s*'
_MEMBER: Final = re.compile(_NAME + _VALUE)
_PLAIN_OBJECT: Final = re.compile(rb"\{(?:%b(?:,%b)*+)?\s*\}\s*" % ((_NAME + _VALUE,) * 2))


def redact_connect(text: bytes) -> bytes:
    """Return the argument of a CONNECT with the values of all but SHOWN_FIELDS redacted.

    Nothing is shown of a text that is not a plain JSON object: it may hide a secret from a reader
    of patterns, by an escape in a name, a nested value, or a missing quote.
    """
    if _PLAIN_OBJECT.fullmatch(text) is None:
        return REDACTED
    return _MEMBER.sub(_redact_member, text)


def _redact_member(found: re.Match[bytes]) -> bytes:
    if found[1].lower() in SHOWN_FIELDS:
        return found[0]
    before = found.string[found.start() : found.start(2)]
    return before + b'"' + REDACTED + b'"' + found.string[found.end(2) : found.end()]


def shown_payload(data: bytes, limit: int) -> str:
    """Return the first `limit` bytes of a payload (0 or -1: all) in quotes; `...` marks a cut."""
    cut = data if limit <= 0 or len(data) <= limit else data[:limit] + b"..."
    return quoted(cut.decode(errors="replace"))
