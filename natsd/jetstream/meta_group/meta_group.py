"""This server's member of the meta group: how it comes to be one, and who else is.

    it is one already ────────────────────────────────▶ started from the RAFT log
    no server of the cluster is in a group ─ founding ▶ started as one of the first members
    others are in a group ─ nonce in its statement ───▶ introduced, welcomed ─▶ started as a learner

Promise
- `member.json` says which member this server is. It is written when the member has been started: if
  the RAFT log does not know a member that it names, that log was lost, and the server joins as
  another member, which has promised nothing. The logs of its other groups are forgotten with it.
- A member that streams were rescued without, while the group had a majority, is told so when it
  comes back: it ends its streams at once, and the server joins as another member.
- A rescue (rescuing.py) gives the group a new name. A server that hears of it belongs to the old
  group no more: if it was said to be lost, it ends all its streams at once and joins as another
  member; otherwise it goes over as the member that it is, and its streams go on.
- The leader of the group keeps the members what `Assignments.servers` says: it introduces who asks,
  makes learners voters when they have caught up, and removes members that are gone for good.

Source: nats-server's `setupMetaGroup` and `monitorCluster` (server/jetstream_cluster.go).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from natsd.accounts.internal_client import InternalClient
from natsd.core.quoting import quoted
from natsd.jetstream.meta_group import founding_record, rescue_order
from natsd.jetstream.meta_group.assignments import (
    Assignment,
    Assignments,
    Change,
    Introduce,
    Introduced,
    encode,
)
from natsd.jetstream.meta_group.founding import Founding, PeerView
from natsd.jetstream.meta_group.founding_record import Founded
from natsd.jetstream.meta_group.peers import Peers, Statement
from natsd.jetstream.meta_group.rescuing import Rescuing, replayed
from natsd.raft.entry import Health
from natsd.raft.errors import MembershipError, RaftError
from natsd.raft.group import RaftGroup
from natsd.raft.host import RaftHost
from natsd.raft.rescue import NotRescuableError
from natsd.raft.transport import member_id, server_key, server_of
from natsd.store.crypto.vault import Vault
from natsd.store.disk.disk import make_directories
from natsd.store.disk.twin_file import twins_exist

_logger = logging.getLogger(__name__)

WELCOME: Final = "$JSC.WELCOME.{:012x}"
LOST: Final = "$JSC.LOST.{:012x}"
"""Says to a server that it is a member which was given up for lost: an OwnMember."""
FOUNDING: Final = "$JSC.FOUND.{:012x}"
MEMBER_FILE: Final = "member.json"
MAGIC: Final = b"NATSDMBR"
MEMBER_FILES: Final = (
    (MEMBER_FILE, MAGIC),
    (founding_record.RECORD_FILE, founding_record.MAGIC),
    (rescue_order.ORDER_FILE, rescue_order.MAGIC),
)
"""The files that are encrypted if there is a key, with the magic of their kinds."""
REMOVED_S: Final = 300.0
"""A server that was removed may join again with an empty disk after so long, as on nats-server."""
STEP_S: Final = 0.5
NONCE_BYTES: Final = 12


class OwnMember(Struct, frozen=True):
    """Which member of which group this server is."""

    group: str
    incarnation: int


class Welcome(Struct, frozen=True):
    """What the leader answers to a server that asks to join."""

    nonce: str
    group: str
    incarnation: int


def check_member_files(vault: Vault, directory: Path) -> None:
    """Check that the keys open what is in the directory of `member.json`. Raises EncryptionError.

    Otherwise a server with a wrong key would take itself for a new one. Blocks on the disk.
    """
    for name, magic in MEMBER_FILES:
        refusal = None
        with contextlib.suppress(OSError):  # it is damaged, and is read as such
            refusal = vault.refusal(directory / name, magic)
        if refusal is not None:
            raise refusal


class MetaGroup:
    """This server's member, and what it does as the leader."""

    def __init__(
        self,
        name: str,
        host: RaftHost,
        assignments: Assignments,
        peers: Peers,
        client: InternalClient,
        vault: Vault,
        directory: Path,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """Use `client`, which is that of the system account; `directory` gets `member.json`."""
        self._name = name
        self._key = server_key(name)
        self._host = host
        self._assignments = assignments
        self._peers = peers
        self._client = client
        self._vault = vault
        self._directory = directory
        self._random_bytes = random_bytes
        self._founding: Founding
        self._own: OwnMember | None = None
        self._has_lost_log = False
        self._welcome: Welcome | None = None
        self._was_lost = False  # the others go on without the member that this server is
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.rescuing = Rescuing(host, peers, vault, directory)
        """Carries out what was ordered with `natsd cluster rescue`."""
        self._removed_s: dict[str, float] = {}  # when this leader first saw that it was removed
        self.nonce = ""
        self.group: RaftGroup | None = None
        self.propose_anywhere: Callable[[Change], Awaitable[object]] = self.propose
        """Has a change made, whoever leads the group."""
        self.end_streams: Callable[[], Awaitable[None]] = _nothing
        """Closes all streams, since what is known of them is void; their files stay."""
        self.set_aside: Callable[[Assignments], Awaitable[None]] = _nothing
        """Moves the files of replicas that this server had by these assignments."""

    # ---- life

    def open(self, make_founding: Callable[[Callable[[str, bytes], None]], Founding]) -> None:
        """Read which member this server is. Blocks; raises OSError, EncryptionError."""
        make_directories(self._vault.disk, self._directory)
        check_member_files(self._vault, self._directory)
        path = self._directory / MEMBER_FILE
        found = self._vault.recall(path, MAGIC, "the server joins its cluster as a new member")
        if found is not None:
            self._own = msgspec.json.decode(found, type=OwnMember)
        self._has_lost_log = found is None and twins_exist(self._vault.disk, path)
        self.rescuing.open()
        self._founding = make_founding(self._send_founding)

    def start(self) -> None:
        """Become a member, and do what the leader has to do."""
        self._client.subscribe(WELCOME.format(self._key), self._welcomed)
        self._client.subscribe(LOST.format(self._key), self._given_up)
        self._client.subscribe(FOUNDING.format(self._key), self._received_founding)
        self.rescuing.start()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="natsd-meta-group")

    async def close(self) -> None:
        """End the task; the host closes the group."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def wake(self) -> None:
        """Look at once at what is to be done."""
        self._woken.set()

    # ---- what is known

    @property
    def name(self) -> str:
        """Name of the group; empty: this server is in none yet."""
        return "" if self._own is None or self.group is None else self._own.group

    @property
    def superseded(self) -> str:
        """Name of the group that this server belonged to until its rescue; empty: none."""
        own, founded = self._own, self._founding.founded
        if own is None or founded is None or own.group not in founded.supersedes:
            return ""
        return own.group

    @property
    def incarnation(self) -> int:
        """Incarnation of this server's member."""
        return 0 if self._own is None else self._own.incarnation

    @property
    def member(self) -> int:
        """Number of this server's member, which is the same in all groups; 0: it is none yet."""
        return 0 if self.group is None else self.group.node.id

    @property
    def is_leader(self) -> bool:
        """Whether this server leads the group, and has applied what was before."""
        return self.group is not None and self.group.leads

    @property
    def leader(self) -> str:
        """Name of the server that leads; empty: none is known."""
        group = self.group
        return "" if group is None or not group.leader else self.name_of(group.leader)

    def name_of(self, member: int) -> str:
        """Return the name of a member's server; empty: it is not known."""
        key = server_of(member)
        names = [self._name, *self._assignments.servers, *self._peers.known]
        return next((name for name in names if server_key(name) == key), "")

    def members(self) -> list[int]:
        """Return the members of the group."""
        if self.group is None:
            return []
        membership = self.group.membership
        return sorted(membership.voters | membership.learners)

    async def propose(self, change: Change) -> Assignment | Introduced | None:
        """Have a change made; return its result, as `Assignments.apply` does. Raises RaftError."""
        assert self.group is not None
        result = await self.group.propose(encode(change))
        assert result is None or isinstance(result, Assignment | Introduced)
        return result

    # ---- the task

    async def _run(self) -> None:
        while True:
            try:
                await self._follow_rescue()
                if self._was_lost:
                    await self._leave()
                if self.group is None:
                    await self._become_member()
                elif self.rescuing.order is not None:
                    await self._carry_out_rescue()
                if self.group is not None and self.group.leads:
                    await self._keep_members(self.group)
            except RaftError as error:
                _logger.debug("JetStream: the meta group's members: %s", error)
            except OSError as error:
                _logger.error("JetStream: this server is not in the meta group yet: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STEP_S):
                    await self._woken.wait()
            self._woken.clear()

    async def _become_member(self) -> None:
        own, founding = self._own, self._founding
        if own is not None and self.rescuing.is_for_meta(own.group):
            await self._rescue(own)
        elif own is not None and self._has_lost_a_vote:
            _logger.error("JetStream: it is lost for whom this server has voted; joining anew")
            self._own, self._has_lost_log = None, True
        elif own is not None and own.group in self._host.recovered and self.superseded:
            await self._go_over(own)
        elif own is not None and own.group in self._host.recovered:
            await self._start(own)
        elif own is not None:
            _logger.error("JetStream: the RAFT log of the meta group is lost; joining it anew")
            self._own, self._has_lost_log = None, True
        elif self._welcome is not None:
            await self._join(self._welcome)
        elif founding.founded is not None and founding.is_founder and not self._has_lost_log:
            await self._found(founding.founded)
        elif founding.founded is not None:
            self._ask_to_join()
        else:
            founding.expected = self._peers.own.expected
            founding.tick(
                {
                    name: PeerView(each.expected, each.founded)
                    for name, each in self._peers.online.items()
                }
            )

    @property
    def _has_lost_a_vote(self) -> bool:
        """Whether a group of this server can only go on with another member (raft/repair.py)."""
        recovered = self._host.recovered.values()
        return any(each.hard_state.health is Health.VOTE_LOST for each in recovered)

    async def _found(self, founded: Founded) -> None:
        """Begin the group, as all of its first members do."""
        first = [member_id(server_key(name)) for name in founded.members]
        own = OwnMember(founded.group, 0)
        await self._start(own, first)
        if self.group is not None and first[0] == self.group.node.id:
            self._host.campaign(self.group)
        _logger.info("JetStream cluster new metadata group: %s", ", ".join(founded.members))

    async def _join(self, welcome: Welcome) -> None:
        """Begin as another member of a group that others have founded."""
        await self.end_streams()
        own, recovered = self._own, self._host.recovered
        if own is not None and own.group in recovered:  # that group was rescued
            await self.set_aside(replayed(recovered[own.group]))
        for name in list(recovered):
            await self._host.forget_group(name)
        await self._start(OwnMember(welcome.group, welcome.incarnation))
        _logger.info("JetStream cluster metadata group %s joined", welcome.group)

    async def _start(self, own: OwnMember, first: list[int] | None = None) -> None:
        member = member_id(self._key, own.incarnation)
        group = await self._host.start_group(
            own.group, member, self._assignments, first_voters=first or ()
        )
        if self._own != own:
            path = self._directory / MEMBER_FILE
            await asyncio.to_thread(self._vault.write, path, MAGIC, msgspec.json.encode(own))
        self._own, self.nonce, self._welcome = own, "", None
        self.group = group
        self._peers.tell()

    def _ask_to_join(self) -> None:
        if not self.nonce:
            self.nonce = self._random_bytes(NONCE_BYTES).hex()
            self._peers.tell()

    def _welcomed(self, _subject: str, _reply: str | None, _headers: bytes, data: bytes) -> None:
        with contextlib.suppress(msgspec.MsgspecError):
            welcome = msgspec.json.decode(data, type=Welcome)
            if self.group is None and self.nonce and welcome.nonce == self.nonce:
                self._welcome = welcome
                self.wake()

    # ---- rescue

    async def _rescue(self, own: OwnMember) -> None:
        """Go on as the only member of the group, under a new name."""
        member, order = member_id(self._key, own.incarnation), self.rescuing.order
        assert order is not None
        if order.meta in self._host.recovered:
            if not await self.rescuing.may_begin():
                return
        elif order.new_meta not in self._host.recovered:
            await self.rescuing.refuse("the RAFT log of the meta group is lost")
            return
        try:
            value = await self.rescuing.rescue_meta(member)
        except NotRescuableError as error:
            await self.rescuing.refuse(str(error))
            return
        before = self._founding.founded
        if before is not None:
            earlier = (*before.supersedes, *value.supersedes)
            value = msgspec.structs.replace(value, supersedes=tuple(dict.fromkeys(earlier)))
        if self._founding.supersede(value):
            await self._start(OwnMember(value.group, own.incarnation))
            if self.group is not None:
                self._host.campaign(self.group)

    async def _carry_out_rescue(self) -> None:
        """Do what is left of the order when the group is there."""
        rescuing, order = self.rescuing, self.rescuing.order
        assert order is not None and self._own is not None
        if self._own.group == order.new_meta:
            await rescuing.finish_meta(self._assignments.find)
        elif self._own.group != order.meta:
            await rescuing.refuse(f"this server is a member of {self._own.group} now")
        elif self.leader and await rescuing.may_begin():
            await rescuing.propose(self.propose_anywhere, self._assignments.find)

    async def _follow_rescue(self) -> None:
        """Leave the group if others have rescued it without this server."""
        founding, own = self._founding, self._own
        known = founding.founded
        mine = own.group if own is not None else "" if known is None else known.group
        heard = [each.founded for each in self._peers.online.values() if each.founded is not None]
        value = next((each for each in heard if mine in each.supersedes), None)
        if value is None or value == known:
            return
        if known is not None and value.group in known.supersedes:  # an older rescue
            return
        if self.group is not None:
            group, self.group = self.group, None
            await self._host.stop_group(group.name)
            if self._name in value.lost:
                await self.end_streams()
        if founding.supersede(value):
            _logger.warning(
                "JetStream: the meta group %s was rescued as %s, without %s",
                mine,
                value.group,
                ", ".join(value.lost),
            )

    def _given_up(self, _subject: str, _reply: str | None, _headers: bytes, data: bytes) -> None:
        with contextlib.suppress(msgspec.MsgspecError):
            if self._own is not None and msgspec.json.decode(data, type=OwnMember) == self._own:
                self._was_lost = True
                self.wake()

    async def _leave(self) -> None:
        """Be no longer the member that was given up for lost; join as another one."""
        group, own = self.group, self._own
        if group is not None:
            self.group = None
            await self._host.stop_group(group.name)
        await self.end_streams()
        if own is not None and own.group in self._host.recovered:
            await self.set_aside(replayed(self._host.recovered[own.group]))
        _logger.warning("JetStream: streams were rescued without this server; it joins anew")
        self._own, self._has_lost_log, self._was_lost = None, True, False

    async def _go_over(self, own: OwnMember) -> None:
        """Become a member of the rescued group: the same one, unless its leader says otherwise."""
        welcome = self._welcome
        if welcome is None:
            self._ask_to_join()
        elif welcome.incarnation != own.incarnation:
            await self._join(welcome)
        else:
            await self._start(OwnMember(welcome.group, welcome.incarnation))
            await self._host.forget_group(own.group)
            _logger.info("JetStream cluster metadata group %s joined", welcome.group)

    # ---- founding

    def _send_founding(self, server: str, data: bytes) -> None:
        subject = FOUNDING.format(server_key(server))
        self._client.publish(subject, self._name.encode() + b"\n" + data)

    def _received_founding(
        self, _subject: str, _reply: str | None, _headers: bytes, data: bytes
    ) -> None:
        sender, _, message = data.partition(b"\n")
        if self.group is None:
            self._founding.receive(sender.decode(errors="replace"), message)
            self.wake()

    # ---- the members, as the leader

    async def _keep_members(self, group: RaftGroup) -> None:
        servers = self._assignments.servers
        for member in self.members():
            name = self.name_of(member)
            if name and name not in servers:
                await self.propose(Introduce(name))
        for name, said in self._peers.online.items():
            if said.nonce and not said.group:
                if self._may_join(name):
                    await self._welcome_server(name, said)
            elif said.group == self.name and name in servers and servers[name].is_lost:
                lost = OwnMember(said.group, servers[name].incarnation)
                self._client.publish(LOST.format(server_key(name)), msgspec.json.encode(lost))
        wanted = {
            member_id(server_key(each.name), each.incarnation)
            for each in servers.values()
            if not each.is_dismissed
        }
        membership = group.membership
        for member in sorted((membership.voters | membership.learners) - wanted):
            if self.name_of(member):
                await group.remove_member(member)
        for member in sorted(wanted - group.membership.voters - group.membership.learners):
            await group.add_learner(member)
        for member in sorted(group.membership.learners & wanted):
            with contextlib.suppress(MembershipError):  # it has not caught up
                await group.promote(member)

    def _may_join(self, name: str) -> bool:
        """Tell whether a server may join that has been removed once, perhaps a moment ago.

        One that was lost, and is back since its cluster was rescued, need not wait.
        """
        now, known = asyncio.get_running_loop().time(), self._assignments.servers.get(name)
        if known is None or not known.is_dismissed or known.is_lost:
            self._removed_s.pop(name, None)
            return True
        return now - self._removed_s.setdefault(name, now) >= REMOVED_S

    async def _welcome_server(self, name: str, said: Statement) -> None:
        found: object = self._assignments.servers.get(name)
        if not (isinstance(found, Introduced) and self._goes_over(found, said)):
            found = await self.propose(Introduce(name, said.nonce))
        assert isinstance(found, Introduced)
        assert self._own is not None
        welcome = Welcome(said.nonce, self._own.group, found.incarnation)
        self._client.publish(WELCOME.format(server_key(name)), msgspec.json.encode(welcome))
        _logger.info("JetStream: server %s joins the cluster", quoted(name))

    def _goes_over(self, known: Introduced, said: Statement) -> bool:
        """Tell whether a server is the member still that it was before the group's rescue."""
        founded = self._founding.founded
        is_of_old = founded is not None and said.superseded in founded.supersedes
        return is_of_old and not known.is_dismissed and known.incarnation == said.incarnation


async def _nothing(*_: object) -> None:
    """Do nothing: there are no streams yet."""
