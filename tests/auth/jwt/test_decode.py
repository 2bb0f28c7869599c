"""Decoding of JWTs (nats-io/jwt v2): what is signed as it should be has typed claims."""

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natsd.auth.jwt.account import AccountClaims, ScopeClaim, StorageClaim
from natsd.auth.jwt.activation import ActivationClaims
from natsd.auth.jwt.claims import is_revoked
from natsd.auth.jwt.decode import GenericClaims, decode, decode_as, decode_generic
from natsd.auth.jwt.operator import OperatorClaims
from natsd.auth.jwt.token import BadToken, encode, undecorated
from natsd.auth.jwt.user import UserClaims
from natsd.auth.nkeys import KeyPair
from natsd.config.public_keys import Kind
from natsd.testing.jwts import ISSUED_AT, Operator, key, token

OPERATOR = Operator()
ACCOUNT = OPERATOR.account("A")
USER = key(Kind.USER, "derek").public


def part(value: object) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


def old_token(
    kind: str, subject: str, issuer: KeyPair, body: dict[str, Any], **claims: object
) -> str:
    """Return a JWT of version 1, whose signature does not cover the header."""
    fields = {"iat": ISSUED_AT, "iss": issuer.public, "sub": subject, "type": kind}
    payload = part({**fields, **claims, "nats": body})
    signature = base64.urlsafe_b64encode(issuer.sign(payload.encode())).decode().rstrip("=")
    return f"{part({'typ': 'jwt', 'alg': 'ed25519'})}.{payload}.{signature}"


def test_a_user() -> None:
    text = ACCOUNT.user(pub={"allow": ["a.>"]}, resp={"max": 5, "ttl": 9}, tags=["x:1"]).jwt
    claims = decode_as(UserClaims, text)
    assert (claims.name, claims.subject, claims.issuer) == ("derek", USER, ACCOUNT.name)
    assert claims.issued_at == ISSUED_AT
    assert claims.body.pub.allow == ("a.>",)
    assert claims.body.resp is not None
    assert claims.body.resp.max == 5
    assert claims.body.tags == ("x:1",)
    assert claims.account == ACCOUNT.name


def test_an_account_with_scoped_and_plain_signing_keys() -> None:
    plain, scoped = key(Kind.ACCOUNT, "plain").public, key(Kind.ACCOUNT, "scoped").public
    scope = {"kind": "user_scope", "key": scoped, "role": "r", "template": {"pub": {}}}
    text = OPERATOR.account("A", signing_keys=[plain, scope]).jwt
    keys = decode_as(AccountClaims, text).signing_keys
    assert keys[plain] is None
    assert isinstance(template := keys[scoped], ScopeClaim)
    assert template.template.subs == -1


def test_tiers_take_the_place_of_other_storage_limits() -> None:
    limits = {"disk_storage": 5, "tiered_limits": {"R1": {"disk_storage": 7, "streams": -1}}}
    found = decode_as(AccountClaims, OPERATOR.account("A", limits=limits).jwt).body.limits
    assert found.disk_storage == 0
    assert found.tiered_limits == {"R1": StorageClaim(disk_storage=7, streams=-1)}
    assert found.has_jetstream


def test_an_operator() -> None:
    claims = decode_as(OperatorClaims, OPERATOR.jwt(strict_signing_key_usage=True))
    assert claims.body.strict_signing_key_usage
    assert claims.body.signing_keys == (OPERATOR.signing_key.public,)


def test_version_1_of_a_user() -> None:
    account = key(Kind.ACCOUNT, "A")
    body = {"src": "10.0.0.0/8, 192.168.0.0/16", "bearer_token": True, "max": 9}
    text = old_token("user", USER, account, body, tags=["t"], issuer_account=ACCOUNT.name)
    claims = decode_as(UserClaims, text)
    assert claims.body.src == ("10.0.0.0/8", "192.168.0.0/16")
    assert claims.body.bearer_token
    assert (claims.body.subs, claims.body.payload) == (-1, -1)
    assert claims.body.tags == ("t",)
    assert claims.account == ACCOUNT.name


def test_version_1_of_account_and_operator() -> None:
    limits = {"conn": 7, "disk_storage": 9, "wildcards": True}
    text = old_token("account", ACCOUNT.name, OPERATOR.key, {"limits": limits})
    found = decode_as(AccountClaims, text).body.limits
    assert (found.conn, found.disk_storage, found.wildcards) == (7, 0, True)
    text = old_token("operator", OPERATOR.key.public, OPERATOR.key, {"system_account": "A"})
    assert decode_as(OperatorClaims, text).body.system_account == "A"


def test_a_generic_token_keeps_its_data() -> None:
    text = encode(
        {"iss": OPERATOR.key.public, "sub": "x", "nats": {"accounts": ["A"]}}, OPERATOR.key
    )
    assert decode_generic(text).data == {"accounts": ["A"]}
    assert decode_generic(ACCOUNT.jwt).subject == ACCOUNT.name
    old = old_token("thing", "x", OPERATOR.key, {"a": 1})
    assert decode_generic(old).data == {"a": 1}
    assert isinstance(decode(old), GenericClaims)


def test_names_match_in_any_case_and_null_is_nothing() -> None:
    """As in Go: a denial must not vanish because of its spelling."""
    body = {"Pub": {"DENY": ["a"]}, "sub": None, "Type": "user", "VERSION": 2}
    text = encode({"iss": ACCOUNT.name, "SUB": USER, "exp": None, "nats": body}, ACCOUNT.key)
    claims = decode_as(UserClaims, text)
    assert claims.body.pub.deny == ("a",)
    assert claims.subject == USER


def test_names_that_are_data_keep_their_case() -> None:
    mappings = {"Sub.Name": [{"subject": "B"}]}
    revocations = {"UABC": 5}
    text = OPERATOR.account("A", mappings=mappings, revocations=revocations).jwt
    body = decode_as(AccountClaims, text).body
    assert list(body.mappings) == ["Sub.Name"]
    assert body.revocations == {"UABC": 5}


@pytest.mark.parametrize(
    ("kind", "issuer", "text"),
    [
        ("user", OPERATOR.key, "unable to validate expected prefixes - [account]"),
        (
            "account",
            key(Kind.USER, "x"),
            "unable to validate expected prefixes - [account operator]",
        ),
        ("operator", key(Kind.ACCOUNT, "A"), "unable to validate expected prefixes - [operator]"),
        ("authorization_request", key(Kind.USER, "x"), "expected prefixes - [server]"),
        ("cluster", OPERATOR.key, "ClusterClaims are not supported"),
        ("server", OPERATOR.key, "ServerClaims are not supported"),
    ],
)
def test_the_wrong_kind_of_key_may_not_sign(kind: str, issuer: KeyPair, text: str) -> None:
    with pytest.raises(BadToken) as raised:
        decode(token(kind, USER, issuer, {}))
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"type": "user", "version": 3}, "JWT was generated by a newer version "),
        ({"type": "user"}, "library supports version 2 or less - received 0"),
        ({"type": 5, "version": 2}, "the kind of the claims"),
        ({"type": "user", "version": "2"}, "the kind of the claims"),
        ({"type": "user", "version": 2, "subs": 2**63}, "the claims are not valid"),
        ({"type": "user", "version": 2, "pub": 5}, "the claims are not valid"),
        ({"type": "user", "version": 2, "times": [None]}, "the claims are not valid"),
        (
            {"type": "account", "version": 2, "signing_keys": [{"kind": "role"}]},
            'unknown signing key scope "role"',
        ),
        ([], "the claims are not those of NATS"),
    ],
)
def test_bodies_of_another_form_are_refused(body: Any, text: str) -> None:
    with pytest.raises(BadToken) as raised:
        decode(encode({"iss": ACCOUNT.name, "sub": USER, "nats": body}, ACCOUNT.key))
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected 3 chunks"),
        ("a.b", "expected 3 chunks"),
        ("a.b.c.d", "expected 3 chunks"),
        ("a.b.c", "not base64url"),
        (f"{part([])}..", "not a JSON object"),
        (f"{part({'typ': 'x'})}..", 'not supported type "x"'),
        (f"{part({'typ': 'JWT', 'alg': 'none'})}..", 'unexpected "none" algorithm'),
        (f"{part({'typ': 'JWT', 'alg': 'ed25519-nkey2'})}..", "algorithm"),
        (f"{part({'typ': 'JWT', 'alg': 'ed25519'})}.e30.e+30", "not base64url"),
        ("a" * (1 << 20) + ".b.c", "token size 1048580 exceeds maximum of 1048576 bytes"),
    ],
)
def test_texts_that_are_no_token(text: str, reason: str) -> None:
    with pytest.raises(BadToken) as raised:
        decode(text)
    assert reason in str(raised.value)


def test_deep_nesting_is_refused() -> None:
    for depth in (40, 5_000, 200_000):
        payload = b'{"nats":' + b'{"a":[' * depth + b"]}" * depth + b"}"
        text = f"{part({'typ': 'JWT', 'alg': 'ed25519'})}."
        text += base64.urlsafe_b64encode(payload).decode().rstrip("=") + ".AA"
        with pytest.raises(BadToken):
            decode(text)


def test_the_signature_covers_header_and_claims() -> None:
    header, payload, signature = ACCOUNT.jwt.split(".")
    other = part({**json.loads(base64.urlsafe_b64decode(payload + "==")), "sub": USER})
    for text in (
        f"{header}.{other}.{signature}",
        f"{part({'typ': 'jwt', 'alg': 'ed25519-nkey'})}.{payload}.{signature}",
        f"{header}.{payload}.{'A' * 86}",
        f"{header}.{payload}.",
    ):
        with pytest.raises(BadToken, match="claim failed V2 signature verification"):
            decode(text)


def test_an_activation_is_no_account() -> None:
    body = {"subject": "a.>", "kind": "stream"}
    text = token("activation", ACCOUNT.name, ACCOUNT.key, body)
    assert decode_as(ActivationClaims, text).body.subject == "a.>"
    with pytest.raises(BadToken, match="not account claim"):
        decode_as(AccountClaims, text)


def test_a_decorated_file_holds_its_first_token() -> None:
    user = ACCOUNT.user()
    assert undecorated(user.creds) == user.jwt
    assert undecorated(f"{user.jwt}\n") == user.jwt


@pytest.mark.parametrize(
    ("revocations", "expected"),
    [
        ({}, False),
        ({"U": 10}, True),
        ({"U": 9}, False),
        ({"V": 10}, False),
        ({"*": 10}, True),
        ({"*": 9, "U": 11}, True),
    ],
)
def test_revocations_hold_for_what_was_issued_before(
    revocations: dict[str, int], expected: bool
) -> None:
    assert is_revoked(revocations, "U", 10) is expected


@given(
    st.text(max_size=200)
    | st.lists(st.binary(max_size=60), min_size=3, max_size=3).map(
        lambda parts: ".".join(base64.urlsafe_b64encode(p).decode().rstrip("=") for p in parts)
    )
)
def test_any_text_is_refused_in_one_way(text: str) -> None:
    with pytest.raises(BadToken):
        decode(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
NAMES = st.sampled_from(
    [
        "type",
        "version",
        "pub",
        "sub",
        "limits",
        "exports",
        "imports",
        "signing_keys",
        "src",
        "resp",
        "mappings",
        "tiered_limits",
        "trace",
        "times",
        "authorization",
        "revocations",
    ]
)


@given(
    st.sampled_from(["user", "account", "operator", "activation", "authorization_response", "x"]),
    st.dictionaries(NAMES, JSON, max_size=4),
    st.booleans(),
)
def test_any_signed_claims_decode_or_are_refused(
    kind: str, body: dict[str, Any], is_old: bool
) -> None:
    issuer = OPERATOR.key if kind == "operator" else ACCOUNT.key
    make = old_token if is_old else token
    try:
        text = make(kind, USER, issuer, body)
    except ValueError:  # an integer that JSON of msgspec does not have
        return
    try:
        claims = decode(text)
    except BadToken:
        return
    claims.issues(0.0)
