"""The common members of all answers: the type, and the error if there is one.

Source: nats-server's `ApiResponse` and `ApiError`.
"""

from natsd.jetstream.errors import ApiError
from natsd.jetstream.models.base import Int, Model, Omitempty


class ErrorBody(Model):
    """An error in an answer."""

    code: Int
    err_code: Omitempty[Int] = 0
    description: Omitempty[str] = ""

    @classmethod
    def of(cls, error: ApiError) -> "ErrorBody":
        """Return the body that describes the error."""
        return cls(code=error.code, err_code=error.err_code, description=error.description)


class Response(Model):
    """The envelope of an answer; each answer has its own type."""

    type: str = ""
    error: Omitempty[ErrorBody | None] = None


class Paged(Model):
    """The page of a list that an answer carries."""

    total: Int = 0
    offset: Int = 0
    limit: Int = 0
