"""The walk over several tries at once, as if they were one.

Each source has its own cursor. The cursors that stand on the union's current node move with it; the
others wait ahead, each on its first node that the union has not reached. Of two waiting positions
the deeper one comes first, and at equal depths the one with the earlier transition.
"""

from collections.abc import Callable, Sequence
from typing import Any

from natsd.trie.in_memory import Cursor

Resolve = Callable[[list[Any]], Any]


class UnionCursor(Cursor):
    """A cursor over all keys of its sources, which must be all forward or all reverse.

    If several sources have content at a key, `resolve` gets the contents in the order of the
    sources and returns the content to show.
    """

    def __init__(self, sources: Sequence[Cursor], resolve: Resolve) -> None:
        self.depth = 0
        self.incoming_transition = -1
        self.reverse = bool(sources) and sources[0].reverse
        assert all(source.reverse == self.reverse for source in sources)
        self._sources = list(sources)
        self._here = self._sources
        self._resolve = resolve

    def key(self) -> bytes:
        """Return the transitions from the root to this node."""
        return self._here[0].key() if self._here else b""

    def content(self) -> Any:
        """Return the content of this node, resolved if several sources have one; or None."""
        found = [content for source in self._here if (content := source.content()) is not None]
        return self._resolve(found) if len(found) > 1 else found[0] if found else None

    def advance(self) -> int:
        """Go to the next node of any source; return its depth, -1 past the end."""
        for source in self._here:
            source.advance()
        return self._settle()

    def advance_multiple(self, receiver: bytearray) -> int:
        """Advance, over several nodes at once where one source is alone; return the new depth."""
        if len(self._here) != 1:
            return self.advance()
        # The waiting sources are not below this node, so all nodes that this source passes come
        # first.
        self._here[0].advance_multiple(receiver)
        return self._settle()

    def skip_children(self) -> int:
        """Go to the next node that is not below this one; return its depth, -1 past the end."""
        for source in self._here:
            source.skip_children()
        return self._settle()

    def skip_to(self, depth: int, transition: int) -> int:
        """Go to (depth, transition), or the first node behind it; return the new depth."""
        for source in self._sources:
            if source in self._here or self._is_waiting_before(source, depth, transition):
                source.skip_to(depth, transition)
        return self._settle()

    def close(self) -> None:
        """Close all sources; the cursor is past the end then."""
        for source in self._sources:
            source.close()
        super().close()

    def _is_waiting_before(self, source: Cursor, depth: int, transition: int) -> bool:
        if source.depth != depth:
            return source.depth > depth
        if self.reverse:
            return source.incoming_transition > transition
        return source.incoming_transition < transition

    def _settle(self) -> int:
        """Stand on the first of the sources' nodes; return its depth, -1 past the end."""
        self.depth = max((source.depth for source in self._sources), default=-1)
        deepest = [source for source in self._sources if source.depth == self.depth]
        first = max if self.reverse else min
        self.incoming_transition = first(
            (source.incoming_transition for source in deepest), default=-1
        )
        self._here = [
            source for source in deepest if source.incoming_transition == self.incoming_transition
        ]
        return self.depth
