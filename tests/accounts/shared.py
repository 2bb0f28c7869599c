"""Servers with several accounts, whose clients give the name of their account as user."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from natsd import Server
from natsd.auth.verdict import ConnectingClient, Credentials, Verdict
from natsd.config.account_options import read_accounts
from tests.clients.traces import Peer


class ByUserName:
    """Puts each client into the account that it names as user."""

    is_required = True
    needs_nonce = False
    needs_credentials = True

    def authenticate(self, client: ConnectingClient, connect: Credentials) -> Verdict:
        return Verdict(connect.user, user=connect.user)


class Target:
    """The server as tests' clients see it."""

    def __init__(self, server: Server) -> None:
        self.host = "127.0.0.1"
        self.port = server.client_port
        self.options: Mapping[str, Any] = {}
        self.address = (self.host, self.port)
        self.url = server.client_url


class Member(Peer):
    """A client of an account."""

    def __init__(self, server: Server, account: str, **said: Any) -> None:
        super().__init__(Target(server), user=account, **said)

    def request(self, subject: str, reply: str, data: bytes = b"?") -> None:
        self.send(b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(data), data))

    def pub(self, subject: str, data: bytes = b"hi") -> None:
        self.send(b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(data), data))

    def got(self) -> Got:
        """Return the next message."""
        return Got(self.read_message())


class Got:
    """A message that a client received."""

    def __init__(self, frame: bytes) -> None:
        line, _, rest = frame.partition(b"\r\n")
        words = line.decode().split()
        has_headers = words[0] == "HMSG"
        del words[0]
        head = int(words[-2]) if has_headers else 0
        sizes = 2 if has_headers else 1
        self.subject, self.sid = words[0], words[1]
        self.reply = words[2] if len(words) - sizes > 2 else ""
        self.headers = rest[:head].decode()
        self.data = rest[head:-2]


def account(*imports: Any, exports: Any = (), **more: Any) -> dict[str, Any]:
    return {"imports": list(imports), "exports": list(exports), **more}


def stream(exporter: str, subject: str, **more: Any) -> dict[str, Any]:
    return {"stream": {"account": exporter, "subject": subject}, **more}


def service(exporter: str, subject: str, **more: Any) -> dict[str, Any]:
    return {"service": {"account": exporter, "subject": subject}, **more}


class Place:
    """A server, and its clients."""

    def __init__(self, server: Server, clients: ExitStack) -> None:
        self.server = server
        self._clients = clients

    def join(self, account: str, **said: Any) -> Member:
        """Return a new client of an account; it is closed at the end."""
        return self._clients.enter_context(Member(self.server, account, **said))

    def call(self, function: Callable[[], Any]) -> Any:
        """Return the result of a function that runs on the server's loop."""
        own = self.server._own_thread
        assert own is not None
        return own.call(function)

    def configure(self, **accounts: dict[str, Any]) -> None:
        """Change accounts while the server runs, as JWTs do: an import may lack its export."""
        given = read_accounts(accounts)
        links = self.server.links
        assert links is not None
        self.call(lambda: links.configure(given))

    def pending(self, name: str) -> int:
        """Return the replies that responders of an account may still use."""
        entry = self.server.accounts[name].entry
        return 0 if entry is None else entry.pending_count

    def awaited(self, name: str) -> int:
        """Return the reply subjects of an account on which others' responses are awaited."""
        entry = self.server.accounts[name].entry
        return 0 if entry is None else entry.awaited_count


@contextmanager
def serving(**settings: Any) -> Iterator[Place]:
    """Start a server with these accounts (names in capitals) and settings, on its own thread.

    Clients give the name of their account as user, unless `authenticator` is None: then the users
    are those of the accounts.
    """
    accounts = {name: settings.pop(name) for name in list(settings) if name[0].isupper()}
    settings = {"authenticator": ByUserName(), **settings}
    server = Server(host="127.0.0.1", port=-1, thread=True, accounts=accounts, **settings)
    with server, ExitStack() as clients:
        yield Place(server, clients)
