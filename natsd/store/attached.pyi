import asyncio
import enum
from collections.abc import Callable

from natsd.store.disk import CommitJob, DiskFile
from natsd.store.errors import StoreError
from natsd.store.extent import CommitSource, Extent

class State(enum.IntEnum):
    IDLE = 0
    OUT = 1
    FULL = 2
    DEAD = 3

class Attached:
    source: CommitSource
    is_synced_at_once: bool
    buffered_bytes_max: int
    buffered_msgs_max: int
    state: State
    error: StoreError | None
    commits: int
    probe: tuple[DiskFile, int, int] | None
    is_probing: bool
    waiters: list[asyncio.Future[None]]

    def __init__(
        self,
        source: CommitSource,
        is_synced_at_once: bool,
        buffered_bytes_max: int,
        buffered_msgs_max: int,
    ) -> None: ...
    def take(self) -> Extent | None: ...
    def commit(self, is_on_disk: bool) -> None: ...
    def answer(self, callback: Callable[..., None], *what: object) -> None: ...
    @property
    def is_over_limit(self) -> bool: ...
    def wake(self) -> None: ...

class Round:
    taken: list[tuple[Attached, Extent]]
    is_in_journal: bool
    def __init__(self, taken: list[tuple[Attached, Extent]], journal_bytes_max: int) -> None: ...
    def add_writing(self, job: CommitJob) -> None: ...
    def small(self) -> list[tuple[Attached, Extent]]: ...
    def commit_journaled(self) -> list[tuple[Attached, Extent]]: ...

def write_extent(job: CommitJob, extent: Extent) -> None: ...
def idle_sources(
    dirty: dict[CommitSource, Attached],
) -> tuple[list[Attached], list[Attached]]: ...
