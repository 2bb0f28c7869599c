"""Checks over all users of a configuration.

- A user name or an nkey is unique among all accounts.
- A single user or a token in `authorization` excludes users in accounts.
- A setting that names a user, or an account whose users may log in, names one that exists.

What accounts share is checked in `natsd.accounts.import_rules`.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

from natsd.config.account_names import GLOBAL
from natsd.config.account_options import AccountOptions
from natsd.config.auth_options import UserOptions
from natsd.config.authorization import AuthorizationOptions
from natsd.config.settings import OptionsError, SettingPath, raise_together


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
    def operators(self) -> tuple[str, ...]:
        """JWTs of operators."""
        ...


def check_users(options: CheckedOptions) -> None:
    """Check the users of all accounts against each other. Raises OptionsError."""
    raise_together([OptionsError(text, path=path) for path, text in _mistakes(options)])


def all_users(options: CheckedOptions) -> Iterator[tuple[str, UserOptions]]:
    """Yield every user of the configuration with the name of its account."""
    for user in options.authorization.users:
        yield GLOBAL, user
    for name, account in options.accounts.items():
        for user in account.users:
            yield name, user


def _mistakes(options: CheckedOptions) -> Iterator[tuple[SettingPath, str]]:
    """Yield the paths of entries and what is wrong with them."""
    login = options.authorization
    seen: set[str] = set()
    yield from _duplicates(login.users, ("authorization",), seen)
    for name, account in options.accounts.items():
        yield from _duplicates(account.users, ("accounts", name), seen)
        if account.users and login.user:
            yield ("accounts", name, "users"), "Can not have a single user/pass and accounts"
        elif account.users and login.token:
            yield ("accounts", name, "users"), "Can not have a token and accounts"
    if options.no_auth_user and not options.operators:
        yield from _mistakes_of_no_auth_user(options.no_auth_user, seen)
    callout = login.auth_callout
    for name in callout.allowed_accounts if callout else ():
        if name not in options.accounts:
            yield (
                ("authorization", "auth_callout", "allowed_accounts"),
                f'auth_callout allowed account "{name}" not found in configured accounts',
            )


def _duplicates(
    users: tuple[UserOptions, ...], section: SettingPath, seen: set[str]
) -> Iterator[tuple[SettingPath, str]]:
    """Yield users of a section that were seen before, and note all of them as seen."""
    for index, user in enumerate(users):
        name = user.login
        if name in seen:
            kind = "nkey" if user.nkey else "user"
            yield (*section, "users", index), f'Duplicate {kind} "{name}" detected'
        seen.add(name)


def _mistakes_of_no_auth_user(name: str, logins: set[str]) -> Iterator[tuple[SettingPath, str]]:
    if not logins:
        yield (
            ("no_auth_user",),
            f'no_auth_user: "{name}" present, but users/nkeys are not defined',
        )
    elif name not in logins:
        yield (
            ("no_auth_user",),
            f'no_auth_user: "{name}" not present as user or nkey in '
            "authorization block or account configuration",
        )
