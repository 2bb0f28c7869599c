"""A client as services of other accounts see it: the header `Nats-Request-Info`, latency metrics.

Account and round-trip time are always told. An import that shares its requestors tells the rest.

Source: nats-server's `getClientInfo`, `addServerAndClusterInfo` (server/client.go).
"""

import time
from collections.abc import Mapping
from typing import Final

from natsd.clients.client import Client
from natsd.core.network import Session
from natsd.core.wall_time import timestamp

CLIENT_TYPE: Final = "nats"


class Requestors:
    """Describes the clients of one server."""

    def __init__(self, server_name: str, cluster: str = "") -> None:
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
        where: dict[str, object] = {}
        if is_located:
            where = {"server": self._server_name, "cluster": self._cluster}
        told: dict[str, object] = {"acc": account, "svc": service}
        if isinstance(session, Client):
            told["rtt"] = session.rtt_ns
            if is_shared:
                told = self._details(session, told)
        told |= where
        if is_shared and isinstance(session, Client):
            told |= {"kind": session.kind, "client_type": CLIENT_TYPE}
        return {name: value for name, value in told.items() if value}

    def _details(self, client: Client, told: Mapping[str, object]) -> dict[str, object]:
        """Return what only an import that shares its requestors tells, and `told` among it."""
        return {
            "start": timestamp(client.start_ns + self._wall_minus_monotonic_ns),
            "host": client.ip,
            "id": client.cid,
            "acc": told["acc"],
            "svc": told["svc"],
            "user": client.authorized_user,
            "name": client.name,
            "lang": client.lang,
            "ver": client.version,
            "rtt": told["rtt"],
        }
