"""Formatting of points in time as nats-server does it."""

from datetime import UTC, datetime
from typing import Final

SECOND_NS: Final = 1_000_000_000


def timestamp(wall_ns: int) -> str:
    """Return Unix nanoseconds as RFC 3339 in UTC: `2026-11-21T00:26:11.907410132Z`.

    The seconds have as many decimals as needed, without trailing zeros.
    """
    seconds, rest_ns = divmod(wall_ns, SECOND_NS)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    decimals = f".{rest_ns:09}".rstrip("0") if rest_ns else ""
    return f"{text}{decimals}Z"
