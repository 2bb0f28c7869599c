"""A majority of servers is lost for good, and `natsd cluster rescue` goes on with what is left."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from random import randrange
from typing import Any
from urllib.request import urlopen

import nats
import pytest

import natsd.testing
from natsd.cli import cluster_rescue
from natsd.jetstream.meta_group.cluster import LOGS_DIRECTORY, MEMBER_DIRECTORY
from natsd.jetstream.meta_group.peers import Peers
from natsd.jetstream.meta_group.rescue_order import META, ORDER_FILE, read_records
from natsd.jetstream.meta_group.rescuing import Rescuing
from natsd.raft.host import HostOptions, RaftHost
from natsd.raft.storage.raft_logs import RaftLogs
from natsd.raft.transport import member_id, server_key
from natsd.store.crypto.vault import Vault
from natsd.store.disk.places import SUPERSEDED
from natsd.store.disk.real_disk import RealDisk
from natsd.testing.nats_cluster import NatsCluster
from natsd.testing.nats_server import NatsServer
from tests.jetstream.cluster.asking import NAMES, ask, wait_until_whole
from tests.raft.driver.network import Link, Network

pytestmark = pytest.mark.timeout(180)  # several starts of several processes each

MESSAGES = 200
WITHIN_S = 60


@pytest.fixture
async def three() -> AsyncIterator[NatsCluster]:
    """Three servers, each in a process of its own."""
    async with natsd.testing.cluster(process=True, jetstream=True, http_port=-1) as servers:
        await asyncio.to_thread(servers.wait_for_jetstream)
        yield servers


@pytest.fixture
async def five() -> AsyncIterator[NatsCluster]:
    """Five servers, each in a process of its own."""
    async with natsd.testing.cluster(5, process=True, jetstream=True) as servers:
        await asyncio.to_thread(servers.wait_for_jetstream, WITHIN_S)
        yield servers


def config_of(server: NatsServer, directory: Path) -> Path:
    """Write the configuration of a server, as the command needs it."""
    name = server.options.server_name
    path = directory / f"{name}.conf"
    path.write_text(
        f"server_name: {name}\n"
        f"jetstream {{ store_dir: '{server.directory}' }}\n"
        "cluster { name: test, port: -1 }\n"
    )
    return path


async def rescue(server: NatsServer, directory: Path, *arguments: str) -> int:
    config = str(config_of(server, directory))
    return await asyncio.to_thread(cluster_rescue.main, ["-c", config, *arguments])


async def fill(client: nats.NATS, replicas: int = 3, count: int = MESSAGES) -> None:
    js = client.jetstream(timeout=20)
    await js.add_stream(name="S", subjects=["s"], num_replicas=replicas)
    for at in range(count):
        assert (await js.publish("s", b"%d" % at)).seq == at + 1


async def led(cluster: NatsCluster, stream: str = "S") -> None:
    await asyncio.to_thread(cluster.wait_for_leader, stream, timeout=WITHIN_S)


async def wait_until_has_all(client: nats.NATS, stream: str, server: str) -> None:
    """Wait until a server's replica has all of a stream, whatever the others have."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            found = (await ask(client, f"STREAM.INFO.{stream}"))["cluster"]
            replicas = {each["name"]: each for each in found["replicas"]}
            if found["leader"] == server:
                return
            if replicas[server]["current"] and not replicas[server].get("lag"):
                return
            await asyncio.sleep(0.05)


def members_directory(server: NatsServer) -> Path:
    return server.directory / "jetstream" / MEMBER_DIRECTORY


def jsz(server: NatsServer) -> dict[str, Any]:
    with urlopen(f"{server.monitoring_url}/jsz", timeout=WITHIN_S) as answer:
        return dict(json.load(answer))


async def check_shown(server: NatsServer) -> None:
    """Check that `/jsz` shows the rescue of the meta group and S."""
    [rescue] = (await asyncio.to_thread(jsz, server))["rescues"]
    assert rescue["lost_servers"] == ["n1", "n2"]
    meta, stream = rescue["groups"]
    assert (meta["what"], stream["what"]) == (META, "stream '$G > S'")
    assert stream["last_sequence"] == MESSAGES
    assert stream["uncertain"] == stream["last_index"] - stream["committed"]
    assert stream["may_be_lost"].startswith(f"messages beyond sequence {MESSAGES}, and")


def empty(server: NatsServer) -> None:
    shutil.rmtree(server.directory)
    server.directory.mkdir()


async def test_two_of_three_servers_are_lost_and_the_third_goes_on(
    three: NatsCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = await three.connect(2)
    await fill(client)
    await wait_until_whole(client, "S", set(NAMES), WITHIN_S)
    await client.close()
    for server in three.servers:
        await asyncio.to_thread(three.kill, server)
    for server in three.servers[:2]:
        empty(server)
    left = three.servers[2]
    assert await rescue(left, tmp_path, "--lost", "n1,n2", "--yes") == 0
    said = capsys.readouterr().out
    assert "goes on with n3 alone" in said
    assert len(re.findall(r"known to be committed; the \d+ beyond that are kept", said)) == 2
    await asyncio.to_thread(three.restart, left)
    await led(three)
    await check_shown(left)
    js = (client := await three.connect(left)).jetstream()
    for at in range(MESSAGES):
        assert (await js.get_msg("S", at + 1)).data == b"%d" % at
    assert (await js.publish("s", b"more")).seq == MESSAGES + 1
    for server in three.servers[:2]:
        await asyncio.to_thread(three.restart, server)
    await wait_until_whole(client, "S", set(NAMES), WITHIN_S)
    assert (await js.publish("s", b"more")).seq == MESSAGES + 2


async def test_servers_that_come_back_after_all_get_the_rescued_history(
    three: NatsCluster, tmp_path: Path
) -> None:
    client = await three.connect(2)
    await fill(client)
    await wait_until_whole(client, "S", set(NAMES), WITHIN_S)
    await client.close()
    left, *others = three.servers[2], *three.servers[:2]
    await asyncio.to_thread(three.kill, left)
    await led(three)
    js = (client := await three.connect(0)).jetstream()
    for at in range(50):  # which the server that is left never gets
        assert (await js.publish("s", b"unknown")).seq == MESSAGES + at + 1
    await client.close()
    for server in others:
        await asyncio.to_thread(three.kill, server)
    assert await rescue(left, tmp_path, "--lost", "n1,n2", "--yes") == 0
    await asyncio.to_thread(three.restart, left)
    await led(three)
    js = (client := await three.connect(left)).jetstream()
    for at in range(10):
        assert (await js.publish("s", b"new")).seq == MESSAGES + at + 1
    for server in others:
        await asyncio.to_thread(three.restart, server)
    await wait_until_whole(client, "S", set(NAMES), WITHIN_S)
    await asyncio.to_thread(three.wait_for_jetstream, WITHIN_S)
    await client.close()
    for server in others:
        set_aside = server.directory / "jetstream" / "$G" / SUPERSEDED
        assert [each.name.partition(".")[0] for each in set_aside.iterdir()] == ["S"]
    for server in three.servers:
        js = (client := await three.connect(server)).jetstream()
        assert (await js.stream_info("S")).state.messages == MESSAGES + 10
        assert (await js.get_msg("S", MESSAGES + 1)).data == b"new"
        await client.close()
    await asyncio.to_thread(three.kill, left)  # the others are a majority
    await led(three)
    js = (await three.connect(0)).jetstream()
    assert (await js.get_msg("S", MESSAGES + 1)).data == b"new"
    assert (await js.publish("s", b"more")).seq == MESSAGES + 11


async def test_of_two_servers_the_one_with_the_more_complete_log_is_chosen(
    five: NatsCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = await five.connect(0)
    await fill(client, replicas=5)
    await wait_until_whole(client, "S", {"n1", "n2", "n3", "n4", "n5"}, WITHIN_S)
    await client.close()
    better, lagging = five.servers[3], five.servers[4]
    await asyncio.to_thread(five.kill, lagging)
    await led(five)
    js = (client := await five.connect(better)).jetstream()
    for at in range(50):
        assert (await js.publish("s", b"late")).seq == MESSAGES + at + 1
    await ask(client, "STREAM.CREATE.T", name="T", num_replicas=5)
    for name in ("S", "T"):
        await wait_until_has_all(client, name, "n4")
    await client.close()
    for server in five.servers[:4]:
        await asyncio.to_thread(five.kill, server)
    for server in five.servers[:3]:
        empty(server)
    lost = ("--lost", "n1,n2,n3")
    assert await rescue(better, tmp_path, *lost, "--yes") == 1
    assert "n5 is neither lost nor known" in capsys.readouterr().err
    reports = {}
    for server in (better, lagging):
        name = server.options.server_name
        assert await rescue(server, tmp_path, *lost, "--json") == 1
        reports[name] = tmp_path / f"{name}.json"
        reports[name].write_text(capsys.readouterr().out)
    known_better = ("--others", str(reports["n4"]))
    assert await rescue(lagging, tmp_path, *lost, *known_better, "--yes") == 1
    assert "n4 has the more complete log of the meta group" in capsys.readouterr().err
    known_lagging = ("--others", str(reports["n5"]))
    assert await rescue(better, tmp_path, *lost, *known_lagging, "--yes") == 0
    for server in (lagging, better):
        await asyncio.to_thread(five.restart, server)
    await led(five)
    client = await five.connect(lagging)
    await wait_until_whole(client, "S", {"n4", "n5"}, WITHIN_S)
    js = client.jetstream()
    assert (await js.stream_info("S")).state.messages == MESSAGES + 50
    assert (await js.publish("s", b"more")).seq == MESSAGES + 51
    assert (await js.stream_info("T")).state.messages == 0
    await client.close()
    for server in five.servers[:3]:
        await asyncio.to_thread(five.restart, server)
    client = await five.connect(0)
    await wait_until_whole(client, "S", {"n1", "n2", "n3", "n4", "n5"}, WITHIN_S)


async def test_a_stream_is_rescued_while_the_meta_group_has_a_majority(
    five: NatsCluster, tmp_path: Path
) -> None:
    client = await five.connect(0)
    await fill(client)
    info = (await ask(client, "STREAM.INFO.S"))["cluster"]
    replicas = [info["leader"], *(each["name"] for each in info["replicas"])]
    await wait_until_whole(client, "S", set(replicas), WITHIN_S)
    await client.close()
    by_name = {each.options.server_name: each for each in five.servers}
    *lost, left = (by_name[name] for name in replicas)
    await asyncio.to_thread(five.kill, left)
    await led(five)
    js = (client := await five.connect(lost[0])).jetstream(timeout=20)
    assert (await js.publish("s", b"unknown")).seq == MESSAGES + 1
    await client.close()
    for server in lost:
        await asyncio.to_thread(five.kill, server)
    assert await rescue(left, tmp_path, "--lost", ",".join(replicas[:2]), "--yes") == 0
    await asyncio.to_thread(five.restart, left)
    await led(five)
    client = await five.connect(left)
    await wait_until_whole(client, "S", by_name.keys() - set(replicas[:2]), WITHIN_S)
    js = client.jetstream()
    assert (await js.stream_info("S")).state.messages == MESSAGES
    assert (await js.publish("s", b"new")).seq == MESSAGES + 1
    assert [each.group.server for each in read_records(members_directory(left))] == [replicas[2]]
    await client.close()
    for server in lost:  # they come back after all
        await asyncio.to_thread(five.restart, server)
    for server in lost:
        await asyncio.to_thread(server.wait_for_log, "it joins anew", WITHIN_S)
    await asyncio.to_thread(five.wait_for_jetstream, WITHIN_S)
    for server in five.servers:
        js = (client := await five.connect(server)).jetstream()
        assert (await js.get_msg("S", MESSAGES + 1)).data == b"new"
        await client.close()


async def test_nothing_is_rescued_if_a_server_that_is_said_to_be_lost_is_heard(
    three: NatsCluster, tmp_path: Path
) -> None:
    client = await three.connect(0)
    await fill(client)
    await wait_until_whole(client, "S", set(NAMES), WITHIN_S)
    left = three.servers[2]
    await asyncio.to_thread(three.kill, left)
    assert await rescue(left, tmp_path, "--lost", "n1,n2", "--yes") == 0
    await asyncio.to_thread(three.restart, left)
    await asyncio.to_thread(left.wait_for_log, "was heard of, and is not lost", WITHIN_S)
    await wait_until_whole(client, "S", set(NAMES), WITHIN_S)
    assert (await client.jetstream().publish("s", b"more")).seq == MESSAGES + 1
    assert all(each.refused for each in read_records(members_directory(left)))
    left.check_errors = False  # the refusal is one


def contents(server: NatsServer) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in server.directory.rglob("*") if path.is_file()}


def damage(server: NatsServer, payload: bytes) -> None:
    """Change a byte of a message in the RAFT log that was synced long ago."""
    [log] = (server.directory / "jetstream" / LOGS_DIRECTORY).glob("log.*")
    data = bytearray(log.read_bytes())
    data[data.index(payload)] ^= 0xFF
    log.write_bytes(data)


async def test_a_dry_run_changes_no_byte_and_refusals_are_one_line(
    three: NatsCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = await three.connect(2)
    js = client.jetstream(timeout=20)
    await js.add_stream(name="S", subjects=["s"], num_replicas=3)
    await wait_until_whole(client, "S", set(NAMES), WITHIN_S)
    await js.publish("s", b"to be damaged")
    await js.publish("s", b"the last one")
    await wait_until_whole(client, "S", set(NAMES), WITHIN_S)
    await client.close()
    left = three.servers[2]

    async def refusal(*arguments: str) -> str:
        assert await rescue(left, tmp_path, *arguments) == 1
        [line] = capsys.readouterr().err.splitlines()
        return line

    assert "is in use by process" in await refusal("--lost", "n1,n2")
    for server in three.servers:
        await asyncio.to_thread(three.kill, server)
    before = contents(left)
    assert await rescue(left, tmp_path, "--lost", "n1,n2") == 0
    shown = capsys.readouterr().out
    assert "n3 has messages up to sequence 2\n" in shown
    assert "Nothing was changed." in shown
    lost_two, lost_one = ("--lost", "n1,n2", "--yes"), ("--lost", "n1", "--yes")
    assert "n9 is no server of this cluster" in await refusal("--lost", "n9", "--yes")
    assert "n3 is not lost" in await refusal("--lost", "n2,n3", "--yes")
    assert "there is nothing to rescue" in await refusal(*lost_one)
    assert "n2, n3 are a majority of its 3 members" in await refusal(*lost_one, "--stream", "$G/S")
    assert "n2, n3 are a majority of its 3 members" in await refusal(*lost_one, "--meta")
    assert "there is no stream '$G > X'" in await refusal(*lost_two, "--stream", "$G/X")
    assert "leave --stream out" in await refusal(*lost_two, "--stream", "$G/S")
    assert "is not ACCOUNT/NAME" in await refusal(*lost_two, "--stream", "S")
    assert contents(left) == before
    damage(left, b"to be damaged")
    assert "its log here is damaged" in await refusal(*lost_two)
    empty(left)
    assert "is not the directory of a server that was in a cluster" in await refusal(*lost_two)


async def test_streams_of_which_no_server_is_left_are_named_and_deleted_on_request(
    three: NatsCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = await three.connect(0)
    js = client.jetstream(timeout=20)
    for number in range(9):
        await js.add_stream(name=f"R{number}", subjects=[f"r{number}"])
        await js.publish(f"r{number}", b"x")
    leaders = {
        name: (await ask(client, f"STREAM.INFO.{name}"))["cluster"]["leader"]
        for name in (f"R{number}" for number in range(9))
    }
    await client.close()
    for server in three.servers:
        await asyncio.to_thread(three.kill, server)
    gone = {name for name, leader in leaders.items() if leader != "n3"}
    kept = leaders.keys() - gone
    left = three.servers[2]
    assert gone and kept
    assert await rescue(left, tmp_path, "--lost", "n1,n2", "--drop-gone", "--yes") == 0
    shown = capsys.readouterr().out
    assert all((f"stream '$G > {name}': GONE" in shown) == (name in gone) for name in leaders)
    await asyncio.to_thread(three.restart, left)
    await asyncio.to_thread(three.wait_for_jetstream, WITHIN_S)
    client = await three.connect(left)
    for name in kept:
        await led(three, name)
    assert set((await ask(client, "STREAM.NAMES"))["streams"]) == kept


async def rescue_half(server: NatsServer) -> None:
    """Do the first step of what was ordered, as a server that is killed after it."""
    directory, disk = server.directory / "jetstream", RealDisk()
    logs = RaftLogs.open(disk, directory / LOGS_DIRECTORY, os.urandom)
    key = server_key("n3")
    link, loop = Link(Network(), key, 1 << 20), asyncio.get_running_loop()
    host = RaftHost(key, logs, link, randrange, HostOptions(), loop)
    host.start()
    vault = Vault(disk, directory, os.urandom)
    peers = Peers(client=None, describe=None, loop=loop)  # type: ignore[arg-type]  # nobody is heard
    rescuing = Rescuing(host, peers, vault, members_directory(server))
    rescuing.open()
    await rescuing.rescue_meta(member_id(key))
    await host.close()
    logs.close()


async def test_a_server_that_is_killed_during_a_rescue_goes_on_with_it(
    three: NatsCluster, tmp_path: Path
) -> None:
    client = await three.connect(2)
    await fill(client)
    await wait_until_whole(client, "S", set(NAMES), WITHIN_S)
    await client.close()
    for server in three.servers:
        await asyncio.to_thread(three.kill, server)
    left = three.servers[2]
    assert await rescue(left, tmp_path, "--lost", "n1,n2", "--yes") == 0
    await rescue_half(left)
    await asyncio.to_thread(three.restart, left)
    await led(three)
    js = (await three.connect(left)).jetstream()
    assert (await js.publish("s", b"more")).seq == MESSAGES + 1
    directory = members_directory(left)
    assert {each.group.server for each in read_records(directory)} == {"n3"}
    assert not (directory / ORDER_FILE).exists()
