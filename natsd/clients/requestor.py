"""A client as services of other accounts see it: the header `Nats-Request-Info`, latency metrics.

Account and round-trip time are always told. An import that shares its requestors tells the rest.

Source: nats-server's `getClientInfo`, `addServerAndClusterInfo` (server/client.go).
"""

import time
from collections.abc import Callable, Mapping

from natsd.clients.client import Client
from natsd.clients.client_info import client_info, user_name
from natsd.core.network import Session


class Requestors:
    """Describes the clients of one server."""

    def __init__(self, server_name: str, cluster: Callable[[], str]) -> None:
        """Describe clients of that server; `cluster` returns the name of its cluster, or ""."""
        self._server_name = server_name
        self._cluster = cluster
        self._wall_minus_monotonic_ns = time.time_ns() - time.monotonic_ns()

    def describe(
        self,
        session: Session | None,
        account: str,
        service: str,
        is_shared: bool,
        is_located: bool,
    ) -> Mapping[str, object]:
        """Return the members of the client info, without those that have no value.

        `account` is the client's account, `service` the account that passed its request on.
        `is_shared`: all is told; `is_located`: so are the names of server and cluster.
        """
        server = self._server_name if is_located else ""
        cluster = self._cluster() if is_located else ""
        if is_shared and isinstance(session, Client):
            return client_info(
                session,
                account,
                self._wall_minus_monotonic_ns,
                service=service,
                server=server,
                cluster=cluster,
                name_tag=user_name(session),
            )
        told: dict[str, object] = {"acc": account, "svc": service}
        if isinstance(session, Client):
            told["rtt"] = session.rtt_ns
        told |= {"server": server, "cluster": cluster}
        return {name: value for name, value in told.items() if value}
