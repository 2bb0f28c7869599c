"""Servers of a cluster with keys: nothing is stored in clear, and each has a key of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import ConsumerConfig, KeyValueConfig

import natsd.testing
from natsd.cli import cluster_rescue
from natsd.jetstream.meta_group.cluster import LOGS_DIRECTORY, MEMBER_DIRECTORY
from natsd.jetstream.meta_group.rescue_order import ORDER_FILE
from natsd.store.crypto.keys import OperatorKeys
from natsd.store.disk.real_disk import RealDisk
from natsd.store.maintenance.check import check_volume
from natsd.testing.errors import ProcessError
from natsd.testing.nats_cluster import NatsCluster
from natsd.testing.nats_server import NatsServer
from tests.jetstream.cluster.asking import NAMES, ask, wait_until_whole

pytestmark = pytest.mark.timeout(180)  # several starts of several processes each

SECRET = "Planted7Secret"
SUBJECT = f"s.{SECRET}"
PAYLOAD = SECRET.encode() * 5
LARGE = PAYLOAD + bytes(900_000)
MESSAGES, LARGE_MESSAGES = 100, 20
"""So many large ones are more than a group keeps in its log: it takes a snapshot."""
WITHIN_S = 60


def with_key(at: int, **settings: str) -> dict[str, Any]:
    """Return the settings of a server, whose key only it has."""
    return {"jetstream": {"key": f"key of n{at + 1}", **settings}}


@pytest.fixture
async def three() -> AsyncIterator[NatsCluster]:
    """Three servers, each in a process of its own, with a key of its own."""
    ciphers = ("aes", "chacha", "aes")
    per_server = [with_key(at, cipher=cipher) for at, cipher in enumerate(ciphers)]
    async with natsd.testing.cluster(process=True, per_server=per_server) as servers:
        await asyncio.to_thread(servers.wait_for_jetstream)
        yield servers


@pytest.fixture
async def plain() -> AsyncIterator[NatsCluster]:
    """Three servers without a key, each in a process of its own."""
    async with natsd.testing.cluster(process=True, jetstream=True) as servers:
        await asyncio.to_thread(servers.wait_for_jetstream)
        yield servers


async def fill(client: nats.NATS) -> None:
    """Store the secret in all that a cluster keeps, except names of streams and consumers."""
    js = client.jetstream(timeout=20)
    for name, storage in (("S", "file"), ("M", "memory")):
        await ask(
            client,
            f"STREAM.CREATE.{name}",
            name=name,
            subjects=[f"{name.lower()}.{SECRET}.*"],
            num_replicas=3,
            storage=storage,
            description=SECRET,
            metadata={"owner": SECRET},
            allow_direct=True,
        )
        for at in range(MESSAGES):
            headers = {"Nats-Msg-Id": f"{SECRET}-{at}", "Owner": SECRET}
            await js.publish(f"{name.lower()}.{SECRET}.{at}", PAYLOAD, headers=headers)
    for at in range(LARGE_MESSAGES):
        await js.publish(f"{SUBJECT}.large{at}", LARGE)
    consumer = ConsumerConfig(durable_name="C", filter_subject=f"{SUBJECT}.*", description=SECRET)
    await js.add_consumer("S", consumer)
    await js.create_key_value(KeyValueConfig(bucket="B", replicas=3, description=SECRET))
    await (await js.key_value("B")).put(SECRET, PAYLOAD)
    for name in ("S", "M", "KV_B"):
        await wait_until_whole(client, name, set(NAMES), WITHIN_S)


async def check(client: nats.NATS) -> None:
    """Check that everything that `fill` stored is there."""
    js = client.jetstream(timeout=20)
    for name, count in (("S", MESSAGES + LARGE_MESSAGES), ("M", MESSAGES), ("KV_B", 1)):
        await wait_until_whole(client, name, set(NAMES), WITHIN_S)
        assert (await js.stream_info(name)).state.messages == count
    for at in range(MESSAGES):
        message = await js.get_msg("S", at + 1)
        assert (message.subject, message.data) == (f"{SUBJECT}.{at}", PAYLOAD)
    assert (await js.get_msg("S", MESSAGES + 1)).data == LARGE
    assert (await js.consumer_info("S", "C")).config.filter_subject == f"{SUBJECT}.*"
    assert (await (await js.key_value("B")).get(SECRET)).value == PAYLOAD
    again = await js.publish(f"{SUBJECT}.7", PAYLOAD, headers={"Nats-Msg-Id": f"{SECRET}-7"})
    assert again.duplicate


def in_clear(cluster: NatsCluster) -> set[str]:
    """Return the files of stopped servers in which the secret is, below their directories."""
    return {
        path.relative_to(server.directory).as_posix()
        for server in cluster.servers
        for path in (server.directory / "jetstream").rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    }


def contents(server: NatsServer) -> dict[Path, bytes]:
    """Return the files of a server, without those that each start writes."""
    return {
        path: path.read_bytes()
        for path in (server.directory / "jetstream").rglob("*")
        if path.is_file() and path.name not in ("natsd.lock", "lock")
    }


async def kill_all(cluster: NatsCluster) -> None:
    for server in cluster.servers:
        await asyncio.to_thread(cluster.kill, server)


async def start_all(cluster: NatsCluster, *settings: dict[str, Any]) -> nats.NATS:
    """Start all servers, with these settings of each; connect a client."""
    for at, server in enumerate(cluster.servers):
        await asyncio.to_thread(cluster.restart, server, **(settings[at] if settings else {}))
    await asyncio.to_thread(cluster.wait_for_jetstream, WITHIN_S)
    for name in ("S", "M", "KV_B"):
        await asyncio.to_thread(cluster.wait_for_leader, name, timeout=WITHIN_S)
    return await cluster.connect(0)


async def refusal(cluster: NatsCluster, server: NatsServer, **jetstream: str) -> str:
    """Start a server with a wrong key; return the line that says why it does not start."""
    with pytest.raises(ProcessError) as failed:
        await asyncio.to_thread(cluster.restart, server, jetstream=jetstream or True)
    [line] = [each for each in str(failed.value).splitlines() if "Can't start JetStream" in each]
    return line


async def test_nothing_is_in_clear_and_a_wrong_key_changes_nothing(three: NatsCluster) -> None:
    client = await three.connect(0)
    await fill(client)
    await client.close()
    await kill_all(three)
    assert in_clear(three) == set()
    for server in three.servers:
        logs = server.directory / "jetstream" / LOGS_DIRECTORY
        assert len(list((logs / "snapshots").iterdir())) >= 4  # of the meta group and each stream
    first = three.servers[0]
    before = contents(first)
    for wrong in ({}, {"key": "wrong"}, {"key": "wrong", "prev_key": "another"}):
        line = await refusal(three, first, **wrong)
        assert "give the key that it was written with" in line
        assert f"{first.directory}/jetstream/" in line
        assert contents(first) == before
    client = await start_all(three, *[with_key(at) for at in range(3)])
    await check(client)
    await client.close()
    for server in three.servers:
        await asyncio.to_thread(three.stop, server)
    assert in_clear(three) == set()
    root = first.directory / "jetstream"
    report = check_volume(RealDisk(), root, OperatorKeys(b"key of n1"), os.urandom)
    assert report.is_clean, report


async def test_keys_are_rotated_at_a_start(three: NatsCluster) -> None:
    """One server after the other gets a new key, and none is needed any more that was before."""
    client = await three.connect(0)
    await fill(client)
    await client.close()
    await kill_all(three)
    rotating = [{"jetstream": {"key": "new", "prev_key": f"key of n{at + 1}"}} for at in range(3)]
    client = await start_all(three, *rotating)
    await check(client)
    await client.close()
    await kill_all(three)
    client = await start_all(three, *[{"jetstream": {"key": "new"}}] * 3)
    await check(client)
    await client.close()
    await asyncio.to_thread(three.kill, three.servers[0])
    assert "the key does not open it" in await refusal(three, three.servers[0], key="key of n1")


async def test_plain_directories_are_encrypted_one_server_after_the_other(
    plain: NatsCluster,
) -> None:
    """Servers with a key and without one work together; then there is no way back."""
    client = await plain.connect(0)
    await fill(client)
    await client.close()
    await kill_all(plain)
    found = in_clear(plain)
    for what in (f"{LOGS_DIRECTORY}/log.", f"{LOGS_DIRECTORY}/snapshots/", "meta.json", ".blk"):
        assert any(what in path for path in found), what
    client = await start_all(plain, with_key(0), with_key(1), {})
    await check(client)
    await client.close()
    await kill_all(plain)
    client = await start_all(plain, {}, {}, with_key(2))
    await check(client)
    await client.close()
    for server in plain.servers:
        await asyncio.to_thread(plain.stop, server)
    assert in_clear(plain) == set()
    assert "no key is given" in await refusal(plain, plain.servers[0])


async def test_a_server_with_an_empty_disk_gets_all_from_servers_with_other_keys(
    three: NatsCluster,
) -> None:
    client = await three.connect(0)
    await fill(client)
    await client.close()
    await kill_all(three)
    lost = three.servers[2]
    for path in sorted(lost.directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    client = await start_all(three)
    await check(client)
    await client.close()
    await kill_all(three)
    assert in_clear(three) == set()


async def test_a_rescue_takes_the_key_from_the_configuration(
    three: NatsCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = await three.connect(0)
    await fill(client)
    await client.close()
    await kill_all(three)
    left, config = three.servers[2], tmp_path / "n3.conf"
    before = contents(left)

    async def rescue(key: str, *arguments: str) -> int:
        config.write_text(
            f"server_name: n3, cluster {{ name: test, port: -1 }}\n"
            f"jetstream {{ store_dir: '{left.directory}', {key} }}\n"
        )
        given = ["-c", str(config), "--lost", "n1,n2", *arguments]
        return await asyncio.to_thread(cluster_rescue.main, given)

    for key, reason in (("", "no key is given"), ("key: wrong", "the key does not open it")):
        assert await rescue(key, "--yes") == 1
        [line] = capsys.readouterr().err.splitlines()
        assert reason in line
    assert await rescue("key: 'key of n3'") == 0
    assert contents(left) == before
    monkeypatch.setenv("NATSD_JETSTREAM_KEY", "key of n3")
    assert await rescue("", "--yes") == 0
    assert f"n3 has messages up to sequence {MESSAGES}" in capsys.readouterr().out
    assert (left.directory / "jetstream" / MEMBER_DIRECTORY / ORDER_FILE).exists()
    assert in_clear(three) == set()
    monkeypatch.delenv("NATSD_JETSTREAM_KEY")
    await asyncio.to_thread(three.restart, left)
    await asyncio.to_thread(three.wait_for_leader, "S", timeout=WITHIN_S)
    js = (await three.connect(left)).jetstream()
    assert (await js.get_msg("S", 1)).data == PAYLOAD
    assert (await js.publish(f"{SUBJECT}.more", b"")).seq == MESSAGES + LARGE_MESSAGES + 1
