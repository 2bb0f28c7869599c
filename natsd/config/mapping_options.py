"""The settings of subject mappings: `source: destination`, or destinations with weights.

    mappings {
        orders: "orders.v2"
        requests: [{ destination: "a", weight: 60% }, { destination: "b", weight: 40% }]
    }

Source: nats-server's `parseAccountMappings` and `parseAccountMapDest` (server/opts.go).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from natsd.config.sections import section_of
from natsd.config.settings import (
    NamedSections,
    OptionsError,
    Settings,
    in_words,
    read_items,
    section_field,
    text,
)
from natsd.core.routing import is_valid

ALIASES: Final = {"dest": "destination"}
WEIGHT_MAX: Final = 100
"""Weights are per cent of the messages; those of one cluster may not exceed this in sum."""


def _read_weight(given: object) -> int:
    try:
        if isinstance(given, bool) or not isinstance(given, int | str):
            raise ValueError
        weight = int(given.removesuffix("%")) if isinstance(given, str) else given
    except ValueError:
        raise OptionsError(f"Invalid weight {in_words(given)} for mapping destination") from None
    if not 0 <= weight <= WEIGHT_MAX:
        raise OptionsError(f"Invalid weight {weight} for mapping destination")
    return weight


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingDestination(Settings):
    """A subject that a part of the messages gets."""

    destination: str = text("", "subject, with transform functions for parts of the source")
    weight: int = section_field(WEIGHT_MAX, _read_weight, "per cent of the messages")
    cluster: str = text("", "cluster whose servers use this destination; empty: all others")


def _read_destination(given: object) -> MappingDestination:
    if not isinstance(given, Mapping | MappingDestination):
        raise OptionsError("Expected an entry for the mapping destination")
    if isinstance(given, Mapping) and not any(str(name).lower() == "weight" for name in given):
        raise OptionsError("Missing weight for mapping destination")
    return section_of(MappingDestination, given, aliases=ALIASES)


def _read_destinations(given: object) -> tuple[MappingDestination, ...]:
    if isinstance(given, str):
        return (MappingDestination(destination=given),)
    if isinstance(given, Mapping):
        return (_read_destination(given),)
    found = read_items(given, _read_destination, "destinations")
    by_cluster: dict[str, int] = {}
    seen: set[tuple[str, str]] = set()
    for each in found:
        if (each.cluster, each.destination) in seen:
            raise OptionsError(f'duplicate entry for "{each.destination}"')
        seen.add((each.cluster, each.destination))
        by_cluster[each.cluster] = by_cluster.get(each.cluster, 0) + each.weight
    if any(total > WEIGHT_MAX for total in by_cluster.values()):
        raise OptionsError("total weight needs to be <= 100")
    return found


def read_mappings(given: object) -> Mapping[str, tuple[MappingDestination, ...]]:
    """Return the destinations of each source subject. Raises OptionsError."""
    if not isinstance(given, Mapping):
        raise OptionsError("must be a mapping of subjects")
    found: dict[str, Any] = {}
    for source, destinations in given.items():
        try:
            if not is_valid(str(source)):
                raise OptionsError(f'Subject "{source}" is not a valid subject')
            found[str(source)] = _read_destinations(destinations)
        except OptionsError as error:
            raise error.at(source).within(str(source)) from None
    return NamedSections(found)
