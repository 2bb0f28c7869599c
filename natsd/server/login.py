"""The composition of what decides over a CONNECT, from the settings."""

import time
from typing import TYPE_CHECKING

from natsd.accounts import AccountDirectory
from natsd.auth import Authenticator, ConnectingClient, Credentials, Verdict
from natsd.config import Options

if TYPE_CHECKING:
    from natsd.auth.callout.service import AuthService
    from natsd.server.operator_mode import OperatorMode


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
    options: Options,
    accounts: AccountDirectory,
    before: Authenticator | None = None,
    *,
    operator: "OperatorMode | None" = None,
    ask: "AuthService | None" = None,
) -> Authenticator:
    """Return what decides over each CONNECT as the settings say.

    `before` is what decided before a reload. In operator mode `operator` decides. With an
    `auth_callout` in the settings, `ask` sends its requests. Raises OptionsError.
    """
    if operator is not None:
        return operator.make_authenticator(options)
    callout = options.authorization.auth_callout
    logins = _configured_logins(options, accounts, before)
    if callout is None:
        return logins
    from natsd.auth.callout.logins import ConfiguredCallout
    from natsd.server.callout_accounts import DirectoryCalloutAccounts

    assert ask is not None
    reachable = DirectoryCalloutAccounts(lambda: accounts)
    return ConfiguredCallout(logins, options, callout, reachable, ask, time.time_ns)


def _configured_logins(
    options: Options, accounts: AccountDirectory, before: Authenticator | None
) -> Authenticator:
    if not options.auth_required:
        return NoLogin(accounts.default.name)
    from natsd.auth.configured_logins import ConfiguredLogins

    before = getattr(before, "inner", before)  # what a callout asks first
    passwords = before.passwords if isinstance(before, ConfiguredLogins) else None
    return ConfiguredLogins(options, accounts.default.name, accounts.system.name, passwords)
