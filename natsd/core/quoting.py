"""Quoting of client text: for log lines, without control characters, and in JSON for browsers."""

import json
from typing import Final

_HTML_SENSITIVE: Final = ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026"))
_LINE_SEPARATORS: Final = (
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


def quoted(text: str) -> str:
    """Return `text` in double quotes; unprintable characters are escaped, as Go's %q does."""
    if text.isprintable():
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return json.dumps(text)


def html_safe(text: bytes) -> bytes:
    """Return JSON text with `<`, `>`, `&` and line separators escaped, as Go does by default.

    No browser sees a tag in it.
    """
    for character, escape in _HTML_SENSITIVE:
        if character in text:
            text = text.replace(character, escape)
    if not text.isascii():
        for character, escape in _LINE_SEPARATORS:
            text = text.replace(character, escape)
    return text
