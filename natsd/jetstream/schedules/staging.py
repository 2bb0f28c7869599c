"""Changes of the delayed messages of a stream with replicas, until these have committed them.

    leader     append, remove ─▶ the store's log, staged ─ commit of the command ─▶ written
                                      └─ the leader steps down ─▶ undone
    follower   append, remove when a command is applied ─▶ written

Promise
- Nothing that is not committed is written (`MessageLog.committed_index`). A removal is proposed in
  the turn in which it is made.
- Nothing is removed for a leadership that has ended meanwhile.
- Commands that are committed and may not be written yet are kept until they are.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from natsd.core.steps import Breaks
from natsd.jetstream.commands.commands import Command, RemoveDelayed
from natsd.jetstream.commands.committer import NotCommitted
from natsd.jetstream.stream.state import Proposer
from natsd.store.block.cold_block import ColdBlock
from natsd.store.log_store import LogStore
from natsd.store.mem_store import MemStore
from natsd.store.sequence_set import SequenceSet

EVERYTHING: Final = (1 << 64) - 1
REMOVED_AT_ONCE: Final = 64


class Staging:
    """The changes of one store of delayed messages."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._proposer: Proposer | None = None
        self._is_undoing = False  # what was not committed is not undone yet
        self._is_held = False  # the log may have changes that wait for the replicas
        self._committed: deque[tuple[int, Command]] = deque()  # with their indexes

    @property
    def is_leading(self) -> bool:
        """Whether changes are proposed."""
        return self._proposer is not None

    def begin(self, proposer: Proposer) -> None:
        """Propose changes from now on; all earlier ones are committed."""
        if isinstance(self._store, MemStore):
            self._store.begin_commits()
        log = self._store.log
        self._proposer = proposer
        self._committed.clear()
        log.committed_index = log.applied_index = proposer.proposed
        log.is_staged = False

    def appended(self) -> None:
        """Note that an entry was appended; the publish is the next command."""
        if self._proposer is not None:
            self._store.log.applied_index = self._proposer.proposed + 1
            self._is_held = True

    async def remove(self, numbers: Iterable[int]) -> None:
        """Remove entries, and propose it. Raises StoreError, NotCommitted if it does not lead."""
        proposer, log = self._proposer, self._store.log
        removed, breaks = SequenceSet(), Breaks()
        for at, number in enumerate(numbers, 1):
            while True:
                try:
                    if log.delete(number):
                        removed.add(number)
                    break
                except ColdBlock as cold:
                    self._propose(removed)
                    await self._store.fetch(cold.block)
                    self._check(proposer)
            if at % REMOVED_AT_ONCE == 0:
                self._propose(removed)
                await breaks.take()
                self._check(proposer)
        self._propose(removed)
        self._store.changed()

    def _check(self, proposer: Proposer | None) -> None:
        if self._proposer is not proposer:
            raise NotCommitted

    def _propose(self, removed: SequenceSet) -> None:
        if self._proposer is not None and removed:
            self._proposer.propose(RemoveDelayed(tuple(removed.runs())))
            self._store.log.applied_index = self._proposer.propose_rest()
            self._is_held = True
        removed.clear()

    def note_committed(self, command: Command) -> None:
        """Note a committed command that concerns delayed messages."""
        assert self._proposer is not None
        self._committed.append((self._proposer.committed, command))

    def commit(self) -> None:
        """Write what is committed by now."""
        if self._proposer is None or not (self._is_held or self._committed):
            return
        log, committed = self._store.log, self._proposer.committed
        log.committed_index = committed
        self._is_held = log.applied_index > committed
        while self._committed and self._committed[0][0] <= log.durable_index:
            self._committed.popleft()
        self._store.changed()

    async def undo(self) -> list[tuple[int, Command]]:
        """Propose nothing more, and undo what no commit has taken.

        Return the committed commands that may be undone, with their indexes. Raises StoreError.
        """
        if self._proposer is None and not self._is_undoing:
            return []
        self._proposer, self._is_undoing = None, True
        log = self._store.log
        await self._store.undo(NotCommitted())
        self._is_undoing = False
        log.committed_index = EVERYTHING
        log.is_staged = self._is_held = False
        committed, self._committed = self._committed, deque()
        return [each for each in committed if each[0] > log.durable_index]
