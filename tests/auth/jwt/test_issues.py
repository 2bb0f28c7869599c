"""What is wrong with claims whose signature is right (nats-io/jwt v2: Validate)."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.auth.jwt.account import AccountClaims
from natsd.auth.jwt.account_checks import account_issues
from natsd.auth.jwt.authorization import AuthorizationResponseClaims
from natsd.auth.jwt.decode import decode_as
from natsd.auth.jwt.operator import OperatorClaims
from natsd.auth.jwt.subjects import is_contained, overlaps
from natsd.auth.jwt.user import UserClaims
from natsd.config.public_keys import Kind
from natsd.testing.jwts import ISSUED_AT, Operator, key, token

OPERATOR = Operator()
ACCOUNT = OPERATOR.account("A")
OTHER = key(Kind.ACCOUNT, "B")
NOW_S = ISSUED_AT + 5.5


def user_errors(**body: Any) -> list[str]:
    return decode_as(UserClaims, ACCOUNT.user(**body).jwt).issues(NOW_S).all


def account_errors(**body: Any) -> list[str]:
    claims = decode_as(AccountClaims, OPERATOR.account("A", **body).jwt)
    return account_issues(claims, NOW_S).all


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({}, []),
        ({"exp": ISSUED_AT + 5}, []),
        ({"exp": ISSUED_AT + 4}, ["claim is expired"]),
        ({"nbf": ISSUED_AT + 5}, []),
        ({"nbf": ISSUED_AT + 6}, ["claim is not yet valid"]),
    ],
)
def test_times(times: dict[str, int], expected: list[str]) -> None:
    issues = decode_as(UserClaims, ACCOUNT.user(**times).jwt).issues(NOW_S)
    assert issues.all == issues.times == expected
    assert issues.blocks(by_time=True) is bool(expected)
    assert not issues.blocks(by_time=False)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"pub": {"allow": ["a b"]}}, 'Permission Subject "a b" is not allowed to contain queue'),
        ({"sub": {"allow": ["a b c"]}}, 'Permission Subject "a b c" contains too many spaces'),
        ({"sub": {"deny": ["a..b"]}}, 'subject "a..b" cannot contain consecutive `.`'),
        ({"pub": {"deny": [""]}}, "subject cannot be empty"),
        ({"src": ["10.0.0.1"]}, 'invalid cidr "10.0.0.1" in user src limits'),
        ({"times": [{"start": "1:02:03"}]}, "time ranges start must contain an end"),
        (
            {"times": [{"start": "25:00:00", "end": "1:00:00"}]},
            'start in time range is invalid "25:00:00"',
        ),
        ({"times_location": "Mars/Base"}, "could not parse iana time zone by name"),
        ({"times_location": "../../etc/passwd"}, "could not parse iana time zone by name"),
        ({"issuer_account": "U"}, "account_id is not an account public key"),
    ],
)
def test_users(body: dict[str, Any], text: str) -> None:
    assert user_errors() == []
    assert text in user_errors(**body)[0]


def stream(subject: str, **more: Any) -> dict[str, Any]:
    return {"subject": subject, "type": "stream", **more}


def service(subject: str, **more: Any) -> dict[str, Any]:
    return {"subject": subject, "type": "service", **more}


B = {"account": OTHER.public}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"exports": [{"subject": "a"}]}, 'invalid export type: "unknown"'),
        (
            {"exports": [stream("a", response_type="Stream")]},
            'invalid response type for stream: "Stream"',
        ),
        ({"exports": [service("a", response_type="x")]}, 'invalid response type for service: "x"'),
        ({"exports": [stream("a", allow_trace=True)]}, "AllowTrace only valid for service export"),
        (
            {"exports": [stream("a", service_latency={"results": "l"})]},
            "latency tracking only permitted",
        ),
        (
            {"exports": [service("a", service_latency={"results": "l.*"})]},
            "results subject can not contain",
        ),
        (
            {"exports": [service("a", service_latency={"results": "l", "sampling": 101})]},
            "between 1-100",
        ),
        (
            {"exports": [service("a", response_threshold=-1)]},
            "negative response threshold is invalid",
        ),
        (
            {"exports": [stream("a", response_threshold=1)]},
            "response threshold only valid for services",
        ),
        (
            {"exports": [stream("a", account_token_position=1)]},
            "can only be used with wildcard subjects: a",
        ),
        (
            {"exports": [stream("a.*", account_token_position=3)]},
            "3 exceeds length of subject 'a.*'",
        ),
        (
            {"exports": [stream("a.*", account_token_position=1)]},
            "matches 'a' but must match a * in: a.*",
        ),
        (
            {"exports": [stream("a.*"), stream("a.b")]},
            'stream export subject "a.*" already exports "a.b"',
        ),
        (
            {"exports": [service("a", info_url="x")]},
            "error parsing info url: no hostname or scheme",
        ),
        ({"exports": [service("a", description="x" * 9000)]}, "Description is too long"),
        ({"imports": [{"subject": "a", **B}]}, 'invalid import type: "unknown"'),
        ({"imports": [stream("a")]}, "account to import from is not specified"),
        ({"imports": [stream("a", share=True, **B)]}, "is only valid for services"),
        (
            {"imports": [service("a", allow_trace=True, **B)]},
            "AllowTrace only valid for stream import",
        ),
        ({"imports": [stream("a", to="b", **B)]}, "the field to has been deprecated"),
        (
            {"imports": [stream("a.*", local_subject="b", **B)]},
            "does not contain enough * or reference",
        ),
        ({"imports": [stream("a.*", local_subject="b.$2", **B)]}, "Reference $2 in"),
        ({"imports": [stream("a.>", local_subject="b", **B)]}, "need to end or not end in >"),
        (
            {"imports": [stream("a", token="x", **B)]},
            'import "a" contains an invalid activation token',
        ),
        (
            {"imports": [service("a.>", **B), service("a.b", **B)]},
            'overlapping subject namespace for "a.b"',
        ),
        ({"mappings": {"a": [{"subject": "b", "weight": 60}] * 2}}, 'Mapping "a" exceeds 100%'),
        (
            {"mappings": {"a": [{"subject": "b", "weight": 101}]}},
            "has a weight 101 that exceeds 100",
        ),
        (
            {"mappings": {"a": [{"subject": "b", "weight": 60, "cluster": "c"}] * 2}},
            'in cluster "c" exceeds',
        ),
        (
            {"authorization": {"allowed_accounts": ["*"]}},
            "cannot have accounts without users specified",
        ),
        ({"authorization": {"auth_users": ["x"]}}, 'AuthUser "x" is not a valid user public key'),
        ({"trace": {"dest": "a.*"}}, 'subject "a.*" is not a valid publish subject'),
        ({"trace": {"dest": "a", "sampling": 101}}, "'101' is not valid"),
        ({"signing_keys": ["x"]}, '"x" is not a valid account signing key'),
        ({"cluster_traffic": "x"}, 'unknown cluster traffic option: "x"'),
        ({"limits": {"imports": 0}, "imports": [stream("a", **B)]}, "more imports than allowed"),
        ({"limits": {"exports": 0}, "exports": [stream("a")]}, "more exports than allowed"),
        (
            {"limits": {"exports": 1, "wildcards": False}, "exports": [stream("a.*")]},
            "wildcard exports that are not allowed by the operator",
        ),
        ({"limits": {"tiered_limits": {"": {}}}}, "can not contain a blank"),
    ],
)
def test_accounts(body: dict[str, Any], text: str) -> None:
    assert account_errors() == []
    assert text in account_errors(**body)[0]


def activation(subject: str, *, kind: str = "stream", to: str = ACCOUNT.name) -> str:
    return token("activation", to, OTHER, {"subject": subject, "kind": kind})


def test_an_activation_fits_its_import() -> None:
    assert account_errors(imports=[stream("a.b", token=activation("a.>"), **B)]) == []
    for bad, text in (
        (activation("b"), 'activation token import subject "b"'),
        (activation("a.b", kind="service"), "mismatch between token import type service"),
        (activation("a.b", to=OTHER.public), "doesn't match account it is being included in"),
    ):
        assert text in account_errors(imports=[stream("a.b", token=bad, **B)])[0]
    stranger = token("activation", ACCOUNT.name, ACCOUNT.key, {"subject": "a.b", "kind": "stream"})
    assert (
        "doesn't match account for import"
        in account_errors(imports=[stream("a.b", token=stranger, **B)])[0]
    )


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"signing_keys": ["x"]}, "x is not an operator public key"),
        ({"system_account": "x"}, "x is not an account public key"),
        ({"assert_server_version": "2.x"}, "assert server version error"),
        ({"account_server_url": "host"}, 'account server url "host" requires a protocol'),
        ({"operator_service_urls": ["http://h"]}, "protocol not supported"),
    ],
)
def test_operators(body: dict[str, Any], text: str) -> None:
    assert decode_as(OperatorClaims, OPERATOR.jwt()).issues(NOW_S).all == []
    assert text in decode_as(OperatorClaims, OPERATOR.jwt(**body)).issues(NOW_S).all[0]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"jwt": "x"}, None),
        ({}, "Error or Jwt is required"),
        ({"jwt": "x", "error": "y"}, "Only Error or Jwt can be set"),
        ({"jwt": "x", "issuer_account": "y"}, "issuer_account is not an account public key"),
    ],
)
def test_authorization_responses(body: dict[str, Any], text: str | None) -> None:
    user, server = key(Kind.USER, "u").public, key(Kind.SERVER, "n").public
    made = token("authorization_response", user, ACCOUNT.key, body, aud=server)
    issues = decode_as(AuthorizationResponseClaims, made).issues(NOW_S).all
    assert issues == ([] if text is None else [text])


TOKENS = st.sampled_from(["a", "b", "*"])
SUBJECTS = st.builds(
    lambda tokens, end: ".".join([*tokens, *end]),
    st.lists(TOKENS, min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
)


@given(st.lists(SUBJECTS, max_size=6))
def test_overlaps_are_found_without_comparing_all_pairs(subjects: list[str]) -> None:
    expected = [
        any(is_contained(subject, other) for j, other in enumerate(subjects) if i != j)
        for i, subject in enumerate(subjects)
    ]
    found = overlaps(subjects)
    assert [contained for _, contained in found] == [
        subject for subject, is_one in zip(subjects, expected, strict=True) if is_one
    ]
    assert all(is_contained(contained, container) for container, contained in found)


def test_ten_thousand_exports_are_checked_in_time() -> None:
    subjects = [f"a.{i % 97}.*.{i}" for i in range(10_000)]
    began = time.monotonic()
    assert overlaps(subjects) == []
    assert time.monotonic() - began < 5
