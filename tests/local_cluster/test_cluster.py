"""Local clusters of real servers: they start, heal, grow and stop."""

import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from natsd.local_cluster.cluster import LocalCluster, lock, missing_in
from natsd.local_cluster.errors import LocalClusterError
from natsd.local_cluster.plan import FREE, LOOPBACK, Plan
from natsd.local_cluster.process import ProcessState
from tests.local_cluster.running import PROGRAMS, none_left, running


def states(cluster: LocalCluster) -> list[str]:
    return [seen.status for seen in cluster.look()]


@PROGRAMS
def test_a_mesh_stands_heals_and_ends(tmp_path: Path, program: Sequence[str]) -> None:
    with running(tmp_path, 3, program) as cluster:
        assert states(cluster) == ["running"] * 3
        for seen in cluster.look():
            others = {member.name for member in cluster.members} - {seen.member.name}
            assert seen.links == dict.fromkeys(others, seen.member.links_per_server)
        second = cluster.member("n2").process
        second.kill()
        assert states(cluster) == ["running", "stopped", "running"]
        cluster.wait_for_mesh()  # of those that run
        assert cluster.start(program=program) == [cluster.member("n2")]
        cluster.wait_for_mesh()
        pids = [member.process.pid for member in cluster.members]
        assert cluster.start(program=program) == []
        assert [member.process.pid for member in cluster.members] == pids
        assert cluster.stop() == list(cluster.members)
        assert states(cluster) == ["stopped"] * 3
        assert cluster.stop() == []


def test_a_paused_server_goes_on(tmp_path: Path) -> None:
    with running(tmp_path, 2) as cluster:
        second = cluster.member("n2").process
        second.pause()
        assert states(cluster) == ["running", "paused"]
        cluster.start()
        assert second.state is ProcessState.RUNNING
        cluster.wait_for_mesh()
        second.pause()
        assert cluster.stop() == list(cluster.members)


def test_further_servers_join_those_that_run(tmp_path: Path) -> None:
    with running(tmp_path, 2) as cluster:
        plan = cluster.plan_for_more()
        assert plan.port == FREE
        cluster.grow(plan, 4)
        assert [member.name for member in cluster.start()] == ["n3", "n4"]
        cluster.wait_for_mesh()
        assert [len(seen.links) for seen in cluster.look()] == [3] * 4
        again = LocalCluster.open(tmp_path)
        assert [member.name for member in again.members] == ["n1", "n2", "n3", "n4"]
        assert not missing_in(again.look())


def test_further_servers_have_the_next_ports(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path, Plan(port=23122, name="bar"), 2)
    plan = cluster.plan_for_more()
    assert plan == Plan(port=23122, name="bar")
    cluster.grow(plan, 3)
    assert cluster.members[-1].ports == (23124, 25124, 27124)


@pytest.mark.skipif(shutil.which("nats-server") is None, reason="there is no nats-server on PATH")
def test_nats_server_takes_the_files(tmp_path: Path) -> None:
    common = tmp_path / "common.conf"
    common.write_text("max_payload: 4096\n")
    plan = Plan(port=FREE, name="ice-cream", include=common)
    cluster = LocalCluster.create(tmp_path / "cluster", plan, 3)
    for member in cluster.members:
        assert member.options.max_payload == 4096
        done = subprocess.run(["nats-server", "-t", "-c", member.config], check=False)
        assert done.returncode == 0


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with none_left(tmp_path):
        cluster = LocalCluster.create(tmp_path, Plan(port=FREE), 2)
        with pytest.raises(LocalClusterError, match=r"n\d did not start: .*no such file"):
            cluster.start(program=["sh", str(tmp_path / "no such file")])


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with none_left(tmp_path), socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        if port > 61000:
            pytest.skip("the system chose a high port")
        with pytest.raises(LocalClusterError, match=f"n1 cannot listen on {LOOPBACK}:{port}: addr"):
            LocalCluster.create(tmp_path, Plan(port=port), 2)
        assert not LocalCluster.is_in(tmp_path)
        cluster = LocalCluster.create(tmp_path, Plan(port=FREE), 2)
        text = cluster.members[1].config.read_text()
        old = cluster.members[1].client_url.removeprefix("nats://")
        cluster.members[1].config.write_text(text.replace(old, f"{LOOPBACK}:{port}"))
        with pytest.raises(LocalClusterError, match=f"n2 cannot listen on {LOOPBACK}:{port}: addr"):
            LocalCluster.open(tmp_path).start()
        assert states(cluster) == ["stopped"] * 2


def test_directories_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalClusterError, match="there is no cluster in"):
        LocalCluster.open(tmp_path / "nothing")
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(LocalClusterError, match="is not empty, and has no cluster"):
        LocalCluster.create(tmp_path, Plan(port=FREE), 1)
    (tmp_path / "letter.txt").unlink()
    LocalCluster.create(tmp_path, Plan(port=FREE, name="bar"), 2)
    config = tmp_path / "n2" / "nats.conf"
    text = config.read_text()
    for found, told in (
        (text.replace('name: "bar"', 'name: "foo"'), "has servers of bar and foo"),
        ('server_name: n2\nlisten: "127.0.0.1:1"\n', "has no cluster"),
        (text.replace("http:", "# http:"), "has no monitoring port"),
        (text.replace("pid_file", "pid_fil"), 'nats.conf:.*unknown field "pid_fil"'),
    ):
        config.write_text(found)
        with pytest.raises(LocalClusterError, match=told):
            LocalCluster.open(tmp_path)


def test_one_program_at_a_time(tmp_path: Path) -> None:
    with lock(tmp_path):
        with pytest.raises(LocalClusterError, match="another `natsd cluster` is at work"):
            with lock(tmp_path):
                pass
    with lock(tmp_path):
        pass
