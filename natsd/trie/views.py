"""What can be made of a trie without copying it: slices, unions, matches; and their keys in order.

Views are tries: they nest. Nothing is computed before it is walked, and a walk over a trie that is
written to meanwhile sees what `natsd/trie/trie.md` says.

    with_price = union([base, changes], resolve=lambda found: found[-1])
    dict(entries(subtrie(matching(with_price, "orders.*.7"), b"orders.eu", b"orders.us")))
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from natsd.trie.automaton import Pattern
from natsd.trie.cursor import Cursor
from natsd.trie.match_cursor import MatchCursor
from natsd.trie.slice_cursor import SliceCursor
from natsd.trie.union_cursor import Resolve, UnionCursor


class Trie(Protocol):
    """What can be walked."""

    def cursor(self, reverse: bool = False) -> Cursor: ...


@dataclass(frozen=True, slots=True)
class Subtrie:
    """The keys of a trie between two bounds."""

    trie: Trie
    left: bytes | None
    right: bytes | None
    left_inclusive: bool
    right_inclusive: bool

    def cursor(self, reverse: bool = False) -> Cursor:
        return SliceCursor(
            self.trie.cursor(reverse),
            self.left,
            self.right,
            left_inclusive=self.left_inclusive,
            right_inclusive=self.right_inclusive,
        )


@dataclass(frozen=True, slots=True)
class Union:
    """The keys of several tries, each once."""

    tries: Sequence[Trie]
    resolve: Resolve

    def cursor(self, reverse: bool = False) -> Cursor:
        return UnionCursor([trie.cursor(reverse) for trie in self.tries], self.resolve)


@dataclass(frozen=True, slots=True)
class Matching:
    """The keys of a trie that a NATS pattern matches."""

    trie: Trie
    pattern: Pattern

    def cursor(self, reverse: bool = False) -> Cursor:
        return MatchCursor(self.trie.cursor(reverse), self.pattern)


def subtrie(
    trie: Trie,
    left: bytes | None = None,
    right: bytes | None = None,
    *,
    left_inclusive: bool = True,
    right_inclusive: bool = False,
) -> Subtrie:
    """The keys from `left` up to `right`; None leaves that side open."""
    return Subtrie(trie, left, right, left_inclusive, right_inclusive)


def union(tries: Sequence[Trie], resolve: Resolve) -> Union:
    """The keys of all of them; `resolve(contents)` chooses where several have content."""
    return Union(tries, resolve)


def matching(trie: Trie, pattern: str | bytes) -> Matching:
    """The keys that a subscription to `pattern` would receive. Raises InvalidSubject."""
    return Matching(trie, Pattern(pattern))


def entries(trie: Trie, *, reverse: bool = False) -> Iterator[tuple[bytes, Any]]:
    """(key, content) in the order of the keys as bytes, or exactly the other way round."""
    with trie.cursor(reverse) as cursor:
        walk = with_content(cursor)
        yield from longer_keys_first(walk) if reverse else walk


def values(trie: Trie, *, reverse: bool = False) -> Iterator[Any]:
    """The contents in the order of their keys."""
    for _, content in entries(trie, reverse=reverse):
        yield content


def with_content(cursor: Cursor) -> Iterator[tuple[bytes, Any]]:
    """What the cursor has yet to show, from where it stands."""
    while cursor.depth >= 0:
        content = cursor.content()
        if content is not None:
            yield cursor.key(), content
        cursor.advance_to_content()


def longer_keys_first(walk: Iterator[tuple[bytes, Any]]) -> Iterator[tuple[bytes, Any]]:
    """Hold each entry of a reverse walk back until those its key is a prefix of have passed."""
    held: list[tuple[bytes, Any]] = []
    for entry in walk:
        while held and not entry[0].startswith(held[-1][0]):
            yield held.pop()
        held.append(entry)
    yield from reversed(held)
