from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from natsd.store.block.blocks import BlockExtent
from natsd.store.disk.disk import Buffer, DiskFile
from natsd.store.errors import StoreError

class Extent:
    file: DiskFile
    offset: int
    data: Buffer
    allocate_to: int
    new_in: Path | None
    size: int
    identity: int

    def __init__(
        self,
        file: DiskFile,
        offset: int,
        data: Buffer | BlockExtent,
        allocate_to: int = 0,
        new_in: Path | None = None,
        identity: int = 0,
    ) -> None: ...

class CommitSource(Protocol):
    buffered_bytes: int = 0
    buffered_msgs: int = 0

    def take_extent(self) -> Extent | None: ...
    def committed(self) -> None: ...
    def failed(self, error: StoreError) -> None: ...
    def on_disk(self, commits: int) -> None:
        return
    def resumed(self) -> None:
        return

def grown_allocation(end_bytes: int, block_bytes_max: int) -> int: ...
def encode_entries(seed: int, entries: Iterable[tuple[int, bytes, int, Buffer]]) -> bytes: ...
