"""conf/grafana/dashboard.json: its queries name metrics and labels that /metrics has."""

import json
import re
from pathlib import Path
from typing import Any

from nats.js.api import StreamSource
from prometheus_client.parser import text_string_to_metric_families

from tests.monitor.probing import probing
from tests.source.reading import ROOT

DASHBOARD = json.loads((ROOT / "conf" / "grafana" / "dashboard.json").read_text())
SELECTOR = re.compile(r"\b((?:gnatsd|jetstream|natsd)_\w+)(?:\{([^}]*)\})?")
LABEL = re.compile(r'(\w+)=~"\$(\w+)"')
LEGEND = re.compile(r"\{\{(\w+)\}\}")
OF_PROMETHEUS = {"instance"}


def targets() -> list[dict[str, Any]]:
    return [target for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]


def variables() -> dict[str, str]:
    return {each["name"]: each.get("definition", "") for each in DASHBOARD["templating"]["list"]}


async def shown(directory: Path) -> dict[str, set[str]]:
    """Return the labels of each metric of a server with every kind of stream and consumer."""
    settings = {"max_mem": "1M", "max_file": "1G"}
    async with probing(jetstream=settings, store_dir=directory) as probe, probe.client() as client:
        stream, origin = client.jetstream(), StreamSource(name="FILE")
        await stream.add_stream(name="FILE", subjects=["f.*"])
        await stream.add_stream(name="MIRROR", mirror=origin)
        await stream.add_stream(name="SOURCED", sources=[origin])
        await stream.publish("f.1", b"hello")
        reading = await stream.pull_subscribe("f.*", "C", "FILE")
        [message] = await reading.fetch(1)
        await message.ack_sync()
        _, text, _ = await probe.ask("/metrics")
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_every_query_names_metrics_and_labels_that_there_are(tmp_path: Path) -> None:
    metrics = await shown(tmp_path)
    queries = [target["expr"] for target in targets()]
    named = [
        each for query in [*queries, *variables().values()] for each in SELECTOR.findall(query)
    ]
    assert len({metric for metric, _ in named}) > 30
    for metric, selector in named:
        assert metric in metrics, metric
        wanted = dict(LABEL.findall(selector))
        assert wanted.keys() <= metrics[metric], metric
        assert set(wanted.values()) <= variables().keys()
    for target in targets():
        has = set().union(*(metrics[metric] for metric, _ in SELECTOR.findall(target["expr"])))
        assert set(LEGEND.findall(target["legendFormat"])) <= has | OF_PROMETHEUS, target


def test_what_it_is_about() -> None:
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == ["Server", "Clients and traffic", "JetStream", "Streams", "Consumers"]


def test_panels_are_apart_and_name_their_unit() -> None:
    taken: set[tuple[int, int]] = set()
    identifiers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(identifiers)) == len(identifiers)
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] in ("stat", "timeseries"):
            assert panel["fieldConfig"]["defaults"]["unit"]
