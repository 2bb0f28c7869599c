"""The logins of the settings against hostile and contradictory input."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from natsd.auth.configured_logins import ConfiguredLogins
from natsd.auth.nkeys import KeyPair
from natsd.auth.verdict import Verdict
from natsd.clients.connect import BadConnectError, ConnectOptions, decode_connect
from natsd.config import OptionsError, make_options
from natsd.config.public_keys import Kind
from natsd.testing.certificates import Authority
from natsd.testing.jwts import key

USER = key(Kind.USER, "user")
PROXY = key(Kind.SERVER, "proxy")
FIELDS = [
    *("user", "pass", "auth_token", "nkey", "jwt", "sig", "proxy_sig", "name", "lang", "version"),
    *("verbose", "pedantic", "protocol", "headers", "account", "USER", "Pass", "unknown"),
]


class Connecting:
    """A client that has sent CONNECT."""

    cid = 5
    ip = "127.0.0.1"
    port = 4000
    nonce = b"aaaaaaaaaaaaaaa"
    connection_type = "STANDARD"
    certificates: tuple[bytes, ...] = ()

    def peer_certificates(self) -> tuple[bytes, ...]:
        return self.certificates

    def debug(self, text: str) -> None: ...


def logins(**settings: Any) -> ConfiguredLogins:
    return ConfiguredLogins(make_options(**settings), "$G", "$SYS")


USERS = [
    {"user": "derek", "password": "pa55"},
    {"nkey": USER.public},
    {"user": "proxied", "password": "p", "proxy_required": True},
]


@pytest.fixture(scope="module")
def all_kinds() -> list[ConfiguredLogins]:
    trusted = {"trusted": [{"key": PROXY.public}]}
    return [
        logins(authorization={"users": USERS}, proxies=trusted),
        logins(authorization={"users": USERS}, no_auth_user="derek"),
        logins(authorization={"token": "s3cr3t"}, proxies=trusted),
        logins(authorization={"user": "derek", "password": "pa55"}),
        logins(accounts={"$SYS": {"users": USERS}}),
    ]


values = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=60)
    | st.sampled_from(["derek", "pa55", "s3cr3t", USER.public, PROXY.public, "\ud800", "\x00"])
    | st.lists(st.text(max_size=3), max_size=2)
)


@given(st.dictionaries(st.sampled_from(FIELDS), values))
def test_any_connect_gets_a_verdict_or_is_bad(
    all_kinds: list[ConfiguredLogins], fields: dict[str, Any]
) -> None:
    try:
        connect = decode_connect(json.dumps(fields).encode())
    except BadConnectError:
        return
    for configured in all_kinds:
        assert isinstance(configured.authenticate(Connecting(), connect), Verdict)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_connect_or_bad(data: bytes) -> None:
    with contextlib.suppress(BadConnectError):
        decode_connect(data)


@given(st.text(max_size=120))
def test_any_signature_is_wrong(all_kinds: list[ConfiguredLogins], sig: str) -> None:
    connect = ConnectOptions(nkey=USER.public, sig=sig, proxy_sig=sig)
    verdict = all_kinds[0].authenticate(Connecting(), connect)
    assert isinstance(verdict, Verdict)
    assert verdict.account is None


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {
                "accounts": {
                    "A": {"users": [{"user": "x", "password": "1"}]},
                    "B": {"users": [{"user": "x", "password": "2"}]},
                }
            },
            'Duplicate user "x" detected',
        ),
        (
            {
                "accounts": {"A": {"users": [{"nkey": USER.public}]}},
                "authorization": {"users": [{"nkey": USER.public}]},
            },
            f'Duplicate nkey "{USER.public}" detected',
        ),
        (
            {"authorization": {"users": USERS}, "no_auth_user": "nobody"},
            'no_auth_user: "nobody" not present as user or nkey in authorization block or account '
            "configuration",
        ),
        (
            {"authorization": {"token": "t"}, "no_auth_user": "nobody"},
            'no_auth_user: "nobody" present, but users/nkeys are not defined',
        ),
    ],
)
def test_contradictions(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionsError) as raised:
        logins(**settings)
    assert str(raised.value) == text


def test_users_with_equal_permissions_share_the_rules() -> None:
    names = ["a", "b", "c"]
    rules = {"publish": "x"}
    configured = logins(
        authorization={"users": [{"user": n, "password": n, "permissions": rules} for n in names]}
    )
    verdicts = [
        configured.authenticate(Connecting(), ConnectOptions(user=n, password=n)) for n in names
    ]
    shared = {id(verdict.permissions) for verdict in verdicts if isinstance(verdict, Verdict)}
    assert len(shared) == 1


def test_a_proxy_is_named_in_the_verdict() -> None:
    configured = logins(
        authorization={"users": USERS}, proxies={"trusted": [{"key": PROXY.public}]}
    )
    assert configured.needs_nonce
    verdict = configured.authenticate(
        Connecting(),
        ConnectOptions(user="proxied", password="p", proxy_sig=signed(PROXY)),
    )
    assert isinstance(verdict, Verdict)
    assert (verdict.account, verdict.proxy_key) == ("$G", PROXY.public)


def signed(by: KeyPair) -> str:
    import base64

    return base64.urlsafe_b64encode(by.sign(Connecting.nonce)).decode().rstrip("=")


def test_certificates_are_mapped_to_users(tmp_path: Path) -> None:
    configured = logins(
        authorization={"users": [{"user": "CN=derek,OU=CNCF,O=NATS,C=US"}, {"user": "h"}]},
        tls={"cert_file": "c", "key_file": "k", "ca_file": "a", "verify_and_map": True},
    )
    authority = Authority(tmp_path)
    name = x509.Name.from_rfc4514_string("CN=derek,OU=CNCF,O=NATS,C=US")
    derek = authority.sign("derek", subject=name, names=()).der
    host = authority.sign("host", names=("h",)).der
    client = Connecting()
    accepted = []
    for der in ((), (derek,), (host,), (b"garbage",)):
        client.certificates = der
        verdict = configured.authenticate(client, ConnectOptions(user="h"))
        assert isinstance(verdict, Verdict)
        accepted.append(verdict.user)
    assert accepted == ["", "CN=derek,OU=CNCF,O=NATS,C=US", "h", ""]


@pytest.mark.parametrize(
    ("settings", "warns"),
    [
        ({"authorization": {"users": USERS}}, True),
        ({"authorization": {"users": [{"nkey": USER.public}]}}, False),
        ({"authorization": {"users": [{"user": "x", "password": "$2a$11$" + "x" * 53}]}}, False),
        ({"authorization": {"user": "x", "password": "plain"}}, True),
        ({"authorization": {"token": "t"}}, False),
    ],
)
def test_plain_passwords_are_noticed(settings: dict[str, Any], warns: bool) -> None:
    assert logins(**settings).has_plain_passwords is warns


def test_the_key_of_the_passwords_survives_a_reload() -> None:
    before = logins(authorization={"users": USERS})
    after = ConfiguredLogins(
        make_options(authorization={"users": USERS}), "$G", "$SYS", before.passwords
    )
    assert after.passwords is before.passwords


@pytest.mark.parametrize(
    ("section", "flags", "accepted"),
    [
        ({"users": USERS}, {"token": "t"}, ["derek", "token"]),
        ({"users": USERS}, {"user": "flag", "password": "f"}, ["derek"]),
        ({"token": "t"}, {"user": "flag", "password": "f"}, ["token"]),
        ({"user": "derek", "password": "pa55"}, {"token": "t"}, ["token"]),
    ],
)
def test_a_login_of_flags_beside_that_of_the_file(
    section: dict[str, Any], flags: dict[str, str], accepted: list[str]
) -> None:
    configured = logins(authorization=section, **flags)
    connects = {
        "derek": ConnectOptions(user="derek", password="pa55"),
        "flag": ConnectOptions(user="flag", password="f"),
        "token": ConnectOptions(auth_token="t"),
    }
    verdicts = {
        name: configured.authenticate(Connecting(), connect) for name, connect in connects.items()
    }
    assert [
        name
        for name, verdict in verdicts.items()
        if isinstance(verdict, Verdict) and verdict.account == "$G"
    ] == accepted
