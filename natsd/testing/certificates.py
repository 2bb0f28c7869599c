"""Certificates: an authority, and what it signs, as files in a directory.

    authority = Authority(directory)
    server, client = authority.sign("server"), authority.sign("client")
    Server(tls={**server.settings, "ca_file": str(authority.ca_file), "verify": True})

The certificates satisfy strict verification (RFC 5280), which is Python's default from 3.13 on.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
AUTHORITY_DAYS: Final = 1000
"""Days before and after its making for which an authority's certificate is valid."""
_SIGNS: Final = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)
_PURPOSES: Final = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]


@cache
def rsa_key() -> rsa.RSAPrivateKey:
    """Return the one RSA key of this process: to make one takes long."""
    return rsa.generate_private_key(65537, 2048)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    cert_file: Path
    key_file: Path
    certificate: x509.Certificate

    @property
    def der(self) -> bytes:
        """The certificate as it is sent in a handshake."""
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def settings(self) -> dict[str, str]:
        """The `tls` settings of a server with this certificate."""
        return {"cert_file": str(self.cert_file), "key_file": str(self.key_file)}


class Authority:
    """Signs certificates; its own is in `ca_file`."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        """Make the authority, and write its certificate to `<name>.pem` in the directory."""
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        public = self._key.public_key()
        certificate = (
            self._begin(self._name, public, -AUTHORITY_DAYS, AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_SIGNS, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.ca_file = directory / f"{name}.pem"
        self.ca_file.write_bytes(certificate.public_bytes(Encoding.PEM))

    def sign(
        self,
        name: str,
        *,
        key: Key | None = None,
        subject: x509.Name | None = None,
        names: Sequence[str | x509.GeneralName] = ("localhost",),
        from_days: int = -1,
        days: int = 365,
        password: bytes | None = None,
    ) -> Pair:
        """Return a new certificate for a server or a client, with its key.

        The files are `<name>.crt` and `<name>.key`. The certificate is for 127.0.0.1 and `names`,
        valid from `from_days` to `days` after today; its `subject` has `name` as common name,
        unless another one is given. A `password` encrypts the file of the key.
        """
        key = key or ec.generate_private_key(ec.SECP256R1())
        if subject is None:
            subject = x509.Name(
                [
                    x509.NameAttribute(NameOID.ORGANIZATION_NAME, "natsd, tests"),
                    x509.NameAttribute(NameOID.COMMON_NAME, name),
                ]
            )
        alternatives = [x509.DNSName(each) if isinstance(each, str) else each for each in names]
        alternatives.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            self._begin(subject, key.public_key(), from_days, days)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(x509.ExtendedKeyUsage(_PURPOSES), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pair = Pair(self._directory / f"{name}.crt", self._directory / f"{name}.key", certificate)
        pair.cert_file.write_bytes(certificate.public_bytes(Encoding.PEM))
        pair.key_file.write_bytes(
            key.private_bytes(
                Encoding.PEM,
                PrivateFormat.PKCS8,
                BestAvailableEncryption(password) if password else NoEncryption(),
            )
        )
        return pair

    def _begin(
        self,
        subject: x509.Name,
        public: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
        from_days: int,
        days: int,
    ) -> x509.CertificateBuilder:
        """Return a certificate of this authority without extensions, which is not signed yet."""
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder(self._name, subject, public, x509.random_serial_number())
            .not_valid_before(now + timedelta(days=from_days))
            .not_valid_after(now + timedelta(days=days))
        )
