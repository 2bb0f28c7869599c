"""The walk over the keys between two bounds.

A bound is followed from the root as long as the walk's path is a prefix of it. Where the path is a
proper prefix of the left bound, the node's own key lies before it and is not shown; a branch that
lies outside is never entered, and the walk ends with the first node behind the bound it moves to.
"""

from typing import Any

from natsd.trie.cursor import Cursor


class SliceCursor(Cursor):
    """A cursor that sees what its source shows from `left` to `right`; None: no bound there."""

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
        # How many bytes of the path, counted from the root, are those of the bound; -1: no bound.
        self._begin_matched = -1 if self._begin is None else 0
        self._end_matched = -1 if self._end is None else 0

    def key(self) -> bytes:
        return self._source.key()

    def content(self) -> Any:
        left_matched, right_matched = self._begin_matched, self._end_matched
        if self.reverse:
            left_matched, right_matched = right_matched, left_matched
        if left_matched == self.depth and self._is_left_of(self._left or b""):
            return None
        if right_matched == self.depth and self._is_right_of(self._right or b""):
            return None
        return self._source.content()

    def advance(self) -> int:
        if self._begin is not None and self._begin_matched == self.depth:
            if self.depth < len(self._begin):
                return self._land(self._source.skip_to(self.depth + 1, self._begin[self.depth]))
            if self.reverse:  # on the right bound itself: all below lies behind it
                return self._land(self._source.skip_children())
        return self._land(self._source.advance())

    def advance_multiple(self, receiver: bytearray) -> int:
        if self.depth in (self._begin_matched, self._end_matched):
            return self.advance()
        return self._land(self._source.advance_multiple(receiver))

    def skip_children(self) -> int:
        return self._land(self._source.skip_children())

    def skip_to(self, depth: int, transition: int) -> int:
        if depth > self.depth and self._begin is not None and self._begin_matched == self.depth:
            if self.depth < len(self._begin):
                later = min if self.reverse else max
                transition = later(transition, self._begin[self.depth])
            elif self.reverse:
                return self.skip_children()
        return self._land(self._source.skip_to(depth, transition))

    def close(self) -> None:
        self._source.close()
        super().close()

    def _land(self, depth: int) -> int:
        """Follow the source to where it went; past the end if that is behind the bound."""
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
        """Is this node, a prefix of the left bound, outside?"""
        return self.depth < len(left) or not self._left_inclusive

    def _is_right_of(self, right: bytes) -> bool:
        """Is this node, a prefix of the right bound, outside?"""
        return self.depth == len(right) and not self._right_inclusive

    def _matched(self, bound: bytes) -> int:
        """How far the path follows a bound that its parent follows."""
        parent = self.depth - 1
        return parent + (bound[parent : self.depth] == bytes([self.incoming_transition]))

    def _is_behind(self, end: bytes) -> bool:
        """Is this node, whose parent is a prefix of `end`, behind it?"""
        parent = self.depth - 1
        if self.reverse:
            return parent < len(end) and self.incoming_transition < end[parent]
        return parent == len(end) or self.incoming_transition > end[parent]
