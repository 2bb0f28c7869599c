"""The driver: proposals, reads, snapshots, quiescence, restarts; hosts in one process."""

import asyncio
import contextlib
import errno
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from natsd.raft import group
from natsd.raft.entry import Health
from natsd.raft.errors import MembershipError, NotLeaderError, ProposalDroppedError
from natsd.raft.group import (
    ProposalUncertainError,
    RaftGroup,
    ReadDroppedError,
    TooManyProposalsError,
)
from natsd.raft.options import Options
from natsd.raft.rescue import NotRescuableError
from natsd.raft.transport import member_id, server_key, server_of
from tests.raft.driver.network import (
    LIMITS,
    OPTIONS,
    ROOT,
    FarRegister,
    Network,
    Server,
    start_server,
)
from tests.waiting import eventually_within

SMALL = replace(OPTIONS, limits=LIMITS, group=Options(trailing_bytes_max=1000))
VOTERS = (1, 2, 3)


class Trio:
    """Three servers with one group."""

    def __init__(self) -> None:
        self.network = Network()
        self.servers: dict[int, Server] = {}

    async def start(self, names: tuple[str, ...] = ("g",)) -> "Trio":
        for number in VOTERS:
            self.servers[number] = start_server(self.network, number, options=SMALL)
            for name in names:
                await self.servers[number].start_group(name, VOTERS)
        for name in names:
            await eventually_within(lambda name=name: self.leader(name) is not None)  # type: ignore[misc]  # a bound default
        return self

    def group(self, number: int, name: str = "g") -> RaftGroup:
        return self.servers[number].host.groups[name]

    def leader(self, name: str = "g") -> int | None:
        led = [n for n in self.servers if self.group(n, name).is_leader]
        return max(led, key=lambda n: self.group(n, name).node.term, default=None)

    def leading(self, name: str = "g") -> RaftGroup:
        leader = self.leader(name)
        assert leader is not None
        return self.group(leader, name)

    async def propose(self, data: bytes, name: str = "g") -> object:
        """Propose to whoever leads; a refusal means that nothing has happened."""
        return await self.insist(lambda: self.leading(name).propose(data), name)

    async def insist(self, ask: Callable[[], Awaitable[object]], name: str = "g") -> object:
        """Ask again while the leader changes, or an earlier change is not committed."""
        while True:
            await eventually_within(lambda: self.leader(name) is not None)
            try:
                return await ask()
            except (NotLeaderError, ProposalDroppedError, MembershipError):
                await asyncio.sleep(0.01)

    async def restart(self, number: int) -> None:
        disk = await self.servers[number].crash()
        self.servers[number] = start_server(self.network, number, disk, SMALL)
        for name in self.servers[number].host.recovered.copy():
            await self.servers[number].start_group(name)

    async def close(self) -> None:
        for server in self.servers.values():
            await server.host.close()

    def are_equal(self, name: str = "g") -> bool:
        states = {s.registers[name].snapshot() for s in self.servers.values()}
        return len(states) == 1


def test_member_ids_name_their_server() -> None:
    key = server_key("a")
    assert server_of(member_id(key, 7)) == key
    assert member_id(key, 0xFFFF) < 1 << 63
    assert server_key("a") != server_key("b")


async def test_proposals_are_applied_everywhere_and_answered() -> None:
    trio = await Trio().start()
    results = await asyncio.gather(*(trio.propose(b"%d" % n) for n in range(60)))
    assert results == list(range(1, 61))
    await eventually_within(trio.are_equal)
    follower = next(trio.group(n) for n in VOTERS if n != trio.leader())
    with pytest.raises(NotLeaderError):
        await follower.propose(b"x")
    await follower.read_barrier()
    await trio.close()


async def test_proposals_are_bounded() -> None:
    trio = await Trio().start()
    leader = trio.leading()
    done: list[object] = []
    for n in range(100):
        leader.submit(b"%d" % n, done.append)
    with pytest.raises(TooManyProposalsError):
        leader.submit(b"x", done.append)
    await eventually_within(lambda: len(done) == 100)
    with pytest.raises(TooManyProposalsError):
        await leader.propose(bytes(20_001))
    assert await leader.propose(b"again") == 101
    await trio.close()


async def test_a_follower_that_was_away_gets_a_snapshot_in_many_frames() -> None:
    trio = await Trio().start()
    gone = next(n for n in VOTERS if n != trio.leader())
    trio.network.cut.add(gone)
    for n in range(12):
        await asyncio.gather(*(trio.propose(b"%d" % n + bytes(900)) for _ in range(10)))
    await eventually_within(lambda: trio.leading().node.log.snapshot.index > 50)
    await trio.propose(b"big" * 3000)
    trio.network.cut.clear()
    await eventually_within(trio.are_equal)
    await trio.close()


async def test_the_application_is_told_who_leads_once_all_earlier_entries_are_applied() -> None:
    trio = await Trio().start()
    for n in range(5):
        await trio.propose(b"%d" % n)
    first = trio.leader()
    assert first is not None
    assert trio.servers[first].registers["g"].is_leader
    trio.network.cut.add(first)
    second = next(n for n in VOTERS if n != first)
    await eventually_within(
        lambda: any(trio.servers[n].registers["g"].is_leader for n in VOTERS if n != first)
    )
    led = [n for n in VOTERS if n != first and trio.servers[n].registers["g"].is_leader]
    assert len(led) == 1
    assert trio.servers[led[0]].registers["g"].count == 5
    await eventually_within(lambda: not trio.servers[first].registers["g"].is_leader)
    trio.network.cut.clear()
    assert trio.group(second).is_closed is False
    await trio.close()
    assert not any(server.registers["g"].is_leader for server in trio.servers.values())


async def test_a_state_that_is_kept_elsewhere_is_fetched() -> None:
    """The log is kept until the state is on disk; a follower stands still while it fetches."""
    trio = await Trio().start(())
    machines = {number: FarRegister() for number in VOTERS}
    for number, machine in machines.items():
        await trio.servers[number].start_group("g", VOTERS, machine)
    await eventually_within(lambda: trio.leader() is not None)
    gone = next(n for n in VOTERS if n != trio.leader())
    trio.network.cut.add(gone)
    for n in range(60):
        await trio.propose(b"%d" % n + bytes(100))
    assert trio.leading().node.log.snapshot.index == 1
    for number in VOTERS:
        if number != gone:
            machines[number].is_open.set()
    await eventually_within(lambda: trio.leading().node.log.snapshot.index > 50)
    trio.network.cut.clear()
    await eventually_within(lambda: trio.group(gone).is_held)
    assert machines[gone].fetched == []
    await trio.propose(b"last")
    machines[gone].is_open.set()
    await eventually_within(lambda: machines[gone].value == b"last")
    assert machines[gone].fetched != []
    assert machines[gone].count == 61
    await trio.close()


async def test_a_snapshot_that_cannot_be_taken_is_tried_again() -> None:
    trio = await Trio().start(())
    for number in VOTERS:
        await trio.servers[number].start_group("g", VOTERS, Forgetful())
    await eventually_within(lambda: trio.leader() is not None)
    for n in range(60):
        await trio.propose(b"%d" % n + bytes(100))
    await eventually_within(lambda: trio.leading().node.log.snapshot.index > 50)
    await trio.close()


class Forgetful(FarRegister):
    """A register whose first snapshot fails; nothing is proposed after that."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open.set()
        self.has_failed = False

    async def keep(self, count: int, state: bytes) -> bytes:
        while self.count < 60:  # noqa: ASYNC110 - the last proposal is applied meanwhile
            await asyncio.sleep(0.01)
        if not self.has_failed:
            self.has_failed = True
            raise OSError(errno.EIO, "the disk")
        return await super().keep(count, state)


async def test_a_snapshot_that_no_follower_could_take_is_not_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trio = await Trio().start()
    gone = next(n for n in VOTERS if n != trio.leader())
    trio.network.cut.add(gone)
    size = LIMITS.snapshot_bytes_max
    for _ in range(60):
        await trio.propose(bytes(size))
    assert "a snapshot of" in caplog.text
    assert trio.leading().node.log.snapshot.index == 1
    trio.network.cut.clear()
    await eventually_within(trio.are_equal)
    await trio.close()


async def test_all_servers_lose_power_and_nothing_that_was_answered_is_lost() -> None:
    trio = await Trio().start(("g", "h"))
    for n in range(70):
        await trio.propose(b"%d" % n)
    assert await trio.propose(b"h", "h") == 1
    for number in VOTERS:
        await trio.restart(number)
    await eventually_within(lambda: trio.leader() is not None and trio.leader("h") is not None)
    assert await trio.propose(b"more") == 71
    assert await trio.propose(b"more", "h") == 2
    await eventually_within(trio.are_equal)
    await trio.close()


async def test_idle_groups_rest_and_cost_no_frames_but_presence() -> None:
    names = tuple(f"g{n}" for n in range(20))
    trio = await Trio().start(names)
    await eventually_within(
        lambda: all(trio.group(n, name).node.is_quiescent for n in VOTERS for name in names)
    )
    before, ticks = trio.network.frames, trio.servers[1].host._tick
    await eventually_within(lambda: trio.servers[1].host._tick >= ticks + 50)
    sent = trio.network.frames - before
    assert sent <= 6 * (60 / SMALL.presence_ticks + 2), "six directed pairs"
    assert await trio.propose(b"x", "g3") == 1
    await trio.close()


async def test_a_read_wakes_a_resting_group_for_a_moment() -> None:
    trio = await Trio().start()

    def all_rest() -> bool:
        return all(trio.group(n).node.is_quiescent for n in VOTERS)

    await eventually_within(all_rest)
    reader = next(n for n in VOTERS if n != trio.leader())
    host = trio.servers[reader].host
    for _ in range(3):
        ticks = host._tick
        await trio.group(reader).read_barrier()
        await eventually_within(all_rest)
        assert host._tick - ticks < SMALL.quiesce_ticks
    assert await trio.propose(b"x") == 1
    await trio.close()


async def test_a_read_whose_question_is_lost_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames may be lost; nobody asks again but the reader."""
    monkeypatch.setattr(group, "LEADER_S", 0.2)
    trio = await Trio().start()
    reader = next(n for n in VOTERS if n != trio.leader())
    deliver = trio.network.deliver

    def lose(sender: int, receiver: int, frame: bytes) -> None:
        if sender != reader:
            deliver(sender, receiver, frame)

    monkeypatch.setattr(trio.network, "deliver", lose)
    why = ""
    async with asyncio.timeout(10):
        while why != "no leader answers":  # on a busy machine the leader may change before
            with pytest.raises(ReadDroppedError) as dropped:
                await trio.group(reader).read_barrier()
            why = str(dropped.value)
    monkeypatch.undo()
    async with asyncio.timeout(10):
        while why:
            with contextlib.suppress(ReadDroppedError):
                await trio.group(reader).read_barrier()
                why = ""
    await trio.close()


async def test_what_is_committed_may_take_longer_to_arrive_than_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the answer is waited for with a deadline, not the entries that it asks for."""
    trio = await Trio().start()
    await trio.propose(b"x")
    await eventually_within(trio.are_equal)
    reader = trio.group(next(n for n in VOTERS if n != trio.leader()))
    monkeypatch.setattr(reader, "applied", 0)
    monkeypatch.setattr(group, "LEADER_S", 1.0)
    barrier = asyncio.create_task(reader.read_barrier())
    await eventually_within(lambda: reader._waiting_reads)
    _, pending = await asyncio.wait([barrier], timeout=1.2)
    assert pending
    monkeypatch.undo()
    reader._answer_reads()
    await barrier
    await trio.close()


async def test_resting_followers_notice_that_their_leader_is_gone() -> None:
    trio = await Trio().start()
    await eventually_within(lambda: all(trio.group(n).node.is_quiescent for n in VOTERS))
    old = trio.leader()
    assert old is not None
    trio.network.cut.add(old)
    await eventually_within(lambda: any(trio.group(n).is_leader for n in VOTERS if n != old))
    trio.network.cut.clear()
    await eventually_within(lambda: not trio.group(old).is_leader)
    assert await trio.propose(b"x") == 1
    await trio.close()


async def test_a_member_joins_catches_up_and_leads() -> None:
    trio = await Trio().start()
    for n in range(70):
        await trio.propose(b"%d" % n)
    trio.servers[4] = start_server(trio.network, 4, options=SMALL)
    await trio.servers[4].start_group("g")
    await trio.insist(lambda: trio.leading().add_learner(member_id(4)))
    await eventually_within(trio.are_equal)
    await trio.insist(lambda: trio.leading().promote(member_id(4)))
    await eventually_within(
        lambda: trio.leading().node.membership.voters == {member_id(n) for n in (1, 2, 3, 4)}
    )
    trio.leading().transfer_leadership(member_id(4))
    await eventually_within(lambda: trio.leader() == 4)
    await trio.insist(lambda: trio.leading().remove_member(member_id(1)))
    assert await trio.propose(b"x") == 71
    await trio.close()


async def test_a_failed_sync_stops_the_server_and_the_others_go_on() -> None:
    trio = await Trio().start()
    leader = trio.leader()
    assert leader is not None
    trio.servers[leader].disk.fail("fdatasync", errno.EIO)
    with pytest.raises(ProposalUncertainError):
        await trio.group(leader).propose(b"x")
    assert trio.servers[leader].host.failure is not None
    await eventually_within(lambda: any(trio.group(n).is_leader for n in VOTERS if n != leader))
    await trio.close()


async def test_a_damaged_member_is_repaired_by_the_others() -> None:
    trio = await Trio().start()
    for n in range(20):
        await trio.propose(b"entry %d" % n)
    hurt = next(n for n in VOTERS if n != trio.leader())
    await eventually_within(trio.are_equal)
    disk = await trio.servers[hurt].crash()
    file = disk.open(ROOT / "log.1")
    at = file.pread(file.size(), 0).find(b"entry 7")
    file.pwrite(b"X", at)
    file.fsync()
    trio.servers[hurt] = start_server(trio.network, hurt, disk, SMALL)
    assert trio.servers[hurt].logs.damage
    group = await trio.servers[hurt].start_group("g")
    assert group.node.hard_state.health is Health.LOG_LOST
    await trio.propose(b"more")
    await eventually_within(lambda: group.node.hard_state.health is Health.SOUND)
    await eventually_within(trio.are_equal)
    await trio.close()


async def test_a_removed_group_is_gone_after_a_restart() -> None:
    trio = await Trio().start(("g", "h"))
    for server in trio.servers.values():
        await server.host.remove_group("h")
    await trio.restart(1)
    assert list(trio.servers[1].host.groups) == ["g"]
    await trio.close()


async def test_a_rescued_group_goes_on_alone_and_the_others_are_strangers_to_it() -> None:
    trio = await Trio().start()
    for n in range(70):
        await trio.propose(b"%d" % n)
    await eventually_within(trio.are_equal)
    disk = await trio.servers.pop(3).crash()
    assert await trio.propose(b"of the majority") == 71
    left = start_server(trio.network, 3, disk, SMALL)
    await left.host.rescue_group("g", "h", member_id(3))
    disk = await left.crash()
    left = start_server(trio.network, 3, disk, SMALL)
    assert list(left.host.recovered) == ["h"]
    group = await left.start_group("h")
    await eventually_within(lambda: group.leads)
    assert await group.propose(b"alone") == 71
    assert group.membership.voters == {member_id(3)}
    assert await trio.propose(b"of the majority") == 72
    assert await group.propose(b"alone") == 72
    assert left.registers["h"].value == b"alone"
    await left.host.close()
    await trio.close()


async def test_a_damaged_group_is_not_rescued_and_stays_as_it_is() -> None:
    trio = await Trio().start()
    for n in range(20):
        await trio.propose(b"entry %d" % n)
    await eventually_within(trio.are_equal)
    disk = await trio.servers.pop(3).crash()
    file = disk.open(ROOT / "log.1")
    file.pwrite(b"X", file.pread(file.size(), 0).find(b"entry 7"))
    file.fsync()
    left = start_server(trio.network, 3, disk, SMALL)
    with pytest.raises(NotRescuableError, match="damaged"):
        await left.host.rescue_group("g", "h", member_id(3))
    assert list(left.host.recovered) == ["g"]
    await left.host.close()
    await trio.close()
