"""The few of many items that are worth showing, found in one pass and in bounded memory."""

import heapq
from collections.abc import Sequence
from itertools import count
from typing import Final, Generic, TypeVar

T = TypeVar("T")

TEXT_MAX: Final = 200
"""Characters of a text that are shown; a subject may have 64 KiB."""


class Ranking(Generic[T]):
    """The items that are among the first `each` by any of several measures, largest first.

    Few items are all kept. Otherwise items that are 0 by every measure are kept only as far as
    there is room.
    """

    def __init__(self, measures: int, each: int) -> None:
        self.total = 0
        self._each = each
        self._most = measures * each
        self._some: list[T] = []
        self._largest: list[list[tuple[float, int, T]]] = [[] for _ in range(measures)]
        self._order = count(0, -1)  # of two equal items the earlier one is kept

    def add(self, item: T, values: Sequence[float]) -> None:
        """Add an item with its value by each measure."""
        self.total += 1
        if self.total <= self._most:
            self._some.append(item)
        for value, heap in zip(values, self._largest, strict=True):
            if value <= 0:
                continue
            if len(heap) < self._each:
                heapq.heappush(heap, (value, next(self._order), item))
            elif value > heap[0][0]:
                heapq.heapreplace(heap, (value, next(self._order), item))

    def chosen(self) -> list[T]:
        """Return the kept items: those that are first by a measure, then others, each once."""
        found: dict[int, T] = {}
        for heap in self._largest:
            for _, _, item in sorted(heap, reverse=True):
                found.setdefault(id(item), item)
        for item in self._some:
            if len(found) >= self._most:
                break
            found.setdefault(id(item), item)
        return list(found.values())


def shown(text: str) -> str:
    """Return a text that came from a client, cut to TEXT_MAX and valid as UTF-8."""
    if len(text) > TEXT_MAX:
        text = text[: TEXT_MAX - 1] + "…"
    return text.encode(errors="replace").decode()
