"""The streams of which this server has a replica: each is made what its assignment says.

    an assignment changes ─┐
    the replica leads ─────┼─▶ settle(stream): open ─ convert ─ configure ─ members ─ remove
    a second has passed ───┘                   one at a time for each stream, until all is as wanted

- A stream without a group has one replica, which is served as on a single server.
- What a group's members are is its leader's work: those that join learn until they have caught up,
  and those that leave go after that. Then the leader has the assignment say so.
- Read replicas are learners for good. A stream with one replica and read replicas has a group whose
  only voter is that replica.

Promise
- Files are removed only for a removal that the meta group decided, never for a stream that is
  merely unknown.
- Whatever fails is tried again, and costs one line in the log; other streams go on.

Source: nats-server's `processStreamAssignment`, `processClusterCreateStream`, `monitorStream`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from natsd.accounts.internal_client import InternalClient
from natsd.jetstream.account import JetStreamAccount
from natsd.jetstream.consumer.consumer import Floor
from natsd.jetstream.errors import ApiError
from natsd.jetstream.meta import CreateStream, DeleteStream
from natsd.jetstream.meta_group.assignments import Assignment, Assignments, Change, Reassign
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.recovery import recover_stream
from natsd.jetstream.replicas.opening import open_replica
from natsd.jetstream.replicas.stream_image import first_state
from natsd.jetstream.replicas.stream_replica import StreamReplica
from natsd.jetstream.replicas.transfer import StreamTransfer
from natsd.jetstream.resources import release, reserve, reserve_anew
from natsd.jetstream.stream.stream import Stream
from natsd.raft.errors import MembershipError, RaftError, TransferError
from natsd.raft.group import RaftGroup
from natsd.raft.host import RaftHost
from natsd.raft.rescue import NotRescuableError
from natsd.raft.transport import member_id, server_key
from natsd.store.disk.disk import make_directories, rename_synced
from natsd.store.disk.places import SUPERSEDED
from natsd.store.errors import StoreError

_logger = logging.getLogger(__name__)

RETRY_S: Final = 0.5
CAUGHT_UP_LAG: Final = 10
"""A replica that lacks no more entries is shown as current."""

Key = tuple[str, str]
Propose = Callable[[Change], Awaitable[object]]
AskToDelete = Callable[[str, str, str, int], Awaitable[None]]
Report = Callable[[str, str, Sequence[Floor]], Awaitable[bool]]


@dataclass(slots=True)
class LocalStream:
    """A stream that is open here."""

    account: JetStreamAccount
    assignment: Assignment
    replica: StreamReplica | None = None  # None: the only one
    group: RaftGroup | None = None
    configured: int = 0  # version of the assignment whose configuration the stream has

    @property
    def is_led(self) -> bool:
        """Whether its messages are taken here."""
        if self.replica is None:
            return True
        return self.replica.is_leading and not self.replica.stream.ingest.is_paused

    @property
    def is_configured(self) -> bool:
        """Whether the stream has the configuration of its assignment."""
        return self.configured == self.assignment.version

    @property
    def stream(self) -> Stream | None:
        """The stream; None: it is offline."""
        return self.account.streams.get(self.assignment.name)


class LocalStreams:
    """The streams of this server."""

    def __init__(
        self,
        server: str,
        host: RaftHost,
        assignments: Assignments,
        accounts: Mapping[str, JetStreamAccount],
        client: InternalClient,
        propose: Propose,
    ) -> None:
        """Use `client`, which is that of the system account; `propose` changes assignments."""
        self._server = server
        self._host = host
        self._assignments = assignments
        self._accounts = accounts
        self._client = client
        self._propose = propose
        self._streams: dict[Key, LocalStream] = {}
        self._due: set[Key] = set()
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._is_closed = False
        self._is_suspended = False
        self._loop = asyncio.get_running_loop()
        self.leading_news: Callable[[LocalStream], object] = lambda _stream: None
        """Called when a stream has begun or ended to be led here."""
        self.own_begun: Callable[[], object] = lambda: None
        """Called when consumers that a read replica of this server serves have begun."""
        self.ask_to_delete: AskToDelete
        """Has the leader of a stream delete a consumer."""
        self.report: Report
        """Tells the leader of a stream how far consumers are that this server serves."""
        self.place_consumers: Callable[[LocalStream], Awaitable[None]]
        """Has consumers whose server has no read replica any more served by another one."""
        self.own_member: Callable[[], int] = lambda: self.member_of(self._server)
        """Returns which member of all groups this server is."""
        self.rescue_failed: Callable[[str, str], Awaitable[None]] = _nothing
        """Called with the new name of a group that cannot be rescued here, and why."""

    def find(self, account: str, name: str) -> LocalStream | None:
        """Return a stream that is open here; None: there is none of that name."""
        return self._streams.get((account, name))

    def __iter__(self) -> Iterator[LocalStream]:
        return iter(list(self._streams.values()))

    def problems(self, account: str) -> Iterator[tuple[str, str]]:
        """Yield the streams of an account that should be served here and are not, and why not."""
        for each in self._assignments.of_account(account):
            if self._server not in each.servers + each.read_replicas:
                continue
            have = self._streams.get(each.key)
            if have is None:
                yield each.name, "it is not open yet"
            elif have.replica is not None and have.replica.failure is not None:
                yield each.name, str(have.replica.failure)
            elif have.group is not None and not have.group.leader:
                yield each.name, "its group has no leader"
            elif have.replica is not None and not have.replica.is_current:
                yield each.name, "it catches up"

    async def close(self) -> None:
        """End the replicas and their groups; the streams stay open."""
        self._is_closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in self:
            if each.replica is not None:
                await each.replica.close()

    async def suspend(self) -> None:
        """Close all streams, and open none until `resume`; their files and logs stay."""
        self._is_suspended = True
        for have in self:
            async with have.account.changing(have.assignment.name):
                if self._streams.get(have.assignment.key) is have:
                    await self._close(have, keeps_log=True)
        for each in self._assignments:
            account = self._accounts.get(each.account)
            if account is not None:
                _claim(account, each.name, None)

    async def set_aside(self, assignments: Assignments) -> None:
        """Move the files of replicas of this server to where no stream has them.

        Nothing is open: another history comes in their place. Raises StoreError, OSError.
        """
        for each in assignments:
            account = self._accounts.get(each.account)
            is_here = self._server in (*each.servers, *each.leaving)
            if account is not None and is_here and each.group:
                await _set_aside(account, each)

    def resume(self) -> None:
        """Open what is assigned from now on."""
        self._is_suspended = False

    # ---- what is due

    def changed(self, before: Assignment | None, after: Assignment | None) -> None:
        """Take note of another assignment: the watcher of `Assignments`."""
        each = after or before
        assert each is not None
        account = self._accounts.get(each.account)
        if account is not None:
            _claim(account, each.name, after)
        self.wake(each.key)

    def account_served(self, account: JetStreamAccount) -> None:
        """Open the streams of an account that is served from now on."""
        for each in self._assignments.of_account(account.name):
            _claim(account, each.name, each)
            self.wake(each.key)

    async def account_left(self, account: JetStreamAccount) -> None:
        """End the replicas of an account that is not served any more; their files stay."""
        for have in self:
            if have.account is not account:
                continue
            async with account.changing(have.assignment.name):
                self._streams.pop(have.assignment.key, None)
                if have.replica is not None:
                    await have.replica.close()
                if have.group is not None:
                    await self._host.stop_group(have.group.name)

    def wake(self, key: Key) -> None:
        """Look at once whether a stream is as its assignment says."""
        if self._is_closed:
            return
        self._due.add(key)
        if key not in self._tasks:
            task = self._loop.create_task(self._settle(key), name=f"natsd-stream-{key[1]}")
            self._tasks[key] = task
            task.add_done_callback(lambda _task: self._ended(key))

    def _ended(self, key: Key) -> None:
        del self._tasks[key]
        if key in self._due:
            self.wake(key)

    async def _settle(self, key: Key) -> None:
        while key in self._due:
            self._due.discard(key)
            try:
                is_settled = await self._carry_out(key)
            except (StoreError, OSError, RaftError, ApiError) as error:
                _logger.warning("JetStream: stream '%s > %s': %s", *key, error)
                is_settled = False
            except Exception:
                _logger.exception("JetStream: stream '%s > %s'", *key)
                is_settled = False
            if not is_settled:
                self._loop.call_later(RETRY_S, self.wake, key)

    async def _carry_out(self, key: Key) -> bool:
        """Bring a stream nearer to its assignment; return whether nothing is left to do."""
        account = self._accounts.get(key[0])
        if account is None or account.is_closed:
            return True
        async with account.changing(key[1]):
            if self._is_suspended:
                return True
            wanted, have = self._assignments.find(*key), self._streams.get(key)
            if wanted is not None and self._server not in wanted.holders:
                wanted = None
            if have is not None and (
                wanted is None or have.assignment.created_ns != wanted.created_ns
            ):
                await self._remove(have)
                have = None
            if wanted is None:
                return True
            if have is not None and have.assignment.group != wanted.group:
                is_rescued = wanted.rescued_from == have.assignment.group
                await self._close(have, keeps_log=is_rescued)
                have = None
            if have is None:
                if wanted.group and self.member_of(self._server) != self.own_member():
                    return False  # what was applied so far is of an earlier member
                have = await self._open(account, wanted)
            have.assignment = wanted
            if have.replica is not None:
                have.replica.change_role(is_read_replica=self._server in wanted.read_replicas)
            if not have.is_led:
                return True
            await self._configure(have)
            await self.place_consumers(have)
        return await self._keep_members(have)

    # ---- opening and ending

    async def _open(self, account: JetStreamAccount, wanted: Assignment) -> LocalStream:
        config = wanted.stream_config
        have = LocalStream(account, wanted)
        if wanted.group:
            await self._open_replica(have, config)
        else:
            await self._open_alone(have, config)
        self._streams[wanted.key] = have
        return have

    async def _open_alone(self, have: LocalStream, config: StreamConfig) -> None:
        """Serve the only replica: the files that are there, or a new stream."""
        account, wanted = have.account, have.assignment
        volume, directory = account.jetstream.volume, account.files.stream(wanted.name)
        if await volume.read(volume.disk.exists, directory):
            await recover_stream(account, wanted.name)
            _claim(account, wanted.name, wanted)
            stream = account.streams.get(wanted.name)
            if stream is None and wanted.name in account.offline:
                return
            if stream is not None and stream.created_ns == wanted.created_ns:
                return
            if stream is not None:  # its removal was missed
                await account.apply(DeleteStream(account.name, wanted.name))
                _claim(account, wanted.name, wanted)
        reserve(account.tiers.usage_of(config.num_replicas), config)
        try:
            await account.apply(CreateStream(account.name, config, wanted.created_ns))
        except BaseException:
            release(account.tiers.usage_of(config.num_replicas), config)
            raise

    async def _open_replica(self, have: LocalStream, config: StreamConfig) -> None:
        """Open the files that are there, or new ones, and start the member of the group."""
        account, wanted = have.account, have.assignment
        member = self.member_of(self._server)
        is_founder = member in wanted.founders
        is_rescued = await self._rescue(wanted, member)
        is_new = wanted.group not in self._host.recovered
        if is_new and is_founder and wanted.is_adopted:
            stream = await Stream.open_following(account, config, wanted.created_ns)
            is_whole = True
        else:
            stream, is_whole = await open_replica(account, config, wanted.created_ns, is_new=is_new)
        account.streams[wanted.name] = stream
        reserve(account.tiers.usage_of(config.num_replicas), config)
        transfer = StreamTransfer(self._client, wanted.group, account.jetstream.random_bytes)
        have.replica = StreamReplica(
            stream,
            transfer,
            is_whole=is_whole,
            is_read_replica=self._server in wanted.read_replicas,
        )
        have.replica.on_leading = lambda: self._leading(have)
        have.replica.on_own_begun = lambda: self.own_begun()
        have.replica.ask_to_delete = partial(self.ask_to_delete, *wanted.key)
        have.replica.report = partial(self.report, *wanted.key)
        have.group = await self._host.start_group(
            wanted.group,
            member,
            have.replica,
            first_voters=wanted.founders if is_founder else (),
            first_state=await first_state(stream) if wanted.is_adopted else b"",
        )
        have.replica.begin(have.group)
        if is_rescued or (is_new and is_founder and wanted.founders[0] == member):
            self._host.campaign(have.group)

    async def _rescue(self, wanted: Assignment, member: int) -> bool:
        """Go on under the new name with the log of a rescued group; return whether that is done.

        Other servers than the founder get the stream from it. Raises RaftError, OSError.
        """
        old, recovered = wanted.rescued_from, self._host.recovered
        if not old or old not in recovered:
            return False
        if member not in wanted.founders or wanted.group in recovered:
            await self._host.forget_group(old)
            return False
        try:
            await self._host.rescue_group(old, wanted.group, member)
        except NotRescuableError as error:
            await self.rescue_failed(wanted.group, str(error))
            raise
        _logger.warning(
            "JetStream: stream '%s > %s': its group %s was rescued here as %s",
            *wanted.key,
            old,
            wanted.group,
        )
        return True

    def _leading(self, have: LocalStream) -> None:
        """Take note that the replica has begun or ended to lead."""
        if self._streams.get(have.assignment.key) is have:
            self.leading_news(have)
            self.wake(have.assignment.key)

    async def _close(self, have: LocalStream, *, keeps_log: bool = False) -> None:
        """Close a stream whose files stay, and forget the log of its group unless it is kept."""
        account, name = have.account, have.assignment.name
        if have.replica is not None and not keeps_log:
            await have.replica.finish()  # if that fails, the log stays, and it is tried again
        self._streams.pop(have.assignment.key, None)
        stream = account.streams.get(name)
        if have.replica is not None and keeps_log:
            await have.replica.close()
        if stream is not None:
            release(account.tiers.usage_of(stream.config.num_replicas), stream.config)
            stream.ingest.release_usage()
            await stream.close()
            del account.streams[name]
        if have.group is not None and keeps_log:
            await self._host.stop_group(have.group.name)
        elif have.group is not None:
            await self._host.remove_group(have.group.name)

    async def _remove(self, have: LocalStream) -> None:
        """Remove a stream with its files, and the log of its group."""
        account, name = have.account, have.assignment.name
        self._streams.pop(have.assignment.key, None)
        if have.group is not None:
            await self._host.remove_group(have.group.name)
        if have.replica is not None:
            await have.replica.close()
        if name in account.streams or name in account.offline:
            await account.apply(DeleteStream(account.name, name))
        _claim(account, name, self._assignments.find(account.name, name))
        self.leading_news(have)

    # ---- what the leader does

    async def _configure(self, have: LocalStream) -> None:
        """Give the stream the configuration of its assignment."""
        stream, config = have.stream, have.assignment.stream_config
        if stream is not None and stream.config != config:
            before = stream.config
            await stream.reconfigure(config)
            reserve_anew(have.account.tiers, before, config)
            stream.count_in(stream.usage)
        if not have.is_configured:
            have.configured = have.assignment.version
            self.leading_news(have)

    def member_of(self, server: str) -> int:
        """Return the member of all groups that a server is at the moment."""
        known = self._assignments.servers.get(server)
        return member_id(server_key(server), 0 if known is None else known.incarnation)

    async def _keep_members(self, have: LocalStream) -> bool:
        """Take the next step towards the members that are wanted; return whether it is done."""
        group, wanted = have.group, have.assignment
        if group is None or not group.leads:
            return True
        voters = {self.member_of(each) for each in wanted.servers}
        leaving = {self.member_of(each) for each in wanted.leaving} - voters
        learners = {self.member_of(each) for each in wanted.read_replicas} - voters
        membership = group.membership
        members = membership.voters | membership.learners
        with contextlib.suppress(MembershipError):
            for member in sorted(members - voters - leaving - learners):
                if member != group.node.id:
                    await group.remove_member(member)
            for member in sorted((voters | learners) - members):
                await group.add_learner(member)
        for member in sorted(group.membership.learners & voters):
            with contextlib.suppress(MembershipError):
                await group.promote(member)
        if group.membership.voters >= voters:
            with contextlib.suppress(MembershipError):
                for member in sorted(group.membership.voters - voters - {group.node.id}):
                    await group.remove_member(member)
        if group.membership.voters >= voters and group.node.id not in voters:
            with contextlib.suppress(TransferError):
                group.transfer_leadership(self.member_of(wanted.servers[0]))
            return False
        if group.membership.voters != voters or group.membership.learners != learners:
            return False
        await self._finish_move(have)
        return True

    async def _finish_move(self, have: LocalStream) -> None:
        """Have the assignment say that the members are what was wanted."""
        wanted = have.assignment
        if self._assignments.find(*wanted.key) != wanted:
            return
        if len(wanted.servers) == wanted.replicas == 1 and not wanted.read_replicas:
            # Nobody has to agree any more.
            after = msgspec.structs.replace(
                wanted, leaving=(), group="", founders=(), is_adopted=False
            )
        elif wanted.leaving:
            after = msgspec.structs.replace(wanted, leaving=())
        else:
            return
        await self._propose(Reassign(wanted.version, after))


def _claim(account: JetStreamAccount, name: str, assignment: Assignment | None) -> None:
    """Note which subjects the stream owns, wherever it is."""
    subjects = () if assignment is None else assignment.stream_config.subjects
    for _ in account.claims.claim(name, subjects):
        pass


async def _set_aside(account: JetStreamAccount, assignment: Assignment) -> None:
    volume, directory = account.jetstream.volume, account.files.stream(assignment.name)
    target = account.files.directory / SUPERSEDED / f"{assignment.name}.{assignment.group}"
    if not await volume.read(volume.disk.exists, directory):
        return
    await volume.committer.forget_below(directory)

    def move() -> None:
        make_directories(volume.disk, target.parent)
        if not volume.disk.exists(target):  # what is there then is younger, and was never whole
            rename_synced(volume.disk, directory, target)

    await volume.read(move)
    _logger.warning("JetStream: stream '%s > %s': set aside as %s", *assignment.key, target)


async def _nothing(_group: str, _reason: str) -> None:
    pass
