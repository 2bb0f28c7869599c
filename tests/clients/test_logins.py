"""Who may log in, as what, and what a refused client is told (reference 5.1, 2.3)."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from natsd.auth.nkeys import KeyPair
from natsd.config.public_keys import Kind
from tests.clients.target import Target
from tests.clients.wire import Closed, Wire

Start = Callable[..., Target]

VIOLATION = b"-ERR 'Authorization Violation'\r\n"
HASH_OF_SECRET = "$2b$04$CK9nwGWAO3J7QHdpw5nv2.9VvQneF/43RyZxy8rJwNi6n8OZSYg5K"
"""The bcrypt hash of `s3cr3t`, with the lowest cost."""

USER_KEY = KeyPair(Kind.USER, hashlib.sha256(b"user").digest())
OTHER_KEY = KeyPair(Kind.USER, hashlib.sha256(b"other").digest())

USERS = {
    "users": [
        {"user": "derek", "password": "pa55"},
        {"user": "ivan", "password": HASH_OF_SECRET},
        {"nkey": USER_KEY.public},
        {"user": "web", "password": "w", "allowed_connection_types": ["WEBSOCKET"]},
    ]
}
ACCOUNTS = {
    "A": {"users": [{"user": "a", "password": "a"}]},
    "B": {"users": [{"user": "b", "password": "b"}, {"nkey": OTHER_KEY.public}]},
}


def login(server: Target, connect: Wire | None = None, **fields: Any) -> Wire:
    wire = Wire(server.address) if connect is None else connect
    wire.send(b"CONNECT " + json.dumps({"verbose": False, **fields}).encode() + b"\r\n")
    return wire


def is_accepted(server: Target, **fields: Any) -> bool:
    with login(server, **fields) as wire:
        try:
            assert wire.sync() == []
        except Closed:
            return False
        except AssertionError:
            assert wire.read_until_closed() in (b"", VIOLATION)
            return False
    return True


def account_of(wire: Wire) -> str:
    """Return the account that the INFO after the first PING names."""
    wire.send(b"PING\r\n")
    frames = [wire.read_frame(), wire.read_frame()]
    assert frames[0] == b"PONG\r\n"
    info = json.loads(frames[1].removeprefix(b"INFO "))
    assert info["connect_info"] is True
    return str(info["remote_account"])


def signature(key: KeyPair, nonce: str) -> str:
    return base64.urlsafe_b64encode(key.sign(nonce.encode())).decode().rstrip("=")


@pytest.mark.parametrize(
    ("name", "password", "accepted"),
    [
        ("derek", "pa55", True),
        ("derek", "pa5", False),
        ("derek", "", False),
        ("ivan", "s3cr3t", True),
        ("ivan", "s3cr3", False),
        ("ivan", HASH_OF_SECRET, False),
        ("nobody", "pa55", False),
        ("", "", False),
        ("", "pa55", False),
        ("web", "w", False),
    ],
)
def test_users_with_plain_and_hashed_passwords(
    shared_server: Start, name: str, password: str, accepted: bool
) -> None:
    server = shared_server(authorization=USERS)
    for _ in range(2):  # the second time a right answer is remembered
        assert is_accepted(server, user=name, **{"pass": password}) == accepted


def test_a_refused_client_is_told_and_closed(shared_server: Start) -> None:
    with login(shared_server(authorization=USERS), user="derek") as wire:
        assert wire.read_until_closed() == VIOLATION


@pytest.mark.parametrize("token", ["s3cr3t", HASH_OF_SECRET])
def test_a_token_may_be_a_hash(shared_server: Start, token: str) -> None:
    server = shared_server(authorization={"token": token})
    assert is_accepted(server, auth_token="s3cr3t")
    assert not is_accepted(server, auth_token="wrong")
    assert not is_accepted(server, user="s3cr3t")


def test_a_single_user_may_have_a_hash(shared_server: Start) -> None:
    server = shared_server(authorization={"user": "ivan", "password": HASH_OF_SECRET})
    assert is_accepted(server, user="ivan", **{"pass": "s3cr3t"})
    assert not is_accepted(server, user="derek", **{"pass": "s3cr3t"})
    assert not is_accepted(server, user="ivan", **{"pass": ""})


class TestNkeys:
    @pytest.fixture
    def server(self, shared_server: Start) -> Target:
        return shared_server(authorization=USERS)

    def test_the_signature_of_the_nonce_is_the_login(self, server: Target) -> None:
        with Wire(server.address) as wire:
            assert wire.info["auth_required"] is True
            nonce = wire.info["nonce"]
            assert len(base64.urlsafe_b64decode(nonce + "=")) == 11
            login(server, wire, nkey=USER_KEY.public, sig=signature(USER_KEY, nonce))
            assert wire.sync() == []

    def test_each_connection_has_its_own_nonce(self, server: Target) -> None:
        with Wire(server.address) as one, Wire(server.address) as other:
            assert one.info["nonce"] != other.info["nonce"]
            login(server, one, nkey=USER_KEY.public, sig=signature(USER_KEY, other.info["nonce"]))
            assert one.read_until_closed() == VIOLATION

    def test_plain_base64_is_accepted(self, server: Target) -> None:
        with Wire(server.address) as wire:
            raw = USER_KEY.sign(wire.info["nonce"].encode())
            login(server, wire, nkey=USER_KEY.public, sig=base64.b64encode(raw).decode())
            assert wire.sync() == []

    @pytest.mark.parametrize("sig", ["", "=", "AAAA", "%", "é", "A" * 86, "A" * 4000])
    def test_anything_else_is_refused(self, server: Target, sig: str) -> None:
        assert not is_accepted(server, nkey=USER_KEY.public, sig=sig)

    def test_an_unknown_key_is_refused(self, server: Target) -> None:
        with Wire(server.address) as wire:
            nonce = wire.info["nonce"]
            login(server, wire, nkey=OTHER_KEY.public, sig=signature(OTHER_KEY, nonce))
            assert wire.read_until_closed() == VIOLATION

    def test_without_nkeys_there_is_no_nonce(self, shared_server: Start) -> None:
        with Wire(shared_server(authorization={"token": "t"}).address) as wire:
            assert "nonce" not in wire.info


class TestAccounts:
    @pytest.fixture
    def server(self, shared_server: Start) -> Target:
        return shared_server(accounts=ACCOUNTS)

    def test_users_are_in_their_accounts(self, server: Target) -> None:
        with login(server, user="a", protocol=1, **{"pass": "a"}) as a:
            assert account_of(a) == "A"
        with login(server, user="b", protocol=1, **{"pass": "b"}) as b:
            assert account_of(b) == "B"

    def test_accounts_do_not_hear_each_other(self, server: Target) -> None:
        with (
            login(server, user="a", **{"pass": "a"}) as a,
            login(server, user="b", **{"pass": "b"}) as b,
        ):
            for wire in (a, b):
                wire.send(b"SUB > 1\r\n")
                wire.sync()
            a.send(b"PUB x 1\r\na\r\n")
            assert a.sync() == [b"MSG x 1 1\r\na\r\n"]
            assert b.sync() == []

    def test_another_connect_moves_the_client_without_its_subscriptions(
        self, server: Target
    ) -> None:
        with login(server, user="a", **{"pass": "a"}) as wire:
            wire.send(b"SUB x 1\r\n")
            login(server, wire, user="b", **{"pass": "b"})
            wire.send(b"PUB x 0\r\n\r\n")
            assert wire.sync() == []

    def test_another_connect_may_be_refused(self, server: Target) -> None:
        with login(server, user="a", **{"pass": "a"}) as wire:
            assert wire.sync() == []
            login(server, wire, user="b")  # the password is still that of the CONNECT before
            assert wire.read_until_closed() == VIOLATION


class TestNoAuthUser:
    @pytest.fixture
    def server(self, shared_server: Start) -> Target:
        return shared_server(accounts=ACCOUNTS, no_auth_user="a")

    def test_a_client_without_credentials_is_that_user(self, server: Target) -> None:
        with login(server, protocol=1) as wire:
            assert "auth_required" not in wire.info
            assert account_of(wire) == "A"

    def test_a_client_with_credentials_is_who_it_says(self, server: Target) -> None:
        with login(server, protocol=1, user="b", **{"pass": "b"}) as wire:
            assert account_of(wire) == "B"
        assert not is_accepted(server, user="nobody")
        assert not is_accepted(server, auth_token="x")

    def test_connect_may_be_omitted(self, server: Target) -> None:
        with Wire(server.address) as wire, login(server, user="a", **{"pass": "a"}) as a:
            wire.send(b"SUB x 1\r\n")
            wire.sync()
            a.send(b"PUB x 2\r\nhi\r\n")
            assert wire.read_message() == b"MSG x 1 2\r\nhi\r\n"


def test_if_only_the_system_account_has_users_others_need_no_login(shared_server: Start) -> None:
    users = [{"user": "admin", "password": "s"}]
    server = shared_server(accounts={"$SYS": {"users": users}})
    with login(server, protocol=1) as anonymous:
        assert account_of(anonymous) == "$G"
    with login(server, protocol=1, user="admin", **{"pass": "s"}) as admin:
        assert account_of(admin) == "$SYS"
    assert not is_accepted(server, user="nobody")


def test_the_name_of_the_system_account_is_a_setting(shared_server: Start) -> None:
    server = shared_server(accounts=ACCOUNTS, system_account="B")
    with login(server, protocol=1, user="b", **{"pass": "b"}) as b:
        b.send(b"PING\r\n")
        b.read_frame()
        assert json.loads(b.read_frame().removeprefix(b"INFO "))["acc_is_sys"] is True


def test_a_proxy_is_required(shared_server: Start) -> None:
    proxy = KeyPair(Kind.SERVER, hashlib.sha256(b"proxy").digest())
    server = shared_server(
        proxies={"trusted": [{"key": proxy.public}]},
        authorization={
            "users": [
                {"user": "any", "password": "a"},
                {"user": "behind", "password": "b", "proxy_required": True},
            ]
        },
    )
    assert is_accepted(server, user="any", **{"pass": "a"})
    assert not is_accepted(server, user="behind", **{"pass": "b"})
    with Wire(server.address) as wire:
        signed = signature(proxy, wire.info["nonce"])
        login(server, wire, user="behind", proxy_sig=signed, **{"pass": "b"})
        assert wire.sync() == []
    with Wire(server.address) as wire:
        signed = signature(OTHER_KEY, wire.info["nonce"])
        login(server, wire, user="any", proxy_sig=signed, **{"pass": "a"})
        assert wire.read_until_closed() == VIOLATION


class TestAccountLimits:
    def test_connections(self, start_threaded_server: Start) -> None:
        server = start_threaded_server(
            accounts={"A": {**ACCOUNTS["A"], "limits": {"max_connections": 1}}, "B": ACCOUNTS["B"]}
        )
        with login(server, user="a", **{"pass": "a"}) as one:
            assert one.sync() == []
            with login(server, user="a", **{"pass": "a"}) as another:
                told = another.read_until_closed()
                assert b"-ERR 'maximum account active connections exceeded'\r\n" in told
            assert is_accepted(server, user="b", **{"pass": "b"})
            login(server, one, user="a", **{"pass": "a"})  # it counts once
            assert one.sync() == []

    def test_subscriptions(self, shared_server: Start) -> None:
        server = shared_server(
            accounts={"A": {**ACCOUNTS["A"], "limits": {"max_subscriptions": 2}}}
        )
        with login(server, user="a", **{"pass": "a"}) as wire:
            wire.send(b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n")
            assert wire.sync() == [b"-ERR 'maximum subscriptions exceeded'\r\n"]
            wire.send(b"UNSUB 1\r\nSUB c 3\r\n")
            assert wire.sync() == []

    def test_payload(self, shared_server: Start) -> None:
        server = shared_server(accounts={"A": {**ACCOUNTS["A"], "limits": {"max_payload": 8}}})
        with login(server, user="a", protocol=1, **{"pass": "a"}) as wire:
            assert wire.info["max_payload"] == 1 << 20
            wire.send(b"PING\r\n")
            wire.read_frame()
            assert json.loads(wire.read_frame().removeprefix(b"INFO "))["max_payload"] == 8
            wire.send(b"PUB a 8\r\n12345678\r\n")
            assert wire.sync() == []
            wire.send(b"PUB a 9\r\n123456789\r\n")
            assert wire.read_until_closed() == b"-ERR 'Maximum Payload Violation'\r\n"
