"""Description of the client that sent a request, for advisories.

- Nothing is built before it is needed.
- For requests of the server itself only the account is known.

Source: nats-server's `ClientInfo`; schema io.nats.jetstream.advisory.v1.api_audit.
"""

from collections.abc import Mapping
from typing import Final

from natsd.clients.client import Client
from natsd.core.network import Session
from natsd.jetstream.models.times import format_time

CLIENT_TYPE: Final = "nats"


def client_info(
    origin: Session | None, account: str, server: str, wall_minus_monotonic_ns: int
) -> Mapping[str, object]:
    """Describe the connection, in nats-server's order of members; unknown members are left out."""
    if not isinstance(origin, Client):
        return {"acc": account}
    told = {
        "start": format_time(origin.start_ns + wall_minus_monotonic_ns),
        "host": origin.ip,
        "id": origin.cid,
        "acc": account,
        "user": origin.authorized_user,
        "name": origin.name,
        "lang": origin.lang,
        "ver": origin.version,
        "rtt": origin.rtt_ns,
        "server": server,
        "kind": origin.kind,
        "client_type": CLIENT_TYPE,
    }
    return {name: value for name, value in told.items() if value}
