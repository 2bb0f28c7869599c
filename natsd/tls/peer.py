"""What a connection's peer presented, and what was negotiated with it."""

import hashlib
import ssl
from collections.abc import Collection
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from natsd.tls.cipher_suites import standard_name

if TYPE_CHECKING:
    from cryptography import x509


class TlsState(NamedTuple):
    """What a connection negotiated, for monitoring."""

    version: str
    cipher_suite: str
    certificates: tuple[bytes, ...]
    is_first: bool
    """Whether the handshake came before INFO."""


def state_of(tls: ssl.SSLObject, *, is_first: bool) -> TlsState:
    """Return what a connection negotiated."""
    return TlsState(version(tls), cipher_suite(tls), certificates(tls), is_first)


def callout_facts(state: TlsState, *, is_verified: bool) -> dict[str, object]:
    """Return the member `client_tls` of a request to an auth service.

    `is_verified` says whether the certificates were checked.
    """
    facts: dict[str, object] = {"version": state.version, "cipher": state.cipher_suite}
    chain = [ssl.DER_cert_to_PEM_cert(each) for each in state.certificates]
    if chain:
        facts |= {"verified_chains": [chain]} if is_verified else {"certs": chain}
    return facts


def version(tls: ssl.SSLObject) -> str:
    """Return the version of TLS, such as `1.3`."""
    return (tls.version() or "").removeprefix("TLSv")


def cipher_suite(tls: ssl.SSLObject) -> str:
    """Return the name of the cipher suite, as Go and IANA write it."""
    cipher = tls.cipher()
    return "" if cipher is None else standard_name(cipher[0])


def certificates(tls: ssl.SSLObject) -> tuple[bytes, ...]:
    """Return the certificates that the peer presented, in DER, its own first; empty: none."""
    if hasattr(tls, "get_unverified_chain"):  # Python 3.13
        return tuple(cast("list[bytes]", tls.get_unverified_chain()))
    import _ssl

    # Public from 3.13 on; in 3.11 and 3.12 only the object behind it has the method.
    chain = tls._sslobj.get_unverified_chain()  # type: ignore[attr-defined]  # typeshed leaves it out
    return tuple(each.public_bytes(_ssl.ENCODING_DER) for each in chain or ())


def is_pinned(chain: tuple[bytes, ...], pins: Collection[str]) -> bool:
    """Return whether the key of the first certificate is one of `pins`; without pins, True."""
    return not pins or (bool(chain) and public_key_digest(chain[0]) in pins)


def public_key_digest(certificate: bytes) -> str:
    """Return the SHA-256 of a certificate's public key (SubjectPublicKeyInfo), in hexadecimal."""
    return _key_digest(_parsed(certificate))


def describe(chain: tuple[bytes, ...]) -> list[dict[str, str]]:
    """Return the certificates as `connz` shows them."""
    return [
        {
            "subject": subject_text(_parsed(each).subject),
            "spki_sha256": public_key_digest(each),
            "cert_sha256": hashlib.sha256(each).hexdigest(),
        }
        for each in chain
    ]


_SHORT: Final = {
    "2.5.4.6": "C",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.3": "CN",
    "2.5.4.5": "SERIALNUMBER",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.17": "POSTALCODE",
}
"""Attributes that Go's `pkix.Name.String` writes by a short name."""


def subject_text(subject: "x509.Name") -> str:
    """Return a subject as Go's `pkix.Name.String` writes it: RFC 2253, the last part first."""
    parts = []
    for together in reversed(subject.rdns):
        shown = []
        for attribute in together:
            oid = attribute.oid.dotted_string
            value = attribute.value
            text = value if isinstance(value, str) else "#" + value.hex()
            shown.append(f"{_SHORT.get(oid, oid)}={_escaped(text)}")
        parts.append("+".join(shown))
    return ",".join(parts)


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{each}" if each in ',+"\\<>;' else each for each in text)
    if text[:1] in ("#", " "):
        escaped = "\\" + escaped
    if len(text) > 1 and text.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return escaped


def _parsed(certificate: bytes) -> "x509.Certificate":
    from cryptography import x509

    return x509.load_der_x509_certificate(certificate)


def _key_digest(certificate: "x509.Certificate") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(key).hexdigest()
