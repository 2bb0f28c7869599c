"""Placement: which servers get the replicas of a stream.

1. Servers of the wanted cluster that the placement's tags allow and that have room are candidates.
2. Of these, online ones come first; then, for several replicas, those with the fewest replicated
   streams; then those with clearly more room; then those with the fewest streams.
3. With `unique_tag` no two replicas share the tag of that prefix, and servers without one get none.
   A placement that names such a tag itself is not held to this.

Servers that have a replica already keep it, and count for the unique tags.

Source: nats-server's `selectPeerGroup` (server/jetstream_cluster.go), whose texts these are. It
compares room byte by byte, and lets servers claim unique tags in random order; here the server that
suits best has its tag.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

ROOM_STEPS: Final = 16
"""Servers that differ by less of the most room have as much."""
EXCLUDED: Final = "!jetstream"
"""A server with this tag gets no replica."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is known of a server with JetStream."""

    name: str
    cluster: str
    tags: frozenset[str] = frozenset()  # in lower case
    is_online: bool = True
    free_bytes: int = 0  # of the stream's kind of storage: not used and not reserved
    num_streams: int = 0  # it has replicas of
    num_replicated: int = 0  # of these, streams with several replicas


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a stream needs."""

    replicas: int
    cluster: str
    tags: Sequence[str] = ()  # of the placement; "!" before a tag: servers without it
    max_bytes: int = 0  # 0: no limit, so that nothing is reserved
    unique_tag: str = ""  # prefix of the tag that must differ; empty: none
    max_ha_assets: int = 0  # replicated streams of a server; 0: no limit
    kept: Sequence[str] = ()  # servers that have a replica and keep it
    ignored: Collection[str] = ()  # servers that must not get one


class NoSuitablePeers(Exception):
    """There are too few servers; the text says why the others do not suit."""


@dataclass(slots=True)
class _Reasons:
    """Why servers were left out."""

    flags: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    excluded: set[str] = field(default_factory=set)

    ORDER = (
        "peer offline",
        "exclude tag set",
        "insufficient storage",
        "server tag not unique",
        "miscellaneous issue",
        "jetstream not enabled in cluster",
    )

    def text(self) -> str:
        parts = ["no suitable peers for placement"]
        parts += [flag for flag in self.ORDER if flag in self.flags]
        for what, tags in (("not matched", self.missing), ("excluded", self.excluded)):
            if tags:
                parts.append(f"tags {what} [{', '.join(repr(tag) for tag in sorted(tags))}]")
        return ", ".join(parts)


def place(
    wanted: Wanted, servers: Iterable[Candidate], shuffle: Callable[[list[Candidate]], None]
) -> tuple[str, ...]:
    """Return the names of the servers that have the replicas, those that are kept first.

    `shuffle` decides between servers that suit equally well. Raises NoSuitablePeers.
    """
    servers = list(servers)
    kept = tuple(wanted.kept[: wanted.replicas])
    missing = wanted.replicas - len(kept)
    if not missing:
        return kept
    reasons = _Reasons()
    suitable = [each for each in servers if _suits(each, wanted, reasons)]
    shuffle(suitable)
    unit = max((each.free_bytes for each in suitable), default=0) // ROOM_STEPS + 1
    suitable.sort(key=lambda each: _rank(each, wanted, unit))
    chosen = _unique(suitable, _kept_tags(wanted, servers), wanted, reasons)[:missing]
    online = sum(each.is_online for each in chosen)
    lacks_quorum = online + len(kept) < wanted.replicas // 2 + 1
    if len(chosen) < missing or lacks_quorum:
        if not servers:
            reasons.flags.add("jetstream not enabled in cluster")
        elif len(chosen) == missing:
            reasons.flags.add("peer offline")
        raise NoSuitablePeers(reasons.text())
    return (*kept, *(each.name for each in chosen))


def _suits(server: Candidate, wanted: Wanted, reasons: _Reasons) -> bool:
    """Return whether the server may get a replica, without regard to the others."""
    if (
        server.cluster != wanted.cluster
        or server.name in wanted.ignored
        or server.name in wanted.kept
    ):
        return False
    if EXCLUDED in server.tags:
        reasons.flags.add("exclude tag set")
        return False
    for tag in wanted.tags:
        name = tag.removeprefix("!").lower()
        if tag.startswith("!") and name in server.tags:
            reasons.excluded.add(name)
            return False
        if not tag.startswith("!") and name not in server.tags:
            reasons.missing.add(name)
            return False
    if wanted.max_bytes > server.free_bytes:
        reasons.flags.add("insufficient storage")
        return False
    if 0 < wanted.max_ha_assets <= server.num_replicated:
        reasons.flags.add("miscellaneous issue")
        return False
    return True


def _rank(server: Candidate, wanted: Wanted, unit: int) -> tuple[bool, int, int, int]:
    replicated = server.num_replicated if wanted.replicas > 1 else 0
    return not server.is_online, replicated, -(server.free_bytes // unit), server.num_streams


def _prefix(wanted: Wanted) -> str:
    """Return the prefix of unique tags; empty: the placement names such a tag, or there is none."""
    prefix = wanted.unique_tag.lower()
    named = (tag.removeprefix("!").lower() for tag in wanted.tags)
    return "" if any(tag.startswith(prefix) for tag in named) else prefix


def _unique_tag(server: Candidate, prefix: str) -> str:
    return min((tag for tag in server.tags if tag.startswith(prefix)), default="")


def _kept_tags(wanted: Wanted, servers: Iterable[Candidate]) -> set[str]:
    prefix = _prefix(wanted)
    return {_unique_tag(each, prefix) for each in servers if each.name in wanted.kept}


def _unique(
    servers: Sequence[Candidate], taken: set[str], wanted: Wanted, reasons: _Reasons
) -> list[Candidate]:
    """Return those of the servers, in their order, whose unique tag no earlier one has."""
    prefix = _prefix(wanted)
    if not prefix:
        return list(servers)
    chosen = []
    for server in servers:
        tag = _unique_tag(server, prefix)
        if not tag or tag in taken:
            reasons.flags.add("server tag not unique")
            continue
        taken.add(tag)
        chosen.append(server)
    return chosen
