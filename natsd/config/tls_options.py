"""The settings of `tls {}`, for clients and for every other kind of connection.

- The files are not read here: only their names are settings.
- `handshake_first` is None: INFO comes before the TLS handshake; 0: the handshake comes first; a
  time: the handshake may come first, and INFO is sent if the client is silent for that long.

Source: nats-server's `parseTLS` (server/opts.go) and server/ciphersuites.go.
"""
# ruff: noqa: RUF009  each call declares a setting; nothing is shared between instances

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from natsd.config.sections import section_of
from natsd.config.settings import (
    OptionsError,
    Settings,
    duration,
    file,
    flag,
    in_words,
    locate,
    read_items,
    read_texts,
    section_field,
    text,
    texts,
    whole,
    word,
)
from natsd.core.durations import DurationError, parse_duration

HANDSHAKE_FIRST_AT_ONCE: Final = timedelta(0)
HANDSHAKE_FIRST_AUTO: Final = timedelta(milliseconds=50)
TIMEOUT_DEFAULT: Final = timedelta(seconds=2)
INT64_MAX: Final = 2**63 - 1

CIPHER_SUITES: Final = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
)
"""Names of secure cipher suites, as Go and IANA write them."""
INSECURE_CIPHER_SUITES: Final = (
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
)
CURVES: Final = ("X25519MLKEM768", "X25519", "CurveP256", "CurveP384", "CurveP521")
VERSIONS: Final = {
    "1.2": "1.2",
    "1.3": "1.3",
    "tls12": "1.2",
    "tls13": "1.3",
}

ALIASES: Final = {
    "certificates": "certs",
    "first": "handshake_first",
    "immediate": "handshake_first",
}
_PIN: Final = re.compile("[0-9a-f]{64}")
_FIRST_WORDS: Final = {
    "true": HANDSHAKE_FIRST_AT_ONCE,
    "on": HANDSHAKE_FIRST_AT_ONCE,
    "auto": HANDSHAKE_FIRST_AUTO,
    "auto_fallback": HANDSHAKE_FIRST_AUTO,
    "false": None,
    "off": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificatePair(Settings):
    """The files of one certificate and its private key."""

    cert_file: Path | None = file("certificate, with its chain, in PEM")
    key_file: Path | None = file("private key in PEM")

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        if self.cert_file is None or self.key_file is None:
            raise OptionsError("both 'cert_file' and 'key_file' are required")


def _read_certs(given: object) -> tuple[CertificatePair, ...]:
    return read_items(given, partial(section_of, CertificatePair), "certificates")


def _read_names(given: object, known: tuple[str, ...], what: str) -> tuple[str, ...]:
    names = read_texts(given)
    if not names and not isinstance(given, tuple):
        raise OptionsError("cannot be empty")
    for name in names:
        if name not in known:
            raise OptionsError(f"unrecognized {what} {name}")
    return names


_suites: Callable[[object], tuple[str, ...]] = partial(
    _read_names, known=CIPHER_SUITES + INSECURE_CIPHER_SUITES, what="cipher"
)
_curves: Callable[[object], tuple[str, ...]] = partial(
    _read_names, known=CURVES, what="curve preference"
)


def _read_pins(given: object) -> tuple[str, ...]:
    pins = tuple(each.lower() for each in read_texts(given))
    for pin in pins:
        if _PIN.fullmatch(pin) is None:
            raise OptionsError(
                f"key {pin} does not look like hex-encoded sha256 of DER encoded "
                "SubjectPublicKeyInfo"
            )
    return pins


def _read_first(given: object) -> timedelta | None:
    if given is None or isinstance(given, timedelta):
        return given
    word = str(given).lower()
    if isinstance(given, bool | str) and word in _FIRST_WORDS:
        return _FIRST_WORDS[word]
    try:
        if not isinstance(given, str):
            raise DurationError
        return parse_duration(given)
    except DurationError:
        raise OptionsError(
            f"must be a boolean, auto, or a duration, not {in_words(given)}"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class OcspPeerOptions(Settings):
    """The check of clients' certificates with OCSP."""

    verify: bool = flag(False, "check certificates")
    allowed_clockskew: timedelta = duration(timedelta(seconds=30), "how far clocks may differ")
    ca_timeout: timedelta = duration(timedelta(seconds=2), "how long a responder may take")
    cache_ttl_when_next_update_unset: timedelta = duration(
        timedelta(hours=1), "how long a response without an end is kept"
    )
    warn_only: bool = flag(False, "accept the client and log what is wrong")
    unknown_is_good: bool = flag(False, "accept what the responder does not know")
    allow_when_ca_unreachable: bool = flag(False, "accept the client if no responder answers")


def _read_ocsp_peer(given: object) -> bool:
    return given if isinstance(given, bool) else section_of(OcspPeerOptions, given).verify


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions(Settings):
    """Certificates, and what is asked of the other side."""

    cert_file: Path | None = file("certificate, with its chain, in PEM")
    key_file: Path | None = file("private key in PEM")
    ca_file: Path | None = file("certificates of the authorities that sign the other side's")
    certs: tuple[CertificatePair, ...] = section_field(
        (), _read_certs, "several certificates; the client's server name selects one"
    )
    insecure: bool = flag(False, "accept any certificate of the other side")
    verify: bool = flag(False, "ask clients for a certificate, and check it")
    verify_and_map: bool = flag(False, "log in the user that the client's certificate names")
    verify_cert_and_check_known_urls: bool = flag(
        False, "check that the other server's certificate names a configured URL"
    )
    timeout: timedelta = duration(TIMEOUT_DEFAULT, "how long a handshake may take")
    connection_rate_limit: int = whole(0, 0, INT64_MAX, "handshakes per second; 0: no limit")
    cipher_suites: tuple[str, ...] = section_field((), _suites, "cipher suites; none: Go's default")
    allow_insecure_cipher_suites: bool = flag(False, "allow cipher suites that are broken")
    curve_preferences: tuple[str, ...] = section_field(
        (), _curves, "key exchange curves, the preferred first; none: all"
    )
    min_version: str = word("1.2", VERSIONS, "lowest version of TLS")
    pinned_certs: tuple[str, ...] = section_field(
        (), _read_pins, "SHA-256 of the only public keys that are accepted, in hexadecimal"
    )
    handshake_first: timedelta | None = section_field(
        None, _read_first, "TLS handshake before INFO: true, auto (50ms), or a duration"
    )
    cert_store: str = text("", "certificate store of Windows: not supported")
    cert_match_by: str = text("", "what cert_match compares: not supported")
    cert_match: str = text("", "certificate in the store: has no effect")
    ca_certs_match: tuple[str, ...] = texts("authorities in the store: has no effect")
    cert_match_skip_invalid: bool = flag(False, "leave out invalid certificates: has no effect")
    ocsp_peer: bool = section_field(
        False, _read_ocsp_peer, "check revocation of certificates with OCSP: not supported"
    )

    def check(self) -> None:
        """Check settings that depend on each other. Raises OptionsError."""
        if self.verify_and_map or self.verify_cert_and_check_known_urls:
            object.__setattr__(self, "verify", True)
        if self.certs and self.cert_file is not None:
            raise OptionsError(
                "cannot combine 'cert_file' option with 'certs' option", setting="certs"
            )
        if self.key_file is not None and self.cert_file is None:
            raise OptionsError("missing 'cert_file' in TLS configuration", setting="key_file")
        if self.cert_file is not None and self.key_file is None:
            raise OptionsError("missing 'key_file' in TLS configuration", setting="cert_file")
        insecure = [each for each in self.cipher_suites if each in INSECURE_CIPHER_SUITES]
        if insecure and not self.allow_insecure_cipher_suites:
            raise OptionsError(
                "insecure cipher suites configured without 'allow_insecure_cipher_suites' "
                f"option set: {', '.join(insecure)}",
                setting="cipher_suites",
            )
        for name in ("cert_store", "cert_match_by"):
            if getattr(self, name):
                raise OptionsError(
                    "the certificate store of Windows is not supported", setting=name
                )
        if self.ocsp_peer:
            raise OptionsError("ocsp_peer is not supported yet", setting="ocsp_peer")


def read_tls(given: object) -> TlsOptions:
    """Return the section from a mapping. Raises OptionsError."""
    found = read_server_tls(given)
    if found.verify_cert_and_check_known_urls:
        name = "verify_cert_and_check_known_urls"
        error = OptionsError(f"{name} not supported in this context", setting=name)
        locate(error, given)
        raise error
    return found


def read_server_tls(given: object) -> TlsOptions:
    """Return the section of connections between servers from a mapping. Raises OptionsError."""
    return section_of(TlsOptions, given, aliases=ALIASES)
