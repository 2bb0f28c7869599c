"""JSON text of an answer, piece by piece: an answer of a million rows is never held as a whole.

- An iterator stands for a list: its items are made when they are written.
- The pieces together are what `msgspec.json.format(..., indent=2)` writes or, not `pretty`, what
  `msgspec.json.encode` writes. As Go does, `<`, `>` and `&` are escaped.
- A piece is at most one object without lists or objects in it, so it is short work.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec.json

INDENT: Final = 2
_HTML_SENSITIVE: Final = ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026"))


def pieces(value: Any, *, pretty: bool) -> Iterator[bytes]:
    """The text of a value."""
    for piece in _value(value, b"\n" if pretty else b""):
        yield html_safe(piece)


def html_safe(text: bytes) -> bytes:
    """JSON text in which no browser sees a tag."""
    for character, escape in _HTML_SENSITIVE:
        if character in text:
            text = text.replace(character, escape)
    return text


def _value(value: Any, line: bytes) -> Iterator[bytes]:
    """The text of a value; `line` begins a line at its depth, and is empty where there are none."""
    if isinstance(value, dict):
        yield from _object(value, line)
    elif isinstance(value, list | tuple | Iterator):
        yield from _list(iter(value), line)
    else:
        yield msgspec.json.encode(value)


def _object(fields: dict[str, Any], line: bytes) -> Iterator[bytes]:
    if not any(isinstance(value, dict | list | tuple | Iterator) for value in fields.values()):
        text = msgspec.json.encode(fields)
        yield msgspec.json.format(text, indent=INDENT).replace(b"\n", line) if line else text
        return
    inner = _deeper(line)
    colon = b": " if line else b":"
    separator = b"{"
    for name, value in fields.items():
        yield separator + inner + msgspec.json.encode(name) + colon
        yield from _value(value, inner)
        separator = b","
    yield line + b"}"


def _list(items: Iterator[Any], line: bytes) -> Iterator[bytes]:
    inner = _deeper(line)
    separator = b"["
    for item in items:
        yield separator + inner
        yield from _value(item, inner)
        separator = b","
    yield b"[]" if separator == b"[" else line + b"]"


def _deeper(line: bytes) -> bytes:
    return line + b" " * INDENT if line else line
