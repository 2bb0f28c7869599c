from typing import NamedTuple

from natsd.trie.trie_cursor import TrieCursor

class TrieUsage(NamedTuple):
    cells: int
    cells_free: int
    slots: int
    waiting: int
    cell_bytes: int
    slot_bytes: int
    bookkeeping_bytes: int

class CellTrie:
    def __len__(self) -> int: ...
    @property
    def root(self) -> int: ...
    def cell(self, offset: int) -> bytes: ...
    def usage(self) -> TrieUsage: ...
    def recycle(self) -> None: ...
    def cursor(self, reverse: bool = False) -> TrieCursor: ...
