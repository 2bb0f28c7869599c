"""What goes wrong, and what operators do meanwhile."""

from collections.abc import Callable

from natsd.raft.entry import NOTHING, Health, Membership
from natsd.raft.errors import RaftError
from natsd.raft.membership import MembershipHistory, with_learner, with_voter, without
from natsd.raft.quorum import majority
from tests.sim.disk import NewDisk
from tests.sim.host import Host
from tests.sim.invariants import Invariants
from tests.sim.knobs import TICK
from tests.sim.world import World

MEMBERS_MAX = 7


class Faults:
    def __init__(
        self, world: World, hosts: dict[int, Host], invariants: Invariants, new_disk: NewDisk
    ) -> None:
        self.world, self.hosts, self.invariants = world, hosts, invariants
        self.new_disk = new_disk
        knobs = world.knobs
        self.kinds = list(knobs.faults)
        self.weights = list(knobs.faults.values())
        self.next_id = max(hosts) + 1
        self.was_damaged = False
        self.actions: dict[str, Callable[[], None]] = {
            "partition": self.partition,
            "asymmetric": self.asymmetric,
            "isolate_leader": self.isolate_leader,
            "heal": self.heal,
            "crash": self.crash_any,
            "crash_leader": self.crash_leader,
            "crash_all": self.crash_all,
            "damage": self.damage,
            "last_copy": self.last_copy,
            "transfer": self.transfer,
            "add": self.add,
            "promote": self.promote,
            "remove": self.remove,
            "pause": self.pause,
            "observer": self.observer,
        }
        if self.kinds:
            self.schedule()

    def schedule(self) -> None:
        mean = self.world.knobs.fault_every
        self.world.at(1 + int(self.world.rng.expovariate(1 / mean)), self.strike)

    def strike(self, _: object) -> None:
        if self.world.is_calm:
            return
        kind = self.world.rng.choices(self.kinds, self.weights)[0]
        self.actions[kind]()
        self.schedule()

    # Who

    def running(self) -> list[Host]:
        return [host for host in self.hosts.values() if host.node is not None]

    def leader(self) -> Host | None:
        """Return a host that believes that it leads."""
        leaders = [h for h in self.running() if h.node is not None and h.node.is_leader]
        return self.world.rng.choice(leaders) if leaders else None

    # Network

    def block(self, senders: list[int], receivers: list[int]) -> None:
        self.world.blocked.update((s, r) for s in senders for r in receivers if s != r)
        self.world.note("blocked", senders, "→", receivers)
        for host in self.hosts.values():
            host.wake()  # a driver sees that the connection is gone

    def partition(self) -> None:
        if self.world.rng.random() < 0.5:
            self.heal()
        ids = list(self.hosts)
        self.world.rng.shuffle(ids)
        cut = self.world.rng.randrange(len(ids) + 1)
        self.block(ids[:cut], ids[cut:])
        self.block(ids[cut:], ids[:cut])

    def asymmetric(self) -> None:
        ids = list(self.hosts)
        self.world.rng.shuffle(ids)
        cut = self.world.rng.randrange(len(ids) + 1)
        self.block(ids[:cut], ids[cut:])

    def isolate_leader(self) -> None:
        leader = self.leader()
        if leader is not None:
            if self.world.rng.random() < 0.5:
                self.heal()
            others = [host for host in self.hosts if host != leader.id]
            self.block([leader.id], others)
            if self.world.rng.random() < 0.7:
                self.block(others, [leader.id])

    def heal(self) -> None:
        self.world.note("healed")
        self.world.blocked.clear()

    # Servers

    def crash(self, host: Host) -> None:
        if host.node is None:
            return
        host.crash()
        for other in self.hosts.values():
            other.wake()
        down = 1 + int(self.world.rng.random() * self.world.knobs.down_max)
        self.world.at(down, self.restart, host)

    def restart(self, host: Host) -> None:
        if host.node is None and not host.is_removed:
            host.start()

    def crash_any(self) -> None:
        running = self.running()
        if running:
            self.crash(self.world.rng.choice(running))

    def crash_leader(self) -> None:
        leader = self.leader()
        if leader is not None:
            self.crash(leader)

    def crash_all(self) -> None:
        for host in self.running():
            self.crash(host)

    def pause(self) -> None:
        running = self.running()
        if running and not self.world.knobs.options.lease_reads:
            host = self.world.rng.choice(running)
            host.pause()
            pause = 1 + int(self.world.rng.random() * self.world.knobs.down_max)
            self.world.at(pause, host.resume, host.epoch)

    def observer(self) -> None:
        running = self.running()
        if running:
            node = self.world.rng.choice(running).node
            assert node is not None
            node.is_observer = not node.is_observer

    def damage(self) -> None:
        """Crash a member, and damage what it has on disk."""
        running = self.running()
        if not running:
            return
        host = self.world.rng.choice(running)
        if not self.world.knobs.unlimited_damage and not self.may_damage(host):
            return
        self.was_damaged = True
        self.crash(host)
        self.world.note(host.id, "is damaged:", host.disk.damage(self.world.rng))

    def sound(self) -> set[int]:
        return {host.id for host in self.hosts.values() if host.is_sound()}

    def last_copy(self) -> None:
        """Leave new entries on a bare majority, damage one of it, and cut off the leader.

        The members that remain are a majority, in which a damaged member that voted would do harm.
        """
        leader = self.leader()
        if leader is None or leader.node is None or len(leader.node.membership.voters) < 3:
            return
        others = sorted(leader.node.membership.voters - {leader.id})
        self.world.rng.shuffle(others)
        with_leader = majority(len(others) + 1) - 1
        victim = self.hosts[others[0]]
        if victim.node is not None and victim.is_sound() and self.may_damage(victim):
            self.heal()
            rest = others[with_leader:]
            self.block([leader.id, *others[:with_leader]], rest)
            self.block(rest, [leader.id, *others[:with_leader]])
            self.world.at(10 * TICK, self.lose_copy, (leader, victim))

    def lose_copy(self, pair: tuple[Host, Host]) -> None:
        victim = pair[1]
        if victim.node is None or self.world.is_calm or not self.may_damage(victim):
            return
        rng = self.world.rng
        self.was_damaged = True
        victim.crash()
        self.world.note(victim.id, "is damaged:", victim.disk.damage(rng))
        self.world.at(TICK, self.restart, victim)
        self.world.at(TICK + int(rng.random() * 6 * TICK), self.cut_off, pair)

    def cut_off(self, pair: tuple[Host, Host]) -> None:
        leader, victim = pair
        if self.world.is_calm:
            return
        self.heal()
        others = [host for host in self.hosts if host != leader.id]
        self.block([leader.id], others)
        self.block(others, [leader.id])
        if victim.node is not None and self.world.rng.random() < 0.5:
            victim.crash()
            self.world.at(TICK, self.restart, victim)

    def may_damage(self, damaged: Host) -> bool:
        """Tell whether undamaged members would still be a majority, whatever membership counts."""
        sound = self.sound() - {damaged.id}
        return all(
            len(membership.voters & sound) >= majority(len(membership.voters))
            for membership in self.memberships()
        )

    def memberships(self) -> list[Membership]:
        """Return all memberships that a leader may still go by."""
        found = [host.node.membership for host in self.running() if host.node is not None]
        for host in self.hosts.values():
            if host.node is None:
                recovered = host.disk.recover()
                history = MembershipHistory(recovered.snapshot)
                history.appended(recovered.entries)
                found.append(history.current)
        return [membership for membership in found if membership.voters]

    # Operators

    def transfer(self) -> None:
        leader = self.leader()
        if leader is not None and leader.node is not None and not leader.is_paused:
            target = self.world.rng.choice(sorted(leader.node.membership.voters))
            try:
                leader.node.transfer_leadership(target)
            except RaftError:
                return
            self.world.note(leader.id, "hands over to", target)
            leader.carry_out()

    def change(self, leader: Host, membership: Membership) -> bool:
        assert leader.node is not None
        try:
            leader.node.propose_membership(membership)
        except RaftError as error:
            self.world.note("no change of members:", error)
            return False
        self.world.note(leader.id, "changes members to", membership)
        leader.carry_out()
        return True

    def add(self) -> None:
        """Start a new member, and add it as a learner."""
        leader = self.leader()
        if leader is None or leader.node is None or leader.is_paused:
            return
        membership = leader.node.membership
        room = len(membership.voters) + len(membership.learners) < MEMBERS_MAX
        if room and self.change(leader, with_learner(membership, self.next_id)):
            host = Host(self.next_id, self.world, self.invariants, self.new_disk(NOTHING))
            self.hosts[host.id] = host
            host.start()
            self.next_id += 1

    def promote(self) -> None:
        leader = self.leader()
        if leader is not None and leader.node is not None and not leader.is_paused:
            sound = self.sound()  # an operator looks first
            for learner in sorted(leader.node.membership.learners & sound):
                if self.change(leader, with_voter(leader.node.membership, learner)):
                    return

    def remove(self) -> None:
        """Remove a member that lost its vote, or else any."""
        leader = self.leader()
        if leader is None or leader.node is None or leader.is_paused:
            return
        membership = leader.node.membership
        lost = [m for m, (health, _) in leader.node.damaged.items() if health is Health.VOTE_LOST]
        members = sorted(membership.voters | membership.learners)
        chosen = self.world.rng.choice(lost or members)
        if chosen in members and (lost or len(membership.voters) > 2):
            rest = membership.voters - {chosen}
            if len(rest & self.sound()) >= majority(len(rest)):  # an operator looks first
                self.change(leader, without(membership, chosen))
