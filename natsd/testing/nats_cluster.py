"""A cluster of NATS servers for a test: a full mesh, in threads or in processes.

    with natsd.testing.cluster() as cluster:                 # three servers
        client = await cluster.connect(0)
        cluster.servers[1].stop()

- Each server is a `NatsServer`, with all that it can do, on ports that the system chooses.
- The servers start one after the other; each has routes to those before it. So of two servers one
  dials the other as long as both run, whichever has been restarted.
- Clients that a test has opened by one server may go to another one. So all are closed before any
  server ends, and connections that are open then are an error.
- The methods may be called from any thread, and block, as those of `NatsServer` do.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from natsd.local_cluster.mesh import links_per_server, missing_links
from natsd.testing.nats_server import WAIT_S, NatsServer, raise_all, wait_until
from natsd.testing.tested_clients import Connecting, TestedClients

SERVERS: Final = 3
MESH_WAIT_S: Final = 20.0
"""Time for a mesh; a route that was lost is dialed again after a second or two."""

Which = int | NatsServer
"""A server of the cluster, or its place among them; 0 is the first one."""


class NatsCluster:
    """Servers in a full mesh; a context, synchronous or asynchronous, starts and stops them.

    `servers` is their number. `cluster` has settings of the section `cluster`, such as
    `pool_size`. `per_server` has further options of each server. All other keywords are options of
    every server, as `NatsServer` takes them; with a `config`, the file has the section `cluster`.
    """

    def __init__(
        self,
        servers: int = SERVERS,
        *,
        cluster: Mapping[str, Any] | None = None,
        per_server: Sequence[Mapping[str, Any]] = (),
        config: str | Path | None = None,
        **options: Any,
    ) -> None:
        if config is not None and cluster is not None:
            raise ValueError("write the settings of `cluster` into the configuration")
        if len(per_server) > servers:
            raise ValueError(f"there are {servers} servers, and options of {len(per_server)}")
        self._clients = TestedClients()
        section = {"name": "test", "port": -1, **(cluster or {})}
        common = {**options, "config": config} if config else {**options, "cluster": section}
        self.servers = [self._make(common, per_server, at) for at in range(servers)]

    def _make(
        self, common: Mapping[str, Any], per_server: Sequence[Mapping[str, Any]], at: int
    ) -> NatsServer:
        own = per_server[at] if at < len(per_server) else {}
        return NatsServer(**{"server_name": f"n{at + 1}", **common, **own}, clients=self._clients)

    def __getitem__(self, which: Which) -> NatsServer:
        return which if isinstance(which, NatsServer) else self.servers[which]

    @property
    def client_urls(self) -> list[str]:
        """The URLs for clients, of all servers."""
        return [server.client_url for server in self.servers]

    # ---- life

    def __enter__(self) -> Self:
        try:
            for at, server in enumerate(self.servers):
                server.restart(**self._routes_to(self.servers[:at]))
            self.wait_for_mesh()
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(is_checked=error is None)

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._clients.close()
        await asyncio.to_thread(self._end, is_checked=error is None)

    def _end(self, *, is_checked: bool) -> None:
        """Close the clients, check all servers, and stop them."""
        errors: list[Exception] = []
        try:
            for server in self.servers:
                server.resume()
            self._clients.close_others()
            if is_checked:
                for server in self.servers:
                    errors += [*server.leaks(), *server.logged_errors()]
        finally:
            self._release()
        raise_all(errors, "the end of a cluster")

    def _release(self) -> None:
        for server in self.servers:
            server.release()

    def _routes_to(self, servers: Sequence[NatsServer]) -> dict[str, str]:
        """Return the setting of a server that dials these ones."""
        return {"cluster.routes": ",".join(server.route_url for server in servers)}

    def stop(self, which: Which) -> None:
        """Stop a server in order, as SIGTERM does."""
        self[which].stop()

    def kill(self, which: Which) -> None:
        """End a server's process at once, as SIGKILL does. Raises RuntimeError for a thread."""
        self[which].kill()

    def restart(self, which: Which, **settings: Any) -> None:
        """Start a server again, on the same ports; stop it before if it runs.

        Returns when clients can connect; the mesh stands soon after. Keywords change the settings
        that it was started with.
        """
        server = self[which]
        others = [other for other in self.servers if other is not server]
        server.restart(**self._routes_to(others), **settings)

    def pause(self, which: Which) -> None:
        """Hold a server: connections stay open, and nothing is answered."""
        self[which].pause()

    def resume(self, which: Which) -> None:
        """Let a paused server go on."""
        self[which].resume()

    # ---- clients, and waiting

    def connect(self, which: Which = 0, **settings: Any) -> Connecting:
        """Connect nats-py to a server, as `NatsServer.connect` does."""
        return self[which].connect(**settings)

    def wait_for_mesh(self, timeout: float = MESH_WAIT_S) -> None:
        """Wait until all servers that run, and are not paused, have all their routes.

        Raises TimeoutError after `timeout` seconds.
        """
        options = {server: server.options for server in self._running()}
        expected = {each.server_name: links_per_server(each) for each in options.values()}

        def missing() -> list[str]:
            found = {each.server_name: server.routes() for server, each in options.items()}
            return missing_links(found, expected)

        wait_until(lambda: not missing(), timeout, lambda: "; ".join(missing()))

    def wait_for_interest(self, subject: str, account: str = "$G", timeout: float = WAIT_S) -> None:
        """Wait until a message to the subject reaches a subscription, whichever server gets it.

        The subject has no wildcards. Raises TimeoutError after `timeout` seconds.
        """

        def unaware() -> list[NatsServer]:
            running = self._running()
            return [server for server in running if not server.has_interest(subject, account)]

        wait_until(
            lambda: not unaware(),
            timeout,
            lambda: f"{unaware()} know of no subscription that {subject} matches",
        )

    def wait_for_jetstream(self, timeout: float = MESH_WAIT_S) -> NatsServer:
        """Wait until all servers that run take part in JetStream, and agree on who leads it.

        Returns the leader. Raises TimeoutError after `timeout` seconds.
        """
        found: list[tuple[str, int]] = []

        def is_agreed() -> bool:
            found[:] = [server.meta_leader() for server in self._running()]
            leader = found[0][0]
            return bool(leader) and set(found) == {(leader, len(found))}

        wait_until(is_agreed, timeout, lambda: f"leaders and numbers of members: {found}")
        return next(each for each in self.servers if each.options.server_name == found[0][0])

    def wait_for_leader(
        self, stream: str, account: str = "$G", timeout: float = MESH_WAIT_S
    ) -> NatsServer:
        """Wait until one of the servers that run leads a stream; return it.

        Raises TimeoutError after `timeout` seconds.
        """
        found: list[NatsServer] = []

        def is_led() -> bool:
            found[:] = [server for server in self._running() if server.leads(stream, account)]
            return len(found) == 1

        wait_until(is_led, timeout, lambda: f"{stream} is led by {found}")
        return found[0]

    def _running(self) -> list[NatsServer]:
        return [each for each in self.servers if each.is_running and not each.is_paused]


cluster: Final = NatsCluster
"""Starts a cluster for a test: `with natsd.testing.cluster() as cluster`."""
