"""Errors between a task and a server: each text is one line and holds no secret.

Every error here can be pickled, because the driver shows the errors of executors.
"""

from __future__ import annotations


class ClientError(Exception):
    """A request to a server failed, or the server did not do what was requested."""


class ConnectError(ClientError):
    """No server of the list accepted a connection."""


class ConnectionLost(ClientError):
    """The connection ended during a request; the caller may reconnect."""


class AuthorizationError(ClientError):
    """A server refused the credentials or the permission: a retry does not help."""


class RequestTimeout(ClientError):
    """No answer came within the timeout."""


class NoResponders(ClientError):
    """No subscriber listens to the subject of a request."""


class ProtocolViolation(ClientError):
    """The received bytes are not the NATS protocol; the connection cannot be used any more."""


class JetStreamApiError(ClientError):
    """An error answer of the JetStream API.

    `code` is like an HTTP status, `err_code` is the number of the exact reason in nats-server's
    errors.json, `description` is the server's text. `about` names the request.
    """

    def __init__(self, code: int, err_code: int, description: str, about: str = "") -> None:
        self.code = code
        self.err_code = err_code
        self.description = description
        self.about = about
        where = f"{about}: " if about else ""
        super().__init__(f"{where}{description} ({code}/{err_code})")

    def __reduce__(self) -> tuple[type[JetStreamApiError], tuple[int, int, str, str]]:
        return (JetStreamApiError, (self.code, self.err_code, self.description, self.about))
