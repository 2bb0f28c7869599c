"""The token, or the user and password, that the configuration gives to all clients."""

from natsd.auth.verdict import REFUSED, ConnectingClient, Credentials, Verdict
from natsd.config import Options


class SingleLogin:
    """The token, or the user and password, that the configuration gives to all clients, if any."""

    def __init__(self, options: Options, account: str) -> None:
        """Accept clients into the account of that name."""
        self._options = options
        self._accepted = Verdict(account)

    @property
    def is_required(self) -> bool:
        """Whether there is a token, or a user and password."""
        return self._options.auth_required

    @property
    def needs_nonce(self) -> bool:
        """Return that clients sign nothing."""
        return False

    def authenticate(self, client: ConnectingClient, connect: Credentials) -> Verdict:
        """Compare the credentials of a CONNECT with the configured ones."""
        expected = self._options.authorization
        if expected.token:
            return self._verdict(is_right=_equal(connect.auth_token, expected.token))
        if expected.user or expected.password:
            is_user = _equal(connect.user, expected.user)
            return self._verdict(is_right=_equal(connect.password, expected.password) and is_user)
        return self._accepted

    def _verdict(self, *, is_right: bool) -> Verdict:
        return self._accepted if is_right else REFUSED


def _equal(given: str, expected: str) -> bool:
    """Return whether two secrets are equal, in constant time."""
    import hmac  # here, since it loads OpenSSL: a fifteenth of a start

    return hmac.compare_digest(given.encode(), expected.encode())
