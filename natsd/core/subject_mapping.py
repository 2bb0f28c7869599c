"""Parser of subject mapping destinations: one piece per token.

    orders.*.*  ─▶  `by.$2.{{partition(3,1)}}`      text · wildcard · partition

- `$n` and `{{wildcard(n)}}` stand for the token that the n-th `*` of the source matched.
- `{{partition(buckets[,n…])}}` hashes these tokens, or the whole subject if none is given.
- `{{split…}}`, `{{slice…}}`, `{{left…}}`, `{{right…}}` cut a token; `{{random(n)}}` is a random
  number below n.
- A last `>` stands for the rest of the subject.

Source: nats-server's `NewSubjectTransform` (server/subject_transform.go), error texts included.
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
    """Source and destination that make no valid mapping; the text is that of nats-server."""


@dataclass(frozen=True, slots=True)
class Text:
    """A literal token."""

    token: str


@dataclass(frozen=True, slots=True)
class Wildcard:
    """The subject's token at `place`, counted from 0."""

    place: int


@dataclass(frozen=True, slots=True)
class Partition:
    """A bucket number from 0, a hash of the tokens at `places` modulo `buckets`.

    With `places` empty, the whole subject is hashed.
    """

    buckets: int
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Draw:
    """A random number from 0 to below `ceiling`."""

    ceiling: int


@dataclass(frozen=True, slots=True)
class TokenChange:
    """The result of `function`, called with the subject's token at `place`."""

    place: int
    function: Callable[[str], str]


Piece = Text | Wildcard | Partition | Draw | TokenChange


def parse_mapping(source: str, destination: str) -> list[Piece]:
    """Return the pieces of a destination, one per token; a last `>` is a Text.

    An empty `source` stands for `>`. Raises InvalidMapping.
    """
    source = source or ">"
    have, want = source.split("."), destination.split(".")
    is_whole = all(all(tokens) and ">" not in tokens[:-1] for tokens in (have, want))
    if not is_whole or "*" in want or (have[-1] == ">") != (want[-1] == ">"):
        raise InvalidMapping("invalid subject")
    places = [place for place, token in enumerate(have) if token == "*"]
    is_plain = not places and have[-1] != ">"
    return [_piece(token, places, is_plain=is_plain) for token in want]


def check_mapping(source: str, destination: str) -> None:
    """Check a mapping as configured. Raises InvalidMapping.

    Whitespace is an error too, except inside a function, since a subject cannot hold it.
    """
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


def check_reversible(source: str, destination: str) -> None:
    """Check the mapping of an import, which must lead back, too. Raises InvalidMapping.

    Only the wildcards of the source may be used in the destination, and each must be.
    """
    pieces = parse_mapping(source, destination)
    for piece, token in zip(pieces, destination.split("."), strict=True):
        if not isinstance(piece, Text | Wildcard):
            raise _invalid(
                "the only mapping function allowed for import transforms is {{Wildcard()}}", token
            )
    used = {piece.place for piece in pieces if isinstance(piece, Wildcard)}
    if not used.issuperset(at for at, token in enumerate(source.split(".")) if token == "*"):
        raise _invalid("not using all of the token wildcard(s)", destination)


def _piece(token: str, places: list[int], *, is_plain: bool) -> Piece:
    """Return the piece of one destination token.

    `places` are those of the source's `*` tokens. `is_plain`: the source has no wildcards, so the
    token may not refer to one.
    """
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
    """Return the number in a text, read as Go's `strconv.Atoi` does; None: it is not a number."""
    return int(text) if re.fullmatch(r"[+-]?0{0,64}[0-9]{1,18}", text) else None


def _place(token: str, index: int, places: list[int], is_plain: bool) -> int:
    """Return the place in the subject of the source's `index`-th `*`, counted from 1."""
    if is_plain:
        raise _invalid("wildcard index out of range", token)
    if index > len(places):
        raise _invalid("wildcard index out of range", f"{token}: [{index}]")
    return places[index - 1] if index > 0 else 0


@dataclass(frozen=True, slots=True)
class _Call:
    """A function call in a destination."""

    token: str
    arguments: list[str]
    places: list[int]  # places of the source's `*` tokens
    is_plain: bool  # the source has no wildcards

    def number(self, text: str) -> int:
        """Return an argument as a number. Raises InvalidMapping."""
        number = _integer(text.strip(" "))
        if number is None or number > INT32_MAX:
            raise _invalid("function argument is invalid or in the wrong format", self.token)
        return number

    def place(self, text: str) -> int:
        """Return the place in the subject of the `*` that an argument names."""
        return _place(self.token, self.number(text), self.places, self.is_plain)

    def expect(self, count: int) -> None:
        """Check that there are `count` arguments. Raises InvalidMapping."""
        if len(self.arguments) < count or self.arguments == [""]:
            raise _invalid("not enough arguments passed to the function", self.token)
        if len(self.arguments) > count:
            raise _invalid("too many arguments passed to the function", self.token)


def _wildcard(call: _Call) -> Piece:
    call.expect(1)
    return Wildcard(call.place(call.arguments[0]))


def _partition(call: _Call) -> Piece:
    buckets = call.number(call.arguments[0])
    if call.is_plain:  # without wildcards the other arguments are ignored: the subject is hashed
        return Partition(buckets, ())
    return Partition(buckets, tuple(call.place(text) for text in call.arguments[1:]))


def _random(call: _Call) -> Piece:
    if len(call.arguments) != 1:
        raise _invalid("not enough arguments passed to the function", call.token)
    return Draw(call.number(call.arguments[0]))


def _cutter(cut: Cut) -> Callable[[_Call], Piece]:
    """Return the reader of a function with a wildcard and a size as arguments."""

    def read(call: _Call) -> Piece:
        call.expect(2)
        place = call.place(call.arguments[0])
        return TokenChange(place, partial(_cut, cut, call.number(call.arguments[1])))

    return read


def _cut(cut: Cut, size: int, token: str) -> str:
    """Return `cut(token, size)`, or the whole token if it is too short to be cut."""
    return cut(token, size) if 0 < size < len(token) else token


def _split(call: _Call) -> Piece:
    call.expect(2)
    place, delimiter = call.place(call.arguments[0]), call.arguments[1]
    if " " in delimiter or "." in delimiter:
        raise _invalid("function argument is invalid or in the wrong format", call.token)
    return TokenChange(place, partial(_split_at, delimiter))


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
