"""Names of cipher suites: as Go and IANA write them, and as OpenSSL does.

- The suites of TLS 1.3 have one name in both. All of them are always enabled, as in Go, where they
  cannot be configured either.
- `apply` enables the suites of a configuration, or Go's secure ones if it names none. A suite that
  OpenSSL was built without is refused, not left out.
"""

import ssl
from collections.abc import Sequence
from typing import Final

from natsd.tls.errors import TlsError

SECURE: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
}
"""The suites of TLS 1.2 that are enabled by default, the preferred first."""
INSECURE: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA": "ECDHE-RSA-DES-CBC3-SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA": "DES-CBC3-SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA": "ECDHE-ECDSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA": "ECDHE-RSA-RC4-SHA",
    "TLS_RSA_WITH_RC4_128_SHA": "RC4-SHA",
}
TLS13: Final = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
_OPENSSL: Final = SECURE | INSECURE
_STANDARD: Final = {ours: name for name, ours in _OPENSSL.items()}


def apply(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Enable only these suites, in this order; none named: the secure ones. Raises TlsError."""
    unknown = [name for name in names if name not in _OPENSSL and name not in TLS13]
    if unknown:
        raise TlsError(f"unrecognized cipher {unknown[0]}")
    chosen = [name for name in names if name in _OPENSSL] if names else list(SECURE)
    if not chosen:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    available = _available()
    missing = [name for name in chosen if names and _OPENSSL[name] not in available]
    if missing:
        raise TlsError(f"cipher suite {missing[0]} is not in this {ssl.OPENSSL_VERSION}")
    context.set_ciphers(":".join(_OPENSSL[name] for name in chosen))


def standard_name(name: str) -> str:
    """Return the name that Go and IANA give to a suite that OpenSSL names."""
    return _STANDARD.get(name, name)


def _available() -> set[str]:
    """Return OpenSSL's names of the suites that it was built with."""
    every = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    every.set_ciphers("ALL:@SECLEVEL=0")
    return {each["name"] for each in every.get_ciphers()}
