"""Views of tries without copies: slices, unions, matches; and the keys of a trie in order.

This module is part of the package's public API; the server itself does not use it.
Views are tries, so they can be nested. Nothing is computed before a view is walked.
`natsd/trie/trie.md` tells what a walk sees of concurrent writes.

    with_price = union([base, changes], resolve=lambda found: found[-1])
    dict(entries(subtrie(matching(with_price, "orders.*.7"), b"orders.eu", b"orders.us")))
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from natsd.trie.in_memory import Cursor, Pattern
from natsd.trie.match_cursor import MatchCursor
from natsd.trie.slice_cursor import SliceCursor
from natsd.trie.union_cursor import Resolve, UnionCursor


class Trie(Protocol):
    """A trie or a view, as a cursor walks it."""

    def cursor(self, reverse: bool = False) -> Cursor:
        """Return a cursor at the root; with `reverse`, children come in descending order."""
        ...


@dataclass(frozen=True, slots=True)
class Subtrie:
    """The keys of a trie between two bounds."""

    trie: Trie
    left: bytes | None
    right: bytes | None
    left_inclusive: bool
    right_inclusive: bool

    def cursor(self, reverse: bool = False) -> Cursor:
        """Return a cursor over the keys between the bounds."""
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
        """Return a cursor over the keys of all tries."""
        return UnionCursor([trie.cursor(reverse) for trie in self.tries], self.resolve)


@dataclass(frozen=True, slots=True)
class Matching:
    """The keys of a trie that a NATS pattern matches."""

    trie: Trie
    pattern: Pattern

    def cursor(self, reverse: bool = False) -> Cursor:
        """Return a cursor over the keys that match."""
        return MatchCursor(self.trie.cursor(reverse), self.pattern)


def subtrie(
    trie: Trie,
    left: bytes | None = None,
    right: bytes | None = None,
    *,
    left_inclusive: bool = True,
    right_inclusive: bool = False,
) -> Subtrie:
    """Return a view of the keys from `left` to `right`; None: no bound on that side."""
    return Subtrie(trie, left, right, left_inclusive, right_inclusive)


def union(tries: Sequence[Trie], resolve: Resolve) -> Union:
    """Return a view of the keys of all tries.

    `resolve(contents)` returns the content to show at a key where several tries have one.
    """
    return Union(tries, resolve)


def matching(trie: Trie, pattern: str | bytes) -> Matching:
    """Return a view of the keys that a subscription to `pattern` would receive.

    Raises InvalidSubject.
    """
    return Matching(trie, Pattern(pattern))


def entries(trie: Trie, *, reverse: bool = False) -> Iterator[tuple[bytes, Any]]:
    """Yield (key, content) in byte order of the keys, or exactly in reverse order."""
    with trie.cursor(reverse) as cursor:
        walk = with_content(cursor)
        yield from longer_keys_first(walk) if reverse else walk


def values(trie: Trie, *, reverse: bool = False) -> Iterator[Any]:
    """Yield the contents in byte order of their keys, or in reverse order."""
    for _, content in entries(trie, reverse=reverse):
        yield content


def with_content(cursor: Cursor) -> Iterator[tuple[bytes, Any]]:
    """Yield (key, content) of the cursor's node and of all nodes behind it that have content."""
    while cursor.depth >= 0:
        content = cursor.content()
        if content is not None:
            yield cursor.key(), content
        cursor.advance_to_content()


def longer_keys_first(walk: Iterator[tuple[bytes, Any]]) -> Iterator[tuple[bytes, Any]]:
    """Reorder a reverse walk: yield a key only after the keys of which it is a prefix."""
    held: list[tuple[bytes, Any]] = []
    for entry in walk:
        while held and not entry[0].startswith(held[-1][0]):
            yield held.pop()
        held.append(entry)
    yield from reversed(held)
