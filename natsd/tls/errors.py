"""The error of settings for TLS that cannot be applied."""

from natsd.config.settings import OptionsError


class TlsError(OptionsError):
    """TLS cannot be set up as configured; the text is one line for the user."""
