"""Values as nats-server writes them in its answers: times, uptimes, round trips, floats."""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from natsd.core.durations import format_duration_ns
from natsd.core.network import TrafficStats, timestamp_text
from natsd.core.wall_time import SECOND_NS

timestamp = timestamp_text
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
UPTIMES_KEPT_MAX: Final = 4096
"""Spans in seconds whose text is kept: very many connections are idle for the same time."""


def datetime_ns(moment: datetime) -> int:
    """Return the exact ns since 1970."""
    since = moment - EPOCH
    return (since.days * 86_400 + since.seconds) * SECOND_NS + since.microseconds * 1_000


def uptime(span_ns: int) -> str:
    """Return a span such as `1y2d3h4m5s`, beginning with the largest unit that is not 0."""
    return _uptime(max(span_ns, 0) // SECOND_NS)


@lru_cache(UPTIMES_KEPT_MAX)
def _uptime(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    if not minutes:
        return f"{seconds}s"
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes}m{seconds}s"
    days, hours = divmod(hours, 24)
    if not days:
        return f"{hours}h{minutes}m{seconds}s"
    years, days = divmod(days, 365)
    date = f"{years}y{days}d" if years else f"{days}d"
    return f"{date}{hours}h{minutes}m{seconds}s"


def round_trip(rtt_ns: int) -> str:
    """Return a round trip time; between 1 µs and 1 ms its nanoseconds are cut off."""
    if 1_000 < rtt_ns < 1_000_000:
        return f"{rtt_ns // 1_000}µs"
    return format_duration_ns(rtt_ns)


def number(value: float) -> float:
    """Return a float as Go writes it: `2`, not `2.0`."""
    return int(value) if value == int(value) else value


def client_traffic(counters: TrafficStats) -> tuple[dict[str, int], dict[str, int]]:
    """Return what was sent to clients, and what was received from them."""
    sent = {
        "msgs": counters.out_msgs - counters.out_route_msgs,
        "bytes": counters.out_bytes - counters.out_route_bytes,
    }
    received = {
        "msgs": counters.in_msgs - counters.in_route_msgs,
        "bytes": counters.in_bytes - counters.in_route_bytes,
    }
    return sent, received


def by_kind(connections: int, routes: int) -> dict[str, int]:
    """Return a number of connections by their kinds; those that are no routes are clients."""
    return {"clients": connections - routes, "routes": routes, "gateways": 0, "leafs": 0}
