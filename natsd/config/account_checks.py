"""Checks over all users and accounts of a configuration.

- A user name or an nkey is unique among all accounts.
- What names an account or a user names one that exists.

Whether an import fits an export is checked where accounts are built. With operators the accounts
come from JWTs: then only `authorization` is checked.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

from natsd.config.account_names import GLOBAL, SYSTEM
from natsd.config.account_options import AccountOptions
from natsd.config.auth_options import UserOptions
from natsd.config.authorization import AuthorizationOptions
from natsd.config.settings import OptionsError, raise_together


class CheckedOptions(Protocol):
    """The settings that are checked against each other."""

    @property
    def authorization(self) -> AuthorizationOptions:
        """How clients log in."""
        ...

    @property
    def accounts(self) -> Mapping[str, AccountOptions]:
        """Settings of accounts by name."""
        ...

    @property
    def no_auth_user(self) -> str:
        """User that clients without credentials are."""
        ...

    @property
    def system_account(self) -> str:
        """Account of the server's own messages."""
        ...

    @property
    def operators(self) -> tuple[str, ...]:
        """JWTs of operators."""
        ...


def check_accounts(options: CheckedOptions) -> None:
    """Check users and accounts against each other. Raises OptionsError."""
    raise_together([OptionsError(text, setting=setting) for setting, text in _mistakes(options)])


def all_users(options: CheckedOptions) -> Iterator[tuple[str, UserOptions]]:
    """Yield every user of the configuration with the name of its account."""
    for user in options.authorization.users:
        yield GLOBAL, user
    for name, account in options.accounts.items():
        for user in account.users:
            yield name, user


def _mistakes(options: CheckedOptions) -> Iterator[tuple[str, str]]:
    """Yield settings and what is wrong with them."""
    login = options.authorization
    seen: set[str] = set()
    for _, user in all_users(options):
        if user.login in seen:
            kind = "nkey" if user.nkey else "user"
            yield "accounts", f'Duplicate {kind} "{user.login}" detected'
        seen.add(user.login)
    if any(account.users for account in options.accounts.values()):
        if login.user:
            yield "accounts", "Can not have a single user/pass and accounts"
        if login.token:
            yield "accounts", "Can not have a token and accounts"
    yield from _mistakes_of_names(options, seen)


def _mistakes_of_names(options: CheckedOptions, logins: set[str]) -> Iterator[tuple[str, str]]:
    known = {*options.accounts, GLOBAL, SYSTEM, options.system_account}
    for name, account in options.accounts.items():
        for export in account.exports:
            for other in export.accounts or ():
                if other not in known:
                    yield "accounts", f'{name}: "{other}" account not defined for export'
        for each in account.imports:
            if each.account not in known:
                yield "accounts", f'{name}: "{each.account}" account not defined for import'
    if options.no_auth_user and not options.operators:
        if not logins:
            yield (
                "no_auth_user",
                f'no_auth_user: "{options.no_auth_user}" present, but users/nkeys are not defined',
            )
        elif options.no_auth_user not in logins:
            yield (
                "no_auth_user",
                f'no_auth_user: "{options.no_auth_user}" not present as user or nkey in '
                "authorization block or account configuration",
            )
    callout = options.authorization.auth_callout
    for name in callout.allowed_accounts if callout else ():
        if name not in options.accounts:
            yield (
                "authorization",
                f'auth_callout allowed account "{name}" not found in configured accounts',
            )
