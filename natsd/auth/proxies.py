"""Trusted proxies: a proxy signs the nonce of a connection that it passes on.

Source: nats-server's `proxyCheck` (server/auth.go).
"""

from natsd.auth.nkeys import decode_signature, verify


class Proxies:
    """The public keys of the proxies that the settings trust."""

    def __init__(self, trusted: tuple[str, ...]) -> None:
        """Trust the proxies with these keys."""
        self.trusted = trusted

    def signer(self, nonce: bytes, signature: str) -> str | None:
        """Return the key of the trusted proxy that signed; empty: no signature is needed or given.

        None: there is a signature, but none of a trusted proxy.
        """
        if not signature or not self.trusted:
            return ""
        decoded = decode_signature(signature)
        if decoded is not None:
            for key in self.trusted:
                if verify(key, nonce, decoded):
                    return key
        return None
