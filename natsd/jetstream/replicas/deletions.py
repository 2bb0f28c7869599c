"""Consumers that the files of a replica lack at a start, since its log deletes them.

    snapshot: consumers a, b ── … ── delete a ── …        files: b
                                     │ committed           the files are whole
                                     │ not yet             they are, as long as the log has it
                                     └ the log has something else there by now: a was lost here

Promise
- If a consumer is missing for another reason, the replica lacks it, and fetches the stream.

Source: docs/raft.md.
"""

from collections.abc import Collection, Iterator

from natsd.core.steps import Breaks
from natsd.jetstream.commands.commands import Command, DeleteConsumer
from natsd.jetstream.replicas.log_entry import FIRST, command_at, count
from natsd.raft.entry import Entry, EntryKind
from natsd.raft.log import Log


class Deletions:
    """The entries of a log that delete consumers which the files do not have any more."""

    def __init__(self, log: Log | None = None) -> None:
        """Begin without any."""
        self._log = log
        self._terms: dict[int, int] = {}  # by index: of entries that may not be committed

    @classmethod
    async def explain(cls, lacking: Collection[str], log: Log) -> "Deletions | None":
        """Return the deletions of these consumers; None: the log does not delete all of them."""
        found, breaks, left = cls(log), Breaks(), set(lacking)
        for entry in log.live_up_to(log.last_index):
            if not left:
                break
            for command in _commands(entry):
                if isinstance(command, DeleteConsumer) and command.name in left:
                    left.discard(command.name)
                    found._terms[entry.index] = entry.term
            await breaks.take()
        return None if left else found

    @property
    def are_certain(self) -> bool:
        """Whether all of them are committed."""
        return not (self.are_lost or self._terms)

    @property
    def are_lost(self) -> bool:
        """Whether one of them never happened: the log has something else in its place."""
        log = self._log
        if log is None or not self._terms:
            return False
        if any(log.term_at(index) != term for index, term in self._terms.items()):
            return True
        self._terms = {at: term for at, term in self._terms.items() if at > log.commit}
        return False


def _commands(entry: Entry) -> Iterator[Command]:
    if not entry.data or entry.kind is not EntryKind.NORMAL:
        return
    at = FIRST
    for _ in range(count(entry.data)):
        command, at = command_at(entry.data, at)
        yield command
