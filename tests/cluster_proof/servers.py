"""Servers on loopback with JetStream in a cluster: each a process, with a directory of its own.

    n1/nats.conf   its configuration       n1/log   what it logged, in all its lives
    n1/store/      JetStream's files; with `disk_bytes` a file system of that size

- A server reaches each other one through a proxy (links.py), and advertises a port at which nobody
  listens: so it cannot be reached around the proxies.
- The clients' ports are not behind proxies: clients reach a server that the others do not reach.
"""

import asyncio
import contextlib
import json
import logging
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from natsd.local_cluster.plan import free_ports
from natsd.local_cluster.process import NATSD, ProcessState, ServerProcess
from tests.cluster_proof.links import Links

logger = logging.getLogger(__name__)

NOWHERE = "127.0.0.1:1"
POLL_S = 0.05
ANSWER_S = 2.0
READY_S = 60.0
CONFIG = """\
server_name: {name}
listen: "127.0.0.1:{client_port}"
http: "127.0.0.1:{http_port}"
jetstream {{ store_dir: {store}, max_memory_store: 1GB, max_file_store: 20GB }}
cluster {{
  name: proof
  listen: "127.0.0.1:{route_port}"
  advertise: "{nowhere}"
  no_advertise: true
  routes: [{routes}]
}}
"""


class Server:
    """One server of the cluster."""

    def __init__(self, name: str, directory: Path, ports: Sequence[int]) -> None:
        self.name = name
        self.directory = directory
        self.store = directory / "store"
        self.client_port, self.route_port, self.http_port = ports
        self.url = f"nats://127.0.0.1:{self.client_port}"
        config = directory / "nats.conf"
        self.process = ServerProcess(config, directory / "pid", directory / "log")
        self.config = config

    def write_config(self, route_ports: Sequence[int]) -> None:
        self.store.mkdir(parents=True, exist_ok=True)
        text = CONFIG.format(
            name=self.name,
            client_port=self.client_port,
            http_port=self.http_port,
            route_port=self.route_port,
            store=json.dumps(str(self.store)),
            nowhere=NOWHERE,
            routes=", ".join(f'"nats://127.0.0.1:{port}"' for port in route_ports),
        )
        self.config.write_text(text, encoding="utf-8")

    @property
    def is_running(self) -> bool:
        return self.process.state is ProcessState.RUNNING

    async def seen(self, path: str) -> dict[str, Any] | None:
        """Return what the monitoring port answers; None: nothing, or that it is not well."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        url = f"http://127.0.0.1:{self.http_port}/{path}"
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session:
                async with session.get(url) as answer:
                    return await answer.json() if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None

    def log_tail(self, lines: int = 15) -> str:
        """Return the last lines of the log."""
        text = (self.directory / "log").read_text("utf-8", "replace")
        return "\n".join(text.splitlines()[-lines:])


class Servers:
    """All servers and what connects them."""

    def __init__(self, servers: Sequence[Server], links: Links, program: Sequence[str]) -> None:
        self.all = tuple(servers)
        self.links = links
        self.program = tuple(program)

    def __iter__(self) -> Iterator[Server]:
        return iter(self.all)

    def __getitem__(self, name: str) -> Server:
        return next(server for server in self.all if server.name == name)

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.all]

    @property
    def running(self) -> list[Server]:
        return [server for server in self.all if server.is_running]

    # ---- faults; each returns when it has happened

    async def start(self, *servers: Server) -> None:
        """Start servers (none given: all); returns before they are ready."""
        for server in servers or self.all:
            logger.info("start %s", server.name)
            await asyncio.to_thread(server.process.start, self.program)

    async def kill(self, *servers: Server) -> None:
        """Kill servers (none given: all) with SIGKILL."""
        chosen = servers or self.all
        logger.info("kill %s", ", ".join(each.name for each in chosen))
        await asyncio.gather(*(asyncio.to_thread(each.process.kill) for each in chosen))

    async def stop(self, server: Server) -> None:
        """End a server in order."""
        logger.info("stop %s", server.name)
        server.process.stop()
        assert await asyncio.to_thread(server.process.wait), f"{server.name} does not stop"

    async def pause(self, server: Server) -> None:
        logger.info("pause %s", server.name)
        await asyncio.to_thread(server.process.pause)

    async def resume(self, server: Server) -> None:
        await asyncio.to_thread(server.process.resume)

    async def wipe(self, server: Server) -> None:
        """Delete all that a stopped server has stored."""
        assert not server.is_running
        logger.info("wipe %s", server.name)
        for path in server.store.iterdir():
            await asyncio.to_thread(shutil.rmtree if path.is_dir() else os.remove, path)

    async def rescue(self, server: Server, lost: Sequence[Server]) -> None:
        """Order a stopped server to go on without others, which are lost for good."""
        logger.info("rescue %s", server.name)
        names = ",".join(each.name for each in lost)
        arguments = ("cluster", "rescue", "-c", str(server.config), "--lost", names, "--yes")
        await asyncio.to_thread(subprocess.run, (*NATSD, *arguments), check=True)

    async def fill_disk(self, server: Server) -> None:
        """Fill the server's file system up to the last byte."""
        logger.info("fill the disk of %s", server.name)
        await asyncio.to_thread(_fill, server.store)

    async def free_disk(self, server: Server) -> None:
        """Give back the space that `fill_disk` has taken."""
        await asyncio.to_thread((server.store / FILLER).unlink, missing_ok=True)

    async def has_stopped_jetstream(self, server: Server) -> bool:
        """Return whether the server has ended, or serves JetStream no more."""
        return (await server.seen("jsz") or {"disabled": True}).get("disabled", False)

    async def make_whole(self) -> None:
        """Undo what can be undone: cut links, paused and stopped servers, full disks."""
        logger.info("make the cluster whole")
        self.links.heal()
        for server in self.all:
            await self.free_disk(server)
            await self.resume(server)
            if server.process.pid is None:
                await self.start(server)
        await self.until_ready()

    # ---- waiting

    async def until_ready(self, *servers: Server, path: str = "varz") -> None:
        """Wait until servers (none given: all) answer at their monitoring port."""
        give_up_at = time.monotonic() + READY_S
        for server in servers or self.all:
            while await server.seen(path) is None:
                if time.monotonic() > give_up_at or server.process.pid is None:
                    raise AssertionError(f"{server.name} is not ready:\n{server.log_tail()}")
                await asyncio.sleep(POLL_S)


FILLER = "filler"
FILL_STEPS = (1 << 20, 1 << 12, 1)
DISK_BYTES_MAX = 1 << 30


def _fill(directory: Path) -> None:
    """Fill a file system of its own that is small, and no other one."""
    status = os.statvfs(directory)
    assert os.path.ismount(directory)
    assert status.f_blocks * status.f_frsize <= DISK_BYTES_MAX
    with (directory / FILLER).open("ab", buffering=0) as file:
        for step in FILL_STEPS:
            with contextlib.suppress(OSError):
                while file.tell() < DISK_BYTES_MAX:
                    file.write(bytes(step))


@contextlib.contextmanager
def _disk_of(directory: Path, size_bytes: int) -> Iterator[None]:
    """Mount an empty file system of this size on the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    options = f"size={size_bytes}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


def may_mount() -> bool:
    """Return whether this process may mount file systems."""
    return os.geteuid() == 0 and shutil.which("mount") is not None and Path("/proc/mounts").exists()


@contextlib.asynccontextmanager
async def running_servers(
    directory: Path, count: int, program: Sequence[str] = NATSD, *, disk_bytes: int = 0
) -> AsyncIterator[Servers]:
    """Run a cluster; yields when its servers answer, and kills them at the end."""
    ports = free_ports("127.0.0.1", 3 * count)
    all_servers = [
        Server(f"n{at + 1}", directory / f"n{at + 1}", ports[3 * at : 3 * at + 3])
        for at in range(count)
    ]
    links = Links({server.name: server.route_port for server in all_servers})
    servers = Servers(all_servers, links, program)
    with contextlib.ExitStack() as disks:
        if disk_bytes:
            for server in all_servers:
                disks.enter_context(_disk_of(server.store, disk_bytes))
        async with links.listening():
            for server in all_servers:
                server.write_config(links.ports_of(server.name))
            try:
                await servers.start()
                await servers.until_ready()
                yield servers
            finally:
                await servers.kill()
