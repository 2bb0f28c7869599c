"""What a server of a local cluster tells on its monitoring port: `/varz`, `/routez` and `/jsz`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from natsd.local_cluster.member import Member
from natsd.local_cluster.process import ProcessState
from natsd.top.endpoints import Endpoints, TopError

PATIENCE_S: Final = 2.0
"""Time in which a server that is well answers."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A server at one moment."""

    member: Member
    state: ProcessState
    pid: int | None
    varz: Mapping[str, Any] = field(default_factory=dict)
    """What the server tells of itself; empty: it does not answer."""
    links: Mapping[str, int] = field(default_factory=dict)
    """Its connections to other servers: how many, by the other server's name."""
    rescues: Sequence[Mapping[str, Any]] = ()
    """The rescues that it was ordered to carry out, as `/jsz` shows them; only natsd has them."""
    problem: str = ""
    """Why a server that runs does not answer."""

    @property
    def answers(self) -> bool:
        """Whether the server tells of itself."""
        return bool(self.varz)

    @property
    def status(self) -> str:
        """The state in one word."""
        is_silent = self.state is ProcessState.RUNNING and not self.answers
        return "silent" if is_silent else self.state.value


def look_at(members: Sequence[Member]) -> list[Seen]:
    """Return what each server tells; all are asked at the same time."""
    with ThreadPoolExecutor(max_workers=max(len(members), 1)) as threads:
        return list(threads.map(_look_at, members))


def _look_at(member: Member) -> Seen:
    state, pid = member.process.state, member.process.pid
    if state is not ProcessState.RUNNING:
        return Seen(member, state, pid)
    options = member.options
    endpoints = Endpoints(
        member.monitoring_url,
        user=options.http_user,
        password=options.http_password,
        patience_s=PATIENCE_S,
    )
    try:
        varz, routez = endpoints.get("varz"), endpoints.get("routez")
        jsz = endpoints.get("jsz", optional=True) or {}
    except TopError as error:
        return Seen(member, state, pid, problem=str(error))
    assert varz is not None
    assert routez is not None
    if varz.get("server_name") != member.name:
        problem = f"at {member.monitoring_url} there is another server"
        return Seen(member, state, pid, problem=problem)
    routes = routez.get("routes") or ()
    links = Counter(each["remote_name"] for each in routes)
    return Seen(member, state, pid, varz, links, jsz.get("rescues") or ())
