"""The walk over the keys that match a NATS pattern, on top of any other walk.

The pattern reads the walk's path byte by byte; its state is kept for each depth. Where the pattern
requires a byte, the cursor goes there directly; a branch that the pattern refuses is left at once.
Nodes that lead to no match may be visited, but show no content.
"""

from typing import Any

from natsd.trie.in_memory import Cursor, Pattern


class MatchCursor(Cursor):
    """A cursor over those keys of its source that `pattern` matches."""

    def __init__(self, source: Cursor, pattern: Pattern) -> None:
        self.depth = source.depth
        self.incoming_transition = source.incoming_transition
        self.reverse = source.reverse
        self._source = source
        self._pattern = pattern
        self._states = [pattern.start]  # state after each byte of the path; first the root's

    def key(self) -> bytes:
        """Return the transitions from the root to this node."""
        return self._source.key()

    def content(self) -> Any:
        """Return the content of this node if its key matches, else None."""
        if self.depth < 0 or not self._pattern.accepts(self._states[self.depth]):
            return None
        return self._source.content()

    def advance(self) -> int:
        """Go to the next node that may lead to a match; return its depth, -1 past the end."""
        return self._land(self._enter(255 if self.reverse else 0))

    def skip_children(self) -> int:
        """Go to the next node that is not below this one; return its depth, -1 past the end."""
        return self._land(self._source.skip_children())

    def skip_to(self, depth: int, transition: int) -> int:
        """Go to (depth, transition), or the first node behind it that may lead to a match."""
        if depth > self.depth:
            return self._land(self._enter(transition))
        return self._land(self._source.skip_to(depth, transition))

    def close(self) -> None:
        """Close the source; the cursor is past the end then."""
        self._source.close()
        super().close()

    def _enter(self, transition: int) -> int:
        """Move the source to the first child from `transition` on that the pattern may accept."""
        if self.depth < 0:
            return -1
        wanted = self._pattern.literal(self._states[self.depth])
        if wanted < 0:
            return self._source.skip_to(self.depth + 1, transition)
        if (wanted > transition) if self.reverse else (wanted < transition):
            return self._source.skip_children()
        return self._source.skip_to(self.depth + 1, wanted)

    def _land(self, depth: int) -> int:
        """Follow the source to its node, and on until the pattern accepts the path."""
        while depth > 0:
            state = self._pattern.step(self._states[depth - 1], self._source.incoming_transition)
            if state >= 0:
                self._states[depth:] = [state]
                break
            depth = self._refused(depth)
        self.depth = depth
        self.incoming_transition = self._source.incoming_transition
        return depth

    def _refused(self, depth: int) -> int:
        if self._pattern.literal(self._states[depth - 1]) < 0:
            return self._source.skip_children()
        return self._source.skip_to(depth, -1 if self.reverse else 256)
