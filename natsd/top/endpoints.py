"""The monitoring endpoints of a server, read over HTTP.

Every failure is a `TopError`, whose text is one line that says what to do.
"""

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

PORT: Final = 8222
PATIENCE_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 64 << 20

Fields = dict[str, Any]


class TopError(Exception):
    """The server cannot be read; the text says why, in one line."""


class Endpoints:
    """The monitoring endpoints of one server, read over HTTP."""

    def __init__(
        self,
        url: str,
        *,
        user: str = "",
        password: str = "",
        context: ssl.SSLContext | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Name the server: a URL, `host:port`, or a host. Raises TopError.

        `patience_s` is the time that the server may take for an answer.
        """
        self.url, login = _complete(url)
        self._patience_s = patience_s
        given = f"{user}:{password}" if user else login
        self._headers = {"Accept": "application/json"}
        if given:
            self._headers["Authorization"] = "Basic " + base64.b64encode(given.encode()).decode()
        # Proxies are for the world outside; the server is asked itself.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def get(self, path: str, *, optional: bool = False) -> Fields | None:
        """Return the answer of an endpoint; None: it is `optional` and there is none.

        Raises TopError.
        """
        request = urllib.request.Request(f"{self.url}/{path}", headers=self._headers)
        try:
            with self._opener.open(request, timeout=self._patience_s) as response:
                answer = json.loads(response.read(ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == http.HTTPStatus.NOT_FOUND and optional:
                return None
            raise TopError(self._refusal(error.code)) from None
        except http.client.BadStatusLine as error:
            raise TopError(self._stranger(str(error))) from None
        except (OSError, http.client.HTTPException) as error:
            raise TopError(self._failure(error)) from None
        except ValueError:
            raise TopError(f"{self.url} is not the monitoring port of a NATS server") from None
        if not isinstance(answer, dict):
            raise TopError(f"{self.url} is not the monitoring port of a NATS server")
        return answer

    def _refusal(self, code: int) -> str:
        if code == http.HTTPStatus.UNAUTHORIZED:
            return f"{self.url} needs a user and a password: natsd top --user NAME"
        if code == http.HTTPStatus.NOT_FOUND:
            return f"{self.url} is not the monitoring port of a NATS server"
        return f"{self.url} answers with HTTP status {code}"

    def _stranger(self, line: str) -> str:
        if line.startswith("INFO "):
            return f"{self.url} is the port of NATS clients; monitoring has another (natsd -m 8222)"
        return f"{self.url} does not speak HTTP"

    def _failure(self, error: Exception) -> str:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, ConnectionRefusedError):
            return f"nothing listens at {self.url}; natsd -m {PORT} starts a server with monitoring"
        if isinstance(reason, TimeoutError):
            return f"{self.url} does not answer within {self._patience_s:.0f} s"
        if isinstance(reason, ssl.SSLError):
            why = reason.verify_message if isinstance(reason, ssl.SSLCertVerificationError) else ""
            return f"{self.url}: TLS failed: {why or reason.reason or reason}"
        text = str(reason.strerror if isinstance(reason, OSError) else reason)
        return f"{self.url}: {text or type(reason).__name__}"


def _complete(url: str) -> tuple[str, str]:
    """Return the URL with scheme and port and without a slash at its end, and its login."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme not in ("http", "https") or not host:
        raise TopError(f"{url} is not the URL of a monitoring port, such as http://localhost:8222")
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
    where = f"[{host}]" if ":" in host else host
    return urlunsplit(
        (parts.scheme, f"{where}:{port or PORT}", parts.path.rstrip("/"), "", "")
    ), login
