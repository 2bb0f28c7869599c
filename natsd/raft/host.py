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
  `absence_ticks`, if it is out of reach, or if it was started anew, they wake. A leader wakes when
  a server comes back. If the server of a leader is gone, its followers elect another one soon.
- Messages that depend on a write are sent when it is synced, and in the order of the writes.
- If the logs fail, nothing is sent, applied or answered any more (`failure`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

from natsd.core.network import Reactor
from natsd.raft.effects import Effects
from natsd.raft.entry import NOBODY, NOTHING, HardState, Snapshot, first_snapshot
from natsd.raft.frames import (
    FrameReader,
    FrameWriter,
    MalformedFrameError,
    MalformedMessageError,
    MessageEncoder,
    read_body,
    read_frame,
)
from natsd.raft.group import GroupLimits, RaftGroup
from natsd.raft.messages import Message
from natsd.raft.node import Node
from natsd.raft.options import Options
from natsd.raft.rescue import rescued
from natsd.raft.state_machine import StateMachine
from natsd.raft.storage.raft_logs import GroupWrite, RaftLogs
from natsd.raft.storage.recovery import RecoveredGroup
from natsd.raft.transport import Transport, server_of
from natsd.store.disk.disk import is_transient

RETRY_TICKS = 10
FORGOTTEN_AFTER = 1000  # times `absence_ticks`: so long a silent server is sent empty frames
CAMPAIGN_S = 0.05
CAMPAIGNS_MAX = 40
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
        reactor: Reactor | None = None,
    ) -> None:
        """Know no group yet; with the reactor of the loop, turns are parts of its turns."""
        self.server = server
        self.options = options
        self.groups: dict[str, RaftGroup] = {}
        self._by_name: dict[bytes, RaftGroup] = {}
        self._logs = logs
        self._recovered = logs.take_recovered()
        self._transport = transport
        self._random_below = random_below
        self._loop = loop
        self._reactor = reactor
        self._soon = loop.call_soon if reactor is None else reactor.soon
        self._boot = random_below(1 << 63) + 1
        self._encoder = MessageEncoder()
        self._peers: dict[int, _Peer] = {}
        self._touched: list[RaftGroup] = []
        self._is_turn_due = False
        self._is_write_urgent = False  # one of this turn
        self._awake: set[RaftGroup] = set()
        self._tick = 0
        self._timer: asyncio.TimerHandle | None = None
        self._next_tick_at = 0.0
        self._tasks: dict[asyncio.Task[None], RaftGroup] = {}  # snapshots that take a while
        self.failure: Exception | None = None
        """Why the groups stand still; None: all is well."""

    def start(self) -> None:
        """Begin to tick and to receive."""
        self._logs.watch(self._loop, self._reactor)
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
        await self._cancel(list(self._tasks))

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
        first_state: bytes = b"",
        is_observer: bool = False,
    ) -> RaftGroup:
        """Start this server's member of a group, from the logs if they hold it.

        `first_voters` are those of a new group, and `first_state` the data of its first snapshot; a
        member that joins an existing one has neither.
        Raises LogsFailedError and `OSError` if a new group cannot be written.
        """
        assert name not in self.groups and server_of(member) == self.server
        found = self._recovered.pop(name, None)
        is_restarted = found is not None
        if found is None:
            voters = frozenset(first_voters)
            snapshot = first_snapshot(voters, first_state) if voters else NOTHING
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
        if is_restarted:
            node.expect_leader()
        group = RaftGroup(self.touch, name, node, machine, self.options.limits)
        self.groups[name] = self._by_name[group.encoded_name] = group
        self.touch(group)
        return group

    def campaign(self, group: RaftGroup, tries: int = CAMPAIGNS_MAX) -> None:
        """Have a new group led soon: ask for votes until its other members have begun, too."""
        if tries and not group.leader and not group.is_closed:
            group.node.campaign()
            self.touch(group)
            self._loop.call_later(CAMPAIGN_S, self.campaign, group, tries - 1)

    async def _create(self, name: str, found: RecoveredGroup) -> None:
        assert found.snapshot is not None
        named = None
        if found.snapshot.index:
            named = found.snapshot
            await self._until(partial(self._logs.put_snapshot, name, named))
        write = GroupWrite(name, found.hard_state, named)
        await self._until(partial(self._logs.write, [write]))

    async def stop_group(self, name: str) -> None:
        """Stop this server's member of a group; it may be started again from the logs."""
        group = self._leave(name)
        await self._cancel([task for task, of in self._tasks.items() if of is group])
        hard_state, entries = group.node.written
        found = RecoveredGroup(hard_state, group.node.log.snapshot, entries)
        await self._until(partial(self._logs.write, ()))  # all that was given to it is on disk then
        self._recovered[name] = found

    async def rescue_group(
        self, name: str, new_name: str, member: int, state: bytes | None = None
    ) -> None:
        """Have a group that was not started go on under a new name, with `member` alone.

        A `state` of its application replaces the log. Raises NotRescuableError, and what
        `start_group` raises; then the group is as it was.
        """
        found = self._recovered[name]
        hard_state, snapshot, entries = rescued(
            found.hard_state, found.snapshot, found.entries, member, state
        )
        await self._until(partial(self._logs.put_snapshot, new_name, snapshot))
        new = GroupWrite(new_name, hard_state, snapshot, entries=entries)
        await self._until(partial(self._logs.write, [new, GroupWrite(name, removes=True)]))
        del self._recovered[name]
        self._recovered[new_name] = RecoveredGroup(hard_state, snapshot, entries)

    def _leave(self, name: str) -> RaftGroup:
        group = self.groups.pop(name)
        del self._by_name[group.encoded_name]
        self._awake.discard(group)
        group.close()
        return group

    async def forget_group(self, name: str) -> None:
        """Remove all that the logs hold of a group that was not started."""
        if self._recovered.pop(name, None) is not None:
            await self._until(partial(self._logs.write, [GroupWrite(name, removes=True)]))

    async def remove_group(self, name: str) -> None:
        """Stop this server's member of a group, and remove all that the logs hold of it."""
        group = self._leave(name)
        await self._cancel([task for task, of in self._tasks.items() if of is group])
        await self._until(partial(self._logs.write, [GroupWrite(name, removes=True)]))

    def _run(self, group: RaftGroup, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work, name=f"natsd-raft-{group.name}")
        self._tasks[task] = group
        task.add_done_callback(self._tasks.pop)

    @staticmethod
    async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

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
            self._soon(self._turn)

    def _turn(self) -> None:
        if not self._is_turn_due or self.failure is not None:  # it came before it was due
            return
        self._is_turn_due = self._is_write_urgent = False
        writes: list[GroupWrite] = []
        waiting: Waiting = []
        while self._touched:
            touched, self._touched = self._touched, []
            for group in touched:
                group.is_dirty = False
                if not (group.is_closed or group.is_held):
                    try:
                        self._carry_out(group, writes, waiting)
                    except Exception:
                        self._group_failed(group)
        self._send_frames()
        if self._reactor is not None:
            if writes:  # so that other servers write at the same time
                self._reactor.flush()
            self._reactor.expect()
        if writes:
            may_wait = not self._is_write_urgent
            self._logs.write(writes, partial(self._synced, waiting), may_wait=may_wait)

    def _carry_out(self, group: RaftGroup, writes: list[GroupWrite], waiting: Waiting) -> None:
        node = group.node
        while node.has_effects and not group.is_held:
            effects = node.take_effects()
            if effects.messages:
                self._queue(group, effects.messages)
            if effects.snapshot is not None:
                self._hold(group, effects)
                break
            if effects.writes:
                writes.append(self._write_of(group, effects))
                waiting.append((group, effects.number))
                self._is_write_urgent |= not effects.may_wait
                group.unsynced.append((effects.number, list(effects.messages_after_sync)))
            elif effects.messages_after_sync:
                if group.unsynced:
                    group.unsynced[-1][1].extend(effects.messages_after_sync)
                else:
                    self._queue(group, effects.messages_after_sync)
            group.apply(effects)
        if group.on_progress is not None:
            group.on_progress()
        if node.is_quiescent:
            self._awake.discard(group)
        else:
            self._awake.add(group)
        group.tell_leading()
        due = group.due_snapshot()
        if due is not None:
            group.is_snapshotting = True
            snapshot, data = due
            if isinstance(data, bytes):
                self._take_snapshot(group, replace(snapshot, data=data))
            else:
                self._run(group, self._await_snapshot(group, snapshot, data))

    def _group_failed(self, group: RaftGroup) -> None:
        """End this server's member because its application has failed: the other groups go on."""
        _logger.exception("group %s stops on this server", group.name)
        group.close()

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
                if group.wants_turn:
                    self.touch(group)
        if self._is_turn_due:
            self._turn()
        else:
            self._send_frames()

    def _write_of(self, group: RaftGroup, effects: Effects) -> GroupWrite:
        is_early = group.is_early and effects.entries and not effects.may_wait
        return GroupWrite(
            group.name,
            effects.hard_state,
            effects.snapshot,
            replaces_log=effects.snapshot is not None,
            entries=effects.entries,
            on_written=partial(self._written, group, effects.number) if is_early else None,
        )

    def _written(self, group: RaftGroup, number: int) -> None:
        if not group.is_closed:
            group.node.wrote(number)
            self.touch(group)

    def _fail(self, error: Exception) -> None:
        if self.failure is None:
            _logger.error("all RAFT groups of this server stop: %s", error)
            self.failure = error
            for group in self.groups.values():
                group.close()

    # ---- snapshots

    def _hold(self, group: RaftGroup, effects: Effects) -> None:
        """Store a snapshot that the leader has sent, before anything that comes behind it."""
        group.is_held = True
        fetch = group.fetch(_snapshot_of(effects))
        if fetch is None:
            self._put_held(group, effects)
        else:
            self._run(group, self._fetch(group, effects, fetch))

    async def _fetch(
        self, group: RaftGroup, effects: Effects, fetch: Callable[[], Awaitable[None]]
    ) -> None:
        await fetch()
        self._put_held(group, effects)

    def _put_held(self, group: RaftGroup, effects: Effects) -> None:
        then = partial(self._snapshot_held, group, effects)
        self._logs.put_snapshot(group.name, _snapshot_of(effects), then)

    def _snapshot_held(self, group: RaftGroup, effects: Effects, error: Exception | None) -> None:
        if error is not None and is_transient(error) and not group.is_closed:
            pause_s = RETRY_TICKS * self.options.tick_s
            self._loop.call_later(pause_s, self._put_held, group, effects)
            return
        if error is not None:
            self._fail(error)
            return
        group.is_held = False
        if group.is_closed:
            return
        group.restore(_snapshot_of(effects))
        group.unsynced.append((effects.number, list(effects.messages_after_sync)))
        then = partial(self._synced, [(group, effects.number)])
        self._logs.write([self._write_of(group, effects)], then)
        try:
            group.apply(effects)
        except Exception:
            self._group_failed(group)
        self.touch(group)

    async def _await_snapshot(
        self, group: RaftGroup, snapshot: Snapshot, make: Callable[[], Awaitable[bytes]]
    ) -> None:
        try:
            self._take_snapshot(group, replace(snapshot, data=await make()))
        except Exception as error:
            self._snapshot_failed(group, error)

    def _take_snapshot(self, group: RaftGroup, snapshot: Snapshot) -> None:
        """Store the application's snapshot; then the log may drop what it stands for."""
        if len(snapshot.data) > group.limits.snapshot_bytes_max:
            _logger.error(
                "group %s: its log is kept, because a snapshot of %d bytes is too large",
                group.name,
                len(snapshot.data),
            )
            group.snapshot_ends()
            return
        then = partial(self._snapshot_stored, group, snapshot)
        self._logs.put_snapshot(group.name, snapshot, then)

    def _snapshot_stored(
        self, group: RaftGroup, snapshot: Snapshot, error: Exception | None
    ) -> None:
        is_overtaken = group.is_held or group.node.log.snapshot.index >= snapshot.index
        if error is not None:
            self._snapshot_failed(group, error)
        elif group.is_closed or is_overtaken:
            group.snapshot_ends()
        else:
            then = partial(self._compact, group, snapshot)
            self._logs.write([GroupWrite(group.name, snapshot=snapshot)], then)

    def _snapshot_failed(self, group: RaftGroup, error: Exception) -> None:
        """Keep the log, and take another snapshot after a while: a full log takes nothing more."""
        why = str(error) or repr(error)
        _logger.warning("group %s: its log is kept, for want of a snapshot: %s", group.name, why)

        def again() -> None:
            group.is_snapshotting = False
            self.touch(group)

        self._loop.call_later(RETRY_TICKS * self.options.tick_s, again)

    def _compact(self, group: RaftGroup, snapshot: Snapshot, error: Exception | None) -> None:
        group.snapshot_ends()
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
        for name, message in read_body(body):
            group = self._by_name.get(name)
            if group is not None and message.receiver == group.node.id:
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
        is_gone = self._peers[server].is_absent
        for group in self.groups.values():
            node = group.node
            if is_gone and server_of(node.leader) == server:
                node.leader_is_gone()
                self._awake.add(group)
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
            if node.has_effects or group.has_news_of_leading:
                self.touch(group)

    def _let_rest(self, group: RaftGroup) -> None:
        """Quiesce a group to whose log nothing was added for a while.

        A read wakes such a group for a moment only.
        """
        if group.last_index_seen != group.node.log.last_index:
            group.last_index_seen = group.node.log.last_index
            group.idle_ticks = 0
        group.idle_ticks += 1
        wanted = self.options.quiesce_ticks
        if not wanted or group.idle_ticks < wanted:
            return
        if not group.node.quiesce(self._absent_members(group)):  # try again soon
            group.idle_ticks = wanted - self.options.group.heartbeat_ticks

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
            is_gone = is_silent or not self._transport.is_reachable(peer.server)
            if is_gone and not peer.is_absent:
                peer.is_absent = True
                self._wake(peer.server)


def _snapshot_of(effects: Effects) -> Snapshot:
    assert effects.snapshot is not None
    return effects.snapshot
