"""The rows with three replicas have the agreed loads and goals."""

import json
from pathlib import Path

import pytest

from natsd.bench import rows as all_other
from natsd.bench.arms import command_arm
from natsd.bench.replicated.rows import all_rows
from natsd.bench.replicated.servers import SERVERS, _member
from natsd.bench.rows import QUICK, Scale, select
from natsd.bench.setups import CLUSTERS

AGREED = """
R3 async publish 128 B, file, as each syncs by default  ≥ 1.5
R3 async publish 128 B, memory                          ≥ 2.0
R3 sync publish, file, both always synced, p50          ≤ 0.7
R3 pull, batches of 500, explicit ack, 128 B            ≥ 2.0
R3 KV put, 16 clients on all servers                    ≥ 1.5
R3 KV get, 16 clients on all servers                    ≥ 2.0
R3 a wiped server catches up 10,000,000 messages        ≥ 1.5
CPU of a cluster with 500 idle R3 streams               ≤ 1.0
creation of 1,000 R3 file streams                       ≤ 1.0
"""


def test_the_rows_are_the_agreed_ones() -> None:
    shown = [f"{row.title:<56}{row.goal_text}" for row in all_rows(Scale())]
    assert shown == AGREED.strip().splitlines()


@pytest.mark.parametrize("scale", [Scale(), QUICK])
def test_they_are_measured_only_if_they_are_asked_for(scale: Scale) -> None:
    rows = [*all_other.all_rows(scale), *all_rows(scale)]
    assert len({row.key for row in rows}) == len(rows)
    assert not [row for row in select(rows, []) if row.key.startswith("r3-")]
    assert select(rows, ["r3-*"]) == all_rows(scale)


def test_every_row_has_its_cluster() -> None:
    setups = {row.scenario.setup for row in all_rows(Scale())}  # type: ignore[attr-defined]  # all of these have one
    assert setups <= CLUSTERS.keys()


@pytest.mark.parametrize(("sync", "settings"), [("", {}), ("always", {"sync_interval": "always"})])
def test_each_server_has_routes_to_the_others(
    tmp_path: Path, sync: str, settings: dict[str, str]
) -> None:
    members = [
        _member(command_arm("natsd"), tmp_path, [1001, 1002, 1003], number, sync)
        for number in range(SERVERS)
    ]
    configs = [json.loads(each.config.read_text()) for each in members]
    assert [each["server_name"] for each in configs] == ["bench0", "bench1", "bench2"]
    assert configs[1]["cluster"]["listen"] == "127.0.0.1:1002"
    assert configs[1]["cluster"]["routes"] == ["nats://127.0.0.1:1001", "nats://127.0.0.1:1003"]
    assert configs[1]["jetstream"] == {"store_dir": str(members[1].store_dir), **settings}
