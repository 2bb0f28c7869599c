"""The TLS settings of requests to a URL resolver (`resolver_tls`)."""

import ssl

from natsd.config import OptionsError
from natsd.config.tls_options import TlsOptions


def resolver_context(options: TlsOptions) -> ssl.SSLContext:
    """Return the context of a client that trusts and presents what the settings say.

    Raises OptionsError if a file is missing or of no use.
    """
    try:
        context = ssl.create_default_context(
            cafile=str(options.ca_file) if options.ca_file else None
        )
        if options.cert_file:
            context.load_cert_chain(
                str(options.cert_file), str(options.key_file) if options.key_file else None
            )
    except (OSError, ssl.SSLError) as error:
        raise OptionsError(f"resolver_tls: {error}") from None
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
