"""A readable model that tries are compared with: a dict, walked by looking at all of its keys."""

from collections.abc import Mapping
from typing import Any

from natsd.trie.in_memory import Cursor


class DictCursor(Cursor):
    """The simplest cursor: it implements `advance`, and inherits every other move."""

    def __init__(self, content: Mapping[bytes, Any], reverse: bool = False) -> None:
        self.depth = 0
        self.incoming_transition = -1
        self.reverse = reverse
        self._content = content
        self._ahead = nodes_of(content, reverse)
        self._key = self._ahead.pop(0)

    def key(self) -> bytes:
        """Return the key of the current node."""
        return self._key

    def content(self) -> Any:
        """Return the content of the current node, or None."""
        return self._content.get(self._key) if self.depth >= 0 else None

    def advance(self) -> int:
        """Move to the next node and return its depth, or -1 past the end."""
        if not self._ahead:
            self.close()
            return -1
        self._key = self._ahead.pop(0)
        self.depth = len(self._key)
        self.incoming_transition = self._key[-1]
        return self.depth

    def close(self) -> None:
        """End the walk."""
        self._ahead = []
        super().close()


def nodes_of(keys: Mapping[bytes, Any], reverse: bool = False) -> list[bytes]:
    """Return every prefix of every key in the order of a walk: parents first, siblings in order."""
    nodes = {key[:length] for key in [*keys, b""] for length in range(len(key) + 1)}
    flip = 0xFF if reverse else 0
    return sorted(nodes, key=lambda node: bytes(byte ^ flip for byte in node))


class DictTrie(dict[bytes, Any]):
    """A dict that can be walked as a trie."""

    def cursor(self, reverse: bool = False) -> DictCursor:
        """Return a cursor at the root."""
        return DictCursor(self, reverse)


def shown(cursor: Cursor) -> list[tuple[int, int, bytes, Any]]:
    """Return the rest of a walk, node by node: depth, transition, key and content."""
    nodes = [(cursor.depth, cursor.incoming_transition, cursor.key(), cursor.content())]
    while cursor.advance() >= 0:
        nodes.append((cursor.depth, cursor.incoming_transition, cursor.key(), cursor.content()))
    return nodes


def lies_ahead(cursor: Cursor, depth: int, transition: int) -> bool:
    """Return whether the cursor's walk may skip to that position."""
    if depth > cursor.depth:
        return True
    there = cursor.key()[depth - 1]
    return transition < there if cursor.reverse else transition > there
