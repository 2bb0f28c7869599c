"""Which connections a full mesh of servers lacks.

n1 ═════ n2        Each server has connections to each other server. With pooling these are
 ╲╲     ╱╱         `pool_size` connections that share the accounts, and one for each account
  ╲╲   ╱╱          that has its own, the system account always among those. Messages of an
    n3             account pass as soon as the account's connection is there: so a mesh is
                   complete when all of them are.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from natsd.config import Options

Links = Mapping[str, int]
"""A server's connections to other servers: how many, by the name of the other server."""


def links_per_server(options: "Options") -> int:
    """Return how many connections a server with these options has to each other server."""
    cluster = options.cluster
    if cluster is None or cluster.pool_size < 0:
        return 1
    of_one_account = set(cluster.accounts)
    if not options.no_system_account:
        of_one_account.add(options.system_account or "$SYS")
    return cluster.pool_size + len(of_one_account)


def missing_links(found: Mapping[str, Links], expected: Mapping[str, int]) -> list[str]:
    """Return a line for each two servers that are not fully connected; none: the mesh is complete.

    `found` has the connections of each server, `expected` how many it has to each other one.
    """
    return [
        f"{name} has {links.get(other, 0)} of {expected[name]} connections to {other}"
        for name, links in found.items()
        for other in found
        if other != name and links.get(other, 0) < expected[name]
    ]
