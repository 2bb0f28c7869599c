"""`/varz`: the server, its settings, and its traffic.

Field names and their order are those of nats-server's `Varz`. Features that natsd does not have yet
are shown as empty objects and zeros. Messages that are stored in a stream do not count as sent.
"""

from typing import TYPE_CHECKING, Any, Final

from natsd.monitor.clock import Clock
from natsd.monitor.jetstream import nanoseconds, varz_jetstream
from natsd.monitor.jwt_facts import claims_of
from natsd.monitor.observed import ObservedServer
from natsd.monitor.process_usage import cores, resident_bytes
from natsd.monitor.values import by_kind, client_traffic, datetime_ns, number, timestamp, uptime
from natsd.version import FEATURE_FLAGS, NATS_VERSION, PROTOCOL_VERSION, RUNTIME_VERSION, VERSION

if TYPE_CHECKING:
    from natsd.cluster.cluster import Cluster

TLS_TIMEOUT_S: Final = 2
"""nats-server's default, in seconds, for a server without TLS."""


def varz(
    server: ObservedServer,
    clock: Clock,
    *,
    http_port: int,
    processor_percent: float,
) -> dict[str, Any]:
    """Return the answer to `/varz`.

    `processor_percent` is the process's share of one core.
    """
    return (
        _identity(server)
        | _settings(server, http_port)
        | _process(server, clock, processor_percent)
        | _traffic(server)
        | _rest(server)
    )


def _identity(server: ObservedServer) -> dict[str, Any]:
    identity: dict[str, Any] = {
        "server_id": server.id,
        "server_name": server.name,
        "version": NATS_VERSION,
        "natsd": VERSION,
        "proto": PROTOCOL_VERSION,
        "go": RUNTIME_VERSION,
        "host": server.client_host,
        "port": server.client_port,
    }
    tls = server.options.tls
    flags: dict[str, bool] = {
        "auth_required": server.authenticator.is_required,
        "tls_required": tls is not None and not server.options.allow_non_tls,
        "tls_verify": tls is not None and (tls.verify or tls.verify_and_map),
    }
    identity |= {name: True for name, value in flags.items() if value}
    urls = server.connect_urls
    return identity | ({"connect_urls": urls} if urls else {})


def _settings(server: ObservedServer, http_port: int) -> dict[str, Any]:
    options = server.options
    tls = options.tls
    settings: dict[str, Any] = {"max_connections": options.max_connections}
    if options.max_subscriptions:
        settings["max_subscriptions"] = options.max_subscriptions
    return settings | {
        "ping_interval": nanoseconds(options.ping_interval),
        "ping_max": options.ping_max,
        "http_host": options.http_address,
        "http_port": 0 if options.https_port else http_port,
        "http_base_path": options.http_base_path,
        "https_port": http_port if options.https_port else 0,
        "auth_timeout": number(options.login_timeout.total_seconds()),
        "max_control_line": options.max_control_line,
        "max_payload": options.max_payload,
        "max_pending": options.max_pending,
        "cluster": {} if server.cluster is None else _cluster(server, server.cluster),
        "gateway": {},
        "leaf": {},
        "mqtt": {},
        "websocket": {},
        "jetstream": varz_jetstream(server.jetstream),
        "tls_timeout": TLS_TIMEOUT_S if tls is None else number(tls.timeout.total_seconds()),
        "write_deadline": nanoseconds(options.write_deadline),
    }


def _cluster(server: ObservedServer, cluster: "Cluster") -> dict[str, Any]:
    """Return the settings of routes; those without a value are left out."""
    options, ends = cluster.options, server.cluster_certificate_end
    tls = options.tls
    told: dict[str, Any] = {
        "name": cluster.name,
        "addr": cluster.address,
        "cluster_port": cluster.port,
        "auth_timeout": number(options.login_timeout.total_seconds()),
        "urls": [f"{target.host}:{target.port}" for target in cluster.targets],
        "tls_timeout": TLS_TIMEOUT_S if tls is None else number(tls.timeout.total_seconds()),
        "tls_required": tls is not None,
        "tls_verify": tls is not None,
        "pool_size": options.pool_size,
        "write_deadline": nanoseconds(options.write_deadline),
        "write_timeout": "" if options.write_timeout == "default" else options.write_timeout,
        "tls_cert_not_after": None if ends is None else timestamp(datetime_ns(ends)),
    }
    return {name: value for name, value in told.items() if value}


def _process(server: ObservedServer, clock: Clock, processor_percent: float) -> dict[str, Any]:
    start_ns, now_ns = datetime_ns(server.start_time), clock.wall_ns()
    return {
        "start": timestamp(start_ns),
        "now": timestamp(now_ns),
        "uptime": uptime(now_ns - start_ns),
        "mem": resident_bytes(),
        "cores": cores(),
        "gomaxprocs": 1,  # one event loop, one core
        "cpu": number(processor_percent),
    }


def _traffic(server: ObservedServer) -> dict[str, Any]:
    """Return the connections and messages."""
    counters, cluster = server.counters, server.cluster
    to_clients, from_clients = client_traffic(counters)
    return {
        "connections": len(server.clients),
        "total_connections": server.total_connections,
        "routes": 0 if cluster is None else len(list(cluster.table)),
        "remotes": 0 if cluster is None else len(cluster.peers),
        "leafnodes": 0,
        "in_msgs": counters.in_msgs,
        "in_bytes": counters.in_bytes,
        "in_client_msgs": from_clients["msgs"],
        "in_client_bytes": from_clients["bytes"],
        "out_msgs": counters.out_msgs,
        "out_bytes": counters.out_bytes,
        "out_client_msgs": to_clients["msgs"],
        "out_client_bytes": to_clients["bytes"],
        "slow_consumers": counters.slow_consumers,
        "stale_connections": counters.stale_connections,
        "stalled_clients": counters.stalled_clients,
        "subscriptions": sum(account.sublist.count for account in server.accounts.values()),
    }


def _rest(server: ObservedServer) -> dict[str, Any]:
    counters, options = server.counters, server.options
    operators = options.operators
    told: dict[str, Any] = {
        "http_req_stats": dict(sorted(server.http_requests.items())),
        "config_load_time": timestamp(datetime_ns(server.config_load_time)),
        "config_digest": server.config_digest,
        "tags": options.server_tags or None,
        "metadata": dict(sorted(options.server_metadata.items())) or None,
        "feature_flags": FEATURE_FLAGS | dict(options.feature_flags),
        "trusted_operators_jwt": operators or None,
        "trusted_operators_claim": [claims_of(each) for each in operators] or None,
        "system_account": server.accounts.system.name if server.accounts.has_system else None,
        "slow_consumer_stats": by_kind(counters.slow_consumers, counters.slow_routes),
        "stale_connection_stats": by_kind(counters.stale_connections, counters.stale_routes),
        "disk_io_wait_stats": {"waiters": 0, "waits": 0, "wait_time": 0, "max_wait_time": 0},
    }
    if options.proxies is not None:
        told["proxies"] = {"trusted": [{"key": key} for key in options.proxies.trusted]}
    if server.openings is not None and server.openings.tls is not None:
        ends = server.openings.tls.certificates[0].not_after
        told["tls_cert_not_after"] = timestamp(datetime_ns(ends))
    return {name: value for name, value in told.items() if value is not None}
