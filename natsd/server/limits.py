"""The limits of connections, in the form that compiled code uses."""

from typing import Final

from natsd.config import Options
from natsd.core.network import Settings

SWEEP_MIN_S: Final = 0.005
SWEEP_MAX_S: Final = 0.25


def set_limits(settings: Settings, options: Options) -> None:
    """Set the limits that all connections of a server share."""
    settings.max_control_line = options.max_control_line
    settings.max_payload = options.max_payload
    settings.max_pending = options.max_pending
    settings.max_subscriptions = options.max_subscriptions
    settings.max_sub_tokens = options.max_sub_tokens
    settings.ping_interval_ns = round(options.ping_interval.total_seconds() * 1e9)
    settings.ping_max = options.ping_max
    settings.write_deadline_ns = round(options.write_deadline.total_seconds() * 1e9)
    settings.no_fast_producer_stall = options.no_fast_producer_stall
    settings.retries_writes = options.write_timeout == "retry"


def sweep_seconds(options: Options) -> float:
    """Return the seconds between two sweeps: a tenth of the shortest deadline, within limits."""
    times = [options.ping_interval, options.write_deadline, options.authorization.timeout]
    cluster = options.cluster
    if cluster is not None and cluster.is_on:
        times += [
            cluster.login_timeout,
            *filter(None, (cluster.ping_interval, cluster.write_deadline)),
        ]
    shortest = min(times)
    return min(SWEEP_MAX_S, max(SWEEP_MIN_S, shortest.total_seconds() / 10))
