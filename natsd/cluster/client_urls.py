"""The URLs at which clients reach the other servers of the cluster, as INFO tells clients.

Several routes may tell of the same URL: it stays until the last one ends.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

URLS_MAX: Final = 10_000
"""URLs that are remembered; further ones are not told to clients."""


class ClientUrls:
    """URLs with the number of peers that told of each."""

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()

    def __iter__(self) -> Iterator[str]:
        return iter(self._count)

    def add(self, urls: Iterable[str]) -> bool:
        """Add the URLs of a peer; return whether one is new."""
        before = len(self._count)
        for url in urls:
            if url in self._count or len(self._count) < URLS_MAX:
                self._count[url] += 1
        return len(self._count) != before

    def remove(self, urls: Iterable[str]) -> bool:
        """Remove the URLs of a peer; return whether one is gone."""
        before = len(self._count)
        for url in urls:
            if self._count[url] > 1:
                self._count[url] -= 1
            else:
                del self._count[url]
        return len(self._count) != before
