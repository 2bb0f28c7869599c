"""The certificates of a server: loading them, what they are for, and how long they are valid.

- A pair of files that cannot be used is refused with the reason, before any connection: a missing
  file, no PEM data, an encrypted key, a key of another certificate.
- `Certificate` says for which server names a certificate is, and its key's type, by which one of
  several is chosen for a connection.

Source: nats-server's `GenTLSConfig` (server/opts.go); Go's `LoadX509KeyPair` and `VerifyHostname`.
"""

import ssl
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from natsd.tls.errors import TlsError

if TYPE_CHECKING:
    from cryptography import x509

ENCRYPTED_KEY: Final = (
    "the private key is encrypted, which is not supported: decrypt it, for example with "
    "`openssl pkey -in KEY -out NEW_KEY`"
)
WARN_EXPIRY_DAYS: Final = 14


@dataclass(frozen=True)
class Certificate:
    """A certificate of this server: its files, and the fields that matter for its choice."""

    cert_file: Path
    key_file: Path
    names: frozenset[str]
    """Host names, in lower case; a first label `*` stands for any one label."""
    key_type: str
    not_before: datetime
    not_after: datetime

    def is_for(self, name: str) -> bool:
        """Return whether it is for the server name, which is in lower case."""
        _, _, parent = name.partition(".")
        return name in self.names or (bool(parent) and f"*.{parent}" in self.names)

    def warning(self, now: datetime) -> str:
        """Return a warning about its validity; empty: there is none."""
        if now > self.not_after:
            return f"TLS certificate {self.cert_file} has expired at {self.not_after:%F %T} UTC"
        if now < self.not_before:
            return f"TLS certificate {self.cert_file} is valid from {self.not_before:%F %T} UTC on"
        days = (self.not_after - now).days
        if days < WARN_EXPIRY_DAYS:
            return f"TLS certificate {self.cert_file} expires in {days} days"
        return ""


def load_pair(context: ssl.SSLContext, cert_file: Path, key_file: Path, which: str = "") -> None:
    """Add a certificate and its key to a context; `which` names the pair. Raises TlsError."""
    try:
        for path in (cert_file, key_file):
            path.open("rb").close()
        context.load_cert_chain(cert_file, key_file, password=_refuse_password)
    except OSError as error:
        reason = _load_failure(error, cert_file, key_file)
        raise TlsError(f"error parsing X509 certificate/key pair{which}: {reason}") from None
    except _EncryptedKeyError:
        raise TlsError(
            f"error parsing X509 certificate/key pair{which}: {key_file}: {ENCRYPTED_KEY}"
        ) from None


def read(cert_file: Path, key_file: Path) -> Certificate:
    """Return the fields of the first certificate in a file that `load_pair` has accepted."""
    from cryptography import x509

    leaf = x509.load_pem_x509_certificate(cert_file.read_bytes())
    return Certificate(
        cert_file,
        key_file,
        frozenset(_names(leaf)),
        type(leaf.public_key()).__name__,
        leaf.not_valid_before_utc,
        leaf.not_valid_after_utc,
    )


def load_authorities(context: ssl.SSLContext, ca_file: Path) -> None:
    """Trust the certificates of a file. Raises TlsError."""
    try:
        context.load_verify_locations(ca_file)
    except ssl.SSLError:
        raise TlsError(f"failed to parse root ca certificate: {ca_file}") from None
    except OSError as error:
        raise TlsError(f"open {ca_file}: {_lower_first(error.strerror or str(error))}") from None


def _names(leaf: "x509.Certificate") -> list[str]:
    from cryptography import x509

    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [name.lower() for name in names.get_values_for_type(x509.DNSName)]


class _EncryptedKeyError(Exception):
    """OpenSSL asked for a password."""


def _refuse_password() -> str:
    raise _EncryptedKeyError


def _load_failure(error: OSError, cert_file: Path, key_file: Path) -> str:
    if not isinstance(error, ssl.SSLError):
        return f"open {error.filename}: {_lower_first(error.strerror or str(error))}"
    if error.reason == "KEY_VALUES_MISMATCH":
        return "tls: private key does not match public key"
    if error.reason in ("KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"):
        return "tls: private key type does not match public key type"
    if b"-----BEGIN CERTIFICATE-----" not in cert_file.read_bytes():
        return f"tls: failed to find any PEM data in certificate input: {cert_file}"
    if b"PRIVATE KEY-----" not in key_file.read_bytes():
        return f"tls: failed to find any PEM data in key input: {key_file}"
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return f"{cert_file}, {key_file}: {reason}"


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
