"""Who may read the monitoring endpoints: everybody, or those with the configured password.

- With `http_user` and `http_password` each request needs HTTP basic authentication. `/healthz`
  without parameters stays open, for probes.
- A wrong user name takes as long as a wrong password, and bcrypt hashes are computed in threads, as
  for clients (natsd.auth.passwords).
- The settings are read for each request, so a reload counts for the next one.
"""

import inspect
from base64 import b64decode
from typing import Final

from aiohttp import web

from natsd.auth.passwords import Passwords
from natsd.monitor.observed import ObservedServer

OPEN: Final = "/healthz"
REALM: Final = 'Basic realm="natsd monitoring", charset="UTF-8"'


class Access:
    """Checks the requests to one server's endpoints."""

    def __init__(self, server: ObservedServer) -> None:
        self._server = server
        self._passwords = Passwords()

    async def allows(self, request: web.Request, endpoint: str) -> bool:
        """Return whether a request to this endpoint may be answered."""
        options = self._server.options
        if not options.http_password or (endpoint == OPEN and not request.query_string):
            return True
        given = _login(request.headers.get("Authorization", ""))
        if given is None:
            return False
        user, password = given
        passwords, ip = self._passwords, request.remote or ""
        passwords.expect((options.http_password,))
        if passwords.same(options.http_user, user):
            is_right = passwords.check(options.http_password, password, ip)
        else:
            is_right = passwords.refuse(password, ip)
        return await is_right if inspect.isawaitable(is_right) else is_right


def _login(header: str) -> tuple[str, str] | None:
    """Return user and password of an `Authorization` header; None: it has none."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, _, password = b64decode(encoded, validate=True).decode().partition(":")
    except ValueError:
        return None
    return user, password


def refusal() -> web.Response:
    """Return the answer to a request that is not allowed."""
    headers = {"WWW-Authenticate": REALM}
    return web.Response(text="401 unauthorized\n", status=401, headers=headers)
