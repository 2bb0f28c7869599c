"""The reason why a handshake failed, in the words that Go uses for it in nats-server's log."""

import ssl
from typing import Final

VERIFICATION: Final = "tls: failed to verify certificate: x509: "
UNKNOWN_AUTHORITY: Final = VERIFICATION + "certificate signed by unknown authority"

_REASONS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "tls: client didn't provide a certificate",
    "UNSUPPORTED_PROTOCOL": "tls: client offered only unsupported versions",
    "NO_SHARED_CIPHER": "tls: no cipher suite supported by both client and server",
    "NO_SUITABLE_SIGNATURE_ALGORITHM": "tls: peer doesn't support any of the certificate's "
    "signature algorithms",
    "NO_SUITABLE_KEY_SHARE": "tls: no key exchanges supported by both client and server",
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": "local error: tls: bad record MAC",
    "BAD_SIGNATURE": "tls: invalid signature by the client certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "remote error: tls: unknown certificate authority",
    "SSLV3_ALERT_BAD_CERTIFICATE": "remote error: tls: bad certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "remote error: tls: unknown certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "remote error: tls: expired certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "remote error: tls: handshake failure",
}
"""OpenSSL's reason, and Go's text."""
_VERIFICATIONS: Final = {
    "certificate has expired": VERIFICATION + "certificate has expired or is not yet valid",
    "certificate is not yet valid": VERIFICATION + "certificate has expired or is not yet valid",
    "unsuitable certificate purpose": VERIFICATION
    + "certificate specifies an incompatible key usage",
    "unable to get local issuer certificate": UNKNOWN_AUTHORITY,
    "unable to get issuer certificate": UNKNOWN_AUTHORITY,
    "unable to verify the first certificate": UNKNOWN_AUTHORITY,
    "self-signed certificate": UNKNOWN_AUTHORITY,
    "self-signed certificate in certificate chain": UNKNOWN_AUTHORITY,
}
"""OpenSSL's result of a verification, and Go's text."""


def text_of(error: ssl.SSLError | str) -> str:
    """Return the reason of a failed handshake."""
    if isinstance(error, str):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        message = error.verify_message
        return _VERIFICATIONS.get(message, VERIFICATION + message)
    reason = error.reason or "unknown error"
    return _REASONS.get(reason, "tls: " + reason.replace("_", " ").lower())
