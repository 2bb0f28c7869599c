"""The connections of the summary: the busiest ones, and those that were too slow.

A connection is chosen if it is among the first by messages per second, by bytes per second, by
pending bytes, or by subscriptions. `/connz` lists all.
"""

from dataclasses import dataclass
from typing import Any, Final

from natsd.clients import Client
from natsd.clients.closed import ClosedClient
from natsd.core.reasons import ClosedReason
from natsd.core.steps import Steps
from natsd.monitor.clock import Clock
from natsd.monitor.observed import ObservedServer
from natsd.monitor.summary.meter import Meter, rounded
from natsd.monitor.summary.ranking import Ranking, shown
from natsd.monitor.values import timestamp

CONNECTIONS_PER_STEP: Final = 64
FIRST_BY_EACH: Final = 25
SLOW_MAX: Final = 20
SLOW: Final = (
    ClosedReason.SLOW_CONSUMER_PENDING_BYTES.value,
    ClosedReason.SLOW_CONSUMER_WRITE_DEADLINE.value,
)
NO_RATES: Final = (None,) * 4


@dataclass(slots=True, eq=False)
class MeasuredClient:
    """A client and its traffic per second: messages in and out, bytes in and out."""

    client: Client
    rates: tuple[float, ...] | None


def choose_connections(
    server: ObservedServer, meter: Meter
) -> Steps[tuple[Ranking[MeasuredClient], Ranking[MeasuredClient]]]:
    """Return the connections to show, and the greatest receivers, whose subjects are shown."""
    ranking: Ranking[MeasuredClient] = Ranking(4, FIRST_BY_EACH)
    receivers: Ranking[MeasuredClient] = Ranking(2, FIRST_BY_EACH * 4)
    for index, client in enumerate(list(server.clients.values())):
        if index % CONNECTIONS_PER_STEP == CONNECTIONS_PER_STEP - 1:
            yield
        counters = (client.in_msgs, client.out_msgs, client.in_bytes, client.out_bytes)
        rates = meter.rates(client.cid, counters)
        in_msgs, out_msgs, in_bytes, out_bytes = rates or (0, 0, 0, 0)
        measured = MeasuredClient(client, rates)
        subscriptions = client.num_subscriptions
        ranking.add(
            measured,
            (in_msgs + out_msgs, in_bytes + out_bytes, client.pending_bytes, subscriptions),
        )
        if subscriptions:
            receivers.add(measured, (out_msgs, client.out_msgs))
    return ranking, receivers


def connection_row(measured: MeasuredClient, clock: Clock) -> dict[str, Any]:
    """Return one connection; the names of its fields are those of `/connz` where it has them."""
    client, rates = measured.client, measured.rates or NO_RATES
    idle_ns = clock.monotonic_ns() - client.last_activity_ns
    in_msgs, out_msgs, in_bytes, out_bytes = map(rounded, rates)
    return {
        **_names(client),
        "lang": shown(client.lang),
        "version": shown(client.version),
        "tls": client.tls_state is not None,
        "start": timestamp(clock.to_wall_ns(client.start_ns)),
        "idle_s": max(idle_ns // 1_000_000_000, 0),
        "rtt_ms": round(client.rtt_ns / 1e6, 3),
        "pending_bytes": client.pending_bytes,
        "stalls": client.stalls,
        "subscriptions": client.num_subscriptions,
        "in_msgs": client.in_msgs,
        "out_msgs": client.out_msgs,
        "in_bytes": client.in_bytes,
        "out_bytes": client.out_bytes,
        "in_msgs_rate": in_msgs,
        "out_msgs_rate": out_msgs,
        "in_bytes_rate": in_bytes,
        "out_bytes_rate": out_bytes,
    }


def _names(connection: Client | ClosedClient) -> dict[str, Any]:
    return {
        "cid": connection.cid,
        "name": shown(connection.name),
        "account": shown(connection.account_name),
        "user": shown(connection.authorized_user),
        "ip": connection.ip,
        "port": connection.port,
    }


def latest_slow(server: ObservedServer, clock: Clock) -> Steps[list[dict[str, Any]]]:
    """Return the latest connections that were closed because they were slow, newest first."""
    rows: list[dict[str, Any]] = []
    closed = list(server.closed_clients)
    for index, each in enumerate(reversed(closed)):
        if index % CONNECTIONS_PER_STEP == CONNECTIONS_PER_STEP - 1:
            yield
        if each.reason in SLOW:
            stop = timestamp(clock.to_wall_ns(each.stop_ns))
            told = {"stop": stop, "reason": each.reason, "out_msgs": each.out_msgs}
            rows.append(_names(each) | told)
            if len(rows) == SLOW_MAX:
                break
    return rows
