from collections.abc import Sequence

from natsd.store.disk import Buffer
from natsd.store.reused_bytes import ReusedBytes

class FrameRoom:
    def pack(self, number: int, pieces: Sequence[Buffer], packed: ReusedBytes) -> bytes: ...

def crc32c(data: bytes, *, by_tables: bool = False) -> int: ...
