"""`default_js_domain`: accounts that use JetStream of another domain as if it were their own.

    $JS.API.STREAM.INFO.S ─▶ $JS.hub.API.STREAM.INFO.S       in an account without JetStream

What serves the domain is another account or server: the subjects behind the mapping are imported,
or come over a leaf node.

Source: nats-server's `validateJetStreamOptions` and `generateJSMappingTable`; the texts are its.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from natsd.config.account_names import GLOBAL, SYSTEM
from natsd.config.account_options import AccountOptions
from natsd.config.mapping_options import MappingDestination
from natsd.config.public_keys import Kind, is_public
from natsd.config.settings import OptionsError
from natsd.core.quoting import quoted
from natsd.core.routing import is_valid_publish

_API_SPACES: Final = ("INFO", *(f"{each}.>" for each in ("STREAM", "CONSUMER", "DIRECT")))
_OTHER_API_SPACES: Final = tuple(f"{each}.>" for each in ("META", "SERVER", "ACCOUNT"))
_CLIENT_SPACES: Final = ("$KV.>", "$OBJ.>")


def domain_mappings(domain: str) -> Mapping[str, tuple[MappingDestination, ...]]:
    """Return the mappings of JetStream's subjects to those of the domain."""
    prefix = f"$JS.{domain}.API"
    targets = {f"$JS.API.{each}": f"{prefix}.{each}" for each in _API_SPACES + _OTHER_API_SPACES}
    targets |= {space: f"{prefix}.{space}" for space in _CLIENT_SPACES}
    return {source: (MappingDestination(destination=to),) for source, to in targets.items()}


def with_default_domains(
    accounts: Mapping[str, AccountOptions], domains: Mapping[str, str]
) -> dict[str, AccountOptions]:
    """Return the settings with the mappings of accounts that have a default domain.

    An account with JetStream uses its own, and mappings of the account itself come first.
    """
    result = dict(accounts)
    for name, domain in domains.items():
        own = result.get(name, AccountOptions())
        if domain and not has_jetstream(own):
            result[name] = replace(own, mappings={**domain_mappings(domain), **own.mappings})
    return result


def has_jetstream(account: AccountOptions) -> bool:
    """Return whether JetStream is switched on for the account."""
    return account.jetstream is not None and account.jetstream.enabled


def check_default_domains(
    domains: Mapping[str, str],
    accounts: Mapping[str, AccountOptions],
    system_account: str,
    *,
    is_operated: bool,
) -> None:
    """Check the accounts and domains of `default_js_domain`. Raises OptionsError.

    `is_operated` says that accounts come from JWTs.
    """
    for name, domain in domains.items():
        reason = _mistake(name, domain, accounts, system_account, is_operated=is_operated)
        if reason:
            raise OptionsError(reason, path=("default_js_domain", name))


def _mistake(
    name: str,
    domain: str,
    accounts: Mapping[str, AccountOptions],
    system_account: str,
    *,
    is_operated: bool,
) -> str:
    """Return what is wrong with an account and its domain; empty: nothing."""
    if is_operated:
        if not is_public(name, Kind.ACCOUNT):
            return (
                f"default_js_domain contains account name {quoted(name)}, which is not a valid "
                "public account nkey"
            )
    elif name in accounts:
        if domain and has_jetstream(accounts[name]):
            return f'default_js_domain contains account name "{name}" with enabled JetStream'
    elif name != GLOBAL:
        return f'in non operator mode, `default_js_domain` references non existing account "{name}"'
    if name == (system_account or SYSTEM):
        return f'system account "{name}" can not be in default_js_domain'
    if domain and not is_valid_publish(f"$JS.{domain}.API"):
        return f'default_js_domain contains account "{name}" with invalid domain name "{domain}"'
    return ""
