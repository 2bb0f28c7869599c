from collections.abc import Iterable

from natsd.store.disk import Buffer

def encode_entries(seed: int, entries: Iterable[tuple[int, bytes, int, Buffer]]) -> bytes: ...
