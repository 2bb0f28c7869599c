"""The metrics of the server as a whole: `gnatsd_varz_*`, `_subsz_*`, `_routez_*`, `_healthz_*`.

- Every number of `/varz`, `/subsz` and `/routez` is a gauge. Its name consists of the names on the
  way to it: `jetstream.stats.memory` is `gnatsd_varz_jetstream_stats_memory`.
- Texts are left out, with two exceptions: those named in `SHOWN_TEXTS` are the label `value` of a
  gauge that is 1, and times are gauges, in ms since 1970.

Source: prometheus-nats-exporter's `objectToMetrics`, `newHealthzCollector`, `newLeafzCollector`.
"""

import re
from collections.abc import Generator, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

from natsd.core.steps import Steps
from natsd.monitor.healthz import HealthzOptions, healthz
from natsd.monitor.metric_text import family, label_text
from natsd.monitor.observed import ObservedServer
from natsd.monitor.query import Query
from natsd.monitor.values import datetime_ns

SHOWN_TEXTS: Final = ("server_id", "server_name", "version", "domain", "leader", "name")
SHOWN_TIMES: Final = ("start", "config_load_time")
HEALTH: Final = {
    "healthz": "",
    "healthz_js_enabled_only": "js-enabled-only",
    "healthz_js_server_only": "js-server-only",
}
"""The names of the health checks, each with the parameter of `/healthz` that it stands for."""
MS_NS: Final = 1_000_000

T = TypeVar("T")


def numbers(prefix: str, server_id: str, answer: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield a family for each number of an answer; `prefix` begins their names."""
    for name, value in _flat(answer, ()):
        labels = {"server_id": server_id}
        if isinstance(value, str):
            labels["value"] = value
        shown = 1 if isinstance(value, str) else value
        yield family(prefix + name, name, label_text(**labels), shown)


def _flat(answer: Mapping[str, Any], way: tuple[str, ...]) -> Iterator[tuple[str, float | str]]:
    """Yield each number, and each text that is shown, with its name."""
    for key, value in answer.items():
        path = (*way, key)
        name = re.sub("[/_]+", "_", "_".join(path)).strip("_")
        if isinstance(value, dict):
            yield from _flat(value, path)
        elif not way and key in SHOWN_TIMES:
            yield name, datetime_ns(datetime.fromisoformat(value)) // MS_NS
        elif isinstance(value, bool) or (isinstance(value, str) and key not in SHOWN_TEXTS):
            continue
        elif isinstance(value, int | float | str):
            yield name, value


def health(prefix: str, server_id: str, server: ObservedServer) -> Iterator[bytes]:
    """Yield the families of the health checks: `status` is 0 if all is well, `status_value` 1.

    After each step of a check an empty piece is yielded.
    """
    for name, parameter in HEALTH.items():
        query = Query({parameter: "1"} if parameter else {})
        checking = healthz(server, HealthzOptions.of(query))
        _, answer = yield from _between(checking)
        status = answer["status"]
        is_well = status == "ok"
        labels = label_text(server_id=server_id)
        yield family(f"{prefix}{name}_status", "status", labels, int(not is_well))
        labels = label_text(server_id=server_id, value=status)
        yield family(f"{prefix}{name}_status_value", "status", labels, int(is_well))


def _between(steps: Steps[T]) -> Generator[bytes, None, T]:
    """Run all steps, yield an empty piece after each one, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        yield b""


def leaf_nodes(prefix: str, server_id: str, count: int) -> bytes:
    """Return the family with the number of leaf nodes."""
    labels = label_text(server_id=server_id)
    return family(f"{prefix}leafz_conn_nodes_total", "nodes_total", labels, count)
