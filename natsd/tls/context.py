"""The ssl.SSLContext of a listener, its replacement when certificates change, and that of a client.

- `context` is what new connections use; connections that exist keep theirs. `reload` builds the new
  one completely before it takes the place of the old one: on an error nothing has changed.
- Of several certificates, those for the client's server name are offered, or all if none is for it;
  of these OpenSSL chooses by the key types that the client supports. Of two with the same key type
  the first one counts.
- There are no session tickets in TLS 1.3: NATS clients do not resume sessions, and a resumed
  session would keep a client's certificate past a reload.

Source: nats-server's `GenTLSConfig` (server/opts.go).
"""

import logging
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from natsd.tls import certificates, cipher_suites, curves
from natsd.tls.certificates import Certificate
from natsd.tls.errors import TlsError

if TYPE_CHECKING:
    from natsd.config.tls_options import TlsOptions

logger = logging.getLogger("natsd.server")


class TlsContext:
    """What a TLS listener offers and asks for. Raises TlsError if it cannot be set up."""

    def __init__(self, options: "TlsOptions") -> None:
        self.reload(options)

    def reload(self, options: "TlsOptions") -> None:
        """Use these settings, and the files as they are now, for new connections.

        Raises TlsError; then nothing has changed. Certificates that have expired are logged.
        """
        pairs = _pairs(options)
        if not pairs:
            raise TlsError("TLS needs a certificate: set 'cert_file' and 'key_file', or 'certs'")
        context = _new_context(options)
        for index, (cert_file, key_file) in enumerate(pairs):
            which = f" {index + 1}/{len(pairs)}" if options.certs else ""
            # Each pair alone: of two with keys of one type, a context keeps the later one.
            certificates.load_pair(_bare_context(), cert_file, key_file, which)
        known = [certificates.read(*pair) for pair in pairs]
        _load(context, known)
        if len(known) > 1:
            context.sni_callback = _Chooser(options, known, context)
        now = datetime.now(UTC)
        for warning in filter(None, (each.warning(now) for each in known)):
            logger.warning("%s", warning)
        self.options = options
        self.certificates = known
        self.context = context


class _Chooser:
    """Chooses among several certificates for one connection; a callback of ssl.SSLContext."""

    def __init__(
        self, options: "TlsOptions", known: list[Certificate], default: ssl.SSLContext
    ) -> None:
        self._options = options
        self._known = known
        self._contexts: dict[tuple[int, ...], ssl.SSLContext] = {
            tuple(range(len(known))): default,
            (): default,
        }

    def __call__(
        self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext
    ) -> None:
        if name is None:
            return
        name = name.lower().removesuffix(".")
        fitting = tuple(i for i, each in enumerate(self._known) if each.is_for(name))
        context = self._contexts.get(fitting)
        if context is None:
            # There are at most as many contexts as names in the certificates.
            context = self._contexts[fitting] = _new_context(self._options)
            _load(context, [self._known[i] for i in fitting])
        connection.context = context


def _pairs(options: "TlsOptions") -> list[tuple[Path, Path]]:
    given = options.certs or (options,)
    return [
        (each.cert_file, each.key_file)
        for each in given
        if each.cert_file is not None and each.key_file is not None
    ]


def _load(context: ssl.SSLContext, known: list[Certificate]) -> None:
    """Load certificates so that of each key type the first one counts."""
    for each in reversed(known):
        certificates.load_pair(context, each.cert_file, each.key_file)


def client_context(options: "TlsOptions") -> ssl.SSLContext:
    """Return the context of connections to other servers, with our certificates.

    Raises TlsError. Files are read as they are now.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _limit(context, options)
    for cert_file, key_file in reversed(_pairs(options)):
        certificates.load_pair(context, cert_file, key_file)
    if options.ca_file is not None:
        certificates.load_authorities(context, options.ca_file)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    # As in Go, an intermediate certificate in `ca_file` is trusted by itself.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _limit(context: ssl.SSLContext, options: "TlsOptions") -> None:
    """Restrict what is negotiated as the settings say. Raises TlsError."""
    context.minimum_version = (
        ssl.TLSVersion.TLSv1_3 if options.min_version == "1.3" else ssl.TLSVersion.TLSv1_2
    )
    context.options |= ssl.OP_NO_RENEGOTIATION
    cipher_suites.apply(context, options.cipher_suites)
    curves.apply(context, options.curve_preferences)


def _bare_context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def _new_context(options: "TlsOptions") -> ssl.SSLContext:
    """Return a context for a server, without certificates. Raises TlsError."""
    context = _bare_context()
    context.num_tickets = 0
    _limit(context, options)
    if options.ca_file is not None:
        certificates.load_authorities(context, options.ca_file)
    elif options.verify:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    if options.verify:
        context.verify_mode = ssl.CERT_REQUIRED
        # As in Go, an intermediate certificate in `ca_file` is trusted by itself.
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    return context
