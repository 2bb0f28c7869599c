"""The text of `natsd -help_tls`: an example of `tls {}`, and the names that it may contain."""

from typing import Final

from natsd.config.tls_options import CIPHER_SUITES, CURVES

_HEAD: Final = """
TLS configuration is specified in the tls section of a configuration file:

e.g.

    tls {
        cert_file:      "./certs/server-cert.pem"
        key_file:       "./certs/server-key.pem"
        ca_file:        "./certs/ca.pem"
        verify:         true
        verify_and_map: true

        cipher_suites: [
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
        ]
        curve_preferences: [
            "CurveP256",
            "CurveP384",
            "CurveP521"
        ]
    }

Available cipher suites include:
"""


def tls_usage() -> str:
    """Return the help text."""
    suites = "\n".join(f"    {name}" for name in CIPHER_SUITES)
    curves = "\n".join(f"    {name}" for name in CURVES)
    return f"{_HEAD}{suites}\n\nAvailable curve preferences include:\n{curves}\n"
