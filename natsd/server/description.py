"""The server as messages about it describe it: events, replies of services, traces.

Source: nats-server's `ServerInfo` (server/events.go); members without a value are left out.
"""

from typing import Any, Final

from natsd.config import Options
from natsd.core.wall_time import timestamp
from natsd.version import FEATURE_FLAGS, NATS_VERSION

JETSTREAM_FLAG: Final = 1


def describe(
    options: Options,
    server_id: str,
    name: str,
    sequence: int,
    now_ns: int,
    *,
    cluster: str,
    has_jetstream: bool,
) -> dict[str, Any]:
    """Return the members that describe a server; `sequence` counts its messages.

    `cluster` is the name of its cluster; empty: it is in none.
    """
    info: dict[str, Any] = {"name": name, "host": options.host, "id": server_id}
    if cluster:
        info["cluster"] = cluster
    if options.jetstream.enabled and options.jetstream.domain:
        info["domain"] = options.jetstream.domain
    info["ver"] = NATS_VERSION
    if options.server_tags:
        info["tags"] = options.server_tags
    if options.server_metadata:
        info["metadata"] = dict(sorted(options.server_metadata.items()))
    return info | {
        "feature_flags": FEATURE_FLAGS | dict(options.feature_flags),
        "jetstream": has_jetstream,
        "flags": JETSTREAM_FLAG if has_jetstream else 0,
        "seq": sequence,
        "time": timestamp(now_ns),
    }
