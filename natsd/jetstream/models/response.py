"""What every answer begins with: its type, and the error if it is one.

Source: reference §6.1.
"""

from natsd.jetstream.errors import ApiError
from natsd.jetstream.models.base import Int, Model, Omitempty


class ErrorBody(Model):
    """An error as JSON shows it."""

    code: Int
    err_code: Omitempty[Int] = 0
    description: Omitempty[str] = ""

    @classmethod
    def of(cls, error: ApiError) -> "ErrorBody":
        return cls(code=error.code, err_code=error.err_code, description=error.description)


class Response(Model):
    """The envelope of an answer; each answer names its type."""

    type: str = ""
    error: Omitempty[ErrorBody | None] = None


class Paged(Model):
    """The part of a list that an answer carries."""

    total: Int = 0
    offset: Int = 0
    limit: Int = 0
