"""Authentication and transport: TLS, user, token, nkey, credentials; against the Go server."""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from natsd.spark.errors import AuthorizationError, ConnectError
from natsd.spark.wire.client import NatsClient
from natsd.spark.wire.connecting import parse_server
from natsd.spark.wire.connection import proof, tls_context
from natsd.spark.wire.signing import BadKey, Seed, parse_seed, read_credentials
from tests.spark.serving import go_server, go_serving, options, version_of

needs_go = pytest.mark.skipif(go_server() is None, reason="no Go nats-server on PATH")
OPERATOR, ACCOUNT, USER = 14 << 3, 0, 20 << 3
BEGUN = datetime(2020, 1, 1, tzinfo=UTC)


# Certificates


class Authority:
    """A certificate authority that writes certificates into files of a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        self._certificate = self._signed(self._name, self._key, [], is_authority=True)
        self.file = self._write("ca.pem", pem(self._certificate))

    def issue(self, name: str, *places: x509.GeneralName) -> tuple[str, str]:
        """Issue a certificate and return the paths of the certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._signed(subject, key, list(places), is_authority=False)
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return self._write(f"{name}.pem", pem(certificate)), self._write(f"{name}.key", private)

    def _write(self, name: str, data: bytes) -> str:
        (self._directory / name).write_bytes(data)
        return str(self._directory / name)

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        places: list[x509.GeneralName],
        *,
        is_authority: bool,
    ) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(BEGUN)
            .not_valid_after(BEGUN + timedelta(days=36_500))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        )
        if places:
            builder = builder.add_extension(x509.SubjectAlternativeName(places), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def loopback() -> x509.GeneralName:
    return x509.IPAddress(ip_address("127.0.0.1"))


@needs_go
@pytest.mark.parametrize("first", [False, True])
def test_tls(tmp_path: Path, first: bool) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server", loopback())
    handshake = "handshake_first: true" if first else ""
    if first and not is_new():
        pytest.skip("the server is older than handshake_first")
    config = f'tls {{ cert_file: "{cert}", key_file: "{key}", {handshake} }}'
    with go_serving(tmp_path / "go", config) as url:
        trusted = {"tls_ca": authority.file, "tls_handshake_first": first, "retries": 0}
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
    cert, key = authority.issue("server", loopback())
    mine = authority.issue("client", loopback())
    files = f'cert_file: "{cert}", key_file: "{key}", ca_file: "{authority.file}"'
    config = f"tls {{ {files}, verify: true }}"
    with go_serving(tmp_path / "go", config) as url:
        settings = {"tls_ca": authority.file, "retries": 0}
        with NatsClient(options(url, tls_cert=mine[0], tls_key=mine[1], **settings)) as client:
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


# Keys


def seed_text(kind: int, secret: bytes) -> str:
    raw = bytes([18 << 3 | kind >> 5, (kind & 31) << 3]) + secret
    raw += binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(raw).rstrip(b"=").decode()


def new_seed(kind: int) -> tuple[Seed, str]:
    text = seed_text(kind, os.urandom(32))
    return parse_seed(text, "a test"), text


def jwt(claims: dict[str, Any], signer: Seed) -> str:
    def encoded(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    body = f"{encoded({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{encoded(claims)}"
    return f"{body}.{signer.sign(body)}"


def claims(subject: Seed, issuer: Seed, kind: str, **more: Any) -> dict[str, Any]:
    return {
        "jti": subject.public,
        "iat": 1_600_000_000,
        "iss": issuer.public,
        "name": kind,
        "sub": subject.public,
        "nats": {"type": kind, "version": 2, **more},
    }


UNLIMITED = {"subs": -1, "data": -1, "payload": -1}
ACCOUNT_LIMITS = {
    **UNLIMITED,
    "imports": -1,
    "exports": -1,
    "wildcards": True,
    "conn": -1,
    "leaf": -1,
}


@needs_go
def test_user_token_and_nkey(tmp_path: Path) -> None:
    seed, text = new_seed(USER)
    (tmp_path / "user.nk").write_text(f"# a comment\n{text}\n")
    users = f'authorization {{ users: [ {{user: a, password: b}}, {{nkey: "{seed.public}"}} ] }}'
    with go_serving(tmp_path / "1", users) as url:
        for settings in ({"user": "a", "password": "b"}, {"nkey": str(tmp_path / "user.nk")}):
            with NatsClient(options(url, **settings)) as client:
                client.flush()
        stranger, text = new_seed(USER)
        (tmp_path / "other.nk").write_text(text)
        with pytest.raises(AuthorizationError, match="Authorization Violation") as error:
            NatsClient(options(url, nkey=str(tmp_path / "other.nk")))
        assert text not in str(error.value)
        assert stranger.public != seed.public
    with go_serving(tmp_path / "2", "authorization { token: t0k }") as url:
        with NatsClient(options(url, token="t0k")) as client:
            client.flush()
        with NatsClient(options(url.replace("://", "://t0k@"))) as client:
            client.flush()


@needs_go
def test_credentials(tmp_path: Path) -> None:
    (operator, _), (account, _), (system, _), (user, text) = map(
        new_seed, (OPERATOR, ACCOUNT, ACCOUNT, USER)
    )
    account_jwt, system_jwt = (
        jwt(claims(one, operator, "account", limits=ACCOUNT_LIMITS), operator)
        for one in (account, system)
    )
    user_jwt = jwt(claims(user, account, "user", **UNLIMITED), account)
    file = tmp_path / "user.creds"
    file.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{text}\n------END USER NKEY SEED------\n"
    )
    operator_jwt = jwt(claims(operator, operator, "operator"), operator)
    config = (
        f"operator: {operator_jwt}\nresolver: MEMORY\n"
        f"system_account: {system.public}\nresolver_preload: {{\n"
        f"  {account.public}: {account_jwt}\n  {system.public}: {system_jwt}\n}}\n"
    )
    assert read_credentials(str(file)) == (user_jwt, user)
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
    with pytest.raises(BadKey, match="No such file"):
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
