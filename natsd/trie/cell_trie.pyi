from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from natsd.trie.cursor import Cursor
from natsd.trie.trie_cursor import TrieCursor

class TrieUsage(NamedTuple):
    cells: int
    cells_free: int
    slots: int
    waiting: int
    cell_bytes: int
    slot_bytes: int
    bookkeeping_bytes: int

class HasCursor(Protocol):
    def cursor(self, reverse: bool = ...) -> Cursor: ...

class CellTrie:
    def __len__(self) -> int: ...
    @property
    def root(self) -> int: ...
    def cell(self, offset: int) -> bytes: ...
    def usage(self) -> TrieUsage: ...
    def apply(
        self,
        mutation: HasCursor,
        transformer: Callable[[Any, Any], Any],
    ) -> None: ...
    def recycle(self) -> None: ...
    def cursor(self, reverse: bool = False) -> TrieCursor: ...
