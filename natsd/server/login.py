"""The composition of what decides over a CONNECT, from the settings."""

from natsd.accounts import AccountDirectory
from natsd.auth import Authenticator, ConnectingClient, Credentials, Verdict
from natsd.config import Options


class NoLogin:
    """Accepts every client into one account."""

    is_required = False
    needs_nonce = False
    needs_credentials = False

    def __init__(self, account: str) -> None:
        self._accepted = Verdict(account)

    def authenticate(self, client: ConnectingClient, connect: Credentials) -> Verdict:
        """Accept the client."""
        return self._accepted


def make_authenticator(
    options: Options, accounts: AccountDirectory, before: Authenticator | None = None
) -> Authenticator:
    """Return what decides over each CONNECT as the settings say.

    `before` is what decided before a reload. Raises OptionsError.
    """
    if not options.auth_required:
        return NoLogin(accounts.default.name)
    from natsd.auth.configured_logins import ConfiguredLogins

    passwords = before.passwords if isinstance(before, ConfiguredLogins) else None
    return ConfiguredLogins(options, accounts.default.name, accounts.system.name, passwords)
