"""A client connection, as a server of a test tells it to the test."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from natsd.server import Server

SUBJECTS_MAX: Final = 1000
SUBJECTS_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Connection:
    """A client connection that is open."""

    cid: int
    name: str
    """What the client calls the connection; empty: nothing."""
    lang: str
    version: str
    """The client library's version."""
    ip: str
    port: int
    account: str
    user: str
    subscriptions: tuple[str, ...]
    """Subjects of the subscriptions, at most SUBJECTS_MAX."""
    age_s: float

    def __str__(self) -> str:
        from natsd.server.log import on_one_line

        library = " ".join(filter(None, (self.lang, self.version))) or "unknown client"
        text = f"cid {self.cid}, {self.name or 'without a name'}, {library}, {self.ip}:{self.port}"
        if self.user:
            text += f", user {self.user} of account {self.account}"
        text += f", open for {self.age_s:.2f} s"
        if not self.subscriptions:
            return on_one_line(f"{text}, no subscriptions")
        shown = ", ".join(self.subscriptions[:SUBJECTS_SHOWN])
        more = len(self.subscriptions) - SUBJECTS_SHOWN
        text += f", subscribed to {shown}" + (f" and {more} more" if more > 0 else "")
        return on_one_line(text)


def connections_of(server: "Server") -> list[Connection]:
    """Return the open client connections; must be called on the server's loop."""
    return list(_connections(server))


def _connections(server: "Server") -> Iterator[Connection]:
    now_ns = time.monotonic_ns()
    for client in server.clients.values():
        yield Connection(
            client.cid,
            client.name,
            client.lang,
            client.version,
            client.ip,
            client.port,
            client.account_name,
            client.authorized_user,
            tuple(each.subject for each in islice(client.subscriptions(), SUBJECTS_MAX)),
            (now_ns - client.start_ns) / 1e9,
        )
