"""A rescue, as the server carries it out that has the order (rescue_order.py).

    the meta group is lost      listen ─▶ new name, one member, all changes made ─▶ start
    the meta group has a        listen ─▶ propose the changes
    majority

Promise
- The server listens for LISTEN_S first. If it hears a server that was said to be lost, and that
  still is a member of the group, nothing is done: the order is refused, and removed.
- A crash leaves the group as it was, or rescued; the next start goes on.
- What is done is recorded before the order is removed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from natsd.jetstream.meta_group.answering import Unanswered
from natsd.jetstream.meta_group.assignments import Assignments, Change, Reassign
from natsd.jetstream.meta_group.founding_record import Founded
from natsd.jetstream.meta_group.peers import Peers
from natsd.jetstream.meta_group.rescue_order import (
    RescueOrder,
    add_records,
    read_order,
    remove_order,
)
from natsd.raft.entry import Entry, EntryKind
from natsd.raft.host import RaftHost
from natsd.raft.storage.recovery import RecoveredGroup
from natsd.store.crypto.vault import Vault

_logger = logging.getLogger(__name__)

LISTEN_S: Final = 5.0


class Rescuing:
    """The order of this server, until it is carried out."""

    def __init__(self, host: RaftHost, peers: Peers, vault: Vault, directory: Path) -> None:
        self._host = host
        self._peers = peers
        self._vault = vault
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        self._listens_until_s = 0.0
        self.order: RescueOrder | None = None
        """What is to be done; None: nothing."""

    def open(self) -> None:
        """Read the order. Blocks; raises OSError."""
        self.order = read_order(self._vault, self._directory)

    def start(self) -> None:
        """Begin to listen."""
        self._listens_until_s = self._loop.time() + LISTEN_S
        if self.order is not None:
            _logger.warning(
                "JetStream rescue: ordered by %s at %s; listening for %s first",
                self.order.who,
                self.order.time,
                ", ".join(self.order.lost),
            )

    def is_for_meta(self, group: str) -> bool:
        """Tell whether the meta group of this name is to be rescued, or has been half."""
        order = self.order
        return order is not None and order.meta == group and bool(order.new_meta)

    async def may_begin(self) -> bool:
        """Tell whether to do what is ordered now; if never, the order is gone afterwards."""
        order = self.order
        if order is None:
            return False
        online = self._peers.online
        for name in order.lost:
            if name in online and online[name].group == order.meta:
                await self.refuse(f"{name} was heard of, and is not lost")
                return False
        return self._loop.time() >= self._listens_until_s

    async def rescue_meta(self, member: int) -> Founded:
        """Make the meta group one of this member alone, unless it is; return what it is now.

        Raises RaftError, OSError.
        """
        order = self.order
        assert order is not None
        if order.meta in self._host.recovered:
            state = self._changed_state(order)
            await self._host.rescue_group(order.meta, order.new_meta, member, state)
        server = next(each.server for each in order.groups if each.group == order.meta)
        return Founded(order.new_meta, (server,), (order.meta,), order.dismissed)

    def _changed_state(self, order: RescueOrder) -> bytes:
        """Return the state of the meta group after its whole log and the ordered changes."""
        assignments = replayed(self._host.recovered[order.meta])
        for change in order.changes:
            assignments.make(change)
        return assignments.encoded()

    async def propose(self, propose: Callable[[Change], Awaitable[object]]) -> None:
        """Have the meta group make the changes; try again later if it does not answer."""
        order = self.order
        assert order is not None
        try:
            for change in order.changes:
                if await propose(change) is None and isinstance(change, Reassign):
                    stream = change.stream
                    _logger.error(
                        "JetStream rescue: stream '%s > %s' was changed meanwhile, and is left",
                        stream.account,
                        stream.name,
                    )
        except Unanswered as error:
            _logger.warning("JetStream rescue: %s; it is tried again", error)
            return
        await self.finish()

    async def finish(self) -> None:
        """Record what was done. Raises OSError."""
        order = self.order
        assert order is not None
        for each in order.groups:
            _logger.warning(
                "JetStream rescue: %s: group %s of %s %s, with entry %d of term %d, message %d;"
                " what was acknowledged beyond that is lost",
                each.what,
                each.group,
                ", ".join(each.members),
                f"goes on as {each.new_group} on {each.server}" if each.server else "is dropped",
                each.last_index,
                each.last_term,
                each.last_sequence,
            )
        await asyncio.to_thread(add_records, self._vault.disk, self._directory, order)
        await self._forget()

    async def refuse(self, reason: str) -> None:
        """Do nothing of what was ordered. Raises OSError."""
        order = self.order
        assert order is not None
        _logger.error("JetStream rescue: refused: %s", reason)
        await asyncio.to_thread(add_records, self._vault.disk, self._directory, order, reason)
        await self._forget()

    async def _forget(self) -> None:
        await asyncio.to_thread(remove_order, self._vault.disk, self._directory)
        self.order = None


def replayed(group: RecoveredGroup) -> Assignments:
    """Return what the log of the meta group says up to its end, committed or not."""
    found = Assignments(lambda _before, _after: None)
    if group.snapshot is not None:
        found.restore(group.snapshot.data)
    found.apply(commands_of(group))
    return found


def commands_of(group: RecoveredGroup) -> list[Entry]:
    """Return the entries of a log that are for the application."""
    return [each for each in group.entries if each.kind is EntryKind.NORMAL and each.data]
