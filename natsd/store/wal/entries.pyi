from collections.abc import Iterable
from pathlib import Path

from natsd.store.block.blocks import BlockExtent
from natsd.store.disk.disk import Buffer, CommitJob, DiskFile

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

def write_extent(job: CommitJob, extent: Extent) -> None: ...
def write_parts(job: CommitJob, extents: list[Extent]) -> None: ...
def grown_allocation(end_bytes: int, block_bytes_max: int) -> int: ...
def encode_entries(seed: int, entries: Iterable[tuple[int, bytes, int, Buffer]]) -> bytes: ...
def decode_entries(
    seed: int, segment: bytes, batch_offset: int, size: int
) -> list[tuple[int, bytes, int, bytes | None]]: ...
