"""Parser and connection: the same bytes whole, in two parts and byte by byte have one result.

Input: the bytes of a client. They go to a connection without a socket, while a second connection
subscribes to everything. The bytes sent to both, the counters, and the reason of the close must not
depend on the cuts. Garbage either parses or closes the connection: no exception is raised.

Two bytes 0x7F stand for 40,000 of them: a payload larger than the largest input.
"""

from collections.abc import Iterable

from natsd.accounts import Account, AccountDirectory
from natsd.clients.client import Client
from natsd.clients.pending_logins import PendingLogins
from natsd.config import Options
from natsd.core.network import Reactor, Settings
from natsd.core.reasons import ClosedReason
from natsd.core.routing import live_counts
from natsd.server.login import NoLogin
from tests.core.without_sockets import Loop, Transport, failed, feed

MODULES = [
    "natsd.core.network",
    "natsd.core.routing",
    "natsd.core.network",
    "natsd.core.network",
    "natsd.core.network",
    "natsd.core.routing",
    "natsd.core.network",
]
HELLO = b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"echo":true}\r\n'
SEEDS = [
    HELLO + b"PING\r\nPONG\r\n+OK\r\n",
    HELLO + b"SUB foo 1\r\nSUB foo.* q 2\r\nPUB foo 5\r\nhello\r\nPUB foo.bar reply.1 0\r\n\r\n",
    HELLO + b"SUB > 1\r\nHPUB foo 12 17\r\nNATS/1.0\r\n\r\nhello\r\n",
    HELLO + b"SUB > 1\r\nHPUB foo answer 12 12\r\nNATS/1.0\r\n\r\n\r\n",
    HELLO + b"SUB a 1\r\nUNSUB 1 2\r\nPUB a 1\r\nx\r\nPUB a 1\r\ny\r\nPUB a 1\r\nz\r\nUNSUB 1\r\n",
    HELLO + b"SUB _INBOX.* 9\r\nPUB nobody _INBOX.1 2\r\nhi\r\n",
    b'CONNECT {"verbose":true,"pedantic":true}\r\nsub foo 1\r\npub foo.* 2\nhi\nping\nunsub 1\r\n',
    b'CONNECT {"echo":false}\r\nSUB\tfoo\t1\r\nPUB  foo\t 002 \r\nhi\r\nHPUB foo 0 0\r\n\r\n',
    b"CONNECT {}\r\nSUB big 1\r\nPUB big 40000\r\n\x7f\x7f\r\nPUB big 3\r\nabc\r\n",
    b"CONNECT {\r\nPING\r\n",
    b'CONNECT {"name":"\xff"}\r\nPING\r\n',
    b'CONNECT {"other":"\xff","verbose":1}\r\nPING\r\n',
    b"INFO \xff\r\n",
    b"CONNECT " + b"[" * 200 + b"\r\n",
    b"PUB foo 70000\r\n",
    b"PUB foo -1\r\nPUB foo 99999999999\r\nHPUB foo 5 3\r\nabc\r\n",
    b"SUB foo..bar 1\r\nSUB a.>.b 2\r\nSUB a b c d\r\nUNSUB\r\n",
    b"INFO {}\r\n-ERR 'x'\r\nGET / HTTP/1.0\r\n\r\n",
    b"SUB " + b"x" * 300 + b" 1\r\nPING\r\n",
]
LARGE = b"\x7f" * 40_000
LARGE_MAX = 2  # of them in one input
SINGLE_BYTES_MAX = 2048


class Host:
    """The few functions of a server that a client calls."""

    def __init__(self, reactor: Reactor, limits: Settings) -> None:
        self.options = Options(ping_interval=3600, write_deadline=3600)
        self.reactor = reactor
        self.settings = limits
        self.clients: dict[int, Client] = {}
        self.authenticator = NoLogin("$G")
        self.logins = PendingLogins()
        self.openings = None
        self.accounts = self.new_accounts()

    def new_accounts(self) -> AccountDirectory:
        return AccountDirectory(lambda name, _: Account(name, self.reactor))

    def info(self, cid: int, ip: str, account: Account | None = None, **more: object) -> bytes:
        return b"INFO {}\r\n"

    def now_ns(self) -> int:
        return 0

    def client_connected(self, client: Client, left: object) -> None: ...

    def client_refused(self, client: Client) -> None: ...

    def client_closed(self, client: Client) -> None: ...


class Peer(Client):
    """A client that notes whether the member of a queue group was chosen at random."""

    picks_at_random = False

    def may_subscribe(self, subject: bytes, queue: bytes | None, sid: bytes) -> bool:
        self.picks_at_random |= queue is not None
        return super().may_subscribe(subject, queue, sid)


def limits() -> Settings:
    """Return limits that small inputs reach; timers never fire."""
    settings = Settings()
    settings.max_control_line = 256
    settings.max_payload = 64 * 1024
    settings.max_pending = 64 * 1024 * 1024
    settings.max_subscriptions = 50
    settings.max_sub_tokens = 0
    settings.ping_interval_ns = settings.write_deadline_ns = 1 << 60
    settings.ping_max = 2
    settings.no_fast_producer_stall = True
    return settings


HOST = Host(Reactor(Loop(), failed), limits())
IDLE_ACCOUNTS = HOST.accounts


def session(pieces: Iterable[bytes]) -> tuple[object, ...]:
    """Return all effects of a client that sends these pieces."""
    HOST.accounts = HOST.new_accounts()
    account = HOST.accounts.default
    transports = Transport(), Transport()
    client, listener = (
        Peer(HOST, cid, -1, "127.0.0.1", 4000 + cid, transport)
        for cid, transport in enumerate(transports)
    )
    client.welcome()
    listener.welcome()
    feed(listener.endpoint, b'CONNECT {"headers":true,"verbose":false}\r\nSUB > all\r\n')
    for piece in pieces:
        if client.reason is not None:
            break
        feed(client.endpoint, piece)
    outcome = (
        client.reason,
        client.in_msgs,
        client.in_bytes,
        account.counters.out_msgs,
        client.num_subscriptions,
        bytes(transports[1].written),
        b"" if client.picks_at_random else bytes(transports[0].written),
    )
    for peer in (client, listener):
        peer.close(ClosedReason.CLIENT_CLOSED)
        feed(peer.endpoint, b"")
    assert len(account.sublist) == 0
    assert HOST.clients == {}
    HOST.accounts = IDLE_ACCOUNTS
    return outcome


def check(data: bytes) -> None:
    before = live_counts()
    data = data.replace(b"\x7f\x7f", LARGE, LARGE_MAX)
    middle = data[0] * len(data) // 256 if data else 0
    whole = session([data])
    assert session([data[:middle], data[middle:]]) == whole
    singles = [data[at : at + 1] for at in range(min(len(data), SINGLE_BYTES_MAX))]
    assert session([*singles, data[SINGLE_BYTES_MAX:]]) == whole
    assert live_counts() == before
