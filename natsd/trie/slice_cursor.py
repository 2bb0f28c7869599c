"""The walk over the keys between two bounds.

A bound is compared with the walk's path as long as the path is a prefix of it. If the path is a
proper prefix of the left bound, the node's own key lies before the bound and is not shown. A branch
outside the bounds is never entered, and the walk ends at the first node behind its final bound.
"""

from typing import Any

from natsd.trie.in_memory import Cursor


class SliceCursor(Cursor):
    """A cursor over the keys of its source from `left` to `right`; None: no bound there."""

    def __init__(
        self,
        source: Cursor,
        left: bytes | None,
        right: bytes | None,
        *,
        left_inclusive: bool = True,
        right_inclusive: bool = False,
    ) -> None:
        self.depth = source.depth
        self.incoming_transition = source.incoming_transition
        self.reverse = source.reverse
        self._source = source
        self._left, self._right = left, right
        self._left_inclusive, self._right_inclusive = left_inclusive, right_inclusive
        self._begin, self._end = (right, left) if source.reverse else (left, right)
        # Number of leading bytes of the path that equal the bound's; -1: no bound.
        self._begin_matched = -1 if self._begin is None else 0
        self._end_matched = -1 if self._end is None else 0

    def key(self) -> bytes:
        """Return the transitions from the root to this node."""
        return self._source.key()

    def content(self) -> Any:
        """Return the content of this node if its key lies within the bounds, else None."""
        left_matched, right_matched = self._begin_matched, self._end_matched
        if self.reverse:
            left_matched, right_matched = right_matched, left_matched
        if left_matched == self.depth and self._is_left_of(self._left or b""):
            return None
        if right_matched == self.depth and self._is_right_of(self._right or b""):
            return None
        return self._source.content()

    def advance(self) -> int:
        """Go to the next node within the bounds; return its depth, -1 past the end."""
        if self._begin is not None and self._begin_matched == self.depth:
            if self.depth < len(self._begin):
                return self._land(self._source.skip_to(self.depth + 1, self._begin[self.depth]))
            if self.reverse:  # on the right bound itself: all nodes below lie behind it
                return self._land(self._source.skip_children())
        return self._land(self._source.advance())

    def advance_multiple(self, receiver: bytearray) -> int:
        """Advance, over several nodes at once where no bound is near; return the new depth."""
        if self.depth in (self._begin_matched, self._end_matched):
            return self.advance()
        return self._land(self._source.advance_multiple(receiver))

    def skip_children(self) -> int:
        """Go to the next node that is not below this one; return its depth, -1 past the end."""
        return self._land(self._source.skip_children())

    def skip_to(self, depth: int, transition: int) -> int:
        """Go to (depth, transition), or the first node behind it within the bounds."""
        if depth > self.depth and self._begin is not None and self._begin_matched == self.depth:
            if self.depth < len(self._begin):
                later = min if self.reverse else max
                transition = later(transition, self._begin[self.depth])
            elif self.reverse:
                return self.skip_children()
        return self._land(self._source.skip_to(depth, transition))

    def close(self) -> None:
        """Close the source; the cursor is past the end then."""
        self._source.close()
        super().close()

    def _land(self, depth: int) -> int:
        """Follow the source to its node; end the walk if that lies behind the bound."""
        self.depth = depth
        self.incoming_transition = self._source.incoming_transition
        if depth < 0:
            return -1
        if self._begin is not None and self._begin_matched >= depth - 1:
            self._begin_matched = self._matched(self._begin)
        if self._end is not None and self._end_matched >= depth - 1:
            if self._is_behind(self._end):
                self.close()
                return -1
            self._end_matched = self._matched(self._end)
        return depth

    def _is_left_of(self, left: bytes) -> bool:
        """Return whether this node, a prefix of the left bound, lies outside."""
        return self.depth < len(left) or not self._left_inclusive

    def _is_right_of(self, right: bytes) -> bool:
        """Return whether this node, a prefix of the right bound, lies outside."""
        return self.depth == len(right) and not self._right_inclusive

    def _matched(self, bound: bytes) -> int:
        """Return how many bytes of the path equal a bound that the parent's path is a prefix of."""
        parent = self.depth - 1
        return parent + (bound[parent : self.depth] == bytes([self.incoming_transition]))

    def _is_behind(self, end: bytes) -> bool:
        """Return whether this node, whose parent is a prefix of `end`, lies behind `end`."""
        parent = self.depth - 1
        if self.reverse:
            return parent < len(end) and self.incoming_transition < end[parent]
        return parent == len(end) or self.incoming_transition > end[parent]
