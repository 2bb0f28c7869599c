"""A test's cluster, in threads and in processes: what a test can do with it."""

from __future__ import annotations

import asyncio
from typing import Any

import nats
import pytest

from natsd import testing
from tests.waiting import eventually_within

HOSTS = pytest.mark.parametrize("process", [False, True], ids=["thread", "process"])
SHOP = {
    "kitchen": {"users": [{"user": "cook", "password": "salt"}]},
    "counter": {"users": [{"user": "waiter", "password": "tip"}]},
}


@HOSTS
def test_three_servers_form_a_mesh(process: bool) -> None:
    with testing.cluster(process=process) as cluster:
        assert [server.options.server_name for server in cluster.servers] == ["n1", "n2", "n3"]
        assert len(set(cluster.client_urls)) == 3
        assert [server.routes() for server in cluster.servers] == [
            {"n2": 4, "n3": 4},
            {"n1": 4, "n3": 4},
            {"n1": 4, "n2": 4},
        ]
    assert not any(server.is_running for server in cluster.servers)


@HOSTS
async def test_messages_pass_from_each_server_to_each_other(process: bool) -> None:
    async with testing.cluster(process=process) as cluster:
        clients = [await cluster.connect(server) for server in range(3)]
        inboxes = [await client.subscribe("orders.*") for client in clients]
        await asyncio.gather(*[client.flush() for client in clients])
        await asyncio.to_thread(cluster.wait_for_interest, "orders.lemon", timeout=20)
        for client in clients:
            await client.publish("orders.lemon", b"two scoops")
        for inbox in inboxes:
            for _ in clients:
                assert (await inbox.next_msg(timeout=20)).data == b"two scoops"


@HOSTS
def test_options(process: bool) -> None:
    with testing.cluster(
        2,
        process=process,
        accounts=SHOP,
        cluster={"pool_size": 2, "accounts": ["kitchen"], "name": "parlour"},
        per_server=[{"server_tags": ["left"]}, {"server_name": "right"}],
    ) as cluster:
        first, second = cluster.servers
        assert first.routes() == {"right": 4}
        assert second.routes() == {"n1": 4}
        assert first.options.server_tags == ("left",)
        assert first.options.cluster is not None
        assert first.options.cluster.name == "parlour"


@HOSTS
def test_a_configuration_as_text(process: bool) -> None:
    text = 'max_payload: 2000\ncluster { name: parlour, listen: "0.0.0.0:6222", pool_size: -1 }'
    with testing.cluster(2, config=text, process=process) as cluster:
        assert [server.routes() for server in cluster.servers] == [{"n2": 1}, {"n1": 1}]
        assert cluster.servers[0].options.max_payload == 2000
        assert all("127.0.0.1" in server.route_url for server in cluster.servers)
        assert not any(":6222" in server.route_url for server in cluster.servers)


def test_settings_of_a_cluster_beside_a_file_are_refused() -> None:
    with pytest.raises(ValueError, match="into the configuration"):
        testing.cluster(config="", cluster={})
    with pytest.raises(ValueError, match="there are 1 servers, and options of 2"):
        testing.cluster(1, per_server=[{}, {}])


@HOSTS
def test_each_server_comes_back_on_its_ports(process: bool) -> None:
    with testing.cluster(process=process) as cluster:
        urls = [(server.client_url, server.route_url) for server in cluster.servers]
        for which in (0, 1, cluster.servers[2]):
            cluster.restart(which)
            cluster.wait_for_mesh()
        assert [(server.client_url, server.route_url) for server in cluster.servers] == urls


def test_a_server_that_is_stopped_is_not_missed() -> None:
    with testing.cluster() as cluster:
        cluster.stop(1)
        cluster.wait_for_mesh()
        cluster.restart(1, max_payload=77)
        cluster.wait_for_mesh()
        assert cluster.servers[1].options.max_payload == 77
        cluster.pause(2)
        cluster.wait_for_mesh()
        cluster.resume(2)


async def test_clients_of_a_killed_server_go_to_the_others() -> None:
    async with testing.cluster(process=True) as cluster:
        client = await cluster.connect(0, reconnect_time_wait=0.01)
        cluster.kill(0)
        others = {int(url.rpartition(":")[2]) for url in cluster.client_urls[1:]}

        def has_moved() -> bool:
            url = client.connected_url
            return client.is_connected and url is not None and url.port in others

        await eventually_within(has_moved)
        cluster.restart(0)
        await asyncio.to_thread(cluster.wait_for_mesh)
        await client.flush()


@HOSTS
async def test_waiting_for_interest_of_an_account(process: bool) -> None:
    async with testing.cluster(2, process=process, accounts=SHOP) as cluster:
        cook = await cluster.connect(0, user="cook", password="salt")
        await cook.subscribe("cook.*")
        await cook.flush()
        wait: Any = cluster.wait_for_interest
        await asyncio.to_thread(wait, "cook.soup", account="kitchen", timeout=20)
        with pytest.raises(TimeoutError, match="know of no subscription that cook"):
            await asyncio.to_thread(wait, "cook.soup", account="counter", timeout=0.01)
        with pytest.raises(RuntimeError, match=r"asyncio\.to_thread"):
            cluster.wait_for_mesh()


async def test_a_connection_left_open_at_any_server_is_an_error() -> None:
    cluster = await testing.cluster(2).__aenter__()
    client = await nats.connect(cluster.client_urls[1], name="forgotten", allow_reconnect=False)
    with pytest.raises(testing.LeakedConnections, match="forgotten, python3"):
        await cluster.__aexit__(None, None, None)
    await client.close()


def test_a_lone_server_has_no_routes() -> None:
    with testing.server() as server:
        assert server.routes() == {}
        with pytest.raises(RuntimeError, match="there is no cluster"):
            assert server.route_url


def test_a_cluster_that_does_not_start_leaves_nothing() -> None:
    cluster = testing.cluster(2, per_server=[{}, {"port": 70000}])
    with pytest.raises(ValueError, match="70000"):
        cluster.__enter__()
    assert not any(server.is_running for server in cluster.servers)
