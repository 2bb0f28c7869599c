"""What can go wrong between a task and a server, each in one line without a secret.

Everything here can be pickled: an executor's error is shown by the driver.
"""

from __future__ import annotations


class ClientError(Exception):
    """A server could not be asked, or did not do what it was asked for."""


class ConnectError(ClientError):
    """No server of the list let us in."""


class ConnectionLost(ClientError):
    """The connection ended under a request; another one may be opened."""


class AuthorizationError(ClientError):
    """A server does not know who asks, or does not allow it: trying again does not help."""


class RequestTimeout(ClientError):
    """No answer in time."""


class NoResponders(ClientError):
    """Nobody listens to the subject."""


class ProtocolViolation(ClientError):
    """What came is not the protocol; the connection is of no use any more."""


class ApiError(ClientError):
    """JetStream's refusal: `code` as HTTP's, `err_code` of the exact reason, `description`."""

    def __init__(self, code: int, err_code: int, description: str, about: str = "") -> None:
        self.code = code
        self.err_code = err_code
        self.description = description
        self.about = about
        where = f"{about}: " if about else ""
        super().__init__(f"{where}{description} ({code}/{err_code})")

    def __reduce__(self) -> tuple[type[ApiError], tuple[int, int, str, str]]:
        return (ApiError, (self.code, self.err_code, self.description, self.about))
