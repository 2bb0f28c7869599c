"""Certificates for tests: an authority, and what it signs, as files in a directory."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

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
PURPOSES = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]


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
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a server with this certificate."""
        return {"cert_file": str(self.cert_file), "key_file": str(self.key_file)}


class Authority:
    """Signs certificates; its own is in `ca_file`."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder(self._name, self._name, self._key.public_key(), 1)
            .not_valid_before(now - timedelta(days=1000))
            .not_valid_after(now + timedelta(days=1000))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca_file = directory / f"{name}.pem"
        self.ca_file.write_bytes(certificate.public_bytes(Encoding.PEM))

    def sign(
        self,
        name: str,
        *,
        key: Key | None = None,
        names: tuple[str, ...] = ("localhost",),
        from_days: int = -1,
        days: int = 365,
        password: bytes | None = None,
    ) -> Pair:
        """Return a new certificate for a server or a client, with its key."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        alternatives: list[x509.GeneralName] = [x509.DNSName(each) for each in names]
        alternatives.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "natsd, tests"),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        certificate = (
            x509.CertificateBuilder(
                self._name, subject, key.public_key(), x509.random_serial_number()
            )
            .not_valid_before(now + timedelta(days=from_days))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(x509.ExtendedKeyUsage(PURPOSES), critical=False)
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
