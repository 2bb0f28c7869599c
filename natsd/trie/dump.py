"""A trie as text for people: one line per node, chains in one, indented by branch.

    Sparse 0x0007e
      c Chain 0x00059
        ar Leaf ~0 = 1
      o Chain 0x0009b
        x Prefix 0x000bf Chain = 2
          en Leaf ~2 = 3

A line gives the transitions from the node above, what kind of node they lead to, its pointer, and
its content. Of a view, which has no nodes of its own, it gives transitions and contents.
"""

from collections.abc import Iterator
from itertools import islice

from natsd.trie.cursor import Cursor
from natsd.trie.trie_cursor import TrieCursor
from natsd.trie.views import Trie

LINES_MAX = 1000


def dump(trie: Trie, lines_max: int = LINES_MAX) -> str:
    """The first `lines_max` nodes of the trie, in the order of a cursor's walk."""
    with trie.cursor() as cursor:
        lines = list(islice(dump_lines(cursor), lines_max))
        if cursor.depth >= 0:
            lines.append("…")
    return "\n".join(lines)


def dump_lines(cursor: Cursor) -> Iterator[str]:
    shown: list[int] = []  # depths of the nodes above, as far as they have a line
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
    content = cursor.content()
    parts = [readable(label), node(cursor) if isinstance(cursor, TrieCursor) else ""]
    if content is not None:
        parts.append(f"= {content!r}")
    return " ".join(part for part in parts if part)


def readable(label: bytes) -> str:
    return repr(label)[2:-1]


def node(cursor: TrieCursor) -> str:
    """Kind and pointer; a leaf's is the complement of its content's index."""
    if cursor.pointer == 0:
        return "NONE"
    if cursor.pointer < 0:
        return f"Leaf ~{cursor.content_index}"
    if cursor.has_prefix:
        return f"Prefix 0x{cursor.pointer:05x} {cursor.kind}"
    return f"{cursor.kind} 0x{cursor.pointer:05x}"
