from natsd.trie.cell_trie import CellTrie
from natsd.trie.cursor import Cursor

class TrieCursor(Cursor):
    pointer: int
    kind: str
    has_prefix: bool
    content_index: int

    def __init__(self, trie: CellTrie, reverse: bool = False) -> None: ...
