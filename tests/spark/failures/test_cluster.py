"""A standalone Spark cluster of two workers, one of which is killed under streaming queries.

The workers' executors import natsd from a wheel, as on any cluster. The worker is killed with its
executors, as if its machine were gone; the other worker repeats its tasks. No message is lost or
doubled, in a stream and in an archive.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from natsd.spark.wire.client import NatsClient
from tests.spark.failures.cluster import StandaloneCluster
from tests.spark.failures.commands import SMALL
from tests.spark.failures.held import check_once, count_in, in_archive, in_stream
from tests.spark.failures.machine import Machine
from tests.spark.failures.messages import Publisher
from tests.spark.failures.waiting import DEADLINE_S, bounded, wait_until
from tests.spark.servers import JetStreamServer
from tests.spark.serving import create

MESSAGES = 8_000
JOBS = Path(__file__).with_name("cluster_jobs.py")

pytestmark = [pytest.mark.torture, bounded]


def test_a_worker_is_killed(
    machine: Machine,
    workers: list[Machine],
    tmp_path: Path,
    shared_server: JetStreamServer,
    client: NatsClient,
) -> None:
    create(client, "CLUSTER", "cluster.>")
    create(client, "CLUSTER_COPY", "copy.cluster.>", duplicate_window=100_000_000)
    with Publisher(shared_server.url, "cluster", 0, MESSAGES):
        pass
    with StandaloneCluster(tmp_path, workers) as cluster:
        given = {
            "master": cluster.url,
            "url": shared_server.url,
            "from": "CLUSTER",
            "to": "CLUSTER_COPY",
            "directory": str(tmp_path),
            "settings": SMALL,
        }
        jobs = subprocess.Popen(
            [str(machine.python), str(JOBS), json.dumps(given)],
            stdout=subprocess.PIPE,
            env=machine.environment,
            cwd=machine.work,
        )
        try:
            wait_until(lambda: jobs.poll() is not None or are_under_way(tmp_path, client))
            assert jobs.poll() is None, cluster.logs()
            cluster.workers[0].kill()
            out, _ = jobs.communicate(timeout=DEADLINE_S)
        finally:
            jobs.kill()
            jobs.wait()
        assert jobs.returncode == 0, cluster.logs()
        assert any("Telling app of lost worker" in line for line in cluster.master.log)
    done = json.loads(out)
    assert done["copied"]["read"] == MESSAGES
    assert done["archived"]["added"] == MESSAGES
    copied = in_stream(shared_server.url, "CLUSTER_COPY")
    check_once(copied, "copy.cluster", MESSAGES)
    archived = in_archive(tmp_path / "table")
    check_once(archived, "cluster", MESSAGES)
    assert archived.equals(in_stream(shared_server.url, "CLUSTER"))


def are_under_way(directory: Path, client: NatsClient) -> bool:
    """Return whether one query has copied some messages and the other has begun a batch."""
    archiving = directory / "table" / "_natsd" / "checkpoint" / "offsets" / "0"
    return archiving.exists() and count_in(client, "CLUSTER_COPY") > MESSAGES // 5
