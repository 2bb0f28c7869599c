"""JSON text of an answer, piece by piece: an answer of a million rows is never held as a whole.

- An iterator stands for a list: its items are made only when they are written.
- If `pretty`, the pieces together are the text of `msgspec.json.format(..., indent=2)`, else that
  of `msgspec.json.encode`. As in Go, `<`, `>` and `&` are escaped.
- msgspec encodes each piece. Encoding 200,000 connections as a whole held the event loop for 68 ms,
  and indenting them for another 63 ms (2026-11-23); msgspec cannot stop in between.
- A piece is at most `FLAT_AT_ONCE` objects without lists or objects in them, so that making a piece
  takes little time.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec.json

from natsd.core.quoting import html_safe

INDENT: Final = 2
FLAT_AT_ONCE: Final = 2
_CONTAINERS: Final = (dict, list, tuple, Iterator)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_PLAIN: Final = frozenset((str, int, float, bool, type(None)))


def pieces(value: Any, *, pretty: bool) -> Iterator[bytes]:
    """Yield the text of the value in pieces."""
    return _value(value, b"\n" if pretty else b"")


def _value(value: Any, line: bytes) -> Iterator[bytes]:
    """Yield the text of a value.

    `line` is the line break and indentation at its depth; empty: the text has no line breaks.
    """
    if isinstance(value, dict):
        yield from _object(value, line)
    elif isinstance(value, _CONTAINERS):
        yield from _list(iter(value), line)
    else:
        yield _flat(value, line)


def _is_flat(value: Any) -> bool:
    """Return whether the value is encoded at once: a list, or an object with lists, is not.

    A structure is: its lists are short.
    """
    if isinstance(value, dict):
        return all(
            type(field) in _PLAIN or not isinstance(field, _CONTAINERS) for field in value.values()
        )
    return isinstance(value, msgspec.Struct) or not isinstance(value, _CONTAINERS)


def _flat(value: Any, line: bytes) -> bytes:
    """Return the text of a flat value, or of a list of flat values."""
    try:
        text = html_safe(msgspec.json.encode(value))
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value, builtin_types=(msgspec.Raw,))
        text = html_safe(msgspec.json.encode(_valid(plain)))
    return msgspec.json.format(text, indent=INDENT).replace(b"\n", line) if line else text


def _valid(value: Any) -> Any:
    """Return a flat value with U+FFFD for bytes of clients that are no UTF-8, as in Go."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {name: _valid(field) for name, field in value.items()}
    return [_valid(item) for item in value] if isinstance(value, list | tuple) else value


def _object(fields: dict[str, Any], line: bytes) -> Iterator[bytes]:
    inner = _deeper(line)
    colon = b": " if line else b":"
    separator = b"{"
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if _is_flat(value):
            flat[name] = value
            continue
        if flat:
            yield separator + _flat(flat, line)[1 : -1 - len(line)]
            separator = b","
            flat = {}
        yield separator + inner + html_safe(msgspec.json.encode(name)) + colon
        yield from _value(value, inner)
        separator = b","
    if flat:
        yield separator + _flat(flat, line)[1 : -1 - len(line)]
        separator = b","
    yield b"{}" if separator == b"{" else line + b"}"


def _list(items: Iterator[Any], line: bytes) -> Iterator[bytes]:
    inner = _deeper(line)
    separator = b"["
    flat: list[Any] = []
    for item in items:
        is_flat = _is_flat(item)
        if is_flat:
            flat.append(item)
        if flat and (not is_flat or len(flat) == FLAT_AT_ONCE):
            yield separator + _flat(flat, line)[1 : -1 - len(line)]
            separator = b","
            flat = []
        if not is_flat:
            yield separator + inner
            yield from _value(item, inner)
            separator = b","
    if flat:
        yield separator + _flat(flat, line)[1 : -1 - len(line)]
        separator = b","
    yield b"[]" if separator == b"[" else line + b"]"


def _deeper(line: bytes) -> bytes:
    return line + b" " * INDENT if line else line
