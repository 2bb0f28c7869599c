"""What servers know of each other's interest, compared with the interest that there is.

await agreed(servers)       # no interest is missing, none is stale
"""

from collections.abc import Sequence

from natsd import Server
from natsd.cluster.limits import compiled_rules
from natsd.core.routing import PermissionRules, SubList
from tests.cluster.mesh import cluster_of, is_meshed, meshed
from tests.waiting import eventually_within

Interest = tuple[bytes, bytes | None]
"""A subject, and the name of the queue group; None: there is none."""


TWICE = -1


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


def known_by_peer(server: Server) -> dict[str, dict[str, dict[Interest, int]]]:
    """Return the interest of other servers that a server knows, by server and account.

    What is known twice has the weight TWICE.
    """
    found: dict[str, dict[str, dict[Interest, int]]] = {}
    for route in cluster_of(server).table:
        accounts = found.setdefault(route.remote_name, {})
        for link in route.account_links:
            interest = accounts.setdefault(link.account.name, {})
            for sub in link.remote_subscriptions():
                key = (sub.subject_bytes, sub.queue_bytes)
                interest[key] = TWICE if key in interest else sub.weight
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
        known_interest = known_by_peer(server)
        for other in servers:
            if server is other:
                continue
            for account in server.accounts:
                known = known_interest.get(other.name, {}).get(account, {})
                expected = expected_interest(server, other, account)
                if known != expected:
                    wrong = dict(known.items() ^ expected.items())
                    found.append(f"{server.name} of {other.name}, {account}: {wrong}")
    return found


async def agreed(servers: Sequence[Server]) -> None:
    """Wait until the servers form a mesh and know each other's interest."""
    await meshed(*servers)
    try:
        await eventually_within(lambda: is_meshed(servers) and not differences(servers))
    except AssertionError:
        raise AssertionError("; ".join(differences(servers))[:2000]) from None
