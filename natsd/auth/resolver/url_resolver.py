"""The resolver that asks a web server: GET `<url><account>`.

- An answer other than 200, one that is too long or too late, and a failed connection raise
  NotResolved. The log shows the URL without user and password.
- aiohttp is imported with the first request.

Source: nats-server's `URLAccResolver` (server/accounts.go).
"""

import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from natsd.auth.jwt.token import TOKEN_BYTES_MAX
from natsd.auth.resolver.resolver import NotResolved

if TYPE_CHECKING:
    from aiohttp import ClientSession

CONNECTIONS_MAX: Final = 10
IDLE_S: Final = 30


class UrlResolver:
    """The JWTs that a web server has."""

    def __init__(self, url: str, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        """Ask the server at `url`; `tls` has its certificates, None: those of the system."""
        self._url = url if url.endswith("/") else f"{url}/"
        self._timeout_s = timeout_s
        self._tls = tls
        self._session: ClientSession | None = None

    async def start(self) -> None:
        """Do nothing: the first request connects."""

    async def fetch(self, name: str) -> str:
        """Return the JWT of an account. Raises NotResolved."""
        import aiohttp

        where = f"could not fetch <{_without_login(self._url)}{name}>"
        try:
            async with self._connect().get(self._url + name, ssl=self._tls or True) as response:
                if response.status != 200:
                    raise NotResolved(f"{where}: {response.status} {response.reason}")
                body = await response.content.read(TOKEN_BYTES_MAX + 1)
                while len(body) <= TOKEN_BYTES_MAX and not response.content.at_eof():
                    body += await response.content.read(TOKEN_BYTES_MAX + 1 - len(body))
        except TimeoutError:
            raise NotResolved(f"{where}: no answer within {self._timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NotResolved(f"{where}: {_without_login(str(error))}") from None
        if len(body) > TOKEN_BYTES_MAX:
            raise NotResolved(f"{where}: the answer is longer than {TOKEN_BYTES_MAX} bytes")
        return body.decode("ascii", "replace").strip()

    async def store(self, name: str, jwt: str) -> None:
        """Refuse: the web server has its own JWTs."""
        raise NotResolved("store operation not supported for URL Resolver")

    async def close(self) -> None:
        """Close idle connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _connect(self) -> "ClientSession":
        if self._session is None:
            from aiohttp import ClientSession, ClientTimeout, TCPConnector

            self._session = ClientSession(
                connector=TCPConnector(limit=CONNECTIONS_MAX, keepalive_timeout=IDLE_S),
                timeout=ClientTimeout(total=self._timeout_s),
            )
        return self._session


def _without_login(url: str) -> str:
    """Return a URL without its user and password."""
    login = urlsplit(url).netloc.rpartition("@")[0] if "@" in url and "://" in url else ""
    return url.replace(f"{login}@", "") if login else url
