"""The limits and permissions of routes, in the form that compiled code uses.

Source: nats-server's `initClient` and `adjustPingInterval` (server/client.go),
`setRoutePermissions` (server/route.go).
"""

from typing import Final

from natsd.auth.permissions import compile_permissions
from natsd.cluster.peer_info import SubjectList
from natsd.config import Options
from natsd.config.auth_options import PermissionsOptions, SubjectRules
from natsd.config.cluster_options import PING_INTERVAL_MAX, ClusterOptions
from natsd.core.network import Settings
from natsd.core.routing import PermissionRules

CONTROL_LINE_BYTES_MAX: Final = 64 << 10
PAYLOAD_BYTES_MAX: Final = 2**31 - 1
"""Bytes of a message from a peer, which may have a greater `max_payload` than this server."""
ROUTES_MAX: Final = 10_000
"""Connections on the port for routes; further ones are refused."""


def set_limits(settings: Settings, options: Options, cluster: ClusterOptions) -> None:
    """Set the limits that all routes of a server share."""
    ping_interval = min(cluster.ping_interval or options.ping_interval, PING_INTERVAL_MAX)
    deadline = cluster.write_deadline or options.write_deadline
    settings.max_control_line = CONTROL_LINE_BYTES_MAX
    settings.max_payload = PAYLOAD_BYTES_MAX
    settings.max_pending = options.max_pending
    settings.max_subscriptions = 0
    settings.max_sub_tokens = 0
    settings.ping_interval_ns = round(ping_interval.total_seconds() * 1e9)
    settings.ping_max = cluster.ping_max or options.ping_max
    settings.write_deadline_ns = round(deadline.total_seconds() * 1e9)
    settings.no_fast_producer_stall = options.no_fast_producer_stall
    settings.retries_writes = cluster.write_timeout != "close"


def subject_list(rules: SubjectRules) -> SubjectList | None:
    """Return rules as INFO shows them; None: everything passes."""
    if rules.allow is None and not rules.deny:
        return None
    return SubjectList(rules.allow, rules.deny)


def shown_rules(given: PermissionsOptions | None) -> tuple[SubjectList | None, SubjectList | None]:
    """Return what may be imported and exported, as INFO shows it."""
    if given is None:
        return None, None
    return subject_list(given.publish), subject_list(given.subscribe)


def compiled_rules(given: PermissionsOptions | None) -> PermissionRules | None:
    """Return the rules that routes follow; None: everything passes.

    A peer is a user that publishes what is imported, and subscribes to what is exported.
    """
    return None if given is None else compile_permissions(given)
