"""Where JSON breaks its grammar, in the words of Go's encoding/json.

Reads only what a faster reader has refused; linear, without recursion.

Source: Go's encoding/json, tried.
"""

import re
from typing import Final

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]*')
_DIGITS: Final = re.compile(r"[0-9]*")
_LITERALS: Final = {"t": "true", "f": "false", "n": "null"}
_ESCAPABLE: Final = frozenset('"\\/bfnrtu')
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_NAMED: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    "'": "\\'",
}

_VALUE: Final = "looking for beginning of value"
_KEY: Final = "looking for beginning of object key string"


class _BrokenError(Exception):
    """The grammar is broken at `position`; the text says what was being read."""

    def __init__(self, position: int, context: str) -> None:
        super().__init__(context)
        self.position = position
        self.context = context


def syntax_error(body: bytes) -> str:
    """What Go says of a body that is not JSON."""
    text = body.decode("latin-1")  # Go looks at bytes, and shows one
    try:
        _scan(text)
    except _BrokenError as broken:
        if broken.position >= len(text):
            return "unexpected EOF"
        shown = _quoted(text[broken.position])
        return f"invalid character {shown} {broken.context} at offset {broken.position + 1}"
    return "unexpected EOF"


def _scan(text: str) -> None:
    """One value; raises _BrokenError."""
    open_brackets: list[str] = []
    position = _skip(text, 0)
    while True:
        position = _open(text, position, open_brackets)
        while True:
            position = _skip(text, position)
            if not open_brackets:
                if position < len(text):
                    raise _BrokenError(position, _VALUE)
                return
            if text[position : position + 1] != open_brackets[-1]:
                break
            open_brackets.pop()
            position += 1
        position = _next_item(text, position, open_brackets[-1])


def _open(text: str, position: int, open_brackets: list[str]) -> int:
    """Past the beginning of a value, down to its first scalar or empty bracket."""
    while True:
        character = text[position : position + 1]
        if character not in ("{", "["):
            return _scalar(text, position)
        closing = "}" if character == "{" else "]"
        open_brackets.append(closing)
        position = _skip(text, position + 1)
        if text[position : position + 1] == closing:
            return position
        if closing == "}":
            position = _key(text, position)


def _next_item(text: str, position: int, closing: str) -> int:
    """Past the comma, and the key in an object."""
    if text[position : position + 1] != ",":
        raise _BrokenError(
            position,
            "after object key:value pair" if closing == "}" else "after array element",
        )
    position = _skip(text, position + 1)
    return _key(text, position) if closing == "}" else position


def _key(text: str, position: int) -> int:
    if text[position : position + 1] != '"':
        raise _BrokenError(position, _KEY)
    position = _skip(text, _string(text, position))
    if text[position : position + 1] != ":":
        raise _BrokenError(position, "after object key")
    return _skip(text, position + 1)


def _scalar(text: str, position: int) -> int:
    character = text[position : position + 1]
    if character == '"':
        return _string(text, position)
    if character in _LITERALS:
        return _literal(text, position, _LITERALS[character])
    if character and character in "-0123456789":
        return _number(text, position)
    raise _BrokenError(position, _VALUE)


def _literal(text: str, position: int, word: str) -> int:
    for offset, expected in enumerate(word):
        if text[position + offset : position + offset + 1] != expected:
            raise _BrokenError(position + offset, f"in literal {word} (expecting '{expected}')")
    return position + len(word)


def _string(text: str, position: int) -> int:
    position += 1
    while True:
        position = _end(_PLAIN, text, position)
        character = text[position : position + 1]
        if character == '"':
            return position + 1
        if character != "\\":
            raise _BrokenError(position, "in string literal")
        escape = text[position + 1 : position + 2]
        if escape not in _ESCAPABLE:
            raise _BrokenError(position + 1, "in string escape code")
        position += 2
        if escape == "u":
            for _ in range(4):
                if text[position : position + 1] not in _HEX:
                    raise _BrokenError(position, "in \\u hexadecimal character escape")
                position += 1


def _number(text: str, position: int) -> int:
    if text[position] == "-":
        position += 1
    if text[position : position + 1] == "0":
        position += 1
    else:
        position = _some_digits(text, position, "in numeric literal")
    if text[position : position + 1] == ".":
        position = _some_digits(text, position + 1, "after decimal point in numeric literal")
    if text[position : position + 1] in ("e", "E"):
        position += 1
        if text[position : position + 1] in ("+", "-"):
            position += 1
        position = _some_digits(text, position, "in exponent of numeric literal")
    return position


def _some_digits(text: str, position: int, context: str) -> int:
    end = _end(_DIGITS, text, position)
    if end == position:
        raise _BrokenError(position, context)
    return end


def _skip(text: str, position: int) -> int:
    return _end(_SPACE, text, position)


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    assert found is not None  # it may be empty
    return found.end()


def _quoted(character: str) -> str:
    if character in _NAMED:
        return f"'{_NAMED[character]}'"
    if character.isprintable():
        return f"'{character}'"
    code = ord(character)
    return f"'\\x{code:02x}'" if code < 0x80 else f"'\\u{code:04x}'"
