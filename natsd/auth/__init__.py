"""Authentication: who may connect, and what a connection may do."""

from natsd.auth.verdict import (
    NO_LIMITS,
    REFUSED,
    Authenticator,
    ConnectingClient,
    Credentials,
    Verdict,
)

__all__ = ["NO_LIMITS", "REFUSED", "Authenticator", "ConnectingClient", "Credentials", "Verdict"]
