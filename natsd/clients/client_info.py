"""A client as events, advisories and services describe it.

Source: nats-server's `ClientInfo` (server/events.go): the members are in its order, and members
without a value are left out.
"""

from typing import TYPE_CHECKING, Final

from natsd.core.wall_time import timestamp

if TYPE_CHECKING:
    from natsd.clients.client import Client

CLIENT_TYPE: Final = "nats"
MICROSECOND_NS: Final = 1_000
MILLISECOND_NS: Final = 1_000_000


def client_info(
    client: "Client",
    account: str,
    wall_minus_monotonic_ns: int,
    *,
    service: str = "",
    server: str = "",
    cluster: str = "",
    stop_ns: int = 0,
    name_tag: str = "",
) -> dict[str, object]:
    """Return the members that describe a client.

    `account` is the account that is shown, `service` the one that passed a request on; `server` and
    `cluster` are the names of the client's server; `stop_ns` is the Unix time of its end;
    `name_tag` is the name of its account or user. What is empty or 0 is not shown.
    """
    facts = None if client.verdict is None else client.verdict.jwt
    told: dict[str, object] = {
        "start": timestamp(client.start_ns + wall_minus_monotonic_ns),
        "host": client.ip,
        "id": client.cid,
        "acc": account,
        "svc": service,
        "user": client.authorized_user,
        "name": client.name,
        "lang": client.lang,
        "ver": client.version,
        "rtt": shown_rtt_ns(client.rtt_ns),
        "server": server,
        "cluster": cluster,
        "stop": timestamp(stop_ns) if stop_ns else "",
        "jwt": "" if facts is None else facts.jwt,
        "issuer_key": "" if facts is None else facts.issuer_key,
        "name_tag": name_tag,
        "tags": () if facts is None else facts.tags,
        "kind": client.kind,
        "client_type": CLIENT_TYPE,
    }
    return {name: value for name, value in told.items() if value}


def shown_rtt_ns(rtt_ns: int) -> int:
    """Return a round trip time; between 1 µs and 1 ms its nanoseconds are cut off."""
    if MICROSECOND_NS < rtt_ns < MILLISECOND_NS:
        return rtt_ns - rtt_ns % MICROSECOND_NS
    return rtt_ns


def user_name(client: "Client") -> str:
    """Return the name in the user's JWT; empty: the user has none."""
    facts = None if client.verdict is None else client.verdict.jwt
    return "" if facts is None else facts.name
