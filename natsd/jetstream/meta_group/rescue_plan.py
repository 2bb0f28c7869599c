"""Which groups a rescue concerns, on which server each goes on, and what that may cost.

    lost servers, reports of all others ─▶ for each group   it has a majority: nothing is done
                                                            some members are left: RescuedGroup
                                                            none is: the stream is gone

Promise
- A group is rescued only if every member that is not said to be lost has reported. It goes on with
  the most complete log of them: the highest last term, then the highest last index.
- The meta group is rescued only on the server that has the most complete log of it.
- There is no disk, clock or network here; `random_bytes` names the new groups.

Source: the election restriction of RAFT (section 5.4.1 of the paper).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from natsd.jetstream.meta_group.assignments import Assignment, Change, Dismiss, Reassign, Remove
from natsd.jetstream.meta_group.rescue_order import META, RescuedGroup
from natsd.jetstream.meta_group.rescue_survey import Position, Report, RescueRefused, Survey
from natsd.jetstream.short_hash import short_hash
from natsd.raft.quorum import majority
from natsd.raft.transport import member_id, server_key, server_of

GROUP_BYTES = 12
StreamKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be rescued."""

    lost: tuple[str, ...]
    streams: tuple[StreamKey, ...] = ()  # empty: all
    only_meta: bool = False
    drops_gone: bool = False


@dataclass(slots=True)
class Plan:
    """What a rescue would do."""

    groups: list[RescuedGroup] = field(default_factory=list)
    gone: list[RescuedGroup] = field(default_factory=list)
    """Streams of which no server is left."""
    kept: list[str] = field(default_factory=list)
    """Groups that lose a server, and have a majority."""
    damaged: list[str] = field(default_factory=list)
    """Servers that are left and are not chosen, because their log of a group is damaged."""
    changes: list[Change] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    """Why nothing can be done yet."""
    dismissed: tuple[str, ...] = ()
    new_meta: str = ""
    """Name of the rescued meta group; empty: the meta group has a majority."""


class Planner:
    """Makes the plan of one rescue."""

    def __init__(
        self,
        survey: Survey,
        others: Iterable[Report],
        wish: Wish,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """Use the reports of other servers that are left, too. Raises RescueRefused."""
        self._survey = survey
        self._wish = wish
        self._random_bytes = random_bytes
        self._servers = survey.assignments.servers
        self._names = {server_key(name): name for name in self._servers}
        self._reports = {each.server: each for each in (survey.report, *others)}
        self._plan = Plan()
        self._check_names()

    def _check_names(self) -> None:
        own, wish = self._survey.report, self._wish
        known = ", ".join(sorted(self._servers))
        for name in wish.lost:
            if name not in self._servers:
                raise RescueRefused(f"{name} is no server of this cluster; its servers are {known}")
            if name in self._reports:
                raise RescueRefused(f"{name} is not lost: there is its report")
        for each in self._reports.values():
            if each.meta != own.meta:
                raise RescueRefused(f"the report of {each.server} is of another meta group")
        for account, name in wish.streams:
            if self._survey.assignments.find(account, name) is None:
                raise RescueRefused(f"there is no stream '{account} > {name}'")

    def plan(self) -> Plan:
        """Return what is to be done."""
        plan, wish = self._plan, self._wish
        gone = {name for name, each in self._servers.items() if each.is_dismissed}
        plan.dismissed = tuple(sorted(gone | set(wish.lost)))
        self._plan_meta()
        if not wish.only_meta:
            for assignment in self._wanted_streams():
                self._plan_stream(assignment)
        if not plan.refusals and not plan.groups and not (plan.gone and wish.drops_gone):
            lost = ", ".join(wish.lost)
            plan.refusals.append(
                f"there is nothing to rescue: no group needs {lost} for a majority"
            )
        plan.changes += [Dismiss(name, is_lost=True) for name in wish.lost]
        return plan

    def _wanted_streams(self) -> Iterator[Assignment]:
        wanted = self._wish.streams
        for each in sorted(self._survey.assignments, key=lambda each: each.key):
            if not wanted or each.key in wanted:
                yield each

    # ---- the meta group

    def _plan_meta(self) -> None:
        plan, own = self._plan, self._survey.report
        members = self._members(own.meta, ())
        if self._has_majority(members):
            if self._wish.only_meta:
                self._refuse_majority(META, members)
            return
        chosen = self._choose(META, own.meta, members)
        if chosen is None:
            return
        found = self._rescued(META, own.meta, members, chosen, self._new_name("_meta_"))
        plan.groups.append(found)
        plan.new_meta = found.new_group
        if self._wish.streams:
            plan.refusals.append(f"{META} has no majority either: leave --stream out")
        elif chosen != own.server:
            here = own.positions[own.meta]
            plan.refusals.append(
                f"{chosen} has the more complete log of {META}, up to entry {found.last_index} of"
                f" term {found.last_term}, this one up to {here.last_index} of {here.last_term}:"
                f" rescue there"
            )

    # ---- streams

    def _plan_stream(self, each: Assignment) -> None:
        plan, what = self._plan, f"stream '{each.account} > {each.name}'"
        if not each.group:
            members = frozenset(map(self._member, each.servers))
        else:
            members = self._members(each.group, (*each.servers, *each.leaving))
        left = self._left(members)
        if not left:
            plan.gone.append(RescuedGroup(what, each.group, "", self._named(members)))
            if self._wish.drops_gone:
                plan.changes.append(Remove(each.account, each.name, each.version))
            return
        if self._has_majority(members):
            if self._wish.streams:
                self._refuse_majority(what, members)
            elif len(left) < len(members):
                plan.kept.append(f"{what}: {', '.join(left)}")
            return
        chosen = self._choose(what, each.group, members)
        if chosen is None:
            return
        prefix = each.group.rpartition("-")[0]
        found = self._rescued(what, each.group, members, chosen, self._new_name(f"{prefix}-"))
        plan.groups.append(found)
        after = msgspec.structs.replace(
            each,
            servers=(chosen, *(name for name in left if name != chosen)),
            leaving=(),
            read_replicas=tuple(name for name in each.read_replicas if name not in plan.dismissed),
            group=found.new_group,
            founders=(self._member(chosen),),
            is_adopted=False,
            rescued_from=each.group,
        )
        plan.changes.append(Reassign(each.version, after))

    # ---- members

    def _member(self, name: str) -> int:
        return member_id(server_key(name), self._servers[name].incarnation)

    def _members(self, group: str, assigned: Iterable[str]) -> frozenset[int]:
        """Return the voters of a group, as the most complete log has them."""
        found = self._positions(group)
        if found:
            best = max(found.values(), key=lambda each: each.completeness)
            if best.voters:
                return frozenset(best.voters)
        return frozenset(self._member(name) for name in assigned if name in self._servers)

    def _positions(self, group: str) -> dict[str, Position]:
        reports = self._reports.values()
        return {each.server: each.positions[group] for each in reports if group in each.positions}

    def _named(self, members: Iterable[int]) -> tuple[str, ...]:
        return tuple(sorted(self._names.get(server_of(each), f"{each:x}") for each in members))

    def _left(self, members: Iterable[int]) -> list[str]:
        """Return the servers of members that are neither lost nor another member by now."""
        lost = self._plan.dismissed
        names = {self._names.get(server_of(each), ""): each for each in members}
        return sorted(
            name
            for name, member in names.items()
            if name and name not in lost and self._member(name) == member
        )

    def _has_majority(self, members: frozenset[int]) -> bool:
        return len(self._left(members)) >= majority(len(members))

    def _refuse_majority(self, what: str, members: frozenset[int]) -> None:
        left = ", ".join(self._left(members))
        self._plan.refusals.append(
            f"{what}: {left} are a majority of its {len(members)} members, and need no rescue:"
            " start them"
        )

    def _choose(self, what: str, group: str, members: frozenset[int]) -> str | None:
        """Return the server with the most complete log; None: that is refused."""
        left, positions = self._left(members), self._positions(group)
        if not left:
            self._plan.refusals.append(f"{what}: no member of {group} is left")
            return None
        for name in left:
            if name not in self._reports:
                self._plan.refusals.append(
                    f"{what}: {name} is neither lost nor known: add its report (--others)"
                )
                return None
        usable = {name: positions[name] for name in left if name in positions}
        problems = [f"{name}: {each.problem}" for name, each in usable.items() if each.problem]
        usable = {name: each for name, each in usable.items() if not each.problem}
        if not usable:
            why = "; ".join(problems) or f"{', '.join(left)}: there is no log of it"
            self._plan.refusals.append(f"{what}: {why}")
            return None
        self._plan.damaged += (f"{what}: {each}" for each in problems)
        own = self._survey.report.server
        return max(usable, key=lambda name: (usable[name].completeness, name == own))

    def _rescued(
        self, what: str, group: str, members: frozenset[int], chosen: str, new_group: str
    ) -> RescuedGroup:
        at = self._positions(group)[chosen]
        return RescuedGroup(
            what,
            group,
            new_group,
            self._named(members),
            chosen,
            at.last_index,
            at.last_term,
            at.last_sequence,
            at.committed,
        )

    def _new_name(self, prefix: str) -> str:
        return prefix + short_hash(self._random_bytes(GROUP_BYTES))
