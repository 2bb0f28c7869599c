"""Changes of streams in a cluster, as the meta group's leader decides them.

    check ─▶ place ─▶ propose an assignment ─▶ the servers carry it out ─▶ the leader's info

Each stream undergoes one change at a time. What is checked is the state of all streams of the
account (`Assignments`), and `SubjectClaims`, which has the subjects of all of them.

Source: nats-server's `jsClusteredStreamRequest`, `jsClusteredStreamUpdateRequest` and
`jsClusteredStreamDeleteRequest` (server/jetstream_cluster.go).
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol

import msgspec

from natsd.core.steps import run_cooperatively
from natsd.jetstream.account import JetStreamAccount
from natsd.jetstream.advisories import stream_created, stream_deleted, stream_updated
from natsd.jetstream.errors import ApiError, ErrorId, api_error
from natsd.jetstream.meta_group.assignments import (
    Assign,
    Assignment,
    Assignments,
    Change,
    Reassign,
    Remove,
)
from natsd.jetstream.meta_group.peers import Peers
from natsd.jetstream.meta_group.placement import Candidate, NoSuitablePeers, Wanted, place
from natsd.jetstream.meta_group.questions import Question, Questions
from natsd.jetstream.models.consumer import ConsumerConfig
from natsd.jetstream.models.go_json import decode, encoded
from natsd.jetstream.models.stream import Placement, Storage, StreamConfig, StreamInfo
from natsd.jetstream.resources import reservation
from natsd.jetstream.short_hash import short_hash
from natsd.jetstream.stream.config import ConfigRules, check_create, check_update
from natsd.jetstream.stream.files import StreamAsset, install_stream
from natsd.jetstream.stream.settings_in_metadata import READ_REPLICAS, copies, read_replicas
from natsd.raft.transport import member_id, server_key

INFO_S: Final = 5.0
"""So long the answer to a change waits until the stream is led."""
GROUP_BYTES: Final = 12
_READ_REPLICAS: Final = b'"%b"' % READ_REPLICAS.encode()


class Meta(Protocol):
    """The meta group, as far as changes need it."""

    async def propose(self, change: Change) -> object:
        """Have a change made; return its result."""


class StreamChanges:
    """What the leader of the meta group does for requests."""

    def __init__(
        self,
        assignments: Assignments,
        meta: Meta,
        peers: Peers,
        questions: Questions,
        random_bytes: Callable[[int], bytes],
        *,
        unique_tag: str = "",
        max_ha_assets: int = 0,
    ) -> None:
        self._assignments = assignments
        self._meta = meta
        self._peers = peers
        self._questions = questions
        self._random_bytes = random_bytes
        self._unique_tag = unique_tag
        self._max_ha_assets = max_ha_assets

    # ---- requests

    async def create(
        self, account: JetStreamAccount, config: StreamConfig, *, pedantic: bool
    ) -> StreamInfo:
        """Create a stream, or find one with this configuration. Raises ApiError, Unanswered."""
        async with account.changing(config.name):
            existing = self._assignments.find(account.name, config.name)
            self._check_limits(account, config, existing)
            config = await run_cooperatively(
                check_create(config, self._rules(account, config), pedantic=pedantic)
            )
            if existing is not None:
                if existing.stream_config != config:
                    raise api_error(ErrorId.JSStreamNameExistErr)
                made: object = existing
            else:
                self._check_room(account, config, None)
                new = self._new(account, config)
                async with self._claimed(account, config, ()):
                    made = await self._meta.propose(Assign(new))
        if not isinstance(made, Assignment):
            raise api_error(ErrorId.JSStreamNameExistErr)
        info = await self.info(made)
        if existing is None:
            stream_created(account, config.name)
        return info

    async def update(
        self, account: JetStreamAccount, config: StreamConfig, *, pedantic: bool
    ) -> StreamInfo:
        """Reconfigure a stream, with more or fewer replicas or elsewhere. Raises ApiError."""
        async with account.changing(config.name):
            existing = self._existing(account, config.name)
            before = existing.stream_config
            consumers = await self._consumers_of(existing)
            rules = self._rules(account, config)
            checks = check_update(before, config, rules, lambda: consumers, pedantic=pedantic)
            config = await run_cooperatively(checks)
            self._check_room(account, config, before)
            after = await self._moved(existing, before, config)
            after = self._with_read_replicas(after, before, config)
            after = msgspec.structs.replace(after, config=encoded(config))
            async with self._claimed(account, config, before.subjects):
                made = await self._meta.propose(Reassign(existing.version, after))
        if not isinstance(made, Assignment):
            raise api_error(ErrorId.JSClusterNotAvailErr)
        info = await self.info(made)
        stream_updated(account, config.name)
        return info

    async def delete(self, account: JetStreamAccount, name: str) -> None:
        """Delete a stream, on all servers that are online. Raises ApiError."""
        async with account.changing(name):
            existing = self._existing(account, name)
            await self._meta.propose(Remove(account.name, name, existing.version))
        await self._questions.gather(Question("gone", account.name, name, existing.version))
        stream_deleted(account, name)

    async def check_restore(self, account: JetStreamAccount, config: StreamConfig) -> StreamConfig:
        """Return the configuration that a restored stream would get. Raises ApiError."""
        rules = self._rules(account, config)
        config = await run_cooperatively(check_create(config, rules))
        self._check_limits(account, config, None)
        self._check_room(account, config, None)
        if self._assignments.find(account.name, config.name) is not None:
            raise api_error(ErrorId.JSStreamNameExistRestoreFailedErr)
        return config

    async def restore(
        self, account: JetStreamAccount, asset: StreamAsset, built: Path
    ) -> StreamInfo:
        """Make a stream of the files in `built`, which others copy if it has more replicas.

        The first replica is on this server, whatever the placement says. Raises ApiError, OSError.
        """
        config, volume = asset.config, account.jetstream.volume
        async with account.changing(config.name):
            await self.check_restore(account, config)
            made = self._new(account, config, (self._peers.own.name,), asset.created)
            if made.group:
                founders = (self._member(made.servers[0]),)
                made = msgspec.structs.replace(made, founders=founders, is_adopted=True)
            async with self._claimed(account, config, ()):
                directory = account.files.stream(config.name)
                await volume.remove_tree(directory)
                await volume.read(install_stream, volume.disk, built, directory)
                assigned = await self._meta.propose(Assign(made))
        if not isinstance(assigned, Assignment):
            raise api_error(ErrorId.JSStreamNameExistRestoreFailedErr)
        info = await self.info(assigned)
        stream_created(account, config.name)
        return info

    async def move(
        self, account: JetStreamAccount, name: str, server: str, placement: Placement
    ) -> None:
        """Move a stream off a server, or all of it, to servers of a placement. Raises ApiError."""
        async with account.changing(name):
            existing = self._existing(account, name)
            if existing.leaving:
                raise api_error(ErrorId.JSStreamMoveInProgressErr)
            if server and server not in existing.servers:
                raise api_error(ErrorId.JSClusterPeerNotMemberErr)
            config = existing.stream_config.model_copy(update={"placement": placement})
            servers = await self._leader_first(existing)
            kept = tuple(each for each in servers if server and each != server)
            ignored = {*servers, *existing.read_replicas} - set(kept)
            wanted = self._place(config, kept, ignored)
            await self._meta.propose(
                Reassign(existing.version, self._with_group(existing, config, wanted))
            )

    async def cancel_move(self, account: JetStreamAccount, name: str) -> None:
        """Leave a stream that is being moved where it was. Raises ApiError."""
        async with account.changing(name):
            existing = self._existing(account, name)
            count = len(existing.leaving)
            if not count:
                raise api_error(ErrorId.JSStreamReconfigureNotInProgressErr)
            kept = existing.servers[:-count]  # new servers come last
            after = msgspec.structs.replace(
                existing,
                servers=(*kept, *existing.leaving),
                leaving=existing.servers[-count:],
            )
            await self._meta.propose(Reassign(existing.version, after))

    async def move_off(
        self, assignment: Assignment, server: str, *, is_avoided: bool = False
    ) -> bool:
        """Give a stream a replica elsewhere in place of that on a server; False: impossible.

        The server's replica, or read replica, goes at once: it may never come back. `is_avoided`:
        the server itself is none that a lacking read replica may be made on.
        """
        config = assignment.stream_config
        if not assignment.group or assignment.servers == (server,):
            return False
        servers, leaving, others = (
            tuple(each for each in some if each != server)
            for some in (assignment.servers, assignment.leaving, assignment.read_replicas)
        )
        elsewhere, avoided = {server, *assignment.holders}, assignment.avoided
        if server in assignment.servers:
            with suppress(ApiError):
                servers = self._place(config, servers, elsewhere - set(servers))
        if server in assignment.read_replicas:
            try:
                others = self._place_read_replicas(config, others, elsewhere - set(others))
                avoided = ()
            except ApiError:
                avoided = (*avoided, server) if is_avoided else avoided
        after = msgspec.structs.replace(
            assignment, servers=servers, leaving=leaving, read_replicas=others, avoided=avoided
        )
        return await self._meta.propose(Reassign(assignment.version, after)) is not None

    async def restore_replicas(self, assignment: Assignment) -> None:
        """Make the replicas and read replicas that a stream lacks, as far as there are servers.

        It lacks those of servers that were removed, and those for which there was no server before.
        Raises Unanswered, RaftError.
        """
        servers = self._assignments.servers
        dismissed = {name for name, each in servers.items() if each.is_dismissed}
        after = self._with_missing_replicas(assignment, dismissed)
        after = self._with_missing_read_replicas(after, dismissed)
        if after is not assignment:
            await self._meta.propose(Reassign(assignment.version, after))

    def _with_missing_replicas(self, assignment: Assignment, dismissed: set[str]) -> Assignment:
        kept = tuple(each for each in assignment.servers if each not in dismissed)
        is_moved = bool(assignment.leaving) and not dismissed.intersection(assignment.leaving)
        if is_moved or not kept or len(kept) >= assignment.replicas:
            return assignment
        wanted = self._place_most(assignment, kept, dismissed)
        if wanted == assignment.servers:
            return assignment
        after = self._with_group(assignment, assignment.stream_config, wanted)
        leaving = tuple(each for each in after.leaving if each not in dismissed)
        return msgspec.structs.replace(after, leaving=leaving)

    def _with_missing_read_replicas(
        self, assignment: Assignment, dismissed: set[str]
    ) -> Assignment:
        if _READ_REPLICAS not in bytes(assignment.config):  # most streams want none
            return assignment
        config = assignment.stream_config
        number, tags = read_replicas(config)
        kept = tuple(each for each in assignment.read_replicas if each not in dismissed)
        elsewhere = {*assignment.servers, *assignment.leaving, *assignment.avoided, *dismissed}
        placement = Placement(tags=list(tags))
        for count in range(number, len(kept), -1):
            try:
                wanted = self._placed(config, count, placement, kept, elsewhere)
            except NoSuitablePeers:
                continue
            avoided = () if count == number else assignment.avoided
            after = msgspec.structs.replace(assignment, read_replicas=wanted, avoided=avoided)
            return self._grouped(after, config, assignment.servers[0])
        return assignment

    def _place_most(
        self, assignment: Assignment, kept: tuple[str, ...], ignored: set[str]
    ) -> tuple[str, ...]:
        """Return the most servers that a stream can have, up to the number of its replicas."""
        config = assignment.stream_config
        for count in range(assignment.replicas, len(kept), -1):
            fewer = config.model_copy(update={"num_replicas": count})
            try:
                others = {*assignment.leaving, *assignment.read_replicas}
                return self._place(fewer, kept, ignored=ignored | others)
            except ApiError:
                continue
        return kept

    async def info(self, assignment: Assignment) -> StreamInfo:
        """Return the info of a stream as its leader gives it. Raises Unanswered."""
        question = Question(
            "info",
            assignment.account,
            assignment.name,
            assignment.version,
            timeout_s=INFO_S,
        )
        return decode(StreamInfo, await self._questions.first(question), strict=False)

    # ---- checks

    def _existing(self, account: JetStreamAccount, name: str) -> Assignment:
        found = self._assignments.find(account.name, name)
        if found is None:
            raise api_error(ErrorId.JSStreamNotFoundErr)
        return found

    def _rules(self, account: JetStreamAccount, config: StreamConfig) -> ConfigRules:
        window = account.jetstream.options.limits.duplicate_window

        def find(name: str) -> StreamConfig | None:
            found = self._assignments.find(account.name, name)
            return None if found is None else found.stream_config

        return ConfigRules(
            account.tiers.limits_of(config.num_replicas),
            window // timedelta(microseconds=1) * 1_000,
            find,
            is_clustered=True,
        )

    def _check_limits(
        self, account: JetStreamAccount, config: StreamConfig, existing: Assignment | None
    ) -> None:
        tier = account.tiers.of(config.num_replicas)
        if tier.limits.max_streams > 0 and existing is None:
            configs = self._configs(account)
            if sum(tier.counts(each.num_replicas) for each in configs) >= tier.limits.max_streams:
                raise api_error(ErrorId.JSMaximumStreamsLimitErr)

    def _configs(self, account: JetStreamAccount) -> list[StreamConfig]:
        return [each.stream_config for each in self._assignments.of_account(account.name)]

    def _check_room(
        self, account: JetStreamAccount, config: StreamConfig, before: StreamConfig | None
    ) -> None:
        """Check what the streams of the account reserve together against its limits."""
        tier = account.tiers.of(config.num_replicas)
        limits, is_memory = tier.limits, config.storage is Storage.MEMORY
        if 0 < limits.max_consumers < config.max_consumers:
            raise api_error(ErrorId.JSMaximumConsumersLimitErr)
        limit = limits.max_memory if is_memory else limits.max_storage
        if limit < 0:
            return

        def reserved(each: StreamConfig) -> int:
            return reservation(each) * (copies(each) if tier.is_flat else 1)

        others = sum(
            reserved(each)
            for each in self._configs(account)
            if each.storage is config.storage
            and each.name != config.name
            and tier.counts(each.num_replicas)
        )
        least = 1 if before is None and config.max_bytes < 0 else 0
        if limit < others + reserved(config) + least:
            raise api_error(
                ErrorId.JSMemoryResourcesExceededErr
                if is_memory
                else ErrorId.JSStorageResourcesExceededErr
            )

    @asynccontextmanager
    async def _claimed(
        self, account: JetStreamAccount, config: StreamConfig, held: Sequence[str]
    ) -> AsyncIterator[None]:
        """Hold the subjects for the stream; a refused change lets go of them."""
        claims = account.claims
        if await run_cooperatively(claims.collide(config.subjects, but=config.name)):
            raise api_error(ErrorId.JSStreamSubjectOverlapErr)
        for _ in claims.claim(config.name, [*held, *config.subjects]):
            pass
        try:
            yield
        except BaseException:
            for _ in claims.claim(config.name, held):
                pass
            raise

    async def _consumers_of(self, assignment: Assignment) -> Mapping[str, ConsumerConfig]:
        question = Question(
            "consumers", assignment.account, assignment.name, assignment.version, timeout_s=INFO_S
        )
        found = await self._questions.first(question)
        configs = msgspec.json.decode(found, type=dict[str, msgspec.Raw])
        return {
            name: decode(ConsumerConfig, bytes(each), strict=False)
            for name, each in configs.items()
        }

    # ---- where the replicas are

    def _new(
        self,
        account: JetStreamAccount,
        config: StreamConfig,
        kept: tuple[str, ...] = (),
        created_ns: int = 0,
    ) -> Assignment:
        """Return where a new stream is to be, `kept` among its servers. Raises ApiError."""
        # Read replicas come first: more servers suit the others.
        others = self._place_read_replicas(config, ignored=kept)
        servers = self._place(config, kept, others)
        is_alone = len(servers) == 1 and not others
        return Assignment(
            account.name,
            config.name,
            encoded(config),
            created_ns or account.jetstream.scheduler.now_ns(),
            servers,
            group="" if is_alone else self._group_name(config),
            founders=() if is_alone else tuple(map(self._member, servers)),
            read_replicas=others,
        )

    def _member(self, server: str) -> int:
        known = self._assignments.servers.get(server)
        return member_id(server_key(server), 0 if known is None else known.incarnation)

    def _shuffle(self, servers: list[Candidate]) -> None:
        servers.sort(key=lambda _server: self._random_bytes(4))

    def _group_name(self, config: StreamConfig) -> str:
        kind = "M" if config.storage is Storage.MEMORY else "F"
        seed = short_hash(self._random_bytes(GROUP_BYTES))
        return f"S-R{config.num_replicas}{kind}-{seed}"

    def _place(
        self, config: StreamConfig, kept: Sequence[str] = (), ignored: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Return the servers of the stream's replicas. Raises ApiError 10005."""
        placement = config.placement or Placement()
        try:
            return self._placed(config, config.num_replicas, placement, kept, ignored)
        except NoSuitablePeers as error:
            raise api_error(ErrorId.JSClusterNoPeersErrF, err=error) from error

    def _place_read_replicas(
        self, config: StreamConfig, kept: Sequence[str] = (), ignored: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Return the servers of the stream's read replicas. Raises ApiError 10005."""
        number, tags = read_replicas(config)
        if not number:
            return ()
        try:
            return self._placed(config, number, Placement(tags=list(tags)), kept, ignored)
        except NoSuitablePeers as error:
            text = f"read replicas: {error}"
            raise api_error(ErrorId.JSClusterNoPeersErrF, err=text) from error

    def _placed(
        self,
        config: StreamConfig,
        number: int,
        placement: Placement,
        kept: Sequence[str],
        ignored: Collection[str],
    ) -> tuple[str, ...]:
        """Return `number` servers for the stream. Raises NoSuitablePeers."""
        wanted = Wanted(
            replicas=number,
            cluster=placement.cluster or self._peers.own.cluster,
            tags=placement.tags,
            max_bytes=max(config.max_bytes, 0),
            unique_tag=self._unique_tag,
            max_ha_assets=self._max_ha_assets,
            kept=kept,
            ignored=ignored,
        )
        return place(wanted, self._candidates(config.storage), self._shuffle)

    def _candidates(self, storage: Storage) -> list[Candidate]:
        """Return the servers of the cluster, with what they have already."""
        own = self._peers.own
        dismissed = {each.name for each in self._assignments.servers.values() if each.is_dismissed}
        placed = [(each, each.servers + each.read_replicas) for each in self._assignments]
        streams = Counter(name for _, servers in placed for name in servers)
        replicated = Counter(name for each, servers in placed if each.group for name in servers)
        return [
            each.candidate(
                is_online=self._peers.is_online(each.name),
                is_memory=storage is Storage.MEMORY,
                streams=streams[each.name],
                replicated=replicated[each.name],
            )
            for each in (own, *self._peers.known.values())
            if each.group == own.group and each.name not in dismissed
        ]

    async def _moved(
        self, existing: Assignment, before: StreamConfig, config: StreamConfig
    ) -> Assignment:
        """Return where the stream is to be with its new configuration. Raises ApiError."""
        is_scaled = config.num_replicas != before.num_replicas
        is_placed_anew = config.placement is not None and config.placement != before.placement
        if not (is_scaled or is_placed_anew):
            return existing
        if is_scaled and is_placed_anew:
            raise api_error(ErrorId.JSStreamMoveAndScaleErr)
        if existing.leaving:
            raise api_error(ErrorId.JSStreamMoveInProgressErr)
        servers = await self._leader_first(existing)
        if config.num_replicas < len(servers):
            left = servers[: config.num_replicas]
            return msgspec.structs.replace(
                existing, servers=left, leaving=tuple(servers[config.num_replicas :])
            )
        kept = servers
        if is_placed_anew:
            kept = tuple(each for each in servers if self._suits(each, config.placement))
        wanted = self._place(config, kept, {*servers, *existing.read_replicas} - set(kept))
        return self._with_group(existing, config, wanted)

    def _with_read_replicas(
        self, moved: Assignment, before: StreamConfig, config: StreamConfig
    ) -> Assignment:
        """Return the stream with the read replicas that are wanted now. Raises ApiError.

        If no others are wanted than before, and there are too few servers, it has fewer; then none
        is made where somebody removed one.
        """
        number, tags = read_replicas(config)
        number_before, tags_before = read_replicas(before)
        are_others_wanted = number > number_before or tags != tags_before
        placement, kept = Placement(tags=list(tags)), moved.read_replicas
        avoided = () if are_others_wanted else moved.avoided
        if tags != tags_before:
            kept = tuple(each for each in kept if self._suits(each, placement))
        kept = tuple(sorted(kept, key=lambda each: not self._peers.is_online(each)))[:number]
        try:
            elsewhere = (*moved.servers, *moved.leaving, *avoided)
            kept, avoided = self._place_read_replicas(config, kept, elsewhere), ()
        except ApiError:
            if are_others_wanted:
                raise
        moved = msgspec.structs.replace(moved, read_replicas=kept, avoided=avoided)
        return self._grouped(moved, config, moved.servers[0]) if kept else moved

    def _with_group(
        self, existing: Assignment, config: StreamConfig, servers: tuple[str, ...]
    ) -> Assignment:
        """Return the stream on these servers, with a group that its only server begins."""
        leaving = tuple(each for each in existing.servers if each not in servers)
        moved = msgspec.structs.replace(existing, servers=servers, leaving=leaving)
        if set(servers) == set(existing.servers):
            return moved
        return self._grouped(moved, config, existing.servers[0])

    def _grouped(self, assigned: Assignment, config: StreamConfig, only: str) -> Assignment:
        """Return the stream with a group, which its `only` replica begins if there is none yet."""
        if assigned.group:
            return assigned
        return msgspec.structs.replace(
            assigned,
            group=self._group_name(config),
            founders=(self._member(only),),
            is_adopted=True,
        )

    def _suits(self, server: str, placement: Placement | None) -> bool:
        """Tell whether a server that has a replica may keep it under the placement."""
        said = self._peers.own if server == self._peers.own.name else self._peers.known.get(server)
        if placement is None or said is None:
            return placement is None
        tags = {tag.lower() for tag in said.tags}
        return said.cluster == (placement.cluster or self._peers.own.cluster) and all(
            (tag.removeprefix("!").lower() in tags) is not tag.startswith("!")
            for tag in placement.tags
        )

    async def _leader_first(self, existing: Assignment) -> tuple[str, ...]:
        """Return the servers of a stream: its leader, then those that are online."""
        info = await self.info(existing)
        leader = "" if info.cluster is None else info.cluster.leader
        ranks = {
            each: (each != leader, not self._peers.is_online(each)) for each in existing.servers
        }
        return tuple(sorted(existing.servers, key=lambda each: ranks[each]))
