"""Authentication: who may connect, and what a connection may do."""

from natsd.auth.verdict import REFUSED, Authenticator, ConnectingClient, Credentials, Verdict

__all__ = ["REFUSED", "Authenticator", "ConnectingClient", "Credentials", "Verdict"]
