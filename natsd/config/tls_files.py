"""The files of `tls {}`: whether they can be read, and whether certificates and keys fit.

Source: nats-server's `GenTLSConfig` (server/opts.go).
"""

from pathlib import Path

from natsd.config.settings import OptionsError
from natsd.config.tls_options import TlsOptions


def check_tls_files(tls: TlsOptions) -> None:
    """Load certificates, keys and authorities. Raises OptionsError."""
    pairs = [(pair.cert_file, pair.key_file) for pair in tls.certs]
    if tls.cert_file is not None:
        pairs.append((tls.cert_file, tls.key_file))
    for cert_file, key_file in pairs:
        _check_pair(cert_file, key_file)
    if tls.ca_file is not None:
        _check_authorities(tls.ca_file)


def _check_pair(cert_file: Path | None, key_file: Path | None) -> None:
    import ssl

    assert cert_file is not None
    assert key_file is not None
    for path in (cert_file, key_file):
        _check_readable(path, "error parsing X509 certificate/key pair")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            cert_file, key_file, password=_no_password
        )
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None)
        if reason == "KEY_VALUES_MISMATCH":
            text = f"private key {key_file} does not match public key of {cert_file}"
        elif reason in (None, "BAD_PASSWORD_READ"):
            text = f"private key {key_file} is encrypted or damaged"
        elif reason in ("EE_KEY_TOO_SMALL", "CA_MD_TOO_WEAK", "EE_KEY_TOO_WEAK"):
            text = f"the key of {cert_file} is too short for OpenSSL"
        else:
            text = f"{cert_file} or {key_file} is not in PEM, or is damaged"
        raise OptionsError(f"error parsing X509 certificate/key pair: {text}") from None


def _no_password() -> str:
    raise ValueError("a key with a password")


def _check_authorities(path: Path) -> None:
    import ssl

    _check_readable(path, "error parsing root certificates")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)
    except ssl.SSLError:
        raise OptionsError(f"failed to parse root ca certificate {path}") from None


def _check_readable(path: Path, what: str) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OptionsError(f"{what}: open {path}: {reason}") from None
