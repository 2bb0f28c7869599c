"""A replica of a stream: what the stream's RAFT group has committed, its files have.

    leader     Stream ─ propose(command) ─▶ one entry a turn ─▶ RaftGroup ─▶ the other replicas
                 └◀─ commit(number of commands) ◀── apply ◀────────┘
    follower   RaftGroup ─▶ apply ─▶ queue ─▶ task: Follower.apply, one command after the other

Promise
- Only the leader takes messages and delivers. It is one from the moment at which it has applied
  everything of earlier leaders, until it steps down, which undoes what is not committed.
- Commands are counted: a command's index is the number of commands up to it. RAFT's indexes differ,
  since an entry holds many commands, or none.
- What is committed counts at once: the logs have it. The files are written behind it, and RAFT's
  log lets go of entries when the files that they changed are synced. After a restart the entries
  from there on are applied again to files that may have them already (`Follower`).
- Files that lack something (a wiped directory, a damaged block) are replaced by the stream of the
  leader before anything is applied to them; until then this replica begins no election.
- Blocks that are found damaged later, by a read, are repaired in place with what other replicas
  have (natsd/store/maintenance/block_repair.py). A replica lacks nothing meanwhile.
- A follower answers direct gets from what it has applied, from the moment at which it has all that
  is committed. One that lacks something, was left behind, or has failed answers none.
- A read replica begins no election. It keeps asking what is committed, so that its answers say how
  old they may be; it answers none that may be older than `natsd.read_max_staleness`. The consumers
  that it serves deliver as long as it answers (stream/own_consumers.py).
- A disk that is full is tried again. Any other error ends the replica (`failure`): it applies
  nothing more, and its log is kept. It never leads again, if another replica can.

Source: docs/raft.md; nats-server's `monitorStream` (server/jetstream_cluster.go).
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from natsd.core.steps import Breaks
from natsd.jetstream.commands.commands import Command, Publish
from natsd.jetstream.commands.committer import NotCommitted
from natsd.jetstream.commands.encoding import encode
from natsd.jetstream.replicas.catch_up import CatchUp
from natsd.jetstream.replicas.deletions import Deletions
from natsd.jetstream.replicas.early_answers import EarlyAnswers
from natsd.jetstream.replicas.events import Built, Commands, Event, Lacking, Opened, Reached
from natsd.jetstream.replicas.gathering import Gathering
from natsd.jetstream.replicas.lack import Lack, fetch
from natsd.jetstream.replicas.log_entry import command_at, count
from natsd.jetstream.replicas.manifest import Manifest, decode_manifest, encode_manifest
from natsd.jetstream.replicas.opening import forget_incomplete
from natsd.jetstream.replicas.reconciling import reconcile
from natsd.jetstream.replicas.stream_image import BuiltStream, manifest_of
from natsd.jetstream.resources import reserve_anew
from natsd.jetstream.stream.follower import Follower
from natsd.jetstream.stream.leading import SteppedDown, lead, step_down, stop_leading
from natsd.jetstream.stream.own_consumers import AskToDelete, Report
from natsd.jetstream.stream.publishing import count_fitting, encode_publish, join_commands
from natsd.jetstream.stream.settings_in_metadata import read_max_staleness_s
from natsd.jetstream.stream.staleness import Staleness
from natsd.jetstream.stream.stream import Stream
from natsd.raft.entry import Entry, EntryKind
from natsd.raft.errors import NotLeaderError, ProposalDroppedError, TransferError
from natsd.raft.group import RaftGroup, ReadDroppedError, TooManyProposalsError
from natsd.raft.state_machine import StateMachine
from natsd.store.disk.disk import is_transient
from natsd.store.errors import StoreError

_logger = logging.getLogger(__name__)

ENTRY_BYTES_MAX: Final = 1 << 20
"""Commands of a turn that are one entry; a larger command has an entry of its own."""
SLICE: Final = 256
"""Publishes that are applied without a break."""
BEHIND_MAX: Final = 100
"""Entries that a replica may have still to apply when it is taken for current."""
RETRY_S: Final = 1.0
CONFIRM_RETRY_S: Final = 0.05
FULL_LOG_RETRY_S: Final = 0.01
PROVE_EVERY_S: Final = 1.0
"""A read replica asks so often what is committed."""


class StreamReplica(StateMachine):
    """This server's replica of a stream."""

    def __init__(
        self,
        stream: Stream,
        catch_up: CatchUp,
        *,
        is_whole: bool = True,
        is_read_replica: bool = False,
    ) -> None:
        """Follow; `stream` and `is_whole` are what `open_replica` returned (opening.py)."""
        self.failure: Exception | None = None
        """Why nothing is applied any more; None: all is well."""
        self.on_leading: Callable[[], object] = lambda: None
        """Called when this replica has begun or ended to lead."""
        self.on_own_begun: Callable[[], object] = lambda: None
        """Called when consumers that this read replica serves have begun."""
        self.ask_to_delete: AskToDelete | None = None
        self.report: Report | None = None
        self._follower = Follower(stream)
        self._catch_up = catch_up
        self._loop = asyncio.get_running_loop()
        self._group: RaftGroup | None = None
        self._term = 0  # of which this replica is the leader, and made all entries; 0: of none
        self._committed = 0  # commands in the entries that the group handed out
        self._confirmed = 0  # of them, those up to the last entry of this leader
        self._events: deque[Event] = deque()
        self._is_whole = is_whole  # False: its stream is to be replaced by that of the leader
        self._is_current = False  # it has had all that was committed, and lacks nothing since
        self._deletions = Deletions()  # of consumers that the files lack
        self._is_read_replica = is_read_replica
        self._staleness = Staleness(self._loop.time)  # of a read replica
        self._answering: asyncio.Task[None] | None = None  # begins to answer direct gets
        self._too_old: asyncio.TimerHandle | None = None  # then a read replica ceases to answer
        self._changes = 0  # how often the stream has begun or ended to lead, or was replaced
        self._is_changing = False
        self._is_woken = asyncio.Event()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._wanted = 0  # number of commands with which the stream is to be fetched at least
        self._fetched: Built | None = None
        self._is_rolled_back = False  # the stream has lost commands that it had applied
        self._is_deposed = False  # so that it must not lead as if nothing had happened
        self._proposed: list[bytes] = []  # commands that are no part of an entry yet
        self._gathering = Gathering(self._loop.call_later, self._submit)
        self._early = EarlyAnswers()
        self._is_proposal_due = False
        self._confirmations: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    def begin(self, group: RaftGroup) -> None:
        """Carry out what the group decides."""
        self._group = group
        self._watch_stream()
        group.node.is_observer = self._is_read_replica or not self._is_whole
        self._early.follow(self.stream, group)
        self._task = self._loop.create_task(self._run(), name=f"natsd-replica-{group.name}")
        self._is_woken.set()
        self._catch_up.offer(group.node.id, self._source)
        self._answer_soon()

    def change_role(self, *, is_read_replica: bool) -> None:
        """Be a read replica, or a replica, from now on."""
        if self._is_read_replica is is_read_replica or self._group is None:
            return
        self._is_read_replica = is_read_replica
        self._count()
        if is_read_replica:
            self._group.node.is_observer = True
        elif self._is_whole and self.failure is None:
            self._may_lead(self._group)
        if self.failure is None:
            self._answer_soon()

    def _watch_stream(self) -> None:
        """Be told of failed commits, and have damaged blocks repaired from the other replicas."""
        self._count()
        self.stream.on_rolled_back = self._rolled_back
        self.stream.own_consumers.on_begun = self.on_own_begun
        self.stream.own_consumers.ask_to_delete = self.ask_to_delete
        self.stream.own_consumers.report = self.report
        for place, store in enumerate(self.stream.file_stores):
            store.repair_from(partial(self._catch_up.copies, self._members, place))

    def _count(self) -> None:
        """Count the stream's bytes as those of a replica, or of a read replica."""
        self.stream.is_read_replica = self._is_read_replica
        self.stream.count_in(self.stream.usage)

    def _members(self) -> list[int]:
        assert self._group is not None
        membership = self._group.membership
        return sorted(membership.voters | membership.learners)

    async def close(self) -> None:
        """Close the group, and end the tasks. The stream stays open, and gets no more entries."""
        if self._group is not None:
            self._group.close()
        for store in self.stream.file_stores:
            store.repair_from(None)
        tasks = [each for each in (self._task, self._answering) if each is not None]
        tasks += self._confirmations
        self._forget_age()
        self._gathering.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._catch_up.withdraw()
        self._refuse_waiting(asyncio.CancelledError())

    async def finish(self) -> None:
        """Close, and have all in the stream's files that was committed: its log is not kept.

        Tries again while there is no space. Raises whatever else goes wrong, and what has ended the
        replica before: then the log is needed still.
        """
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        await self.close()
        undone: SteppedDown | None = None
        while True:
            try:
                if self._term:
                    self._term = 0
                    undone = await step_down(self.stream)
                    self._follower = undone.follower
                if undone is not None:
                    await undone.apply_again()
                while self._events and self._is_whole:
                    await self._apply_next(self._events[0])
                    self._events.popleft()
                await self._synced()
                return
            except Exception as error:
                if not is_transient(error):
                    self.failure = error
                    raise
                _logger.warning("JetStream: stream %s is finished later: %s", self._name, error)
            await asyncio.sleep(RETRY_S)

    @property
    def stream(self) -> Stream:
        """The stream; another one after this replica was left behind."""
        return self._follower.stream

    @property
    def is_leading(self) -> bool:
        """Whether the stream takes messages here."""
        return self._term != 0 and not self._is_changing

    @property
    def is_current(self) -> bool:
        """Whether the stream has what the group has handed out, up to a few entries."""
        return self.is_leading or (self._is_current and len(self._events) <= BEHIND_MAX)

    @property
    def applied(self) -> int:
        """Number of commands that the stream has."""
        return self._confirmed if self._term else self._follower.applied

    # ---- what the group asks for

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """Commit the entries of this leader; queue those of another one.

        A leader that was paused may get both at once, before it steps down.
        """
        confirmed, at_once = self._confirmed, SLICE
        for entry in entries:
            number = count(entry.data)
            self._committed += number
            if entry.term == self._term:
                self._confirmed = self._committed
            elif self.failure is None:
                at_once -= number
                commands = Commands(entry.data, number)
                is_now = at_once >= 0 and self._is_idle
                left = self._apply_at_once(commands) if is_now else commands
                if left is not None:
                    self._events.append(left)
                    self._is_woken.set()
        if not self._events:
            self._tell_waiting()
        if self._confirmed > confirmed:
            self.stream.commit(self._confirmed)
        return [None] * len(entries)

    def _apply_at_once(self, commands: Commands) -> Commands | None:
        """Apply publishes without the task; return what is left to it."""
        entry, number, at = commands
        try:
            applied, at = self._follower.apply_publishes(entry, at, number)
        except Exception:
            return commands  # the task meets the same, and does what is due then
        self.stream.readers.applied()
        return Commands(entry, number - applied, at) if applied < number else None

    @property
    def _is_idle(self) -> bool:
        """Whether the stream follows, and the task waits for what comes next."""
        return not (
            self._events
            or self._is_woken.is_set()
            or self._term
            or self._is_changing
            or self._is_deposed
            or self._is_rolled_back
            or not self._is_whole
            or not self._deletions.are_certain
            or self.stream.store.is_over_limit
        )

    def leads(self, *, is_leader: bool) -> None:
        """Lead, or step down, when all that was committed before is applied."""
        self._is_woken.set()

    def snapshot(self) -> Callable[[], Awaitable[bytes]]:
        """Return the manifest of what was handed out up to this call, once the files have it."""
        return partial(self._snapshot, self._committed)

    async def _snapshot(self, number: int) -> bytes:
        changes, manifest = -1, Manifest()
        while changes != self._changes:
            await self._reach(number)
            changes = self._changes
            manifest = await manifest_of(self.stream, number)
            await self._synced()
            await self.stream.sourcing.write()
            await self.stream.known_ids.keep()
        return encode_manifest(manifest)

    async def _synced(self) -> None:
        """Wait until all that the stream has applied is on disk. Raises StoreError."""
        await self._written()
        await self.stream.jetstream.volume.committer.until_on_disk()
        await self._written()  # raises if a file could not be synced

    async def _written(self) -> None:
        stream = self.stream
        await stream.store.synced()
        for consumer in list(stream.consumers.values()):
            await consumer.store.synced()
        if stream.scheduled is not None:
            await stream.scheduled.synced()

    def fetch(self, data: bytes) -> Callable[[], Awaitable[None]] | None:
        """Get a stream that has at least the commands of a snapshot; a new stream has none."""
        if not data and self._is_whole and not self.applied:
            return None
        return partial(self._keep_fetched, decode_manifest(data).applied)

    async def _keep_fetched(self, applied: int) -> None:
        self._wanted = applied  # it was left behind
        self._end_gets()
        self._fetched = Built(await fetch(self._catch_up, self.stream, applied), applied)

    def restore(self, data: bytes) -> None:
        """Take the stream that was fetched; at a start the files have what the snapshot says."""
        manifest = decode_manifest(data)
        self._committed = self._wanted = manifest.applied
        if self._fetched is not None:
            self._is_whole = False
            self._events.clear()
            self._events.append(self._fetched)
            self._fetched = None
            self._is_woken.set()
            return
        if not (data or self.stream.is_filed):
            self._is_whole = True  # the log has all commands of a stream in memory
        if self.stream.readers.log.last_sequence < manifest.last_sequence:
            self._is_whole = False
        if not self._is_whole:
            self._events.append(Lacking(manifest))
            return
        self._follower.start_from(self._committed)
        if self.stream.is_filed and (manifest.image or (not data and self.stream.consumers)):
            self._is_whole = False  # until it is reconciled
            self._events.append(Opened(manifest))

    def _source(self, applied: int) -> Stream | None:
        """Return the stream for another replica that needs so many commands.

        A group may begin with a stream (`applied` is 0), which a new replica does not have.
        """
        is_there = self._has(applied) and (applied > 0 or self._is_current)
        is_whole = self.failure is None and self._deletions.are_certain
        return self.stream if is_there and is_whole else None

    def _rolled_back(self, error: StoreError) -> None:
        """Take note that the stream has undone what it could not write, committed or not.

        The stream takes nothing more, and proposes nothing more: sequences would come twice.
        """
        if isinstance(error, NotCommitted):  # it steps down, or closes
            return
        self._is_rolled_back = True
        self._end_gets()
        if self._term:
            self.stream.ingest.pause()
            self._term = 0
            self._proposed.clear()
            self._is_deposed = True
        self._is_woken.set()

    # ---- what the leader's stream proposes

    def propose(self, command: Command) -> None:
        """Have the command in the entry of this turn; one that comes too late is undone."""
        if self._term:
            self._proposed.append(
                encode_publish(command) if isinstance(command, Publish) else encode(command)
            )
            if not self._is_proposal_due:
                self._submit_soon()

    def _submit_soon(self) -> None:
        if self._proposed and not self._is_proposal_due:
            self._is_proposal_due = True
            self.stream.jetstream.reactor.soon(self._submit)

    def _submit(self) -> None:
        self._is_proposal_due = False
        group, proposed = self._group, self._proposed
        assert group is not None
        while proposed and self._term == group.node.term:
            number = count_fitting(proposed, ENTRY_BYTES_MAX)
            if number == len(proposed) and not self._gathering.is_due(number):
                return
            self._early.follow(self.stream, group)
            try:
                entry = join_commands(proposed[:number])
                group.submit(entry, partial(self._entry_ended, self._term))
            except (ProposalDroppedError, TooManyProposalsError):
                self._is_proposal_due = True
                self._loop.call_later(FULL_LOG_RETRY_S, self._submit)
                return
            except NotLeaderError:  # it is told soon, and steps down
                return
            self._gathering.submitted(number)
            del proposed[:number]
            self._early.submitted(group.node.log.last_index, number)

    def _entry_ended(self, term: int, _result: object) -> None:
        """Submit what waited; `apply`, or the end of the leadership, tells what became of it.

        Entries of an earlier leadership may end later, if the log was cut off before them.
        """
        if term == self._term:
            self._gathering.ended(len(self._proposed))
            self._submit_soon()

    def _confirm(self, count: int) -> None:
        """Have refusals sent once it is sure that this replica leads: it may be deposed."""
        task = self._loop.create_task(self._confirm_leading(self._term, count))
        self._confirmations.add(task)
        task.add_done_callback(self._confirmations.discard)

    async def _confirm_leading(self, term: int, count: int) -> None:
        ingest, group = self.stream.ingest, self._group
        assert group is not None
        is_sure = False
        with contextlib.suppress(ReadDroppedError):
            await group.read_barrier()
            is_sure = group.node.is_leader and group.node.term == self._term == term
        if not is_sure:
            await asyncio.sleep(CONFIRM_RETRY_S)
        ingest.refusals.confirm(count if is_sure else 0)

    def _forget_refusals(self) -> None:
        """Send no refusal of a leadership that is over; others are sent as on one server."""
        self.stream.ingest.refusals.drop()
        self.stream.ingest.refusals.confirming = None

    # ---- the task

    async def _run(self) -> None:
        try:
            while True:
                await self._is_woken.wait()
                self._is_woken.clear()
                while await self._do_next_or_rewind():
                    self._tell_waiting()
        except (StoreError, OSError) as error:
            await self._fail(error)
        except Exception as error:
            _logger.exception("JetStream: stream %s: its replica ends", self._name)
            await self._fail(error)

    async def _do_next_or_rewind(self) -> bool:
        """Do what is due first; begin again from the log if it could not be written."""
        try:
            return await self._do_next()
        except (StoreError, OSError) as error:
            if not is_transient(error):
                raise
            _logger.warning("JetStream: stream %s stands still: %s", self._name, error)
            await asyncio.sleep(RETRY_S)
            self._is_rolled_back = True
            self._end_gets()
            return True

    async def _do_next(self) -> bool:
        """Do what is due first; return whether anything was."""
        group = self._group
        assert group is not None
        is_due_to_lead = group.leads
        if self._is_deposed or (
            self._term and not (is_due_to_lead and group.node.term == self._term)
        ):
            with self._changing():
                await self._step_down()
        elif self._is_rolled_back and not self._is_replaced_next:
            with self._changing():
                await self._rewind(group)
        elif self._deletions.are_lost:
            group.node.is_observer = True
            self._is_whole, self._deletions = False, Deletions()
            self._events.appendleft(Lacking(Manifest(self._follower.applied)))
        elif self._events:
            event = self._events[0]
            await self._apply_next(event)
            if self._events and self._events[0] is event:
                self._events.popleft()
        elif is_due_to_lead and not self._term:
            with self._changing():
                self._term = group.node.term
                self._gathering.begin()
                assert self._follower.applied == self._committed
                self._confirmed = self._committed
                self._early.begin(self._term, self._committed)
                self.stream.ingest.refusals.confirming = self._confirm
                self._is_deposed = True  # it steps down if this fails
                await lead(self._follower, self)
                self._is_deposed = False
            self._is_current = True
            self.on_leading()
        else:
            return False
        return True

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Change what the stream is; meanwhile it may have less than was applied."""
        self._is_changing = True
        self._changes += 1
        yield
        self._is_changing = False

    @property
    def _is_replaced_next(self) -> bool:
        """Whether the whole stream is replaced before anything is applied to it."""
        return bool(self._events) and isinstance(self._events[0], Opened | Built | Lacking)

    async def _rewind(self, group: RaftGroup) -> None:
        """Apply again what was undone, from the log: it has all that the files may lack."""
        _logger.warning("JetStream: stream %s applies again what was not written", self._name)
        group.node.is_observer = True
        self._give_up_leading(group)
        await asyncio.sleep(RETRY_S)  # there may be room then
        self._is_rolled_back = False
        log = group.node.log
        self._events.clear()
        self._events += [
            Commands(entry.data, count(entry.data))
            for entry in log.live_up_to(group.applied)
            if entry.data and entry.kind is EntryKind.NORMAL
        ]
        self._events.append(Reached())
        manifest = decode_manifest(log.snapshot.data)
        self._follower.start_from(manifest.applied)
        self.stream.own_consumers.expect(manifest.consumers)

    @staticmethod
    def _give_up_leading(group: RaftGroup) -> None:
        """Have the voter lead that lacks least; it is one that is there, if any is."""
        lags = group.lags()
        others = [each for each in sorted(group.membership.voters) if each in lags]
        if others:
            with contextlib.suppress(NotLeaderError, TransferError):
                group.transfer_leadership(min(others, key=lambda each: lags[each]))

    async def _step_down(self) -> None:
        self._term = 0
        self._is_deposed = True  # until all is done
        self._proposed.clear()
        await self._catch_up.interrupt()
        stepped_down = await step_down(self.stream)
        self._follower = stepped_down.follower
        self._is_deposed = False
        self._forget_refusals()
        self.on_leading()
        if not self._is_rolled_back:  # otherwise all is applied again from the log
            await stepped_down.apply_again()
            if self._is_current:
                self.stream.begin_gets()

    async def _apply_next(self, event: Event) -> None:
        follower = self._follower
        if isinstance(event, Lacking):
            assert self._group is not None
            event = Built(await self._mend(self._group, event.manifest), event.manifest.applied)
        if isinstance(event, Opened):
            await self._reconcile(event)
            return
        if isinstance(event, Built):
            await self._replace(event)
            return
        if isinstance(event, Reached):
            await self.stream.store.synced()
            if not self._is_rolled_back and self._group is not None:
                self._may_lead(self._group)
                self._answer_soon()
            return
        end, at, breaks = follower.applied + event.number, event.at, Breaks()
        while follower.applied < end and not self._is_rolled_back:
            before = follower.applied
            most = min(end - before, SLICE)
            _, at = follower.apply_publishes(event.entry, at, most)
            if follower.applied == before:
                command, at = command_at(event.entry, at)
                await follower.apply(follower.applied + 1, command)
            self.stream.readers.applied()
            if self._group is not None:
                self._early.follow(self.stream, self._group)
            if self.stream.store.is_over_limit:  # its disk is slower than the logs
                await self.stream.store.room()
            await breaks.take()

    async def _reconcile(self, opened: Opened) -> None:
        """Go on with the files, or fetch the stream if they lack something."""
        assert self._group is not None
        lacking = await reconcile(self.stream, opened.manifest)
        deletions = await Deletions.explain(lacking, self._group.node.log)
        if self._events[0] is not opened:  # it was left behind, and is replaced next
            return
        if deletions is None:
            self._events[0] = Lacking(opened.manifest)
            return
        self._deletions = deletions
        self._follower.forget_limits()
        self._is_whole = True
        self._may_lead(self._group)

    async def _replace(self, built: Built) -> None:
        """Put a stream that was fetched in the place of this one."""
        assert self._group is not None
        before = self.stream.config
        with self._changing():
            await self._catch_up.interrupt()
            self._follower.follow(await built.stream.install(self.stream))
            reserve_anew(self.stream.account.tiers, before, self.stream.config)
            self._watch_stream()
            self._is_rolled_back, self._deletions = False, Deletions()
            self._follower.start_from(built.applied)
            self._is_whole = built.applied >= self._wanted
        if not self._is_whole:
            return
        self._answer_soon()
        if self.stream.is_filed:
            await forget_incomplete(self.stream.account, self.stream.name)
        self._may_lead(self._group)

    def _may_lead(self, group: RaftGroup) -> None:
        """Let this member begin elections again, unless it is a read replica."""
        group.node.is_observer = self._is_read_replica

    async def _mend(self, group: RaftGroup, manifest: Manifest) -> BuiltStream:
        """Return a stream that has what the manifest says, or what is left of it."""
        if self._is_read_replica:
            return await fetch(self._catch_up, self.stream, manifest.applied)
        return await Lack(group, self._catch_up, self.stream, manifest).mend()

    async def _fail(self, error: Exception) -> None:
        """Apply nothing more, and never lead again."""
        _logger.error("JetStream: the replica of stream %s ends: %s", self._name, error)
        self.failure = error
        self._end_gets()
        self._refuse_waiting(error)
        self._proposed.clear()
        self._term = 0
        await self._catch_up.interrupt()
        await stop_leading(self.stream)
        self._forget_refusals()
        self.on_leading()
        group = self._group
        assert group is not None
        while True:  # until it is closed: another voter may be there later
            group.node.is_observer = True
            if group.is_leader:
                self._give_up_leading(group)
            await asyncio.sleep(RETRY_S)

    # ---- direct gets

    def _answer_soon(self) -> None:
        self._end_gets()
        self._answering = self._loop.create_task(self._answer_when_current())

    async def _answer_when_current(self) -> None:
        """Answer direct gets once this replica has all that is committed at the moment."""
        group = self._group
        assert group is not None
        while self._is_read_replica:
            await self._prove(group)
        while True:
            try:
                await group.read_barrier()
                break
            except ReadDroppedError:
                await asyncio.sleep(RETRY_S)
        await self._reach_all()
        self._is_current = True
        if not self.is_leading:
            self.stream.begin_gets()

    async def _reach_all(self) -> None:
        """Wait until all that the group has handed out so far is applied."""
        number = self._committed
        while not self._has(number):
            await self._reach(number)

    async def _prove(self, group: RaftGroup) -> None:
        """Have all that is committed, if the leader says what that is, and answer as of now.

        It takes up to PROVE_EVERY_S, or longer if the leader is slow.
        """
        began_s = self._loop.time()
        with contextlib.suppress(ReadDroppedError, StoreError):
            await group.read_barrier()
            await self._reach_all()
            await self.stream.store.synced()  # only what is durable is shown
            self._is_current = True
            self._staleness.proven(began_s)
            self._answer_until_too_old(began_s)
        # All streams of a server ask in the same turn: their messages travel together.
        await asyncio.sleep(PROVE_EVERY_S - self._loop.time() % PROVE_EVERY_S)

    def _answer_until_too_old(self, proven_s: float) -> None:
        """Answer direct gets until the state may be older than the stream's limit."""
        self._forget_age()
        longest_s = read_max_staleness_s(self.stream.config)
        if longest_s:
            self._too_old = self._loop.call_at(proven_s + longest_s, self.stream.end_gets)
        self.stream.begin_gets(self._staleness)

    def _forget_age(self) -> None:
        if self._too_old is not None:
            self._too_old.cancel()

    def _end_gets(self) -> None:
        self._is_current = False
        if self._answering is not None:
            self._answering.cancel()
        self._forget_age()
        self.stream.end_gets()

    # ---- waiting for what was committed

    def _has(self, number: int) -> bool:
        """Return whether the stream has that many commands at the moment."""
        return self.applied >= number and self._is_whole and not self._is_changing

    async def _reach(self, number: int) -> None:
        """Wait until so many commands are applied. Raises what ended the replica."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # otherwise it would grow each time
        if not self._has(number):
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append((number, future))
            await future

    def _tell_waiting(self) -> None:
        if not self._waiting or self._is_changing:
            return
        waiting, self._waiting = self._waiting, []
        for number, future in waiting:
            if not self._has(number):
                self._waiting.append((number, future))
            elif not future.done():
                future.set_result(None)

    def _refuse_waiting(self, error: BaseException) -> None:
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)

    @property
    def _name(self) -> str:
        return f"{self.stream.account.name} > {self.stream.name}"
