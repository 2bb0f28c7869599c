"""Scoped signing keys: users have the rights of the key's template, filled in for each user.

    {{name()}} {{subject()}} {{account-name()}} {{account-subject()}} {{tag(x)}} {{account-tag(x)}}

- A tag is the rest of a user's (or an account's) tag that begins with `x:`. A tag with several
  values makes several subjects, at most `EXPANSIONS_MAX` in one list.
- An allowed subject whose template has no value is left out. If nothing remains of a list, all is
  denied. A denied subject without a value refuses the user.

Source: nats-server's `processUserPermissionsTemplate` (server/auth.go).
"""

import itertools
import math
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from natsd.auth.jwt.claims import RulesClaim, UserPermissions
from natsd.core.routing import is_valid

EXPANSIONS_MAX: Final = 4096
EVERYTHING: Final = ">"
_TEMPLATE: Final = re.compile(r"\{\{([^}]+)\}\}")
_TAG: Final = re.compile(r"(tag|account-tag)\((.*)\)", re.IGNORECASE | re.DOTALL)


class BadTemplate(ValueError):
    """A template has no value for a user, or too many."""


class ScopedUser(msgspec.Struct, frozen=True, kw_only=True):
    """The values of templates for one user."""

    name: str
    subject: str
    tags: tuple[str, ...]
    account_name: str
    account_subject: str
    account_tags: tuple[str, ...]


def fill_in(template: UserPermissions, user: ScopedUser) -> UserPermissions:
    """Return the rights of a user. Raises BadTemplate."""
    sub_deny = _expand(template.sub.deny, user, must_be_valid=True)
    pub_deny = _expand(template.pub.deny, user, must_be_valid=True)
    return msgspec.structs.replace(
        template,
        sub=_with_rest_denied(template.sub.allow, sub_deny, user),
        pub=_with_rest_denied(template.pub.allow, pub_deny, user),
    )


def _with_rest_denied(
    allow: tuple[str, ...], deny: tuple[str, ...], user: ScopedUser
) -> RulesClaim:
    filled = _expand(allow, user, must_be_valid=False)
    if allow and not filled and EVERYTHING not in deny:
        deny = (*deny, EVERYTHING)
    return RulesClaim(filled, deny)


def _expand(subjects: tuple[str, ...], user: ScopedUser, *, must_be_valid: bool) -> tuple[str, ...]:
    """Return subjects with their templates filled in; without templates they stay as they are."""
    if not any(_TEMPLATE.search(subject) for subject in subjects):
        return subjects
    expanded: list[str] = []
    for subject in subjects:
        templates = list(dict.fromkeys(_TEMPLATE.findall(subject)))
        values = [_values(each.strip(), subject, user, must_be_valid) for each in templates]
        if math.prod(map(len, values)) > EXPANSIONS_MAX - len(expanded):
            raise BadTemplate(f"template expansion exceeds limit: {EXPANSIONS_MAX}")
        for chosen in itertools.product(*values):
            filled = _replace(subject, dict(zip(templates, chosen, strict=True)))
            if is_valid(filled):
                expanded.append(filled)
            elif must_be_valid:
                raise BadTemplate("generated invalid subject")
    return tuple(expanded)


def _replace(subject: str, values: Mapping[str, str]) -> str:
    return _TEMPLATE.sub(lambda found: values[found.group(1)], subject)


def _values(operation: str, subject: str, user: ScopedUser, must_be_valid: bool) -> list[str]:
    """Return the values of one template; a value with a space makes no subject."""
    simple = {
        "name()": user.name,
        "subject()": user.subject,
        "account-name()": user.account_name,
        "account-subject()": user.account_subject,
    }.get(operation.lower())
    if simple is not None:
        return [simple]
    tag = _TAG.fullmatch(operation)
    if tag is None:
        raise BadTemplate(f'template operation in "{subject}": "{operation}" is not defined')
    is_of_account = tag.group(1).lower() == "account-tag"
    prefix = f"{tag.group(2).lower()}:"
    tags = user.account_tags if is_of_account else user.tags
    found = [each.removeprefix(prefix) for each in tags if each.startswith(prefix)]
    if not found and must_be_valid:
        raise BadTemplate(f'generated invalid subject "{subject}": "{prefix[:-1]}" is not defined')
    return found or [" "]
