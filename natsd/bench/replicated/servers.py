"""Three servers with JetStream in one cluster: `natsd bench --row 'r3-*'`.

    load ─▶ the server that leads a stream ══ routes ══▶ two servers with a replica each

Every server has its own store and its own monitoring port, and all servers of a cluster get the
same settings otherwise. The cluster is ready when each server names the same leader of JetStream
and counts three members, and a stream with three replicas can be made.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final

from natsd.bench import wire
from natsd.bench.arms import HOST, BenchServer, Configurable, free_port
from natsd.bench.config_file import write_config
from natsd.bench.cpu_time import cpu_seconds
from natsd.bench.jetstream.api import Api

DEFAULT: Final = "jetstream-cluster"
"""The setup in which each server syncs as it does by default."""
ALWAYS: Final = "jetstream-cluster-always"
"""The setup with `sync_interval: always`."""
SERVERS: Final = 3
READY_SECONDS_MAX: Final = 60.0
LOOK_SECONDS: Final = 0.02
ANSWER_SECONDS_MAX: Final = 10.0
PROBE: Final = "BENCH_PROBE"
PROBE_SECONDS_MAX: Final = 2.0


@dataclass
class Member:
    """One server of the cluster; it can be stopped and started again."""

    name: str
    arm: Configurable
    config: Path
    store_dir: Path
    monitor_port: int
    stack: ExitStack = field(default_factory=ExitStack)
    server: BenchServer = field(init=False)

    def start(self) -> None:
        """Start the server, on a client port of its own. Raises ArmError."""
        self.server = self.stack.enter_context(self.arm.configured(self.config).running())

    def stop(self) -> None:
        """Stop the server."""
        self.stack.close()

    def jsz(self, query: str = "") -> dict[str, Any]:
        """Return what the monitoring port tells about JetStream; empty: it does not answer."""
        connection = HTTPConnection(HOST, self.monitor_port, timeout=ANSWER_SECONDS_MAX)
        try:
            connection.request("GET", f"/jsz{query}")
            response = connection.getresponse()
            found: dict[str, Any] = json.loads(response.read()) if response.status == 200 else {}
            return found
        except (OSError, HTTPException):
            return {}
        finally:
            connection.close()

    def messages(self, stream: str) -> int:
        """Return the number of messages in this server's replica; 0: it has none."""
        accounts = self.jsz("?accounts=true&streams=true").get("account_details") or []
        found = [each for account in accounts for each in account.get("stream_detail") or []]
        return next((each["state"]["messages"] for each in found if each["name"] == stream), 0)


@dataclass
class ReplicatedServer(BenchServer):
    """The first server of a cluster, with all its members."""

    members: list[Member] = field(default_factory=list)

    def restart_wiped(self, member: Member) -> None:
        """Stop a server, remove all its files, and start it again. Raises ArmError."""
        member.stop()
        shutil.rmtree(member.store_dir)
        member.start()
        self.port, self.pid = self.members[0].server.port, self.members[0].server.pid

    def cpu_seconds(self) -> float:
        """Return the CPU time that the servers have used so far."""
        pids = [each.server.pid for each in self.members]
        return sum(cpu_seconds(pid) for pid in pids if pid is not None)

    def leader(self, stream: str, consumer: str = "") -> Member:
        """Return the server that leads a stream, or its consumer, once all replicas are current.

        Raises LoadError after READY_SECONDS_MAX.
        """
        subject = f"CONSUMER.INFO.{stream}.{consumer}" if consumer else f"STREAM.INFO.{stream}"
        names: list[str] = []

        def is_whole() -> bool:
            with Api(self.host, self.port) as api:
                cluster = api.request(subject).get("cluster") or {}
            replicas = cluster.get("replicas") or []
            names[:] = [cluster.get("leader", "")]
            return len(replicas) == SERVERS - 1 and all(each["current"] for each in replicas)

        wait_until(partial(succeeds, is_whole), f"{stream} has no leader with current replicas")
        return next(each for each in self.members if each.name == names[0])

    def make_stream(self, config: dict[str, Any]) -> Member:
        """Create a stream with three replicas; return the server that leads it.

        Raises LoadError if it cannot be created.
        """
        with Api(self.host, self.port) as api:
            api.request(f"STREAM.CREATE.{config['name']}", {**config, "num_replicas": SERVERS})
        return self.leader(config["name"])


@contextmanager
def running_trio(
    arm: Configurable, directory: Path, *, sync: str = ""
) -> Iterator[ReplicatedServer]:
    """Run three servers in a cluster; `sync` is their `sync_interval`, empty: their default.

    Raises ArmError if one does not start, or LoadError if the cluster is not ready in time.
    """
    ports = [free_port() for _ in range(SERVERS)]
    with ExitStack() as stack:
        members = []
        for number in range(SERVERS):
            member = _member(arm, directory, ports, number, sync)
            members.append(member)
            stack.callback(member.stop)
            member.start()
        first = members[0].server
        server = ReplicatedServer(first.host, first.port, first.info, first.pid, members=members)
        await_cluster(server)
        yield server


def _member(arm: Configurable, directory: Path, ports: list[int], number: int, sync: str) -> Member:
    name, store_dir, monitor_port = f"bench{number}", directory / f"store{number}", free_port()
    store_dir.mkdir()
    jetstream = {"store_dir": str(store_dir), **({"sync_interval": sync} if sync else {})}
    cluster = {
        "name": "bench",
        "listen": f"{HOST}:{ports[number]}",
        "no_advertise": True,
        "routes": [f"nats://{HOST}:{port}" for port in ports if port != ports[number]],
    }
    settings = {
        "server_name": name,
        "http": f"{HOST}:{monitor_port}",
        "cluster": cluster,
        "jetstream": jetstream,
    }
    config = directory / f"server{number}.json"
    write_config(config, settings)
    return Member(name, arm, config, store_dir, monitor_port)


def await_cluster(server: ReplicatedServer) -> None:
    """Wait until JetStream of the cluster is ready. Raises LoadError after READY_SECONDS_MAX."""

    def is_agreed() -> bool:
        found = [each.jsz().get("meta_cluster") or {} for each in server.members]
        leaders = {each.get("leader", "") for each in found}
        sizes = {each.get("cluster_size") for each in found}
        return len(leaders) == 1 and "" not in leaders and sizes == {SERVERS}

    def is_made() -> bool:
        with Api(server.host, server.port, PROBE_SECONDS_MAX) as api:
            config = {"name": PROBE, "subjects": ["bench.probe"], "storage": "memory"}
            api.request(f"STREAM.CREATE.{PROBE}", {**config, "num_replicas": SERVERS})
            api.request(f"STREAM.DELETE.{PROBE}")
        return True

    wait_until(is_agreed, "JetStream has no leader")
    wait_until(partial(succeeds, is_made), "no stream with three replicas can be made")


def succeeds(test: Callable[[], bool]) -> bool:
    """Return what `test` returns; False if the server answers with an error."""
    try:
        return test()
    except wire.LoadError:
        return False


def wait_until(test: Callable[[], bool], problem: str) -> None:
    """Call `test` until it returns True; raises LoadError after READY_SECONDS_MAX."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while not test():
        if time.monotonic() > deadline:
            raise wire.LoadError(f"{problem} after {READY_SECONDS_MAX:.0f} s")
        time.sleep(LOOK_SECONDS)
