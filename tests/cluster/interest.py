"""What servers know of each other's interest, compared with the interest that there is.

await agreed(servers)       # no interest is missing, none is stale
"""

from collections.abc import Iterator, Sequence

from natsd import Server
from natsd.cluster.limits import compiled_rules
from natsd.core.network import RouteLink
from natsd.core.routing import PermissionRules, SubList
from tests.cluster.mesh import cluster_of, is_meshed
from tests.waiting import eventually_within

Interest = tuple[bytes, bytes | None]
"""A subject, and the name of the queue group; None: there is none."""


def local_interest(sublist: SubList) -> dict[Interest, int]:
    """Return the interest that other servers are told of, with its weights."""
    found: dict[Interest, int] = {}
    after = b""
    while True:
        rows, after = sublist.interests(after, local=True)
        for subject, queue, weight in rows:
            found[subject, queue] = weight if queue is not None else 1
        if not after:
            return found


def links_to(server: Server, other: Server) -> Iterator[RouteLink]:
    """Yield what carries the accounts between two servers, on the side of the first one."""
    for route in cluster_of(server).table:
        if route.remote_id == other.id:
            yield from route.account_links


def known_interest(server: Server, other: Server, account: str) -> dict[Interest, int]:
    """Return the interest of another server that a server knows."""
    found: dict[Interest, int] = {}
    for link in links_to(server, other):
        if link.account.name == account:
            for sub in link.remote_subscriptions():
                key = (sub.subject_bytes, sub.queue_bytes)
                assert key not in found, f"{key} is known twice"
                found[key] = sub.weight
    return found


def rules_of(server: Server) -> PermissionRules | None:
    """Return what a server imports, as rules for publishing, and exports, as subscribing."""
    return compiled_rules(cluster_of(server).options.rules)


def expected_interest(server: Server, other: Server, account: str) -> dict[Interest, int]:
    """Return the interest of another server that a server is to know."""
    if account not in server.accounts or account not in other.accounts:
        return {}
    imports, exports = rules_of(other), rules_of(server)
    return {
        (subject, queue): weight
        for (subject, queue), weight in local_interest(other.accounts[account].sublist).items()
        if (imports is None or imports.may_publish(subject))
        and (exports is None or exports.may_subscribe(subject, queue))
    }


def differences(servers: Sequence[Server]) -> list[str]:
    """Return in which accounts a server's knowledge of another one's interest is not right."""
    found = []
    for server in servers:
        for other in servers:
            if server is other:
                continue
            for account in server.accounts:
                known = known_interest(server, other, account)
                expected = expected_interest(server, other, account)
                if known != expected:
                    wrong = dict(known.items() ^ expected.items())
                    found.append(f"{server.name} of {other.name}, {account}: {wrong}")
    return found


async def agreed(servers: Sequence[Server]) -> None:
    """Wait until the servers form a mesh and know each other's interest."""
    await eventually_within(lambda: is_meshed(servers))
    try:
        await eventually_within(lambda: is_meshed(servers) and not differences(servers))
    except AssertionError:
        raise AssertionError("; ".join(differences(servers))[:2000]) from None
