from collections.abc import Callable
from typing import Generic, TypeVar

from natsd.trie.cell_trie import CellTrie

_Content = TypeVar("_Content")
_Default = TypeVar("_Default")
_Update = TypeVar("_Update")

class InMemoryTrie(CellTrie, Generic[_Content]):
    def __init__(self, *, max_bytes: int = ..., garbage_bytes_max: int = ...) -> None: ...
    def get(self, key: bytes, default: _Default = ...) -> _Content | _Default: ...
    def __contains__(self, key: bytes) -> bool: ...
    def put(self, key: bytes, value: _Content) -> None: ...
    def put_recursive(
        self,
        key: bytes,
        update: _Update,
        transformer: Callable[[_Content | None, _Update], _Content | None],
    ) -> None: ...
    def delete(self, key: bytes) -> bool: ...
