"""The settings of users: credentials, permissions, and the auth callout.

- A user has a name and a password, or an nkey; a password may be a bcrypt hash.
- A rule for subscriptions is a subject, or a subject and a queue: `"orders.> workers"`.
- An omitted `allow` allows everything that `deny` does not deny. With `allow_responses` but without
  `publish.allow`, a user may publish only responses.

Source: nats-server's `parseUsers`, `parseUserPermissions` and `parseAuthCallout` (server/opts.go).
"""
# ruff: noqa: RUF009  each call declares a setting; nothing is shared between instances

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from natsd.config.account_names import GLOBAL
from natsd.config.public_keys import Kind, is_public
from natsd.config.sections import section_of
from natsd.config.settings import (
    OptionsError,
    Settings,
    flag,
    in_words,
    optional,
    read_items,
    read_texts,
    secret,
    section_field,
    text,
    texts,
)
from natsd.core.durations import DurationError, parse_duration
from natsd.core.routing import is_valid

RESPONSES_DEFAULT: Final = 1
RESPONSE_EXPIRES_DEFAULT: Final = timedelta(minutes=2)
CONNECTION_TYPES: Final = (
    "STANDARD",
    "WEBSOCKET",
    "LEAFNODE",
    "LEAFNODE_WS",
    "MQTT",
    "MQTT_WS",
    "IN_PROCESS",
)


def _aliases(of: dict[str, str]) -> dict[str, str]:
    return {alias: name for name, aliases in of.items() for alias in aliases.split()}


PERMISSIONS_ALIASES: Final = _aliases(
    {
        "publish": "pub import",
        "subscribe": "sub export",
        "allow_responses": "publish_allow_responses",
    }
)
RESPONSES_ALIASES: Final = _aliases(
    {"max_msgs": "max max_messages max_responses", "expires": "expiration ttl"}
)
USER_ALIASES: Final = _aliases(
    {
        "user": "username",
        "password": "pass",
        "permissions": "permission authorization",
        "allowed_connection_types": "connection_types clients",
    }
)
CALLOUT_ALIASES: Final = _aliases({"account": "acc", "auth_users": "users", "xkey": "key"})


def _check_subject(rule: str) -> None:
    if not is_valid(rule):
        raise OptionsError(f'subject "{rule}" is not a valid subject')


def _check_with_queue(rule: str) -> None:
    if is_valid(rule):
        return
    subject, *queue = rule.split()
    if len(queue) != 1 or not is_valid(subject):
        raise OptionsError(f'subject "{rule}" is not a valid subject')
    if not is_valid(queue[0]):
        raise OptionsError(f'queue "{queue[0]}" is not a valid queue')


def _read_allow(given: object) -> tuple[str, ...] | None:
    if given is None or isinstance(given, tuple):
        return given
    return read_texts(given) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectRules(Settings):
    """Subjects that a user may publish or subscribe to, and subjects that it may not."""

    allow: tuple[str, ...] | None = section_field(
        None, _read_allow, "what is allowed; not given: everything"
    )
    deny: tuple[str, ...] = texts("what is denied, even if it is allowed")


def _read_subject_rules(given: object, check: Callable[[str], None]) -> SubjectRules:
    if isinstance(given, str | list) or not isinstance(given, Mapping | SubjectRules):
        given = {"allow": given}
    rules = section_of(SubjectRules, given)
    for allowed in rules.allow or ():
        check(allowed)
    for denied in rules.deny:
        check(denied)
    return rules


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesOptions:
    """The permission to publish to the reply subjects of received requests."""

    max_msgs: int = RESPONSES_DEFAULT
    """Responses per request; below 0: no limit."""
    expires: timedelta = RESPONSE_EXPIRES_DEFAULT
    """How long after the request responses are allowed; below 0: no limit."""


def read_responses(given: object) -> ResponsesOptions | None:
    """Return the permission from a boolean or a mapping; None: not allowed."""
    if given is None or isinstance(given, ResponsesOptions):
        return given
    if isinstance(given, bool):
        return ResponsesOptions() if given else None
    if not isinstance(given, Mapping):
        raise OptionsError("expected a boolean or a map")
    settings: dict[str, Any] = {}
    for spelling, value in given.items():
        name = str(spelling).lower()
        name = RESPONSES_ALIASES.get(name, name)
        try:
            settings.update(_response_setting(name, value))
        except OptionsError as error:
            if getattr(spelling, "is_variable", False):
                continue
            raise error.at(spelling) from None
    return ResponsesOptions(**settings)


def _response_setting(name: str, value: object) -> dict[str, Any]:
    if name == "max_msgs":
        if isinstance(value, bool) or not isinstance(value, int):
            raise OptionsError(f"{name} must be a whole number, not {in_words(value)}")
        return {name: value} if value else {}
    if name == "expires":
        if not isinstance(value, str | timedelta):
            raise OptionsError(f"{name} must be a duration such as '2m', not {in_words(value)}")
        try:
            expires = parse_duration(value)
        except DurationError as error:
            raise OptionsError(f"error parsing expires: {error}") from None
        return {name: expires} if expires else {}
    from natsd.config.settings import unknown_field

    raise unknown_field(name, ["max_msgs", "expires"])


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionsOptions(Settings):
    """What a user may publish and subscribe to."""

    publish: SubjectRules = section_field(
        SubjectRules(), partial(_read_subject_rules, check=_check_subject), "rules for publishing"
    )
    subscribe: SubjectRules = section_field(
        SubjectRules(),
        partial(_read_subject_rules, check=_check_with_queue),
        "rules for subscribing; a rule may end in a queue",
    )
    allow_responses: ResponsesOptions | None = optional(
        read_responses, "permission to publish responses to requests"
    )

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        if self.allow_responses is not None and self.publish.allow is None:
            object.__setattr__(self, "publish", replace(self.publish, allow=()))


def read_permissions(given: object) -> PermissionsOptions:
    """Return permissions from a mapping. Raises OptionsError."""
    return section_of(PermissionsOptions, given, aliases=PERMISSIONS_ALIASES)


def read_connection_types(given: object) -> tuple[str, ...]:
    """Return kinds of connections in upper case. Raises OptionsError."""
    types = tuple(each.upper() for each in read_texts(given))
    unknown = [each for each in types if each not in CONNECTION_TYPES]
    if unknown:
        raise OptionsError(
            f"invalid connection types {', '.join(unknown)}: there are "
            f"{', '.join(CONNECTION_TYPES)}"
        )
    return types


@dataclass(frozen=True, slots=True, kw_only=True)
class UserOptions(Settings):
    """A user: a name and a password, or an nkey."""

    user: str = text("", "user name")
    password: str = secret("password, in plain or as bcrypt hash")
    nkey: str = text("", "public nkey, in place of a name and a password")
    permissions: PermissionsOptions | None = optional(
        read_permissions, "what the user may do; not given: the default permissions"
    )
    allowed_connection_types: tuple[str, ...] = section_field(
        (), read_connection_types, "kinds of connections that the user may use; none: all"
    )
    proxy_required: bool = flag(False, "accept the user only through a trusted proxy")

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        if not self.nkey and not self.user:
            raise OptionsError("User entry requires a user", setting="password")
        if self.nkey and not is_public(self.nkey, Kind.USER):
            raise OptionsError("Not a valid public nkey for a user", setting="nkey")
        if self.nkey and (self.user or self.password):
            raise OptionsError("Nkey users do not take usernames or passwords", setting="nkey")

    @property
    def login(self) -> str:
        """The name or nkey, which is unique among all users of a server."""
        return self.nkey or self.user


def read_users(given: object) -> tuple[UserOptions, ...]:
    """Return users from a list of mappings. Raises OptionsError."""
    return read_items(given, partial(section_of, UserOptions, aliases=USER_ALIASES), "users")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthCalloutOptions(Settings):
    """A service that decides about each login."""

    issuer: str = text("", "public nkey of the account that signs the answers")
    account: str = text(GLOBAL, "account in which the service listens")
    auth_users: tuple[str, ...] = texts("users that log in without the service")
    xkey: str = text("", "public curve key that requests are encrypted for")
    allowed_accounts: tuple[str, ...] = texts("accounts that the service may assign; none: all")

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        if not self.account:
            object.__setattr__(self, "account", GLOBAL)
        if not self.issuer:
            raise OptionsError("Authorization callouts require an issuer to be specified")
        if not is_public(self.issuer, Kind.ACCOUNT):
            raise OptionsError(
                f'Expected callout user to be a valid public account nkey, got "{self.issuer}"',
                setting="issuer",
            )
        if not self.auth_users:
            raise OptionsError("Authorization callouts require authorized users to be specified")
        if self.xkey and not is_public(self.xkey, Kind.CURVE):
            raise OptionsError(
                f'Expected callout xkey to be a valid public xkey, got "{self.xkey}"',
                setting="xkey",
            )


def read_auth_callout(given: object) -> AuthCalloutOptions:
    """Return the settings of the auth callout from a mapping. Raises OptionsError."""
    return section_of(AuthCalloutOptions, given, aliases=CALLOUT_ALIASES)
