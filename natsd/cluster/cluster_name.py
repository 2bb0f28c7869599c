"""The name of a cluster: configured, or chosen by the servers among the names that they drew.

    ours        peer's      result
    equal                   the same cluster
    configured  any         conflict: the peer must adopt our name, or is refused
    dynamic     configured  ours becomes the peer's, and counts as configured
    dynamic     dynamic     the greater name is adopted by the other server

Source: nats-server's `processRouteConnect` and `processRouteInfo` (server/route.go).
"""

from dataclasses import dataclass
from enum import Enum


class NameVerdict(Enum):
    """What becomes of a peer because of the name of its cluster."""

    SAME = "both servers have the same name"
    ADOPTED = "our name is that of the peer now"
    CONFLICT = "the peer belongs to another cluster"


@dataclass(slots=True)
class ClusterName:
    """The name of this server's cluster."""

    name: str
    is_dynamic: bool
    """Whether no name was configured, here or by the server whose name was adopted."""

    def meet(self, name: str, *, is_dynamic: bool) -> NameVerdict:
        """Adopt the name of a peer, or keep ours."""
        if name == self.name:
            return NameVerdict.SAME
        if self.is_dynamic and (not is_dynamic or self.name < name):
            self.name = name
            self.is_dynamic = is_dynamic
            return NameVerdict.ADOPTED
        return NameVerdict.CONFLICT
