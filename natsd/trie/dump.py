"""A trie as text for people: one line per node, chains in one line, indented by branch.

This module is part of the package's public API; the server itself does not use it.

    Sparse 0x0007e
      c Chain 0x00059
        ar Leaf ~0 = 1
      o Chain 0x0009b
        x Prefix 0x000bf Chain = 2
          en Leaf ~2 = 3

A line has the transitions from the node above, the kind of node that they lead to, its pointer, and
its content. A view has no nodes of its own: its lines have transitions and contents.
"""

from collections.abc import Iterator
from itertools import islice

from natsd.trie.in_memory import Cursor, TrieCursor
from natsd.trie.views import Trie

LINES_MAX = 1000


def dump(trie: Trie, lines_max: int = LINES_MAX) -> str:
    """Return the first `lines_max` nodes of the trie as text, in the order of a cursor's walk."""
    with trie.cursor() as cursor:
        lines = list(islice(dump_lines(cursor), lines_max))
        if cursor.depth >= 0:
            lines.append("…")
    return "\n".join(lines)


def dump_lines(cursor: Cursor) -> Iterator[str]:
    """Yield a line for each remaining node of the cursor's walk."""
    shown: list[int] = []  # depths of the nodes above that have a line
    label = bytearray()
    while cursor.depth >= 0:
        while shown and shown[-1] >= cursor.depth:
            shown.pop()
        yield "  " * len(shown) + line(cursor, bytes(label))
        shown.append(cursor.depth)
        label.clear()
        cursor.advance_multiple(label)
        label.append(max(cursor.incoming_transition, 0))


def line(cursor: Cursor, label: bytes) -> str:
    """Return a node's line without indentation; `label` is the transitions that lead to it."""
    content = cursor.content()
    parts = [readable(label), node(cursor) if isinstance(cursor, TrieCursor) else ""]
    if content is not None:
        parts.append(f"= {content!r}")
    return " ".join(part for part in parts if part)


def readable(label: bytes) -> str:
    """Return the bytes as text, escaped as in a Python literal."""
    return repr(label)[2:-1]


def node(cursor: TrieCursor) -> str:
    """Return a node's kind and pointer; for a leaf, the complement of its content's index."""
    if cursor.pointer == 0:
        return "NONE"
    if cursor.pointer < 0:
        return f"Leaf ~{cursor.content_index}"
    if cursor.has_prefix:
        return f"Prefix 0x{cursor.pointer:05x} {cursor.kind}"
    return f"{cursor.kind} 0x{cursor.pointer:05x}"
