"""What `natsd cluster status` prints: a table for people, an object for programs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from natsd.local_cluster.cluster import LocalCluster, missing_in
from natsd.local_cluster.process import ProcessState
from natsd.local_cluster.seen import Seen

HEADS: Final = ("NAME", "STATE", "PID", "CLIENTS", "MONITORING", "ROUTES", "UPTIME", "LOG")
GAP: Final = "  "


def table(cluster: LocalCluster, seen: Sequence[Seen]) -> str:
    """Return the servers as a table, what the mesh lacks, rescues, and how clients connect."""
    rows = [HEADS, *(_row(each, len(seen)) for each in seen)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        GAP.join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    head = f"cluster {cluster.name} in {cluster.directory}: {_summary(seen)}"
    return "\n".join([head, "", *lines, *_rescues(seen), *_connecting(seen)])


def as_json(cluster: LocalCluster, seen: Sequence[Seen]) -> dict[str, Any]:
    """Return the same as an object."""
    missing = missing_in(seen)
    return {
        "name": cluster.name,
        "directory": str(cluster.directory),
        "full_mesh": not missing and all(each.answers for each in seen),
        "missing": missing,
        "urls": cluster.urls,
        "servers": [_fields(each) for each in seen],
    }


def _fields(seen: Seen) -> dict[str, Any]:
    member = seen.member
    return {
        "name": member.name,
        "state": seen.status,
        "pid": seen.pid,
        "client_url": member.client_url,
        "monitoring_url": member.monitoring_url,
        "route_url": member.route_url,
        "routes": dict(seen.links),
        "connections": seen.varz.get("connections", 0),
        "version": seen.varz.get("version"),
        "uptime": seen.varz.get("uptime"),
        "config": str(member.config),
        "log": str(member.log),
        "rescues": list(seen.rescues),
    }


def _row(seen: Seen, count: int) -> tuple[str, ...]:
    member = seen.member
    return (
        member.name,
        seen.status,
        str(seen.pid or "–"),
        member.client_url,
        member.monitoring_url,
        f"{len(seen.links)} of {count - 1}" if seen.answers else "–",
        str(seen.varz.get("uptime", "–")),
        str(member.log),
    )


def _summary(seen: Sequence[Seen]) -> str:
    running = [each for each in seen if each.state is ProcessState.RUNNING]
    if not running:
        return "not running"
    missing = missing_in(seen)
    mesh = "no full mesh: " + "; ".join(missing) if missing else "full mesh"
    return f"{len(running)} of {len(seen)} servers run, {mesh}"


def _rescues(seen: Sequence[Seen]) -> list[str]:
    """Return what was rescued after a majority was lost, and what that may have cost."""
    lines: list[str] = []
    for each in seen:
        for rescue in each.rescues:
            lost = ", ".join(rescue["lost_servers"])
            lines += [
                "",
                f"rescued by {each.member.name} at {rescue['time']}, ordered by {rescue['by']};"
                f" lost for good: {lost}",
                *map(_rescued_group, rescue["groups"]),
            ]
    return lines


def _rescued_group(group: Mapping[str, Any]) -> str:
    if "skipped" in group:
        return f"  {group['what']}: not rescued: {group['skipped']}"
    return f"  {group['what']}: may be lost: {group['may_be_lost']}"


def _connecting(seen: Sequence[Seen]) -> list[str]:
    """Return how the nats CLI and nats-py connect to the servers that answer."""
    urls = [each.member.client_url for each in seen if each.answers]
    if not urls:
        return []
    return [
        "",
        f"nats --server {','.join(urls)} sub '>'",
        f"nats.connect({json.dumps(urls)})",
    ]
