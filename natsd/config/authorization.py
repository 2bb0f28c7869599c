"""The settings of `authorization {}`: who may log in to the account of all clients.

A single user with a password, or a token, or a list of users. The users and permissions are classes
of `natsd.config.auth_options`, which is imported if one is given.

Source: nats-server's `parseAuthorization` (server/opts.go).
"""
# ruff: noqa: RUF009  each call declares a setting; nothing is shared between instances

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from natsd.config.sections import section_of
from natsd.config.settings import (
    OptionsError,
    Settings,
    duration,
    flag,
    locate,
    optional,
    secret,
    section_field,
    text,
)

if TYPE_CHECKING:
    from natsd.config.auth_options import AuthCalloutOptions, PermissionsOptions, UserOptions

ALIASES: Final = {
    "username": "user",
    "pass": "password",
    "default_permission": "default_permissions",
    "permissions": "default_permissions",
    "auth_hook": "auth_callout",
}
TIMEOUT_DEFAULT: Final = timedelta(seconds=2)

AFTER_TLS: Final = timedelta(seconds=1)
"""Time to log in after that of a TLS handshake, by default."""


def _read_users(given: object) -> "tuple[UserOptions, ...]":
    from natsd.config.auth_options import read_users

    return read_users(given)


def _read_permissions(given: object) -> "PermissionsOptions":
    from natsd.config.auth_options import read_permissions

    return read_permissions(given)


def _read_callout(given: object) -> "AuthCalloutOptions":
    from natsd.config.auth_options import read_auth_callout

    return read_auth_callout(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationOptions(Settings):
    """How clients log in, and how long that may take.

    Flags may give a token or a single user besides what the file gives. Then a single user counts
    only without a token, and only for names that are not in `users`.
    """

    user: str = text("", "user name that clients must present")
    password: str = secret("password that goes with the user name, in plain or as bcrypt hash")
    token: str = secret("token that clients must present, in plain or as bcrypt hash")
    timeout: timedelta = duration(TIMEOUT_DEFAULT, "how long a client may take to log in")
    users: "tuple[UserOptions, ...]" = section_field((), _read_users, "users that may log in")
    default_permissions: "PermissionsOptions | None" = optional(
        _read_permissions, "permissions of users that have none of their own"
    )
    auth_callout: "AuthCalloutOptions | None" = optional(
        _read_callout, "a service that decides about each login"
    )
    proxy_required: bool = flag(False, "accept only connections through a trusted proxy")

    @property
    def is_required(self) -> bool:
        """Whether this section makes clients log in."""
        return bool(
            self.user or self.password or self.token or self.users or self.auth_callout is not None
        )


def read_authorization(given: object) -> AuthorizationOptions:
    """Return the section from a mapping, which has one kind of login. Raises OptionsError."""
    section = section_of(AuthorizationOptions, given, aliases=ALIASES)
    if isinstance(given, Mapping):
        try:
            _check_one_kind(section, has_users=any(str(name).lower() == "users" for name in given))
        except OptionsError as error:
            locate(error, given, ALIASES)
            raise
    return section


def _check_one_kind(section: AuthorizationOptions, *, has_users: bool) -> None:
    if (section.user or section.password) and section.token:
        raise OptionsError("Cannot have a user/pass and token", setting="token")
    if section.user and has_users:
        raise OptionsError("Can not have a single user/pass and a users array", setting="users")
    if section.token and has_users:
        raise OptionsError("Can not have a token and a users array", setting="users")
