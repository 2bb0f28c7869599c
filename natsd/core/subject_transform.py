"""Subject transforms: what a destination such as `orders.{{partition(3,1)}}.>` consists of.

    source       events.*.*
    destination  {{wildcard(2)}}.by.$1      →  pieces: WILDCARD 2, LITERAL by, WILDCARD 1

- A transform that was parsed can be applied to every subject that matches its source.
- `$n` and `{{wildcard(n)}}` stand for the source's n-th `*`; so do the first arguments of the other
  functions. Only `partition` and `random` need none.
- An error's text is nats-server's.

Source: reference §5.6; nats-server 2.14, tried.
"""

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

_INT32_MAX: Final = 2**31 - 1
_SPACES: Final = frozenset("\t\n\f\r ")


class PieceKind(Enum):
    """What a token of the destination stands for."""

    LITERAL = "literal"
    WILDCARD = "wildcard"
    PARTITION = "partition"
    SPLIT_FROM_LEFT = "splitfromleft"
    SPLIT_FROM_RIGHT = "splitfromright"
    SLICE_FROM_LEFT = "slicefromleft"
    SLICE_FROM_RIGHT = "slicefromright"
    SPLIT = "split"
    LEFT = "left"
    RIGHT = "right"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Piece:
    """A token of the destination: `wildcards` are counted from 1."""

    kind: PieceKind
    text: str = ""  # LITERAL: the token; SPLIT: the delimiter
    wildcards: tuple[int, ...] = ()
    number: int = 0  # of buckets, or of characters


class TransformError(ValueError):
    """Not a transform."""

    @classmethod
    def of(cls, reason: str, token: str = "") -> "TransformError":
        where = f" in {token}" if token else ""
        return cls(f"invalid mapping destination: {reason}{where}")


_SPELLINGS: Final = {
    PieceKind.WILDCARD: "[wW]ildcard",
    PieceKind.PARTITION: "[pP]artition",
    PieceKind.SPLIT_FROM_LEFT: "[sS]plit[fF]rom[lL]eft",
    PieceKind.SPLIT_FROM_RIGHT: "[sS]plit[fF]rom[rR]ight",
    PieceKind.SLICE_FROM_LEFT: "[sS]lice[fF]rom[lL]eft",
    PieceKind.SLICE_FROM_RIGHT: "[sS]lice[fF]rom[rR]ight",
    PieceKind.SPLIT: "[sS]plit",
    PieceKind.LEFT: "[lL]eft",
    PieceKind.RIGHT: "[rR]ight",
    PieceKind.RANDOM: "[rR]andom",
}
_FUNCTIONS: Final = {
    kind: re.compile(r"\{\{\s*" + spelling + r"\s*\((.*)\)\s*\}\}")
    for kind, spelling in _SPELLINGS.items()
}
_NUMBER: Final = re.compile(r" *([+-]?[0-9]+) *")

_TOO_FEW: Final = "not enough arguments passed to the function"
_TOO_MANY: Final = "too many arguments passed to the function"
_BAD_ARGUMENT: Final = "function argument is invalid or in the wrong format"
_OUT_OF_RANGE: Final = "wildcard index out of range"
_UNKNOWN: Final = "unknown function"
_NO_IMPORT: Final = "the only mapping function allowed for import transforms is {{Wildcard()}}"
_UNUSED: Final = "not using all of the token wildcard(s)"
_INVALID: Final = "invalid transform"


@dataclass(frozen=True, slots=True)
class ParsedTransform:
    """`has_rest`: both sides end in `>`; what it stands for in the source follows the pieces."""

    source: str
    destination: str
    pieces: tuple[Piece, ...]
    has_rest: bool


def parse_transform(source: str, destination: str, *, strict: bool = False) -> ParsedTransform:
    """The transform of subjects that match `source`, which is `>` if it is empty.

    `strict`: it can be undone, as imports need it: no function but `wildcard`, and each `*` of the
    source in use. Raises TransformError.
    """
    source = source or ">"
    stars, source_rest = _count_wildcards(source)
    destination_stars, has_rest = _count_wildcards(destination)
    if destination_stars or has_rest is not source_rest:
        raise TransformError("invalid subject")
    tokens = destination.split(".")
    pieces = tuple(_parse_token(token) for token in (tokens[:-1] if has_rest else tokens))
    for token, piece in zip(tokens, pieces, strict=False):
        _check_piece(token, piece, stars, has_wildcards=bool(stars or has_rest), strict=strict)
    if strict and sum(len(piece.wildcards) for piece in pieces) < stars:
        raise TransformError.of(_UNUSED, destination)
    if not stars and not has_rest:  # there is nothing to count: all of the subject
        pieces = tuple(replace(piece, wildcards=()) for piece in pieces)
    return ParsedTransform(source, destination, pieces, has_rest)


def check_transform(source: str, destination: str) -> None:
    """Whether a configuration may name this transform; no destination is none.

    Raises TransformError.
    """
    if not destination:
        return
    tokens = destination.split(".")
    for place, token in enumerate(tokens, 1):
        if not token or (token == ">" and place < len(tokens)):
            raise TransformError.of(_INVALID, token if token else "")
        if not _is_function(token) and not _SPACES.isdisjoint(token):
            raise TransformError.of(_INVALID)
    parse_transform(source, destination)


def _count_wildcards(subject: str) -> tuple[int, bool]:
    """How many `*`, and whether `>` ends it; raises TransformError."""
    tokens = subject.split(".")
    if "" in tokens or ">" in tokens[:-1]:
        raise TransformError("invalid subject")
    return tokens.count("*"), tokens[-1] == ">"


def _is_function(token: str) -> bool:
    return len(token) > 4 and token.startswith("{{") and token.endswith("}}")


def _parse_token(token: str) -> Piece:
    if len(token) > 1 and token[0] == "$":
        number = _NUMBER.fullmatch(token[1:])
        if number is None or " " in token:  # `$JS` is a token like any other
            return Piece(PieceKind.LITERAL, token)
        return Piece(PieceKind.WILDCARD, wildcards=(int(number[1]),))
    if not _is_function(token):
        return Piece(PieceKind.LITERAL, token)
    for kind, pattern in _FUNCTIONS.items():
        found = pattern.search(token)
        if found is not None:
            return _parse_arguments(token, kind, re.split(r",\s*", found[1]))
    raise TransformError.of(_UNKNOWN, token)


def _parse_arguments(token: str, kind: PieceKind, arguments: list[str]) -> Piece:
    if kind is PieceKind.WILDCARD:
        if arguments == [""]:
            raise TransformError.of(_TOO_FEW, token)
        _expect(token, arguments, 1)
        return Piece(kind, wildcards=(_number(token, arguments[0]),))
    if kind is PieceKind.PARTITION:
        wildcards = tuple(_number(token, argument) for argument in arguments[1:])
        return Piece(kind, wildcards=wildcards, number=_size(token, arguments[0]))
    if kind is PieceKind.RANDOM:
        if len(arguments) != 1:
            raise TransformError.of(_TOO_FEW, token)
        return Piece(kind, number=_size(token, arguments[0]))
    _expect(token, arguments, 2)
    wildcards = (_number(token, arguments[0]),)
    if kind is PieceKind.SPLIT:
        if " " in arguments[1] or "." in arguments[1] or not arguments[1]:
            raise TransformError.of(_BAD_ARGUMENT, token)
        return Piece(kind, arguments[1], wildcards)
    return Piece(kind, wildcards=wildcards, number=_number(token, arguments[1]))


def _check_piece(
    token: str, piece: Piece, stars: int, *, has_wildcards: bool, strict: bool
) -> None:
    if strict and piece.kind not in (PieceKind.LITERAL, PieceKind.WILDCARD):
        raise TransformError.of(_NO_IMPORT, token)
    if not has_wildcards:
        if piece.wildcards and piece.kind is not PieceKind.PARTITION:
            raise TransformError.of(_OUT_OF_RANGE, token)
        return
    for wildcard in piece.wildcards:
        if not 1 <= wildcard <= stars:
            raise TransformError.of(_OUT_OF_RANGE, f"{token}: [{wildcard}]")


def _expect(token: str, arguments: list[str], count: int) -> None:
    if len(arguments) < count:
        raise TransformError.of(_TOO_FEW, token)
    if len(arguments) > count:
        raise TransformError.of(_TOO_MANY, token)


def _number(token: str, text: str) -> int:
    found = _NUMBER.fullmatch(text)
    if found is None or abs(int(found[1])) > _INT32_MAX:
        raise TransformError.of(_BAD_ARGUMENT, token)
    return int(found[1])


def _size(token: str, text: str) -> int:
    size = _number(token, text)
    if size < 0:
        raise TransformError.of(_BAD_ARGUMENT, token)
    return size
