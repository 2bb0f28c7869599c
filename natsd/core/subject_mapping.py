"""What a subject mapping's destination says, token by token.

    orders.*.*  ─▶  `by.$2.{{partition(3,1)}}`      text · wildcard · partition

- `$n` and `{{wildcard(n)}}` stand for what the n-th `*` of the source stood for.
- `{{partition(buckets[,n…])}}` hashes those tokens, or the whole subject.
- `{{split…}}`, `{{slice…}}`, `{{left…}}`, `{{right…}}` cut a token; `{{random(n)}}` draws.
- A last `>` takes the rest of the subject over.

Source: nats-server 2.14 reference 5.6; the errors' texts are nats-server's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

INT32_MAX: Final = 2**31 - 1
_SPACES: Final = frozenset("\t\n\f\r ")
_FUNCTION: Final = re.compile(r"\{\{\s*([A-Za-z]+)\s*\((.*)\)\s*\}\}")

Cut = Callable[[str, int], str]


class InvalidMapping(ValueError):
    """Source and destination do not make a mapping; the text is nats-server's."""


@dataclass(frozen=True, slots=True)
class Text:
    """The token as it stands."""

    token: str


@dataclass(frozen=True, slots=True)
class Wildcard:
    """The subject's token at a place, counted from 0."""

    place: int


@dataclass(frozen=True, slots=True)
class Partition:
    """One of `buckets`, by the tokens at these places, or by the whole subject."""

    buckets: int
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Draw:
    """A number below `ceiling`, at random."""

    ceiling: int


@dataclass(frozen=True, slots=True)
class Change:
    """What a function makes of the token at a place."""

    place: int
    function: Callable[[str], str]


Piece = Text | Wildcard | Partition | Draw | Change


def parse_mapping(source: str, destination: str) -> list[Piece]:
    """The destination's tokens, a last `>` among them as Text. Raises InvalidMapping."""
    source = source or ">"
    have, want = source.split("."), destination.split(".")
    is_whole = all(all(tokens) and ">" not in tokens[:-1] for tokens in (have, want))
    if not is_whole or "*" in want or (have[-1] == ">") != (want[-1] == ">"):
        raise InvalidMapping("invalid subject")
    places = [place for place, token in enumerate(have) if token == "*"]
    is_plain = not places and have[-1] != ">"
    return [_piece(token, places, is_plain=is_plain) for token in want]


def check_mapping(source: str, destination: str) -> None:
    """Raises InvalidMapping, for spaces too: they may stand in a function, but not on the wire."""
    is_past_end = False
    for token in destination.split("."):
        is_function = token.startswith("{{") and token.endswith("}}")
        if not token or is_past_end:
            what = f" in {token}" if token else ""
            raise InvalidMapping(f"invalid mapping destination: invalid transform{what}")
        if not is_function and not _SPACES.isdisjoint(token):
            raise InvalidMapping("invalid mapping destination: invalid transform")
        is_past_end = token == ">"
    parse_mapping(source, destination)


def _piece(token: str, places: list[int], *, is_plain: bool) -> Piece:
    """`is_plain`: the source has no wildcards, so only what needs none may stand here."""
    if token.startswith("$") and len(token) > 1:
        index = _integer(token[1:])
        return Text(token) if index is None else Wildcard(_place(token, index, places, is_plain))
    if not (len(token) > 4 and token.startswith("{{") and token.endswith("}}")):
        return Text(token)
    found = _FUNCTION.search(token)
    read = _READERS.get(found[1].lower()) if found else None
    if found is None or read is None:
        raise _invalid("unknown function", token)
    return read(_Call(token, re.split(r",\s*", found[2]), places, is_plain))


def _invalid(reason: str, token: str) -> InvalidMapping:
    return InvalidMapping(f"invalid mapping destination: {reason} in {token}")


def _integer(text: str) -> int | None:
    """As Go's Atoi reads it."""
    return int(text) if re.fullmatch(r"[+-]?0{0,64}[0-9]{1,18}", text) else None


def _place(token: str, index: int, places: list[int], is_plain: bool) -> int:
    if is_plain:
        raise _invalid("wildcard index out of range", token)
    if index > len(places):
        raise _invalid("wildcard index out of range", f"{token}: [{index}]")
    return places[index - 1] if index > 0 else 0


@dataclass(frozen=True, slots=True)
class _Call:
    """A function in a destination: its token, its arguments, where the source's wildcards are."""

    token: str
    arguments: list[str]
    places: list[int]
    is_plain: bool

    def number(self, text: str) -> int:
        number = _integer(text.strip(" "))
        if number is None or number > INT32_MAX:
            raise _invalid("function argument is invalid or in the wrong format", self.token)
        return number

    def place(self, text: str) -> int:
        return _place(self.token, self.number(text), self.places, self.is_plain)

    def expect(self, count: int) -> None:
        if len(self.arguments) < count or self.arguments == [""]:
            raise _invalid("not enough arguments passed to the function", self.token)
        if len(self.arguments) > count:
            raise _invalid("too many arguments passed to the function", self.token)


def _wildcard(call: _Call) -> Piece:
    call.expect(1)
    return Wildcard(call.place(call.arguments[0]))


def _partition(call: _Call) -> Piece:
    buckets = call.number(call.arguments[0])
    if call.is_plain:  # places in a subject without wildcards mean nothing: all of it is hashed
        return Partition(buckets, ())
    return Partition(buckets, tuple(call.place(text) for text in call.arguments[1:]))


def _random(call: _Call) -> Piece:
    if len(call.arguments) != 1:
        raise _invalid("not enough arguments passed to the function", call.token)
    return Draw(call.number(call.arguments[0]))


def _cutter(cut: Cut) -> Callable[[_Call], Piece]:
    def read(call: _Call) -> Piece:
        call.expect(2)
        place = call.place(call.arguments[0])
        return Change(place, partial(_cut, cut, call.number(call.arguments[1])))

    return read


def _cut(cut: Cut, size: int, token: str) -> str:
    """A token too short to be cut at that size stays whole."""
    return cut(token, size) if 0 < size < len(token) else token


def _split(call: _Call) -> Piece:
    call.expect(2)
    place, delimiter = call.place(call.arguments[0]), call.arguments[1]
    if " " in delimiter or "." in delimiter:
        raise _invalid("function argument is invalid or in the wrong format", call.token)
    return Change(place, partial(_split_at, delimiter))


def _split_at(delimiter: str, token: str) -> str:
    parts = token.split(delimiter) if delimiter else list(token)
    return ".".join(part for part in parts if part)


def _slices_from_right(token: str, size: int) -> str:
    first = len(token) % size or size
    cuts = [0, *range(first, len(token), size), len(token)]
    return ".".join(token[start:end] for start, end in pairwise(cuts))


_READERS: Final[dict[str, Callable[[_Call], Piece]]] = {
    "wildcard": _wildcard,
    "partition": _partition,
    "random": _random,
    "split": _split,
    "splitfromleft": _cutter(lambda token, size: f"{token[:size]}.{token[size:]}"),
    "splitfromright": _cutter(lambda token, size: f"{token[:-size]}.{token[-size:]}"),
    "slicefromleft": _cutter(
        lambda token, size: ".".join(token[at : at + size] for at in range(0, len(token), size))
    ),
    "slicefromright": _cutter(_slices_from_right),
    "left": _cutter(lambda token, size: token[:size]),
    "right": _cutter(lambda token, size: token[-size:]),
}
