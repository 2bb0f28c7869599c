"""The accounts of a server, as auth callouts use them."""

from collections.abc import Callable

from natsd.accounts import AccountDirectory, InternalClient, NoRespondersError
from natsd.auth.callout.service import CalloutFailed


class CalloutRequests:
    """The requests of one account to its auth service."""

    def __init__(self, account: str, client: InternalClient) -> None:
        self._account = account
        self._client = client

    async def request(
        self, subject: str, payload: bytes = b"", *, timeout_s: float = 2.0, headers: bytes = b""
    ) -> bytes:
        """Send a request and return the payload of the first reply.

        Raises CalloutFailed at once if no service listens, and TimeoutError.
        """
        try:
            return await self._client.request(
                subject, payload, timeout_s=timeout_s, headers=headers
            )
        except NoRespondersError:
            raise CalloutFailed(
                f'No authorization service listens on account "{self._account}"'
            ) from None


class DirectoryCalloutAccounts:
    """The accounts in a directory, which is asked for when they are used."""

    def __init__(self, directory: Callable[[], AccountDirectory]) -> None:
        self._directory = directory

    def has(self, name: str) -> bool:
        """Return whether there is such an account."""
        return name in self._directory()

    def client_of(self, name: str) -> CalloutRequests:
        """Return the internal client of an account that exists."""
        return CalloutRequests(name, self._directory()[name].internal_client)
