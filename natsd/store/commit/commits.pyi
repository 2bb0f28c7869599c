import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from natsd.store.block.stored_blocks import StoredBlock, StoredBlocks
from natsd.store.disk.disk import DiskFile
from natsd.store.errors import StoreError
from natsd.store.log.message_log import LogCommits, MessageLog
from natsd.store.sequence_set import SequenceSet
from natsd.store.store import DurabilityListener
from natsd.store.wal.entries import Extent

T = TypeVar("T")

BEHIND_S: float

class State(enum.IntEnum):
    IDLE = 0
    OUT = 1
    FULL = 2
    DEAD = 3

class CommitSource:
    writes: int
    is_synced_at_once: bool
    commit_state: State
    error: StoreError | None
    probe: tuple[DiskFile, int, int] | None
    is_probing: bool

    def take_extent(self) -> Extent | None: ...
    def committed(self) -> None: ...
    def on_disk(self, writes: int) -> None: ...
    def failed(self, error: StoreError) -> None: ...
    def resumed(self) -> None: ...
    def acknowledge(self, is_on_disk: bool) -> None: ...
    def answer(self, callback: Callable[..., None], *what: object) -> None: ...

def idle_sources(
    dirty: Iterable[CommitSource],
) -> tuple[list[CommitSource], list[CommitSource]]: ...
def still_out(
    taken: list[tuple[CommitSource, Extent]],
) -> list[tuple[CommitSource, Extent]]: ...

@dataclass
class Durable:
    number: int
    begins: bool
    gone: list[StoredBlock]
    full: list[StoredBlock]
    erased: SequenceSet | None

class PostCommitWork(Protocol):
    """The part of a store that does the work that must wait until a commit is on disk."""

    def on_disk(self, durable: Durable) -> None: ...
    def committed(self) -> None: ...

class SourceCommitter(Protocol):
    """The committer of a volume, as its sources call it."""

    def dirty(self, source: CommitSource) -> None: ...
    def fail(self, source: CommitSource, error: Exception) -> None: ...
    async def settle(self, file: DiskFile) -> None: ...
    async def forget(self, *paths: Path) -> None: ...

class CommittingVolume(Protocol):
    """The volume of a store, as its commits need it."""

    @property
    def committer(self) -> SourceCommitter: ...
    async def read(self, function: Callable[..., T], *arguments: object) -> T: ...

class FileCommits(CommitSource):
    log: MessageLog
    log_commits: LogCommits
    blocks: StoredBlocks
    durable_sequence: int
    number: int
    failures: int
    pauses: int
    erasing: set[int]
    at_commit: Callable[[int], Callable[[], None] | None] | None
    listener: DurabilityListener | None

    def __init__(
        self,
        volume: CommittingVolume,
        log: MessageLog,
        blocks: StoredBlocks,
        aftermath: PostCommitWork,
        *,
        number: int,
        buffered_bytes_max: int,
        buffered_msgs_max: int,
    ) -> None: ...
    @property
    def buffered_bytes(self) -> int: ...
    @property
    def is_over_limit(self) -> bool: ...
    async def room(self) -> None: ...
    def write_behind(self) -> None: ...
    def changed(self) -> None: ...
    async def synced(self) -> None: ...
    async def mark(self) -> None: ...
    async def close(self) -> None: ...
    async def until_on_disk(self) -> None: ...
    async def settled(self) -> None: ...
    def give_up(self, error: StoreError) -> None: ...
    async def pause(self) -> None: ...
    def resume(self) -> None: ...
