"""Readers of sections that most servers do not have: each imports its classes when it is called.

So a start without accounts, TLS or a resolver does not pay for their classes.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from natsd.config.settings import NamedSections, OptionsError, read_named, read_texts

if TYPE_CHECKING:
    from natsd.config.account_options import AccountOptions
    from natsd.config.cluster_options import ClusterOptions
    from natsd.config.later_options import (
        GatewayOptions,
        MqttOptions,
        OcspCacheOptions,
        OcspOptions,
        WebsocketOptions,
    )
    from natsd.config.leafnode_options import LeafnodesOptions
    from natsd.config.mapping_options import MappingDestination
    from natsd.config.proxies_options import ProxiesOptions
    from natsd.config.resolver_options import ResolverOptions
    from natsd.config.tls_options import TlsOptions


def read_accounts(given: object) -> "NamedSections[AccountOptions]":
    """Return the settings of accounts by name. Raises OptionsError."""
    from natsd.config import account_options

    return account_options.read_accounts(given)


def read_mappings(given: object) -> "Mapping[str, tuple[MappingDestination, ...]]":
    """Return the destinations of each source subject. Raises OptionsError."""
    from natsd.config import mapping_options

    return mapping_options.read_mappings(given)


def read_proxies(given: object) -> "ProxiesOptions":
    """Return the trusted proxies. Raises OptionsError."""
    from natsd.config import proxies_options

    return proxies_options.read_proxies(given)


def read_resolver(given: object) -> "ResolverOptions":
    """Return where the JWTs of accounts come from. Raises OptionsError."""
    from natsd.config import resolver_options

    return resolver_options.read_resolver(given)


def read_tls(given: object) -> "TlsOptions":
    """Return the settings of TLS. Raises OptionsError."""
    from natsd.config import tls_options

    return tls_options.read_tls(given)


def read_operators(given: object) -> tuple[str, ...]:
    """Return the JWTs of operators, from texts that are JWTs or name files. Raises OptionsError."""
    from natsd.config import jwt_texts

    return jwt_texts.read_operators(given)


def read_preload(given: object) -> NamedSections[str]:
    """Return JWTs by account. Raises OptionsError."""
    from natsd.config import jwt_texts

    return jwt_texts.read_preload(given)


def read_cluster(given: object) -> "ClusterOptions":
    """Return the settings of routes. Raises OptionsError."""
    from natsd.config import cluster_options

    return cluster_options.read_cluster(given)


def read_gateway(given: object) -> "GatewayOptions":
    """Return the settings of gateways. Raises OptionsError."""
    from natsd.config import later_options

    return later_options.read_block(later_options.GatewayOptions, given)


def read_leafnodes(given: object) -> "LeafnodesOptions":
    """Return the settings of leaf nodes. Raises OptionsError."""
    from natsd.config import leafnode_options

    return leafnode_options.read_leafnodes(given)


def read_websocket(given: object) -> "WebsocketOptions":
    """Return the settings of WebSockets. Raises OptionsError."""
    from natsd.config import later_options

    return later_options.read_block(later_options.WebsocketOptions, given)


def read_mqtt(given: object) -> "MqttOptions":
    """Return the settings of MQTT. Raises OptionsError."""
    from natsd.config import later_options

    return later_options.read_block(later_options.MqttOptions, given)


def read_ocsp(given: object) -> "OcspOptions":
    """Return the settings of OCSP stapling. Raises OptionsError."""
    from natsd.config import later_options

    return later_options.read_ocsp(given)


def read_ocsp_cache(given: object) -> "OcspCacheOptions":
    """Return the settings of the cache of OCSP responses. Raises OptionsError."""
    from natsd.config import later_options

    return later_options.read_ocsp_cache(given)


def read_public_keys(given: object) -> tuple[str, ...]:
    """Return public keys of operators. Raises OptionsError."""
    from natsd.config.public_keys import Kind, is_public

    keys = read_texts(given)
    for key in keys:
        if not is_public(key, Kind.OPERATOR):
            raise OptionsError(f'trust key "{key}" required to be a valid public operator nkey')
    return keys


def read_switches(given: object) -> NamedSections[bool]:
    """Return switches by name. Raises OptionsError."""
    return read_named(given, _read_switch, "true and false")


def read_words(given: object) -> tuple[str, ...]:
    """Return words from a list, or from a text with commas between them. Raises OptionsError."""
    if isinstance(given, str):
        given = given.split(",")
    words = (each.strip() for each in read_texts(given))
    return tuple(each for each in words if each)


def _read_switch(given: object) -> bool:
    if not isinstance(given, bool):
        raise OptionsError("must be true or false")
    return given
