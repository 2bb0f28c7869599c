"""Description of the client that sent a request, for advisories.

- Nothing is built before it is needed.
- For requests of the server itself only the account is known.
- A request that came through a service import acts in the exporting account (`svc`), and its client
  is of another one (`acc`). What more is known is what the import put into `Nats-Request-Info`. The
  header counts for nothing else: a client of the account itself may send any.

Source: nats-server's `ClientInfo`; schema io.nats.jetstream.advisory.v1.api_audit.
"""

import contextlib
import json
from collections.abc import Mapping
from typing import Final

from natsd.clients.client import Client
from natsd.clients.client_info import client_info as client_members
from natsd.clients.client_info import user_name
from natsd.core.network import Session
from natsd.jetstream.headers import CLIENT_INFO, header_value

_MEMBERS: Final = (
    *("start", "host", "id", "acc", "svc", "user", "name", "lang", "ver", "rtt", "server"),
    *("kind", "jwt", "issuer_key", "name_tag", "tags", "client_type", "nonce"),
)
"""The members of nats-server's `ClientInfo` that a server without cluster has, in its order."""


def client_info(
    origin: Session | None,
    account: str,
    server: str,
    wall_minus_monotonic_ns: int,
    headers: bytes = b"",
) -> Mapping[str, object]:
    """Describe the connection, in nats-server's order of members; unknown members are left out.

    `account` is the account in which the request acts, and `headers` are the request's.
    """
    if not isinstance(origin, Client):
        return {"acc": account}
    if origin.account is not None and origin.account.name != account:
        return _importing_client(origin.account.name, account, server, headers)
    told = client_members(
        origin, account, wall_minus_monotonic_ns, server=server, name_tag=user_name(origin)
    )
    told.pop("jwt", None)  # as in nats-server: whoever reads advisories need not know it
    return told


def _importing_client(
    requestor: str, exporter: str, server: str, headers: bytes
) -> Mapping[str, object]:
    """Describe a client of another account as far as its account shares it, in the header."""
    shared: dict[str, object] = {}
    with contextlib.suppress(ValueError):
        told = json.loads(header_value(headers, CLIENT_INFO) or b"{}")
        shared = told if isinstance(told, dict) else {}
    told = shared | {"acc": requestor, "svc": exporter, "server": server}
    return {name: told[name] for name in _MEMBERS if told.get(name)}
