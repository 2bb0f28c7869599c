"""Authentication and transport: TLS, user, token, nkey, credentials; against the Go server."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from socket import gethostname

import pytest

from natsd.config.public_keys import Kind
from natsd.spark.errors import AuthorizationError, ConnectError
from natsd.spark.wire.client import NatsClient
from natsd.spark.wire.connecting import parse_server
from natsd.spark.wire.connection import proof, tls_context
from natsd.spark.wire.signing import BadKey, parse_seed, read_credentials
from natsd.testing.certificates import Authority
from natsd.testing.jwts import Operator, key
from tests.spark.serving import go_server, go_serving, options, version_of

needs_go = pytest.mark.skipif(go_server() is None, reason="no Go nats-server on PATH")


@needs_go
@pytest.mark.parametrize("first", [False, True])
def test_tls(tmp_path: Path, first: bool) -> None:
    authority = Authority(tmp_path)
    server = authority.sign("server")
    if first and not is_new():
        pytest.skip("the server is older than handshake_first")
    tls = {**server.settings, **({"handshake_first": True} if first else {})}
    config = f"tls: {json.dumps(tls)}"
    with go_serving(tmp_path / "go", config) as url:
        trusted = {"tls_ca": str(authority.ca_file), "tls_handshake_first": first, "retries": 0}
        with NatsClient(options(url, **trusted)) as client:
            assert isinstance(client.connection.socket, ssl.SSLSocket)
            assert client.api("INFO")["streams"] == 0
        with pytest.raises(ConnectError, match=r"TLS: (self-signed|unable)"):
            NatsClient(options(url, tls=True, tls_handshake_first=first, retries=0))
        with NatsClient(
            options(url, tls_insecure=True, tls=True, tls_handshake_first=first)
        ) as client:
            client.flush()
        with pytest.raises(ConnectError, match="elsewhere"):
            NatsClient(options(url, tls_server_name="elsewhere", **trusted))


def is_new() -> bool:
    program = go_server()
    return program is not None and version_of(program) >= (2, 10)


@needs_go
def test_mutual_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.sign("server")
    mine = {f"tls_{name[:-5]}": file for name, file in authority.sign("client").settings.items()}
    tls = {**server.settings, "ca_file": str(authority.ca_file), "verify": True}
    config = f"tls: {json.dumps(tls)}"
    with go_serving(tmp_path / "go", config) as url:
        settings = {"tls_ca": str(authority.ca_file), "retries": 0}
        with NatsClient(options(url, **mine, **settings)) as client:
            client.flush()
        with pytest.raises(ConnectError):
            NatsClient(options(url, **settings))


@needs_go
def test_tls_that_is_not_offered(tmp_path: Path) -> None:
    with go_serving(tmp_path) as url:
        with pytest.raises(ConnectError, match="does not offer TLS"):
            NatsClient(options(url, tls=True, retries=0))


def test_files_of_tls_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match=r"none\.pem"):
        tls_context(options("a", tls_ca=str(tmp_path / "none.pem")))


@needs_go
def test_user_token_and_nkey(tmp_path: Path) -> None:
    mine, stranger = key(Kind.USER, "mine"), key(Kind.USER, "stranger")
    (tmp_path / "user.nk").write_text(f"# a comment\n{mine.seed}\n")
    users = f'authorization {{ users: [ {{user: a, password: b}}, {{nkey: "{mine.public}"}} ] }}'
    with go_serving(tmp_path / "1", users) as url:
        for settings in ({"user": "a", "password": "b"}, {"nkey": str(tmp_path / "user.nk")}):
            with NatsClient(options(url, **settings)) as client:
                client.flush()
        (tmp_path / "other.nk").write_text(stranger.seed)
        with pytest.raises(AuthorizationError, match="Authorization Violation") as error:
            NatsClient(options(url, nkey=str(tmp_path / "other.nk")))
        assert stranger.seed not in str(error.value)
    with go_serving(tmp_path / "2", "authorization { token: t0k }") as url:
        with NatsClient(options(url, token="t0k")) as client:
            client.flush()
        with NatsClient(options(url.replace("://", "://t0k@"))) as client:
            client.flush()


@needs_go
def test_credentials(tmp_path: Path) -> None:
    operator = Operator()
    account, system = operator.account("A"), operator.account("SYS")
    user = account.user()
    file = tmp_path / "user.creds"
    file.write_text(user.creds)
    config = (
        f"operator: {operator.jwt()}\nresolver: MEMORY\n"
        f"system_account: {system.name}\nresolver_preload: {{\n"
        f"  {account.name}: {account.jwt}\n  {system.name}: {system.jwt}\n}}\n"
    )
    assert read_credentials(str(file)) == (user.jwt, parse_seed(user.key.seed, "a test"))
    with go_serving(tmp_path / "go", config) as url:
        with NatsClient(options(url, credentials=str(file))) as client:
            client.flush()
        with pytest.raises(AuthorizationError):
            NatsClient(options(url))


@pytest.mark.parametrize("text", ["", "nothing here", "SUAMAAA", "S" + "A" * 57])
def test_files_that_hold_no_key(tmp_path: Path, text: str) -> None:
    (tmp_path / "key").write_text(text)
    for settings in ({"nkey": str(tmp_path / "key")}, {"credentials": str(tmp_path / "key")}):
        with pytest.raises(BadKey, match="key holds no"):
            proof(options("a", **settings), parse_server("a"), "nonce")
    with pytest.raises(BadKey, match=rf"none cannot be read on {gethostname()}: No such file"):
        read_credentials(str(tmp_path / "none"))


@needs_go
def test_permissions(tmp_path: Path) -> None:
    config = (
        "authorization { users: [ {user: a, password: b, permissions: "
        '{ publish: ["mine.>"], subscribe: ["_INBOX_a.>", "mine.>"] } } ] }'
    )
    with go_serving(tmp_path, config) as url:
        mine = {"user": "a", "password": "b", "inbox_prefix": "_INBOX_a"}
        with NatsClient(options(url, **mine)) as client:
            with pytest.raises(AuthorizationError, match=r'Publish to "\$JS.API.INFO"'):
                client.api("INFO")
            inbox = client.subscribe("mine.*")
            client.publish("mine.1", b"still here")
            message = inbox.next(5)
            assert message is not None
            assert message.data == b"still here"
