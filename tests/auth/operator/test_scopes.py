"""Scoped signing keys and their templates (nats-server: processUserPermissionsTemplate)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.auth.jwt.claims import RulesClaim, UserPermissions
from natsd.auth.operator.scopes import EXPANSIONS_MAX, BadTemplate, ScopedUser, fill_in

USER = ScopedUser(
    name="bob",
    subject="UBOB",
    tags=("team:a", "team:b", "region:eu"),
    account_name="acme",
    account_subject="AACME",
    account_tags=("env:prod",),
)


def publish(*allow: str, deny: tuple[str, ...] = ()) -> RulesClaim:
    return fill_in(UserPermissions(pub=RulesClaim(allow, deny)), USER).pub


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("plain.>", ("plain.>",)),
        ("u.{{name()}}", ("u.bob",)),
        ("u.{{ NAME() }}.{{subject()}}", ("u.bob.UBOB",)),
        ("{{account-name()}}.{{account-subject()}}", ("acme.AACME",)),
        ("t.{{tag(team)}}", ("t.a", "t.b")),
        ("t.{{tag(TEAM)}}.{{tag(region)}}", ("t.a.eu", "t.b.eu")),
        ("e.{{account-tag(env)}}", ("e.prod",)),
        ("{{tag(team)}}.{{tag(team)}}", ("a.a", "b.b")),
    ],
)
def test_templates(template: str, expected: tuple[str, ...]) -> None:
    assert publish(template).allow == expected


def test_an_allowed_subject_without_value_is_left_out() -> None:
    assert publish("a", "t.{{tag(none)}}") == RulesClaim(("a",))


def test_if_nothing_remains_everything_is_denied() -> None:
    assert publish("t.{{tag(none)}}") == RulesClaim((), (">",))


@pytest.mark.parametrize("deny", ["t.{{tag(none)}}", "t..{{name()}}", "{{nothing()}}"])
def test_a_denied_subject_without_value_refuses_the_user(deny: str) -> None:
    with pytest.raises(BadTemplate):
        publish(deny=(deny,))


def test_an_unknown_operation_refuses_the_user() -> None:
    with pytest.raises(BadTemplate, match='"nothing\\(\\)" is not defined'):
        publish("{{nothing()}}")


def test_expansions_are_bounded() -> None:
    tags = tuple(f"x:{number}" for number in range(64))
    user = ScopedUser(
        name="", subject="", tags=tags, account_name="", account_subject="", account_tags=()
    )
    both = UserPermissions(pub=RulesClaim(("{{tag(x)}}.{{tag( x)}}",)))
    with pytest.raises(BadTemplate):  # the tag " x" has no value, so it is no subject; a third:
        fill_in(UserPermissions(pub=RulesClaim(("{{tag(x)}}.{{tag(X)}}.{{ tag(x) }}",))), user)
    assert fill_in(both, user).pub == RulesClaim((), (">",))
    two = UserPermissions(pub=RulesClaim(("{{tag(x)}}.{{tag(X)}}",)))
    assert len(fill_in(two, user).pub.allow) == EXPANSIONS_MAX
    more = UserPermissions(pub=RulesClaim(("{{tag(x)}}.{{tag(X)}}", "a")))
    with pytest.raises(BadTemplate, match="exceeds limit: 4096"):
        fill_in(more, user)


@given(st.text(max_size=40))
def test_any_template_is_filled_in_or_refused(text: str) -> None:
    try:
        rules = publish(text)
    except BadTemplate:
        return
    assert rules.allow or rules.deny
