"""The metrics of connections: `gnatsd_connz_*`, sums over all open ones, and rows if wanted.

- The sums are over all connections; the Prometheus NATS exporter adds up the first 1,024 only.
- A row per connection has many labels. Prometheus keeps a series for each connection that there
  ever was: so they are told only if the request asks for `connz_detailed`.

Source: prometheus-nats-exporter's `connzCollector`.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from natsd.accounts import AccountDirectory
from natsd.clients import Client
from natsd.core.steps import Steps
from natsd.monitor.clock import Clock
from natsd.monitor.connz import LIMIT_DEFAULT
from natsd.monitor.metric_text import Gauges, Row, Value, label_text, row
from natsd.monitor.observed import ObservedServer

CONNECTIONS_PER_STEP: Final = 10
MICROSECOND_NS: Final = 1_000
MS_NS: Final = 1_000_000

SUMMED: Final = (
    "pending_bytes",
    "num_subscriptions",
    "in_bytes",
    "out_bytes",
    "in_msgs",
    "out_msgs",
)
"""The attributes of a client behind the first columns."""
_numbers: Final = attrgetter(*SUMMED)
CONNECTIONS: Final[Gauges] = (
    ("connz_pending_bytes", "pending_bytes"),
    ("connz_subscriptions", "subscriptions"),
    ("connz_in_bytes", "in_bytes"),
    ("connz_out_bytes", "out_bytes"),
    ("connz_in_msgs", "in_msgs"),
    ("connz_out_msgs", "out_msgs"),
    ("connz_num_connections", "num_connections"),
    ("connz_total", "total"),
    ("connz_offset", "offset"),
    ("connz_limit", "limit"),
    ("connz_start", "epoch time at which the connection was started"),
    ("connz_last_activity", "epoch time at which the last activity was registred"),
    ("connz_rtt", "response time latency in microseconds"),
    ("connz_uptime", "uptime duration in milliseconds"),
    ("connz_idle", "idle time duration in milliseconds"),
)
OF_ALL: Final[Sequence[Value]] = (None,) * 4
"""The columns that only the sums have: a single connection has none of them."""
OF_ONE: Final[Sequence[Value]] = (None,) * 5
"""The columns that only a single connection has."""


def connection_rows(
    server: ObservedServer, server_id: str, clock: Clock, *, detailed: bool
) -> Steps[list[Row]]:
    """Return, in steps, the row of the sums, after those of each connection if `detailed`."""
    rows: list[Row] = []
    sums = [0] * len(SUMMED)
    clients = list(server.clients.values())
    for start in range(0, len(clients), CONNECTIONS_PER_STEP):
        some = clients[start : start + CONNECTIONS_PER_STEP]
        table = [_numbers(each) for each in some]
        sums = [sum(column) for column in zip(sums, *table, strict=True)]
        if detailed:
            rows += [
                row(
                    _labels(each, server_id, server.accounts), (*one, *OF_ALL, *_times(each, clock))
                )
                for each, one in zip(some, table, strict=True)
            ]
        yield
    count = len(clients)
    values = (*sums, count, count, 0, max(count, LIMIT_DEFAULT), *OF_ONE)
    return [*rows, row(label_text(server_id=server_id), values)]


def _times(client: Client, clock: Clock) -> tuple[float, ...]:
    now_ns = clock.monotonic_ns()
    return (
        clock.to_wall_ns(client.start_ns) // MS_NS,
        clock.to_wall_ns(client.last_activity_ns) // MS_NS,
        client.rtt_ns // MICROSECOND_NS,
        (now_ns - client.start_ns) // MS_NS,
        (now_ns - client.last_activity_ns) // MS_NS,
    )


def _labels(client: Client, server_id: str, accounts: AccountDirectory) -> str:
    account = accounts.get(client.account_name)
    tls = client.tls_state
    return label_text(
        server_id=server_id,
        cid=str(client.cid),
        kind=client.kind,
        type="nats",
        ip=client.ip,
        port=str(client.port),
        name=client.name,
        name_tag="" if account is None else account.name_tag,
        account=client.account_name,
        account_id=client.account_name,
        lang=client.lang,
        version=client.version,
        tls_version="" if tls is None else tls.version,
        tls_cipher_suite="" if tls is None else tls.cipher_suite,
    )
