"""The parts of `/varz` and `/jsz` about JetStream as a whole: settings, limits and use.

Sources: nats-server's `JetStreamVarz`, `JetStreamConfig` and `JetStreamStats`: fields and order.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from natsd.config.jetstream_options import NO_SCRUB, BatchLimits, JetStreamOptions
from natsd.jetstream.models.times import format_time
from natsd.jetstream.short_hash import short_hash
from natsd.version import API_LEVEL

if TYPE_CHECKING:
    from natsd.jetstream.api.counters import ApiCounters
    from natsd.jetstream.jetstream import JetStream
    from natsd.jetstream.meta_group.cluster import JetStreamCluster
    from natsd.jetstream.scrubber import Scrub

NO_STATS = {
    "memory": 0,
    "storage": 0,
    "reserved_memory": 0,
    "reserved_storage": 0,
    "accounts": 0,
    "ha_assets": 0,
    "api": {"level": 0, "total": 0, "errors": 0},
}
"""The statistics of a server without JetStream."""
SYNC_INTERVAL = timedelta(minutes=2)
"""The interval that nats-server shows beside `sync_always`."""
NO_CONFIG = {"max_memory": 0, "max_storage": 0}


def varz_jetstream(engine: "JetStream | None") -> dict[str, Any]:
    """Return the `jetstream` block of `/varz`; empty without JetStream."""
    if engine is None:
        return {}
    return {
        "config": config(engine.options),
        "stats": stats(engine),
        **({} if engine.cluster is None else {"meta": meta_cluster(engine.cluster)}),
        "limits": limits(engine.options),
    }


def meta_cluster(cluster: "JetStreamCluster") -> dict[str, Any]:
    """Return the meta group as `/jsz` and `/varz` show it."""
    leader = cluster.meta.leader
    shown: dict[str, Any] = {
        "name": cluster.settings.name(),
        "leader": leader,
        "peer": short_hash(leader.encode()) if leader else "",
        "replicas": [each.model_dump() for each in cluster.meta_replicas()],
        "cluster_size": len(cluster.meta.members()),
        "pending": 0,
    }
    return {name: value for name, value in shown.items() if value or name == "pending"}


def rescues(cluster: "JetStreamCluster") -> list[dict[str, Any]]:
    """Return the rescues that this server was ordered to carry out; only natsd has it."""
    from natsd.jetstream.meta_group.rescue_order import shown  # as late as JetStream itself

    return shown(cluster.meta.rescuing.records)


def scrub(engine: "JetStream") -> dict[str, Any]:
    """Return how files are scrubbed, and what was repaired since the start; only natsd has it."""
    options, scrubber, repairs = engine.options, engine.scrubber, engine.volume.repairs
    is_off = options.scrub_interval == NO_SCRUB
    shown: dict[str, Any] = {
        "interval": 0 if is_off else nanoseconds(options.scrub_interval),
        "speed": options.scrub_speed,
        "runs": scrubber.ended,
        "repaired_blocks": repairs.blocks,
        "repaired_messages": repairs.messages,
    }
    for name, each in (("running", scrubber.running), ("last", scrubber.last)):
        if each is not None:
            shown[name] = _scrub(each)
    return shown


def _scrub(scrub: "Scrub") -> dict[str, Any]:
    """Return a scrub; its times are RFC 3339."""
    ended = {"end": format_time(scrub.ended_ns)} if scrub.ended_ns else {}
    return {
        "start": format_time(scrub.began_ns),
        **ended,
        "streams": scrub.streams,
        "blocks": scrub.blocks,
        "consumers": scrub.consumers,
        "bytes": scrub.bytes,
        "repaired": scrub.repaired,
        "damaged": scrub.left,
    }


def config(options: JetStreamOptions) -> dict[str, Any]:
    """Return the settings that may be shown."""
    shown: dict[str, Any] = {
        "max_memory": options.max_memory_store,
        "max_storage": options.max_file_store,
        "store_dir": str(options.directory),
        "sync_interval": nanoseconds(
            SYNC_INTERVAL if options.syncs_always else options.sync_interval
        ),
        "sync_always": options.syncs_always,
        "domain": options.domain,
        "compress_ok": True,
        "unique_tag": options.unique_tag,
        "strict": options.strict,
    }
    return {name: value for name, value in shown.items() if value or name in NO_CONFIG}


def limits(options: JetStreamOptions) -> dict[str, Any]:
    """Return the limits on clients; limits that are not set are left out."""
    shown = {
        "max_request_batch": options.limits.max_request_batch,
        "max_ack_pending": options.limits.max_ack_pending,
        "max_ha_assets": options.limits.max_ha_assets,
        "max_duplicate_window": nanoseconds(options.limits.duplicate_window),
        **_batch_limits(options.limits.batch),
    }
    return {name: value for name, value in shown.items() if value}


def _batch_limits(limits: BatchLimits) -> dict[str, int]:
    shown = {} if limits.max_msgs == BatchLimits().max_msgs else {"max_batch_size": limits.max_msgs}
    if limits.timeout != BatchLimits().timeout:
        shown["max_batch_timeout"] = nanoseconds(limits.timeout)
    return {
        "max_batch_inflight_per_stream": limits.max_inflight_per_stream,
        "max_batch_inflight_total": limits.max_inflight_total,
        **shown,
    }


def stats(engine: "JetStream") -> dict[str, Any]:
    """Return the memory, storage and API use of all accounts together; sizes are in bytes."""
    usage = engine.usage
    return {
        "memory": max(usage.memory_used, 0),
        "storage": max(usage.file_used, 0),
        "reserved_memory": usage.memory_reserved,
        "reserved_storage": usage.file_reserved,
        "accounts": len(engine.accounts),
        "ha_assets": 0,
        "api": api(engine.api_counters, API_LEVEL),
    }


def api(counters: "ApiCounters", level: int) -> dict[str, int]:
    """Return the number of API requests so far, and of those in flight if there are any."""
    shown = {"level": level, "total": counters.total, "errors": counters.errors}
    return shown | ({"inflight": counters.inflight} if counters.inflight else {})


def nanoseconds(span: timedelta) -> int:
    """Return a time span in ns, as Go writes durations in JSON."""
    return span // timedelta(microseconds=1) * 1_000
