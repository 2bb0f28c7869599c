"""The JetStream rows have the agreed loads and goals, and the right servers."""

import json
import sys
from pathlib import Path

import pytest

from natsd.bench.arms import ArmError
from natsd.bench.jetstream.arms import SERVED, JetStreamArm, SyncSetting, jetstream_arms
from natsd.bench.jetstream.rows import QUICK, JetStreamScale, all_rows, by_sync

AGREED = """
async publish 128 B, memory                                    ≥ 2.0
async publish 128 B, file, as each syncs by default            ≥ 1.5
async publish 128 B, file, both always synced                  ≥ 10.0
sync publish, memory, p50                                      ≤ 0.8
sync publish, file, both synced each 2m, p50                   ≤ 0.8
pull, batches of 500, explicit ack, 128 B                      ≥ 1.5
ordered push replay of 1,000,000                               ≥ 1.5
KV put, 16 clients, both synced each 2m                        ≥ 1.5
KV put, 16 clients, as each syncs by default
KV get, 16 clients                                             ≥ 1.5
1,000,000-key KV, keys                                         ≥ 1.0
1,000,000-key KV, watch                                        ≥ 1.0
atomic batches of 500, file                                    ≥ 1.0
mirror of 1,000,000 catches up                                 ≥ 1.5
direct get of 1,000,000 in batches of 500                      ≥ 1.5
snapshot of 1,000,000                                          ≥ 1.0
snapshot of 1,000,000, checked first                           ≥ 1.0
sync publish while 1,000,000 expire, p99
1,000,000 messages expire
restart with a 10,000,000 message stream                       ≤ 1.0
restart with a 10,000,000 message stream, after kill -9
round-robin over 1,000 file streams, as each syncs by default  ≥ 0.5
creation of 1,000 file streams with 10,000 durable consumers   ≤ 2.0
creation of a consumer, one by one, p50
memory per idle consumer                                       ≤ 1.0
restart with 1,000 file streams with 10,000 durable consumers  ≤ 2.0
the same restart, after kill -9                                ≤ 2.0
"""


def test_the_rows_are_the_agreed_ones() -> None:
    shown = [f"{row.title:<63}{row.goal_text}" for row in all_rows(JetStreamScale())]
    assert [line.rstrip() for line in shown] == AGREED.strip().splitlines()


@pytest.mark.parametrize("scale", [JetStreamScale(), QUICK])
def test_keys_are_unique_and_rows_are_grouped_by_how_servers_sync(scale: JetStreamScale) -> None:
    rows = all_rows(scale)
    assert len({row.key for row in rows}) == len(rows)
    groups = by_sync(rows)
    assert [sync for sync, _ in groups] == [
        SyncSetting.DEFAULT,
        SyncSetting.ALWAYS,
        SyncSetting.INTERVAL,
    ]
    assert sum(len(group) for _, group in groups) == len(rows)


@pytest.mark.parametrize(
    ("sync", "settings"),
    [(SyncSetting.DEFAULT, {}), (SyncSetting.INTERVAL, {"sync_interval": "2m"})],
)
def test_natsd_is_told_when_to_sync(
    sync: SyncSetting, settings: dict[str, str], tmp_path: Path
) -> None:
    [arm] = jetstream_arms(["natsd"], sync, None)
    python, _, module, options = arm._command(tmp_path)
    assert (python, module) == (sys.executable, SERVED)
    assert json.loads(options)["jetstream"] == {"store_dir": str(tmp_path), **settings}


@pytest.mark.parametrize(
    ("sync", "text"),
    [
        (SyncSetting.DEFAULT, 'jetstream {{ store_dir: "{place}" }}\n'),
        (SyncSetting.INTERVAL, 'jetstream {{ store_dir: "{place}" }}\n'),  # the default
        (SyncSetting.ALWAYS, 'jetstream {{ store_dir: "{place}", sync_interval: "always" }}\n'),
    ],
)
def test_nats_server_is_told_in_a_file(sync: SyncSetting, text: str, tmp_path: Path) -> None:
    arm = JetStreamArm("nats-server", "/bin/nats-server", sync)
    command = arm._command(tmp_path)
    assert command[:3] == ("/bin/nats-server", "-a", "127.0.0.1")
    assert Path(command[-1]).read_text() == text.format(place=tmp_path)


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(ArmError, match="no such program: no-such-program"):
        jetstream_arms(["natsd", "no-such-program"], SyncSetting.DEFAULT, None)


def test_a_program_that_knows_no_such_setting_is_void_there() -> None:
    """The server refuses the configuration with `-t`, like nats-server before 2.10."""
    with JetStreamArm("old", "/bin/false", SyncSetting.ALWAYS).running() as server:
        assert server.unsupported == "it has no sync_interval: always"
    [always] = [row for row in all_rows(QUICK) if row.key == "js-always"]
    assert always.scenario.run(server, 1).problem == server.unsupported
