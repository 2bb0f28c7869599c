"""A rescue, as the server carries it out that has the order (rescue_order.py).

    the meta group is lost      listen ─▶ new name, one member, all changes made ─▶ start
    the meta group has a        listen ─▶ propose the changes
    majority

Promise
- The server listens for LISTEN_S first. If it hears a server that was said to be lost, and that
  still is a member of the group, nothing is done: the order is refused, and removed.
- A crash leaves the group as it was, or rescued; the next start goes on.
- What is done, and what is not and why, is recorded before the order is removed.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from natsd.jetstream.meta_group.answering import Unanswered
from natsd.jetstream.meta_group.assignments import Assignment, Assignments, Change, Reassign, Remove
from natsd.jetstream.meta_group.founding_record import Founded
from natsd.jetstream.meta_group.peers import Peers
from natsd.jetstream.meta_group.rescue_order import (
    RECORDS_MAX,
    Record,
    RescueOrder,
    add_records,
    read_order,
    read_records,
    remove_order,
)
from natsd.jetstream.models.times import format_time
from natsd.raft.entry import Entry, EntryKind
from natsd.raft.host import RaftHost
from natsd.raft.storage.recovery import RecoveredGroup
from natsd.store.crypto.vault import Vault

_logger = logging.getLogger(__name__)

LISTEN_S: Final = 5.0
CHANGED: Final = "it was changed meanwhile"

Find: TypeAlias = Callable[[str, str], Assignment | None]
"""Returns where a stream of an account is, as far as this server knows; None: there is none."""


class Rescuing:
    """The order of this server, until it is carried out."""

    def __init__(self, host: RaftHost, peers: Peers, vault: Vault, directory: Path) -> None:
        self._host = host
        self._peers = peers
        self._vault = vault
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        self._listens_until_s = 0.0
        self._skipped: dict[str, str] = {}  # by name of the new group, or the stream: why
        self._is_replayed = False  # `_skipped` says what the meta group's log did not allow
        self.order: RescueOrder | None = None
        """What is to be done; None: nothing."""
        self.records = deque[Record](maxlen=RECORDS_MAX)
        """What was done by this server, or refused, and when; the newest last."""
        self.now_ns: Callable[[], int] = time.time_ns
        """Returns the wall-clock time."""
        self.news: Callable[[Sequence[Record]], object] = lambda _records: None
        """Called when an order was carried out."""

    def open(self) -> None:
        """Read the order, and what was done before. Blocks; raises OSError."""
        self.order = read_order(self._vault, self._directory)
        self.records.extend(read_records(self._directory))

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
            if assignments.make(change) is None and isinstance(change, Reassign | Remove):
                self._skip(change, CHANGED)
        self._is_replayed = True
        return assignments.encoded()

    async def propose(self, propose: Callable[[Change], Awaitable[object]], find: Find) -> None:
        """Have the meta group make the changes; try again later if it does not answer."""
        order = self.order
        assert order is not None
        try:
            for change in order.changes:
                is_made = await propose(change) is not None
                if is_made or not isinstance(change, Reassign | Remove):
                    continue
                reason = why_not_made(change, find)
                if reason is None:
                    _logger.info("JetStream rescue: a change is not known here yet; it goes on")
                    return
                if reason:
                    self._skip(change, reason)
        except Unanswered as error:
            _logger.warning("JetStream rescue: %s; it is tried again", error)
            return
        await self.finish()

    def _skip(self, change: Reassign | Remove, reason: str) -> None:
        self._skipped[_subject_of(change)] = reason

    async def finish_meta(self, find: Find) -> None:
        """Record what was done, once the rescued meta group runs. Raises OSError."""
        order = self.order
        assert order is not None
        for change in order.changes:
            if self._is_replayed or not isinstance(change, Reassign | Remove):
                continue
            reason = why_not_made(change, find)  # the changes were made before a crash
            if reason != "":
                self._skip(change, reason or CHANGED)
        await self.finish()

    async def finish(self) -> None:
        """Record what was done, and what was not. Raises OSError."""
        order = self.order
        assert order is not None
        for each in order.groups:
            reason = self._skipped.get(each.new_group or each.what)
            if reason:
                _logger.error("JetStream rescue: %s is not rescued: %s", each.what, reason)
                continue
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
        self.news(await self._record(order, self._skipped))
        await self._forget()

    async def refuse(self, reason: str) -> None:
        """Do nothing of what was ordered. Raises OSError."""
        order = self.order
        assert order is not None
        _logger.error("JetStream rescue: refused: %s", reason)
        await self._record(order, {each.new_group or each.what: reason for each in order.groups})
        await self._forget()

    async def failed(self, new_group: str, reason: str) -> None:
        """Record, once, that a group cannot go on after all. Raises OSError."""
        known = [each for each in self.records if each.group.new_group == new_group]
        if known and not known[-1].refused:
            record = msgspec.structs.replace(known[-1], refused=reason, noted=self._now())
            await self._add([record])

    async def _record(self, order: RescueOrder, skipped: Mapping[str, str]) -> list[Record]:
        now = self._now()
        records = [
            Record(
                order.time,
                order.who,
                order.lost,
                each,
                skipped.get(each.new_group or each.what, ""),
                now,
            )
            for each in order.groups
        ]
        await self._add(records)
        return records

    async def _add(self, records: list[Record]) -> None:
        await asyncio.to_thread(add_records, self._vault.disk, self._directory, records)
        self.records.extend(records)

    def _now(self) -> str:
        return format_time(self.now_ns())

    async def _forget(self) -> None:
        await asyncio.to_thread(remove_order, self._vault.disk, self._directory)
        self.order, self._skipped = None, {}


def why_not_made(change: Reassign | Remove, find: Find) -> str | None:
    """Return why a change came too late; empty: it was made before; None: that is not known yet.

    What was proposed before a crash, or before an answer was lost, may be made by now.
    """
    if isinstance(change, Remove):
        now = find(change.account, change.name)
        if now is None:
            return ""
    else:
        now = find(*change.stream.key)
        if now is None:
            return "it was deleted meanwhile"
        if now.group == change.stream.group:
            return ""
    return None if now.version == change.version else CHANGED


def _subject_of(change: Reassign | Remove) -> str:
    """Return what names the change's group in an order: its new name, or its stream if it ends."""
    if isinstance(change, Reassign):
        return change.stream.group
    return f"stream '{change.account} > {change.name}'"


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
