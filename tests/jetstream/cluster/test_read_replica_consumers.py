"""Consumers that a read replica serves: they deliver in the far site and have their state there."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.msg import Msg
from nats.js.errors import APIError

import natsd.testing
from natsd.testing.nats_cluster import NatsCluster
from natsd.testing.nats_server import NatsServer
from tests.jetstream.cluster.asking import ask, hand_over, leader_of
from tests.jetstream.cluster.sites import (
    CONFIG,
    FAR,
    NEAR,
    NEAR_NAMES,
    READ_REPLICA,
    connect,
    create,
    members,
    named,
    read_replica_of,
    store,
    until,
    update,
    wait_for_members,
)

NAME = "natsd.read_replica"


class Far:
    """A stream with a read replica, seen from both sites."""

    def __init__(
        self, cluster: NatsCluster, server: NatsServer, near: nats.NATS, far: nats.NATS
    ) -> None:
        self.cluster = cluster
        self.server = server
        self.name = server.options.server_name
        self.near = near
        self.far = far

    async def consumer(
        self, name: str = "c", server: str = "", client: nats.NATS | None = None, **settings: Any
    ) -> dict[str, Any]:
        """Create a durable consumer on the read replica; return its info."""
        config = {"durable_name": name, "ack_policy": "explicit", **settings}
        metadata = {NAME: server or self.name, **config.pop("metadata", {})}
        created: dict[str, Any] = await ask(
            client or self.near,
            f"CONSUMER.CREATE.S.{name}",
            stream_name="S",
            config={**config, "metadata": metadata},
        )
        return created

    async def info(self, name: str = "c", client: nats.NATS | None = None) -> dict[str, Any]:
        found: dict[str, Any] = await ask(client or self.near, f"CONSUMER.INFO.S.{name}")
        return found

    async def until_served(self, name: str = "c", client: nats.NATS | None = None) -> None:
        async def is_served() -> bool:
            try:
                info = await self.info(name, client)
            except (APIError, nats.errors.TimeoutError, nats.errors.NoRespondersError):
                return False
            return bool(info["cluster"].get("leader") == self.name)

        await until(is_served)

    async def is_offline(self, code: int = 10119) -> bool:
        try:
            await self.info()
        except APIError as error:
            return error.err_code == code
        except nats.errors.TimeoutError:
            return False
        return False

    async def has_no_read_replica(self) -> bool:
        """Return whether the info says that the consumer's server has no read replica."""
        return await self.is_offline(10195)

    async def until_reported(self, sequence: int, name: str = "c") -> None:
        """Wait until the stream's leader knows up to where a consumer's messages are acked."""
        options = {"account": "A", "accounts": True, "streams": True, "consumer": True}

        async def is_reported() -> bool:
            leader = named(self.cluster, await leader_of(self.near, "S"))
            client = await self.cluster.connect(leader, user="s", password="s")
            subject = f"$SYS.REQ.SERVER.{client._server_info['server_id']}.JSZ"
            answer = await client.request(subject, json.dumps(options).encode(), timeout=5)
            await client.close()
            (account,) = json.loads(answer.data)["data"]["account_details"]
            (stream,) = account["stream_detail"]
            (found,) = (each for each in stream["consumer_detail"] if each["name"] == name)
            return bool(found["ack_floor"]["stream_seq"] == sequence)

        await until(is_reported)

    async def pause_others(self) -> None:
        for each in self.cluster.servers:
            if each is not self.server:
                await asyncio.to_thread(self.cluster.pause, each)

    async def resume_others(self) -> None:
        for each in self.cluster.servers:
            if each is not self.server:
                await asyncio.to_thread(self.cluster.resume, each)


@pytest.fixture
async def site(sites: NatsCluster) -> Far:
    near = await connect(sites, 0)
    await create(near)
    server = await read_replica_of(near, sites)
    return Far(sites, server, near, await connect(sites, server))


async def pull(client: nats.NATS, number: int, name: str = "c", expires_s: float = 5) -> list[Msg]:
    """Return the next messages of a consumer, `number` of them, or fewer when time is over."""
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox)
    body = b'{"batch":%d,"expires":%d}' % (number, expires_s * 1e9)
    await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", body, reply=inbox)
    found: list[Msg] = []
    async with asyncio.timeout(expires_s + 5):
        while len(found) < number:
            message = await answers.next_msg(timeout=expires_s + 5)
            if "Status" in (message.headers or {}):
                break
            found.append(message)
    await answers.unsubscribe()
    return found


async def acked(messages: list[Msg]) -> list[bytes]:
    """Acknowledge messages, and return their data once that is confirmed."""
    for each in messages:
        await each._client.request(each.reply, b"+ACK", timeout=5)
    return [each.data for each in messages]


async def test_clients_of_both_sites_pull_old_and_new_messages_there(site: Far) -> None:
    for number in range(3):
        await store(site.near, b"%d" % number)
    info = await site.consumer()
    assert info["cluster"] == {"name": "test", "leader": site.name}
    assert info["num_pending"] == 3
    assert info["config"]["metadata"][NAME] == site.name
    assert info["natsd_staleness"].endswith("s")
    assert await acked(await pull(site.far, 2)) == [b"0", b"1"]
    await store(site.near, b"3")
    assert await acked(await pull(site.near, 2)) == [b"2", b"3"]
    for client in (site.near, site.far):
        info = await site.info(client=client)
        assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"]) == (4, 0)
        assert float(info["natsd_staleness"].removesuffix("s")) < 10
    assert await pull(site.far, 1, expires_s=0.1) == []


async def test_a_push_consumer_delivers_to_clients_of_both_sites(site: Far) -> None:
    await store(site.near, b"one")
    await site.consumer(deliver_subject="to.here", filter_subject="s.a", idle_heartbeat=int(1e8))
    for at, client in enumerate((site.far, site.near)):
        messages = await client.subscribe("to.here")
        found: list[bytes] = []
        await store(site.near, b"two" if at == 0 else b"three")
        async with asyncio.timeout(20):
            while found != ([b"one", b"two"] if at == 0 else [b"three"]):
                message = await messages.next_msg(timeout=10)
                if "Status" not in (message.headers or {}):
                    await message.ack()
                    found.append(message.data)
            while "Status" not in message.headers:
                message = await messages.next_msg(timeout=10)
        assert message.headers["Status"] == "100"
        assert message.headers["Natsd-Staleness"].endswith("s")
        await messages.unsubscribe()


async def test_statuses_say_how_old_the_state_may_be(site: Far) -> None:
    await site.consumer()
    for body, status in (
        (b'{"no_wait":true}', "404"),
        (b'{"expires":100000000}', "408"),
        (b"{", "400"),
        (b'{"expires":2000000000,"idle_heartbeat":100000000}', "100"),
    ):
        answer = await site.far.request("$JS.API.CONSUMER.MSG.NEXT.S.c", body, timeout=5)
        assert answer.headers["Status"] == status
        assert answer.headers["Natsd-Staleness"].endswith("s")


async def test_messages_say_how_old_they_may_be(site: Far) -> None:
    js = site.near.jetstream()
    await js.publish("s.a", b"bare")
    await js.publish("s.a", b"with headers", headers={"Color": "red"})
    await site.consumer()
    for expected in ({}, {"Color": "red"}):
        (message,) = await pull(site.far, 1)
        headers = dict(message.headers or {})
        assert float(headers.pop("Natsd-Staleness").removesuffix("s")) < 10
        assert headers == expected
    await site.consumer("sizes", headers_only=True)
    found = [each.headers for each in await pull(site.far, 2, "sizes")]
    assert [each["Nats-Msg-Size"] for each in found] == ["4", "12"]
    assert all("Natsd-Staleness" in each for each in found)
    await ask(
        site.near, "CONSUMER.CREATE.S.d", stream_name="S", config={"durable_name": "d"}
    )  # an ordinary one
    (message,) = await pull(site.far, 1, "d")
    assert message.headers is None


async def test_flow_control_and_max_bytes_count_the_age(site: Far) -> None:
    js = site.near.jetstream()
    for _ in range(100):
        await js.publish("s.a", bytes(50_000))  # more than the window of flow control
    settings = {"deliver_subject": "to.here", "flow_control": True, "idle_heartbeat": int(1e9)}
    messages = await site.far.subscribe("to.here")
    await site.consumer("push", ack_policy="none", **settings)
    found, asked = 0, 0
    async with asyncio.timeout(30):
        while found < 100:
            message = await messages.next_msg(timeout=20)
            if message.data:
                assert message.headers["Natsd-Staleness"].endswith("s")
                found += 1
            elif message.reply:
                await message.respond(b"")
                asked += 1
    assert asked
    await site.consumer()
    (one,) = await pull(site.far, 1)
    size = len(one.subject) + len(one.reply) + len(one.data)  # and headers
    body = b'{"batch":1,"expires":1000000000,"max_bytes":%d}' % (size + 10)
    answer = await site.far.request("$JS.API.CONSUMER.MSG.NEXT.S.c", body, timeout=5)
    assert answer.headers["Status"] == "409"
    assert answer.headers["Natsd-Staleness"]


async def test_any_is_the_server_of_the_client_if_it_has_a_read_replica(site: Far) -> None:
    await update(site.near, metadata={**READ_REPLICA, "natsd.read_replicas": "2"})
    await wait_for_members(site.near, NEAR_NAMES, {"n4", "n5"})
    for name in ("n5", "n4"):
        client = await connect(site.cluster, named(site.cluster, name))
        info = await site.consumer(f"by_{name}", "any", client=client)
        assert info["config"]["metadata"][NAME] == name
    fewest = [(await site.consumer(f"c{at}", "any"))["config"]["metadata"][NAME] for at in range(4)]
    assert sorted(fewest) == ["n4", "n4", "n5", "n5"]
    again = await site.consumer("c0", "any")  # it is there: nothing is chosen again
    assert again["config"]["metadata"][NAME] == fewest[0]


async def test_it_is_known_everywhere_and_listed_once(site: Far) -> None:
    await site.consumer()
    await ask(
        site.near, "CONSUMER.CREATE.S.d", stream_name="S", config={"durable_name": "d"}
    )  # an ordinary one
    for client in [site.far, *[await connect(site.cluster, at) for at in range(3)]]:
        assert (await ask(client, "CONSUMER.NAMES.S"))["consumers"] == ["c", "d"]
        listed = await ask(client, "CONSUMER.LIST.S")
        assert [each["name"] for each in listed["consumers"]] == ["c", "d"]
        assert listed["consumers"][0]["cluster"]["leader"] == site.name
        assert "natsd_staleness" in listed["consumers"][0]
        assert "natsd_staleness" not in listed["consumers"][1]
        assert (await site.info(client=client))["cluster"]["leader"] == site.name
        assert (await ask(client, "STREAM.INFO.S"))["state"]["consumer_count"] == 2
    await site.consumer(max_ack_pending=7)

    async def is_changed() -> bool:
        return (await site.info())["config"]["max_ack_pending"] == 7

    await until(is_changed)
    paused = await ask(site.near, "CONSUMER.PAUSE.S.c", pause_until="2099-01-01T00:00:00Z")
    assert paused["paused"] is True

    async def is_paused() -> bool:
        return bool((await site.info()).get("paused"))

    await until(is_paused)
    await ask(await connect(site.cluster, 1), "CONSUMER.DELETE.S.c")

    async def is_gone() -> bool:
        try:
            await site.info()
        except APIError as error:
            return error.err_code == 10014
        return False

    await until(is_gone)
    assert (await ask(site.far, "CONSUMER.NAMES.S"))["consumers"] == ["d"]


async def test_its_state_survives_a_restart_and_a_kill_of_the_server(site: Far) -> None:
    for number in range(6):
        await store(site.near, b"%d" % number)
    await site.consumer(ack_wait=int(1e9))
    first = await pull(site.near, 3)
    assert await acked(first[:2]) == [b"0", b"1"]
    await asyncio.to_thread(site.cluster.stop, site.server)

    await until(site.is_offline)
    listed = await ask(site.near, "CONSUMER.LIST.S")
    assert (listed["consumers"], listed["missing"]) == ([], ["c"])
    with pytest.raises(nats.errors.TimeoutError):
        await site.near.request("$JS.API.CONSUMER.MSG.NEXT.S.c", b"", timeout=0.3)
    await asyncio.to_thread(site.cluster.restart, site.server)
    await site.until_served()
    assert sorted(await acked(await pull(site.near, 4))) == [b"2", b"3", b"4", b"5"]
    await store(site.near, b"6")
    assert await acked(await pull(site.near, 1)) == [b"6"]
    assert (await site.info())["ack_floor"]["stream_seq"] == 7


async def test_its_state_survives_a_kill_of_the_server() -> None:
    servers = [NEAR, NEAR, NEAR, {**FAR, "process": True}]
    async with natsd.testing.cluster(4, config=CONFIG, per_server=servers) as cluster:
        await asyncio.to_thread(cluster.wait_for_jetstream)
        near = await connect(cluster, 0)
        await create(near)
        server = await read_replica_of(near, cluster)
        site = Far(cluster, server, near, near)
        await site.consumer(ack_wait=int(1e9))
        for number in range(4):
            await store(near, b"%d" % number)
        found = await pull(near, 4)
        assert await acked(found[:3]) == [b"0", b"1", b"2"]  # the files of the stream come later
        await asyncio.to_thread(cluster.kill, server)
        await asyncio.to_thread(cluster.restart, server)
        await site.until_served()
        assert await acked(await pull(near, 1)) == [b"3"]
        await store(near, b"4")
        assert await acked(await pull(near, 1)) == [b"4"]
        assert (await site.info())["ack_floor"]["stream_seq"] == 5


async def test_a_change_of_the_streams_leader_does_not_disturb_it(site: Far) -> None:
    await site.consumer()
    await store(site.near, b"0")
    assert await acked(await pull(site.far, 1)) == [b"0"]
    leader = await leader_of(site.near, "S")
    other = next(each for each in sorted(NEAR_NAMES) if each != leader)
    waiting = asyncio.create_task(pull(site.far, 1, expires_s=20))
    await hand_over(site.near, "S", other)
    assert waiting.done() is False
    await store(site.near, b"1")
    assert await acked(await waiting) == [b"1"]
    assert (await site.info())["ack_floor"]["consumer_seq"] == 2


async def test_a_site_that_is_cut_off_delivers_what_it_has(site: Far) -> None:
    for number in range(3):
        await store(site.near, b"%d" % number)
    await site.consumer()
    assert await acked(await pull(site.far, 1)) == [b"0"]
    await site.pause_others()

    async def is_old() -> bool:
        info = await site.info(client=site.far)
        return float(info["natsd_staleness"].removesuffix("s")) > 4

    await until(is_old)
    assert await acked(await pull(site.far, 2)) == [b"1", b"2"]
    await site.resume_others()
    assert await store(site.near, b"3") == 4
    assert await acked(await pull(site.far, 1, expires_s=20)) == [b"3"]


async def test_one_that_is_too_old_delivers_nothing(sites: NatsCluster) -> None:
    near = await connect(sites, 0)
    await create(near, metadata={**READ_REPLICA, "natsd.read_max_staleness": "3s"})
    server = await read_replica_of(near, sites)
    site = Far(sites, server, near, await connect(sites, server))
    await store(near, b"0")
    await site.consumer()
    assert [each.data for each in await pull(site.far, 1)] == [b"0"]
    waiting = asyncio.create_task(
        site.far.request("$JS.API.CONSUMER.MSG.NEXT.S.c", b"1", timeout=20)
    )
    await site.pause_others()
    assert (await waiting).headers["Status"] == "409"
    with pytest.raises(nats.errors.TimeoutError):
        await site.far.request("$JS.API.CONSUMER.MSG.NEXT.S.c", b"", timeout=0.3)
    with pytest.raises(APIError) as raised:
        await site.info(client=site.far)
    assert raised.value.err_code == 10119
    await site.resume_others()
    await site.until_served(client=site.far)
    await store(near, b"1")
    assert (await pull(site.far, 1))[0].data == b"1"


async def test_it_stands_still_while_its_server_has_no_read_replica(site: Far) -> None:
    for number in range(2):
        await store(site.near, b"%d" % number)
    await site.consumer()
    assert await acked(await pull(site.far, 1)) == [b"0"]
    await site.until_reported(1)
    await ask(site.near, "STREAM.PEER.REMOVE.S", peer=site.name)
    other = ({"n4", "n5"} - {site.name}).pop()
    await wait_for_members(site.near, NEAR_NAMES, {other})

    await until(site.has_no_read_replica)
    with pytest.raises(APIError) as raised:
        await site.info()
    reason = f"server '{site.name}' has no read replica of the stream any more"
    assert raised.value.description == f"consumer is offline: {reason}"
    assert (await ask(site.near, "CONSUMER.LIST.S"))["offline"] == {"c": reason}
    await ask(site.near, "STREAM.PEER.REMOVE.S", peer=other)
    await wait_for_members(site.near, NEAR_NAMES, {site.name})
    await site.until_served()
    assert [each.data for each in await pull(site.far, 1)] == [b"1"]  # its files were gone


async def remove_from_stream(site: Far, _system: nats.NATS) -> None:
    await ask(site.near, "STREAM.PEER.REMOVE.S", peer=site.name)


async def remove_server(site: Far, system: nats.NATS) -> None:
    await asyncio.to_thread(site.cluster.stop, site.server)
    await asyncio.to_thread(site.cluster.wait_for_jetstream)
    await ask(system, "SERVER.REMOVE", peer=site.name)


async def place_elsewhere(site: Far, _system: nats.NATS) -> None:
    tags = f"region:eu,!only:{site.name}"
    metadata = {"natsd.read_replicas": "1", "natsd.read_replica_tags": tags}
    await update(site.near, metadata=metadata)


@pytest.mark.parametrize("number", ["1", "2"])
@pytest.mark.parametrize("remove", [remove_from_stream, remove_server, place_elsewhere])
async def test_one_for_any_goes_on_at_another_read_replica(
    remove: Callable[[Far, nats.NATS], Awaitable[None]], number: str
) -> None:
    far = [{"server_tags": ["region:eu", f"only:{name}"]} for name in ("n4", "n5")]
    async with natsd.testing.cluster(
        5, config=CONFIG, per_server=[NEAR, NEAR, NEAR, *far]
    ) as cluster:
        await asyncio.to_thread(cluster.wait_for_jetstream)
        near = await connect(cluster, 0)
        await create(near, metadata={**READ_REPLICA, "natsd.read_replicas": number})
        await until(lambda: has_read_replicas(near, int(number)))
        name = min((await members(near))[1])
        site = Far(cluster, named(cluster, name), near, near)
        client = await connect(cluster, site.server)
        for at in range(4):
            await store(near, b"%d" % at)
        before = await site.consumer(server="any", client=client)
        assert before["config"]["metadata"][NAME] == name
        await site.consumer("named")
        first = await pull(near, 4)
        assert await acked(first[:2] + first[3:]) == [b"0", b"1", b"3"]
        await site.until_reported(2)
        await remove(site, await cluster.connect(0, user="s", password="s"))

        other = ({"n4", "n5"} - {name}).pop()
        moved = Far(cluster, named(cluster, other), near, near)
        await moved.until_served()
        assert await acked(await pull(near, 2)) == [b"2", b"3"]  # what was acked behind 2 is lost
        info = await moved.info()
        assert info["config"]["metadata"][NAME] == other
        assert info["config"]["metadata"]["natsd.read_replica_moves"] == "true"
        assert (info["cluster"]["leader"], info["ack_floor"]["stream_seq"]) == (other, 4)
        listed = await ask(near, "CONSUMER.LIST.S")
        assert (
            [each["name"] for each in listed["consumers"]],
            listed["missing"],
        ) == (["c"], ["named"])
        again = await site.consumer(server="any")
        assert again["config"]["metadata"][NAME] == other


async def has_read_replicas(client: nats.NATS, number: int) -> bool:
    return len((await members(client))[1]) == number


async def test_one_for_any_waits_for_a_read_replica(site: Far) -> None:
    await store(site.near, b"0")
    await site.consumer(server="any")
    await update(site.near, metadata={})
    await until(site.has_no_read_replica)
    await update(site.near, metadata=READ_REPLICA)
    server = await read_replica_of(site.near, site.cluster)
    await Far(site.cluster, server, site.near, site.far).until_served()
    assert await acked(await pull(site.near, 1)) == [b"0"]


async def test_one_that_lost_its_disk_goes_on_from_what_was_reported(site: Far) -> None:
    for number in range(3):
        await store(site.near, b"%d" % number)
    await site.consumer()
    await site.consumer("memory", mem_storage=True)
    for name in ("c", "memory"):
        assert await acked(await pull(site.far, 2, name)) == [b"0", b"1"]
        await site.until_reported(2, name)
    await asyncio.to_thread(site.cluster.restart, site.server)
    await site.until_served("memory")
    assert await acked(await pull(site.near, 1, "memory")) == [b"2"]
    await asyncio.to_thread(site.cluster.stop, site.server)
    shutil.rmtree(site.server.directory / "jetstream")
    await asyncio.to_thread(site.cluster.restart, site.server)
    await site.until_served()
    assert await acked(await pull(site.near, 1)) == [b"2"]


async def test_a_reset_is_reported_too(site: Far) -> None:
    for number in range(3):
        await store(site.near, b"%d" % number)
    await site.consumer()
    assert len(await acked(await pull(site.far, 3))) == 3
    await site.until_reported(3)
    await ask(site.near, "CONSUMER.RESET.S.c", seq=2)
    await site.until_reported(1)


async def test_an_unused_one_is_removed_by_the_streams_leader(site: Far) -> None:
    await site.consumer(inactive_threshold=int(5e8))

    async def is_empty() -> bool:
        return not (await ask(site.near, "CONSUMER.NAMES.S"))["consumers"]

    await until(is_empty)


async def test_requests_that_need_its_state_are_answered_there(site: Far) -> None:
    for number in range(3):
        await store(site.near, b"%d" % number)
    await site.consumer()
    assert len(await acked(await pull(site.far, 3))) == 3
    found = await ask(site.near, "CONSUMER.RESET.S.c", seq=2)
    assert found["reset_seq"] == 2
    assert await acked(await pull(site.near, 2)) == [b"1", b"2"]
    with pytest.raises(APIError, match="no suitable peers"):
        await ask(site.near, "CONSUMER.LEADER.STEPDOWN.S.c")


@pytest.mark.parametrize(
    ("settings", "code", "text"),
    [
        ({"server": "n1"}, 10094, "on a read replica: server 'n1' has none of the stream"),
        ({"server": "N4"}, 10094, "on a read replica: server 'N4' has none of the stream"),
        ({"num_replicas": 3}, 10094, "on a read replica has one replica, not 3"),
        (
            {"metadata": {"natsd.read_replica_moves": "yes"}},
            10094,
            "on a read replica moves if 'natsd.read_replica_moves' is 'true', not 'yes'",
        ),
    ],
)
async def test_refused(site: Far, settings: dict[str, Any], code: int, text: str) -> None:
    with pytest.raises(APIError) as raised:
        await site.consumer(**settings)
    assert (raised.value.err_code, raised.value.description) == (code, f"consumer {text}")


async def test_a_stream_without_a_read_replica_has_no_such_consumers(site: Far) -> None:
    await ask(site.near, "STREAM.CREATE.T", name="T", num_replicas=1)
    for server in ("any", "n4"):
        config = {"durable_name": "c", "metadata": {NAME: server}}
        with pytest.raises(APIError) as raised:
            await ask(site.near, "CONSUMER.CREATE.T.c", stream_name="T", config=config)
        text = "consumer on a read replica needs a stream with read replicas"
        assert (raised.value.err_code, raised.value.description) == (10094, text)


async def test_a_consumer_whose_stream_has_no_read_replicas_any_more_is_offline(
    site: Far,
) -> None:
    await site.consumer()
    await update(site.near, metadata={}, num_replicas=1)

    await until(site.has_no_read_replica)
    await until(lambda: has_no_group(site.near))
    assert await site.has_no_read_replica()
    listed = await ask(site.near, "CONSUMER.LIST.S")
    assert (listed["missing"], (await ask(site.near, "CONSUMER.NAMES.S"))["consumers"]) == (
        ["c"],
        ["c"],
    )
    await ask(site.near, "CONSUMER.DELETE.S.c")
    assert not (await ask(site.near, "CONSUMER.NAMES.S"))["consumers"]


async def has_no_group(client: nats.NATS) -> bool:
    return "raft_group" not in (await ask(client, "STREAM.INFO.S"))["cluster"]
