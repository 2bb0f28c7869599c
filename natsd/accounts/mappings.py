"""The subject mappings of an account, from its settings.

- Weights below 100 in all: the rest of the messages keep their subject, unless the source is among
  its own destinations. Then they are lost, which is wanted for tests.
- Destinations of a cluster replace the others on the servers of that cluster.

Source: ADR-30; nats-server's `AddWeightedMappings` (server/accounts.go), error texts included.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from natsd.config.mapping_options import MappingDestination
from natsd.core.quoting import quoted
from natsd.core.routing import SubjectMappings, WeightedDestinations, is_valid
from natsd.core.subject_mapping import InvalidMapping, check_mapping

WHOLE: Final = 100
"""Sum of the weights of all messages."""

Mappings = Mapping[str, tuple[MappingDestination, ...]]


def make_mappings(given: Mappings, cluster: str = "") -> SubjectMappings | None:
    """Return an account's mappings on a server of that cluster; None: there are none.

    Raises InvalidMapping.
    """
    if not given:
        return None
    return SubjectMappings([_mapping(source, each, cluster) for source, each in given.items()])


def check_mappings(given: Mappings, cluster: str = "") -> Iterator[tuple[str, str]]:
    """Yield the sources of an account's mappings that are wrong, and what is wrong with each."""
    for source, destinations in given.items():
        try:
            for each in destinations:
                if not is_valid(source):
                    raise InvalidMapping("invalid subject")
                check_mapping(source, each.destination)
            _mapping(source, destinations, cluster)
        except InvalidMapping as error:
            yield source, f"Error adding mapping for {quoted(source)} : {error}"


def _mapping(
    source: str, destinations: Sequence[MappingDestination], cluster: str
) -> WeightedDestinations:
    """Return the mapping of one source. Raises InvalidMapping."""
    names = [each.destination for each in destinations]
    for name in names:
        if names.count(name) > 1:
            raise InvalidMapping(f"duplicate entry for {quoted(name)}")
    if any(each.weight > WHOLE for each in destinations):
        raise InvalidMapping("individual weights need to be <= 100")
    for one in {each.cluster for each in destinations}:
        if sum(each.weight for each in destinations if each.cluster == one) > WHOLE:
            raise InvalidMapping("total weight needs to be <= 100")
    own = [each for each in destinations if each.cluster and each.cluster == cluster]
    chosen = own or [each for each in destinations if not each.cluster]
    weighted: list[tuple[str | None, int]] = [(each.destination, each.weight) for each in chosen]
    rest = WHOLE - sum(each.weight for each in chosen)
    if rest and source not in names:
        weighted.append((None, rest))
    return WeightedDestinations(source, weighted)
