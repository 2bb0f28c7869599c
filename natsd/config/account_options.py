"""The settings of accounts, with the names of nats-server's `accounts {}`.

- `accounts` is a mapping of names to settings, or a list of names.
- The same classes describe the accounts of JWTs.
- If an account's `jetstream` is None, the account has streams only if it is `$G` and no other
  account is configured.

Source: nats-server's `parseAccounts` (server/opts.go).
"""
# ruff: noqa: RUF009  each call declares a setting; nothing is shared between instances

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from natsd.config.account_jetstream import AccountJetStream, read_account_jetstream
from natsd.config.auth_options import (
    PermissionsOptions,
    UserOptions,
    read_permissions,
    read_users,
)
from natsd.config.mapping_options import MappingDestination, read_mappings
from natsd.config.public_keys import Kind, is_public
from natsd.config.sections import section_of
from natsd.config.settings import (
    NamedSections,
    OptionsError,
    Settings,
    optional,
    read_items,
    read_named,
    section_field,
    text,
    whole,
)
from natsd.config.sharing_options import (
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
    read_exports,
    read_imports,
)
from natsd.config.trace_options import MsgTraceOptions, read_msg_trace

INT32_MAX: Final = 2**31 - 1

LIMITS_ALIASES: Final = {
    "max_conn": "max_connections",
    "max_subs": "max_subscriptions",
    "max_pay": "max_payload",
    "max_leafs": "max_leafnodes",
}
ALIASES: Final = {"trace_dest": "msg_trace", "maps": "mappings"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountLimits(Settings):
    """Limits on an account's connections; -1: none."""

    max_connections: int = whole(-1, -INT32_MAX, INT32_MAX, "connections of clients")
    max_subscriptions: int = whole(-1, -INT32_MAX, INT32_MAX, "subscriptions of a connection")
    max_payload: int = whole(-1, -INT32_MAX, INT32_MAX, "bytes in a message")
    max_leafnodes: int = whole(-1, -INT32_MAX, INT32_MAX, "connections of leaf nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountOptions(Settings):
    """One account's settings."""

    nkey: str = text("", "public nkey of the account")
    users: tuple[UserOptions, ...] = section_field((), read_users, "users of the account")
    default_permissions: PermissionsOptions | None = optional(
        read_permissions, "permissions of users that have none of their own"
    )
    imports: tuple[StreamImport | ServiceImport, ...] = section_field(
        (), read_imports, "streams and services of other accounts that this one uses"
    )
    exports: tuple[StreamExport | ServiceExport, ...] = section_field(
        (), read_exports, "streams and services that other accounts may use"
    )
    mappings: Mapping[str, tuple[MappingDestination, ...]] = section_field(
        NamedSections[tuple[MappingDestination, ...]](),
        read_mappings,
        "other subjects that published messages get",
    )
    jetstream: AccountJetStream | None = optional(
        read_account_jetstream, "streams and consumers: true, or a mapping of limits"
    )
    limits: AccountLimits = section_field(
        AccountLimits(),
        partial(section_of, AccountLimits, aliases=LIMITS_ALIASES),
        "limits on the account's connections",
    )
    msg_trace: MsgTraceOptions = section_field(
        MsgTraceOptions(), read_msg_trace, "traces of messages: a subject, or dest and sampling"
    )

    @property
    def shares(self) -> bool:
        """Whether messages pass between this account and others, or get other subjects."""
        return bool(self.imports or self.exports or self.mappings)

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        if self.nkey and not is_public(self.nkey, Kind.ACCOUNT):
            raise OptionsError(
                f'Not a valid public nkey for an account: "{self.nkey}"', setting="nkey"
            )


def _read_account(given: object) -> AccountOptions:
    if not isinstance(given, Mapping | AccountOptions):
        raise OptionsError("Expected map entries for accounts")
    return section_of(AccountOptions, given, aliases=ALIASES)


def _read_account_names(given: object) -> NamedSections[AccountOptions]:
    names = read_items(given, _read_account_name, "names of accounts")
    for name in names:
        if names.count(name) > 1:
            raise OptionsError(f"Duplicate Account Entry: {name}")
    return NamedSections(dict.fromkeys(names, AccountOptions()))


def _read_account_name(given: object) -> str:
    if not isinstance(given, str):
        raise OptionsError("must be the name of an account")
    return given


def read_accounts(given: object) -> NamedSections[AccountOptions]:
    """Return the settings of accounts by name. Raises OptionsError."""
    if isinstance(given, list | tuple):
        return _read_account_names(given)
    return read_named(given, _read_account, "accounts")
