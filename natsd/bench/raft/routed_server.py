"""A natsd without clients, whose routes carry the frames of RAFT to the other processes."""

from __future__ import annotations

from collections.abc import Mapping

from natsd import Server
from natsd.core.routing import Subscription
from natsd.raft.account_transport import AccountTransport

HOST = "127.0.0.1"


async def start_server(
    number: int, ports: Mapping[int, int]
) -> tuple[Server, AccountTransport[Subscription]]:
    """Start one server of a cluster whose routes have these ports; return it and its transport."""
    routes = [f"nats://{HOST}:{port}" for other, port in ports.items() if other != number]
    server = Server(
        host=HOST,
        port=-1,
        server_name=f"raft{number}",
        cluster={"name": "raft", "host": HOST, "port": ports[number], "routes": routes},
    )
    await server.start()
    return server, AccountTransport(server.system_account.internal_client, number)
