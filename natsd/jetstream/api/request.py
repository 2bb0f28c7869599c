"""A request as its handler gets it: who asks, about what, with which body.

Source: reference §6.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from natsd.core.wire import Wire
from natsd.jetstream.models.base import Model

if TYPE_CHECKING:
    from natsd.jetstream.account import JetStreamAccount

B = TypeVar("B", bound=Model)


class NoBody(Model):
    """The body of a request that has none."""


@dataclass(frozen=True, slots=True)
class Request(Generic[B]):
    """`body` has been read and checked against its model; `arguments` are the tokens of the subject
    that stand for the route's wildcards, the last one with all that `>` stands for. `origin` is the
    connection it came by, None: the server itself asks."""

    account: "JetStreamAccount"
    subject: str
    arguments: tuple[str, ...]
    body: B
    origin: Wire | None = None

    @property
    def client(self) -> Mapping[str, object]:
        """Who asks, as advisories tell it."""
        return self.account.jetstream.client_info(self.origin, self.account.name)

    @property
    def stream(self) -> str:
        """The first argument: a stream's name."""
        return self.arguments[0]

    @property
    def consumer(self) -> str:
        """The second argument: a consumer's name."""
        return self.arguments[1]
