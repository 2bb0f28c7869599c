"""The driver of all groups of a server: one write, and one frame to each other server, a turn.

    something happens to a group ─> touch ─> turn, once for all groups that were touched:
        take effects ─┬─> frames ─────────────────────────────────> other servers
                      ├─> apply what is committed
                      └─> one write of all groups ─> synced ─> messages that waited ─> turn

    timer ─> tick of the groups that are awake; a frame to servers that heard nothing for a while

Promise
- A group is a small object: no task, no timer, no thread. A group that is quiescent costs nothing:
  it has no ticks and no heartbeats.
- Quiescent followers rely on their leader's server. If no frame comes from it for
  `absence_ticks`, or if it was started anew, they wake. A leader wakes when a server comes back.
- Messages that depend on a write are sent when it is synced, and in the order of the writes.
- If the logs fail, nothing is sent, applied or answered any more (`failure`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from natsd.raft.effects import Effects
from natsd.raft.entry import NOBODY, NOTHING, HardState, Snapshot, first_snapshot
from natsd.raft.frames import FrameReader, FrameWriter, MalformedFrameError, read_body, read_frame
from natsd.raft.group import GroupLimits, RaftGroup
from natsd.raft.message_codec import MalformedMessageError, MessageEncoder, decode
from natsd.raft.messages import Message
from natsd.raft.node import Node
from natsd.raft.options import Options
from natsd.raft.state_machine import StateMachine
from natsd.raft.storage.raft_logs import GroupWrite, RaftLogs
from natsd.raft.storage.recovery import RecoveredGroup
from natsd.raft.transport import Transport, server_of
from natsd.store.disk.disk import is_transient

RETRY_TICKS = 10
FORGOTTEN_AFTER = 1000  # times `absence_ticks`: so long a silent server is sent empty frames
LATE_TICKS_MAX = 100  # more end any lease

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HostOptions:
    """Times of all groups of a server."""

    tick_s: float = 0.1
    group: Options = field(default_factory=Options)
    limits: GroupLimits = field(default_factory=GroupLimits)
    quiesce_ticks: int = 20
    """Ticks without anything new after which a leader lets its group rest; 0: it never does."""
    presence_ticks: int = 5
    """A server that heard nothing for so many ticks gets an empty frame."""
    absence_ticks: int = 15
    """A server that says nothing for so many ticks is taken for absent."""


@dataclass(slots=True)
class _Peer:
    """Another server."""

    server: int
    writer: FrameWriter
    reader: FrameReader
    boot: int = 0
    heard_tick: int = 0
    sent_tick: int = 0
    is_absent: bool = False
    has_messages: bool = False


Waiting = list[tuple[RaftGroup, int]]


class RaftHost:
    """All groups of one server."""

    def __init__(
        self,
        server: int,
        logs: RaftLogs,
        transport: Transport,
        random_below: Callable[[int], int],
        options: HostOptions,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.server = server
        self.options = options
        self.groups: dict[str, RaftGroup] = {}
        self._by_name: dict[bytes, RaftGroup] = {}
        self._logs = logs
        self._recovered = logs.take_recovered()
        self._transport = transport
        self._random_below = random_below
        self._loop = loop
        self._boot = random_below(1 << 63) + 1
        self._encoder = MessageEncoder()
        self._peers: dict[int, _Peer] = {}
        self._touched: list[RaftGroup] = []
        self._is_turn_due = False
        self._awake: set[RaftGroup] = set()
        self._tick = 0
        self._timer: asyncio.TimerHandle | None = None
        self._next_tick_at = 0.0
        self.failure: Exception | None = None
        """Why the groups stand still; None: all is well."""

    def start(self) -> None:
        """Begin to tick and to receive."""
        self._logs.watch(self._loop)
        self._logs.run_blocking = partial(self._loop.run_in_executor, None)
        self._transport.listen(self._receive)
        self._next_tick_at = self._loop.time() + self.options.tick_s
        self._timer = self._loop.call_at(self._next_tick_at, self._on_timer)

    async def close(self) -> None:
        """Stop all groups; what is under way is uncertain. The logs stay open."""
        if self._timer is not None:
            self._timer.cancel()
        self._transport.close()
        for group in self.groups.values():
            group.close()
        self._touched.clear()

    # ---- groups

    @property
    def recovered(self) -> dict[str, RecoveredGroup]:
        """Groups that the logs hold and that were not started yet."""
        return self._recovered

    async def start_group(
        self,
        name: str,
        member: int,
        machine: StateMachine,
        *,
        first_voters: Iterable[int] = (),
        is_observer: bool = False,
    ) -> RaftGroup:
        """Start this server's member of a group, from the logs if they hold it.

        `first_voters` are those of a new group; a member that joins an existing one has none.
        Raises LogsFailedError and `OSError` if a new group cannot be written.
        """
        assert name not in self.groups and server_of(member) == self.server
        found = self._recovered.pop(name, None)
        if found is None:
            voters = frozenset(first_voters)
            snapshot = first_snapshot(voters) if voters else NOTHING
            found = RecoveredGroup(HardState(0, NOBODY), snapshot, [])
            await self._create(name, found)
        snapshot = found.snapshot or NOTHING
        machine.restore(snapshot.data)
        node = Node(
            member,
            found.hard_state,
            snapshot,
            found.entries,
            self.options.group,
            self._random_below,
        )
        node.is_observer = is_observer
        group = RaftGroup(self.touch, name, node, machine, self.options.limits)
        self.groups[name] = self._by_name[group.encoded_name] = group
        self.touch(group)
        return group

    async def _create(self, name: str, found: RecoveredGroup) -> None:
        assert found.snapshot is not None
        named = None
        if found.snapshot.index:
            named = found.snapshot
            await self._until(partial(self._logs.put_snapshot, name, named))
        write = GroupWrite(name, found.hard_state, named)
        await self._until(partial(self._logs.write, [write]))

    async def remove_group(self, name: str) -> None:
        """Stop this server's member of a group, and remove all that the logs hold of it."""
        group = self.groups.pop(name)
        del self._by_name[group.encoded_name]
        self._awake.discard(group)
        group.close()
        await self._until(partial(self._logs.write, [GroupWrite(name, removes=True)]))

    async def _until(self, start: Callable[[Callable[[Exception | None], None]], None]) -> None:
        answer: asyncio.Future[None] = self._loop.create_future()

        def then(error: Exception | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(None)
            else:
                answer.set_exception(error)

        start(then)
        await answer

    # ---- turns

    def touch(self, group: RaftGroup) -> None:
        """Carry the group's effects out in this turn of the event loop."""
        if group.is_dirty or group.is_closed:
            return
        group.is_dirty = True
        self._touched.append(group)
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        if self.failure is not None:
            return
        writes: list[GroupWrite] = []
        waiting: Waiting = []
        while self._touched:
            touched, self._touched = self._touched, []
            for group in touched:
                group.is_dirty = False
                if not (group.is_closed or group.is_held):
                    self._carry_out(group, writes, waiting)
        if writes:
            self._logs.write(writes, partial(self._synced, waiting))
        self._send_frames()

    def _carry_out(self, group: RaftGroup, writes: list[GroupWrite], waiting: Waiting) -> None:
        node = group.node
        while node.has_effects and not group.is_held:
            effects = node.take_effects()
            if effects.messages:
                self._queue(group, effects.messages)
            if effects.snapshot is not None:
                self._hold(group, effects)
            elif effects.writes:
                writes.append(_write_of(group, effects))
                waiting.append((group, effects.number))
                group.unsynced.append((effects.number, list(effects.messages_after_sync)))
            elif effects.messages_after_sync:
                if group.unsynced:
                    group.unsynced[-1][1].extend(effects.messages_after_sync)
                else:
                    self._queue(group, effects.messages_after_sync)
            group.apply(effects)
        if node.is_quiescent:
            self._awake.discard(group)
        else:
            self._awake.add(group)
        snapshot = group.due_snapshot()
        if snapshot is not None:
            self._take_snapshot(group, snapshot)

    def _synced(self, waiting: Waiting, error: Exception | None) -> None:
        if error is not None:
            self._fail(error)
            return
        for group, number in waiting:
            written, messages = group.unsynced.popleft()
            assert written == number, "writes complete in order"
            if not group.is_closed:
                group.node.persisted(number)
                self._queue(group, messages)
                self.touch(group)
        self._turn()

    def _fail(self, error: Exception) -> None:
        if self.failure is None:
            _logger.error("all RAFT groups of this server stop: %s", error)
            self.failure = error
            for group in self.groups.values():
                group.close()

    # ---- snapshots

    def _hold(self, group: RaftGroup, effects: Effects) -> None:
        """Store a snapshot that the leader has sent, before anything that comes behind it."""
        snapshot = _snapshot_of(effects)
        group.is_held = True
        group.restore(snapshot)
        then = partial(self._snapshot_held, group, effects)
        self._logs.put_snapshot(group.name, snapshot, then)

    def _snapshot_held(self, group: RaftGroup, effects: Effects, error: Exception | None) -> None:
        if error is not None and is_transient(error) and not group.is_closed:
            put = partial(self._logs.put_snapshot, group.name, _snapshot_of(effects))
            later = partial(put, partial(self._snapshot_held, group, effects))
            self._loop.call_later(RETRY_TICKS * self.options.tick_s, later)
            return
        if error is not None:
            self._fail(error)
            return
        group.is_held = False
        if group.is_closed:
            return
        group.unsynced.append((effects.number, list(effects.messages_after_sync)))
        then = partial(self._synced, [(group, effects.number)])
        self._logs.write([_write_of(group, effects)], then)
        self.touch(group)

    def _take_snapshot(self, group: RaftGroup, snapshot: Snapshot) -> None:
        """Store the application's snapshot; then the log may drop what it stands for."""
        group.is_snapshotting = True
        then = partial(self._snapshot_stored, group, snapshot)
        self._logs.put_snapshot(group.name, snapshot, then)

    def _snapshot_stored(
        self, group: RaftGroup, snapshot: Snapshot, error: Exception | None
    ) -> None:
        if error is not None:
            _logger.warning("group %s: its snapshot is not stored: %s", group.name, error)
        is_overtaken = group.is_held or group.node.log.snapshot.index >= snapshot.index
        if error is not None or group.is_closed or is_overtaken:
            group.is_snapshotting = False
        else:
            then = partial(self._compact, group, snapshot)
            self._logs.write([GroupWrite(group.name, snapshot=snapshot)], then)

    def _compact(self, group: RaftGroup, snapshot: Snapshot, error: Exception | None) -> None:
        group.is_snapshotting = False
        if error is not None:
            self._fail(error)
        elif not group.is_closed and group.node.log.snapshot.index < snapshot.index:
            group.node.compact(snapshot)
            self.touch(group)

    # ---- other servers

    def _queue(self, group: RaftGroup, messages: Iterable[Message]) -> None:
        for message in messages:
            peer = self._peer(server_of(message.receiver))
            peer.writer.add(group.encoded_name, message)
            peer.has_messages = True

    def _peer(self, server: int) -> _Peer:
        peer = self._peers.get(server)
        if peer is None:
            writer = FrameWriter(
                self.server, self._boot, self._transport.frame_bytes_max, self._encoder
            )
            peer = _Peer(server, writer, FrameReader(), 0, self._tick, self._tick)
            self._peers[server] = peer
        return peer

    def _send_frames(self) -> None:
        for peer in self._peers.values():
            if peer.has_messages:
                self._send_to(peer)

    def _send_to(self, peer: _Peer) -> None:
        peer.has_messages = False
        peer.sent_tick = self._tick
        for frame in peer.writer.take():
            self._transport.send(peer.server, frame)

    def _receive(self, data: bytes) -> None:
        """Take a frame; whatever is malformed is logged and left out."""
        try:
            frame = read_frame(data)
            if frame.server == self.server:
                return
            is_new = frame.server not in self._peers
            peer = self._peer(frame.server)
            self._heard(peer, frame.boot, is_new)
            body = peer.reader.take(frame)
            if body:
                self._take_body(body)
        except (MalformedFrameError, MalformedMessageError) as error:
            _logger.warning("a frame of another server is left out: %s", error)

    def _take_body(self, body: bytes) -> None:
        for name, data in read_body(body):
            group = self._by_name.get(name)
            if group is None:
                continue
            message = decode(data)
            if message.receiver == group.node.id:
                group.node.step(message)
                self.touch(group)

    def _heard(self, peer: _Peer, boot: int, is_new: bool) -> None:
        peer.heard_tick = self._tick
        is_new_process = is_new or peer.boot not in (0, boot)
        peer.boot = boot
        if peer.is_absent or is_new_process:
            peer.is_absent = False
            self._wake(peer.server)

    def _wake(self, server: int) -> None:
        """Wake the groups that have a member on a server that has come or gone."""
        for group in self.groups.values():
            node = group.node
            if not node.is_quiescent:
                continue
            members = node.membership.voters | node.membership.learners
            is_concerned = (
                any(server_of(member) == server for member in members)
                if node.is_leader
                else server_of(node.leader) == server
            )
            if is_concerned:
                node.wake()
                group.idle_ticks = 0
                self._awake.add(group)

    # ---- time

    def _on_timer(self) -> None:
        """Tick; with lease reads, once for each tick that has passed while the loop was busy."""
        now = self._loop.time()
        late = int((now - self._next_tick_at) / self.options.tick_s)
        self._next_tick_at = now + self.options.tick_s
        self._timer = self._loop.call_at(self._next_tick_at, self._on_timer)
        for _ in range(1 + (min(late, LATE_TICKS_MAX) if self.options.group.lease_reads else 0)):
            if self.failure is None:
                self.tick()

    def tick(self) -> None:
        """Take note that a tick has passed."""
        self._tick += 1
        if self._tick % RETRY_TICKS == 0 and self._logs.waits_for_space:
            self._logs.retry()
        self._look_for_peers()
        for group in tuple(self._awake):
            node = group.node
            if group.is_closed or group.is_held:
                continue
            node.tick()
            if node.is_leader:
                self._let_rest(group)
            if node.has_effects:
                self.touch(group)

    def _let_rest(self, group: RaftGroup) -> None:
        """Quiesce a group in which nothing has happened for a while."""
        if group.last_index_seen != group.node.log.last_index:
            group.last_index_seen = group.node.log.last_index
            group.idle_ticks = 0
        group.idle_ticks += 1
        wanted = self.options.quiesce_ticks
        if wanted and group.idle_ticks >= wanted:
            group.idle_ticks = 0
            group.node.quiesce(self._absent_members(group))

    def _absent_members(self, group: RaftGroup) -> frozenset[int]:
        absent = {peer.server for peer in self._peers.values() if peer.is_absent}
        if not absent:
            return frozenset()
        membership = group.membership
        members = membership.voters | membership.learners
        return frozenset(member for member in members if server_of(member) in absent)

    def _look_for_peers(self) -> None:
        options = self.options
        for peer in tuple(self._peers.values()):
            if self._tick - peer.heard_tick >= options.absence_ticks * FORGOTTEN_AFTER:
                del self._peers[peer.server]
                continue
            if self._tick - peer.sent_tick >= options.presence_ticks:
                self._send_to(peer)
            is_silent = self._tick - peer.heard_tick >= options.absence_ticks
            if is_silent and not peer.is_absent:
                peer.is_absent = True
                self._wake(peer.server)


def _snapshot_of(effects: Effects) -> Snapshot:
    assert effects.snapshot is not None
    return effects.snapshot


def _write_of(group: RaftGroup, effects: Effects) -> GroupWrite:
    return GroupWrite(
        group.name,
        effects.hard_state,
        effects.snapshot,
        replaces_log=effects.snapshot is not None,
        entries=effects.entries,
    )
