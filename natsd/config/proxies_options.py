"""The settings of `proxies`: the proxies that may vouch for their clients.

    proxies { trusted: [{ key: "UA..." }] }

Source: nats-server's `parseProxies` (server/opts.go).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from natsd.config.public_keys import is_public
from natsd.config.sections import section_of
from natsd.config.settings import (
    OptionsError,
    Settings,
    in_words,
    read_items,
    section_field,
    unknown_field,
)


def _read_key(given: object) -> str:
    if isinstance(given, Mapping):
        for name in given:
            if str(name).lower() not in ("key", "public_key"):
                raise unknown_field(str(name), ["key", "public_key"]).at(name)
        given = next(iter(given.values()), "")
    if not isinstance(given, str) or not is_public(given):
        raise OptionsError(f"invalid proxy key {in_words(given)}")
    return given


def _read_keys(given: object) -> tuple[str, ...]:
    return read_items(given, _read_key, "keys")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxiesOptions(Settings):
    """Public keys of the proxies that may vouch for their clients."""

    trusted: tuple[str, ...] = section_field((), _read_keys, "public keys of the proxies")


def read_proxies(given: object) -> ProxiesOptions:
    """Return the section from a mapping. Raises OptionsError."""
    return section_of(ProxiesOptions, given)
