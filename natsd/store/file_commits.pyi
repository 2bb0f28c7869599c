from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from natsd.store.errors import StoreError
from natsd.store.extent import CommitSource
from natsd.store.journaled_log import JournaledLog
from natsd.store.sequence_set import SequenceSet
from natsd.store.store import DurabilityListener
from natsd.store.stored_blocks import StoredBlock, StoredBlocks
from natsd.store.volume import Volume

@dataclass
class Durable:
    number: int
    begins: bool
    gone: list[StoredBlock]
    full: list[StoredBlock]
    erased: SequenceSet | None

class Aftermath(Protocol):
    """The part of a store that does the work that must wait until a commit is on disk."""

    def on_disk(self, durable: Durable) -> None: ...
    def committed(self) -> None: ...

class FileCommits(CommitSource):
    log: JournaledLog
    blocks: StoredBlocks
    durable_sequence: int
    number: int
    error: StoreError | None
    failures: int
    pauses: int
    erasing: set[int]
    at_commit: Callable[[int], Callable[[], None] | None] | None
    listener: DurabilityListener | None

    def __init__(
        self,
        volume: Volume,
        log: JournaledLog,
        blocks: StoredBlocks,
        aftermath: Aftermath,
        *,
        number: int,
    ) -> None: ...
    def changed(self) -> None: ...
    @property
    def is_idle(self) -> bool: ...
    async def synced(self) -> None: ...
    async def mark(self) -> None: ...
    async def close(self) -> None: ...
    async def until_on_disk(self) -> None: ...
    async def settled(self) -> None: ...
    def give_up(self, error: StoreError) -> None: ...
    async def pause(self) -> None: ...
    def resume(self) -> None: ...
    def failed(self, error: StoreError) -> None: ...
