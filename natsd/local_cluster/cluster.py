"""All servers of a local cluster: a directory with one directory for each server.

    natsd-cluster/n1/nats.conf    member.py
    natsd-cluster/.lock           held by a program that starts or stops servers

- `start` makes the cluster whole: it starts servers that do not run, lets paused ones go on, and
  leaves the others alone.
- A wait has a deadline, and its error says which server or connection is missing.
"""

import contextlib
import fcntl
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

from natsd.local_cluster.errors import LocalClusterError
from natsd.local_cluster.member import CONFIG, Member, address, config_text
from natsd.local_cluster.mesh import missing_links
from natsd.local_cluster.plan import (
    FREE,
    MONITORING_OFFSET,
    ROUTES_OFFSET,
    Plan,
    taken_ports,
)
from natsd.local_cluster.process import NATSD, STOP_TIMEOUT_S, ProcessState
from natsd.local_cluster.seen import Seen, look_at

LOCK: Final = ".lock"
TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.05
TRIALS: Final = 5
"""Attempts with free ports, of which another program may take one before the server does."""
PORT_TAKEN: Final = "address already in use"


class LocalCluster:
    """The servers of a directory."""

    def __init__(self, directory: Path, members: Sequence[Member]) -> None:
        self.directory = directory
        self.members = tuple(members)

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Return the cluster of the directory. Raises LocalClusterError if there is none."""
        directory = directory.absolute()
        found = sorted(directory.glob(f"*/{CONFIG}"), key=lambda path: _order(path.parent.name))
        if not found:
            raise LocalClusterError(
                f"there is no cluster in {directory}; `natsd cluster up` makes one"
            )
        cluster = cls(directory, [Member(path.parent) for path in found])
        names = {member.cluster_name for member in cluster.members}
        if len(names) > 1:
            raise LocalClusterError(f"{directory} has servers of {' and '.join(sorted(names))}")
        return cluster

    @staticmethod
    def is_in(directory: Path) -> bool:
        """Return whether the directory has a cluster."""
        return any(directory.glob(f"*/{CONFIG}"))

    @classmethod
    def create(cls, directory: Path, plan: Plan, count: int) -> Self:
        """Write the files of a new cluster. Raises LocalClusterError if there are other files."""
        directory = directory.absolute()
        directory.mkdir(parents=True, exist_ok=True)
        if any(path.name != LOCK for path in directory.iterdir()):
            raise LocalClusterError(f"{directory} is not empty, and has no cluster")
        cluster = cls(directory, ())
        cluster.grow(plan, count)
        return cluster

    @property
    def name(self) -> str:
        """Name of the cluster."""
        return self.members[0].cluster_name

    @property
    def urls(self) -> list[str]:
        """The URLs for clients."""
        return [member.client_url for member in self.members]

    def member(self, name: str) -> Member:
        """Return the server with the name. Raises LocalClusterError if there is none."""
        for member in self.members:
            if member.name == name:
                return member
        names = ", ".join(member.name for member in self.members)
        raise LocalClusterError(f'there is no server "{name}"; there are {names}')

    def plan_for_more(self) -> Plan:
        """Return a plan by which further servers are like the ones that there are."""
        first = self.members[0]
        clients, routes, monitoring = first.ports
        is_planned = (routes, monitoring) == (clients + ROUTES_OFFSET, clients + MONITORING_OFFSET)
        port = clients if is_planned else FREE
        return Plan(name=self.name, host=first.options.host, port=port)

    def grow(self, plan: Plan, count: int) -> None:
        """Write the files of further servers, until there are `count`.

        The new servers know the old ones; the old ones learn of the new ones when they connect.
        """
        first = len(self.members)
        names = [f"n{number + 1}" for number in range(first, count)]
        plan.check(count)
        ports = dict(zip(names, plan.ports(first, count - first), strict=True))
        urls = {member.name: member.route_url for member in self.members}
        for name in names:
            _check_ports(name, plan.host, ports[name].all)
        urls |= {name: f"nats://{address(plan.host, ports[name].routes)}" for name in names}
        added = []
        for name in names:
            directory = self.directory / name
            directory.mkdir(exist_ok=True)
            others = [url for other, url in urls.items() if other != name]
            text = config_text(plan, name, directory, ports[name], others)
            (directory / CONFIG).write_text(text, encoding="utf-8")
            added.append(Member(directory))
        self.members += tuple(added)

    # ---- starting and stopping

    def start(self, members: Sequence[Member] = (), program: Sequence[str] = NATSD) -> list[Member]:
        """Make servers run (none given: all), and wait until clients can connect.

        Returns those that did not run. Raises LocalClusterError if one does not start.
        """
        wanted = members or self.members
        stopped = [each for each in wanted if each.process.state is ProcessState.STOPPED]
        for member in stopped:
            _check_ports(member.name, member.options.host, member.ports)
        for member in wanted:
            member.process.resume()
        logged = {member: member.logged_bytes for member in stopped}
        for member in stopped:
            member.process.start(program)
        self._wait_until_started(wanted, logged)
        return stopped

    def start_new(self, plan: Plan, program: Sequence[str] = NATSD) -> None:
        """Start a cluster that was just made by the plan.

        If the ports are free ones, and a program has taken one meanwhile, others are chosen.
        """
        for trial in range(TRIALS):
            try:
                self.start(program=program)
                return
            except LocalClusterError as error:
                is_taken = PORT_TAKEN in str(error)
                if plan.port != FREE or trial == TRIALS - 1 or not is_taken:
                    raise
            self.kill()
            count, self.members = len(self.members), ()
            self.grow(plan, count)

    def _wait_until_started(self, wanted: Sequence[Member], logged: dict[Member, int]) -> None:
        give_up_at = time.monotonic() + TIMEOUT_S
        while silent := [seen for seen in look_at(wanted) if not seen.answers]:
            for seen in silent:
                if seen.state is ProcessState.STOPPED:
                    reason = _last_line(seen.member.log, logged.get(seen.member, 0))
                    raise LocalClusterError(f"{seen.member.name} did not start: {reason}")
            if time.monotonic() > give_up_at:
                reasons = "; ".join(f"{seen.member.name}: {seen.problem}" for seen in silent)
                raise LocalClusterError(f"no answer within {TIMEOUT_S:g} s: {reasons}")
            time.sleep(POLL_S)

    def stop(
        self, members: Sequence[Member] = (), timeout_s: float = STOP_TIMEOUT_S
    ) -> list[Member]:
        """Stop servers in order (none given: all); return those that ran.

        Raises LocalClusterError if one does not end within the time.
        """
        running = [each for each in members or self.members if each.process.pid is not None]
        for member in running:
            member.process.stop()
        give_up_at = time.monotonic() + timeout_s
        for member in running:
            if not member.process.wait(max(give_up_at - time.monotonic(), 0)):
                raise LocalClusterError(
                    f"{member.name} (pid {member.process.pid}) did not stop within {timeout_s:g} s"
                )
        return running

    def kill(self, members: Sequence[Member] = ()) -> list[Member]:
        """End servers at once (none given: all); return those that ran."""
        running = [each for each in members or self.members if each.process.pid is not None]
        for member in running:
            member.process.kill()
        return running

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the cluster's lock. Raises LocalClusterError if another program holds it."""
        with lock(self.directory):
            yield

    # ---- looking

    def look(self) -> list[Seen]:
        """Return what each server tells now."""
        return look_at(self.members)

    def wait_for_mesh(self, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until all servers that run have all their connections.

        Raises LocalClusterError after the time.
        """
        give_up_at = time.monotonic() + timeout_s
        while missing := missing_in(self.look()):
            if time.monotonic() > give_up_at:
                raise LocalClusterError(
                    f"there is no full mesh after {timeout_s:g} s: {'; '.join(missing)}"
                )
            time.sleep(POLL_S)


def missing_in(seen: Sequence[Seen]) -> list[str]:
    """Return what the servers that run lack to be a full mesh; a paused one is left out."""
    running = [each for each in seen if each.state is ProcessState.RUNNING]
    silent = [f"{each.member.name}: {each.problem}" for each in running if not each.answers]
    return silent or missing_links(
        {each.member.name: each.links for each in running},
        {each.member.name: each.member.links_per_server for each in running},
    )


@contextlib.contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Hold a directory's lock. Raises LocalClusterError if another program holds it."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LocalClusterError(f"another `natsd cluster` is at work in {directory}") from None
        yield


def _check_ports(name: str, host: str, ports: Sequence[int]) -> None:
    """Raise LocalClusterError if another program listens where the server would."""
    for port in taken_ports(host, ports):
        raise LocalClusterError(
            f"{name} cannot listen on {address(host, port)}: {PORT_TAKEN}; "
            f"a new cluster can have other ports: --port, {FREE} for free ones"
        )


def _order(name: str) -> tuple[int, str]:
    """Return the key that sorts n2 before n10."""
    return len(name), name


def _last_line(log: Path, start: int) -> str:
    """Return the last line that is logged behind an offset."""
    lines = log.read_bytes()[start:].decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"it logged nothing ({log})"
