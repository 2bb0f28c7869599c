"""Read replicas: copies of a stream in a far site that answer direct gets, and have no vote."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from unittest.mock import patch

import nats
import pytest
from nats.js.errors import APIError

import natsd.testing
from natsd.jetstream.meta_group import meta_group
from natsd.testing.nats_cluster import NatsCluster
from tests.jetstream.cluster.asking import ask
from tests.jetstream.cluster.sites import (
    CONFIG,
    FAR,
    NEAR,
    NEAR_NAMES,
    READ_REPLICA,
    age_s,
    answers_as_read_replica,
    connect,
    create,
    get,
    members,
    named,
    read_replica_of,
    store,
    until,
    update,
    wait_for_members,
)


async def test_a_client_of_the_far_site_gets_its_answers_there(sites: NatsCluster) -> None:
    near = await connect(sites, 0)
    await create(near)
    await near.jetstream().publish("s.a", b"one")
    server = await read_replica_of(near, sites)
    assert server.options.server_name in {"n4", "n5"}
    far = await connect(sites, server)
    await answers_as_read_replica(far)

    async def shows_what_is_new() -> bool:
        return (await get(far)).data == b"two"

    await near.jetstream().publish("s.a", b"two")
    await until(shows_what_is_new)
    age = await age_s(far)
    assert age is not None
    assert 0 < age < 10
    for number in range(3):  # every other client gets what the replicas have
        assert await age_s(await connect(sites, number)) is None


async def test_every_kind_of_answer_says_how_old_it_may_be(sites: NatsCluster) -> None:
    near = await connect(sites, 0)
    await create(near)
    for at in range(3):
        await near.jetstream().publish(f"s.{at}", b"%d" % at)
    far = await connect(sites, await read_replica_of(near, sites))
    await answers_as_read_replica(far)

    async def has_all() -> bool:
        return (await get(far, b'{"last_by_subj":"s.2"}')).data == b"2"

    await until(has_all)
    by_subject = await far.request("$JS.API.DIRECT.GET.S.s.1", b"")
    missing = await far.request("$JS.API.DIRECT.GET.S.s.none", b"")
    missing_body = await get(far, b'{"seq":99}')
    for answer in (by_subject, missing, missing_body, await get(far, b'{"seq":2}')):
        assert answer.headers["Natsd-Staleness"].endswith("s")
    assert (missing.headers["Status"], by_subject.data) == ("404", b"1")
    for body in (b'{"seq":1,"batch":3}', b'{"multi_last":["s.*"]}'):
        inbox = far.new_inbox()
        answers = await far.subscribe(inbox)
        await far.publish("$JS.API.DIRECT.GET.S", body, reply=inbox)
        found = [await answers.next_msg(timeout=5) for _ in range(4)]  # the last one is the end
        assert [each.data for each in found] == [b"0", b"1", b"2", b""]
        assert all("Natsd-Staleness" in (each.headers or {}) for each in found)


async def test_it_has_no_vote_and_writes_do_not_wait_for_it(sites: NatsCluster) -> None:
    near = await connect(sites, 0)
    await create(near)
    js = near.jetstream()
    server = await read_replica_of(near, sites)
    await asyncio.to_thread(sites.stop, server)
    for at in range(20):
        await js.publish("s.a", b"%d" % at)
    leader = (await ask(near, "STREAM.INFO.S"))["cluster"]["leader"]
    stopped = named(sites, leader)
    client = await connect(sites, next(at for at in range(3) if sites.servers[at] is not stopped))
    await asyncio.to_thread(sites.stop, stopped)
    await asyncio.to_thread(sites.wait_for_leader, "S", "A")
    assert await store(client, b"20") == 21
    await asyncio.to_thread(sites.restart, stopped)
    await asyncio.to_thread(sites.restart, server)
    await wait_for_members(client, NEAR_NAMES, {server.options.server_name})
    await asyncio.to_thread(sites.stop, 0)
    await asyncio.to_thread(sites.stop, 1)
    last = await connect(sites, 2)  # one of three replicas and the read replica: no majority
    with pytest.raises((APIError, nats.errors.Error)):
        await last.jetstream().publish("s.a", b"lost", timeout=2)


async def test_a_site_that_is_cut_off_answers_and_says_that_its_state_ages(
    sites: NatsCluster,
) -> None:
    near = await connect(sites, 0)
    await create(near)
    await near.jetstream().publish("s.a", b"one")
    server = await read_replica_of(near, sites)
    far = await connect(sites, server)
    await answers_as_read_replica(far)
    for each in sites.servers:
        if each is not server:
            await asyncio.to_thread(sites.pause, each)

    async def is_old() -> bool:
        age = await age_s(far)
        assert age is not None
        assert (await get(far)).data == b"one"
        return age > 4

    await until(is_old)
    for each in sites.servers:
        await asyncio.to_thread(sites.resume, each)

    async def is_young() -> bool:
        age = await age_s(far)
        assert age is not None
        return age < 3

    await until(is_young)


async def test_one_that_is_too_old_does_not_answer(sites: NatsCluster) -> None:
    near = await connect(sites, 0)
    await create(near, metadata={**READ_REPLICA, "natsd.read_max_staleness": "3s"})
    await near.jetstream().publish("s.a", b"one")
    server = await read_replica_of(near, sites)
    far = await connect(sites, server)
    await answers_as_read_replica(far)
    for each in sites.servers:
        if each is not server:
            await asyncio.to_thread(sites.pause, each)
    ages = []
    async with asyncio.timeout(20):
        while (age := await age_s(far)) is not None:
            ages.append(age)
            await asyncio.sleep(0.02)
    assert 2 < max(ages) <= 3.1
    for each in sites.servers:
        await asyncio.to_thread(sites.resume, each)
    await answers_as_read_replica(far)


async def test_a_new_disk_joins_again(sites: NatsCluster) -> None:
    near = await connect(sites, 0)
    await create(near)
    for at in range(50):
        await near.jetstream().publish("s.a", b"%d" % at)
    server = await read_replica_of(near, sites)
    name = server.options.server_name
    await asyncio.to_thread(sites.stop, server)
    shutil.rmtree(server.directory / "jetstream")
    await asyncio.to_thread(sites.restart, server)
    await wait_for_members(near, NEAR_NAMES, {name})
    far = await connect(sites, server)
    await answers_as_read_replica(far)
    assert (await get(far)).data == b"49"


async def test_updates_add_move_and_remove_read_replicas(sites: NatsCluster) -> None:
    near = await connect(sites, 0)
    await create(near, metadata={})
    await near.jetstream().publish("s.a", b"one")
    await update(near, metadata={**READ_REPLICA, "natsd.read_replicas": "2"})
    await wait_for_members(near, NEAR_NAMES, {"n4", "n5"})
    await update(near, metadata=READ_REPLICA)
    server = await read_replica_of(near, sites)
    other = ({"n4", "n5"} - {server.options.server_name}).pop()
    await ask(near, "STREAM.PEER.REMOVE.S", peer=server.options.server_name)
    await wait_for_members(near, NEAR_NAMES, {other})
    with pytest.raises(APIError, match=r"read replicas: no suitable peers.*not matched \['mars'\]"):
        await update(near, metadata={**READ_REPLICA, "natsd.read_replica_tags": "mars"})
    await update(near, num_replicas=1)
    await until(lambda: has_replicas(near, 1, {other}))
    await update(near, num_replicas=3)
    await wait_for_members(near, NEAR_NAMES, {other})
    await update(near, metadata={})
    await wait_for_members(near, NEAR_NAMES, set())
    assert await store(near, b"two") == 2
    await ask(near, "STREAM.DELETE.S")


async def has_replicas(client: nats.NATS, number: int, read: set[str]) -> bool:
    found, reading = await members(client)
    return len(found) == number and reading == read


async def test_a_stream_with_one_replica_gets_a_group_for_its_read_replica(
    sites: NatsCluster,
) -> None:
    near = await connect(sites, 0)
    await create(near, num_replicas=1, metadata={})
    assert "raft_group" not in (await ask(near, "STREAM.INFO.S"))["cluster"]
    await near.jetstream().publish("s.a", b"one")
    await update(near, metadata=READ_REPLICA)
    server = await read_replica_of(near, sites)
    far = await connect(sites, server)
    await answers_as_read_replica(far)
    assert (await get(far)).data == b"one"
    leader = (await ask(near, "STREAM.INFO.S"))["cluster"]["leader"]
    await asyncio.to_thread(sites.stop, server)
    assert await store(near, b"two") == 2
    await asyncio.to_thread(sites.restart, server)
    await wait_for_members(near, {leader}, {server.options.server_name})
    await update(near, metadata={})

    async def has_no_group() -> bool:
        return "raft_group" not in (await ask(near, "STREAM.INFO.S"))["cluster"]

    await until(has_no_group)
    assert await store(near, b"three") == 3


async def test_a_server_that_is_removed_loses_its_read_replica_to_another_one(
    sites: NatsCluster,
) -> None:
    near = await connect(sites, 0)
    await create(near)
    server = await read_replica_of(near, sites)
    name = server.options.server_name
    await asyncio.to_thread(sites.stop, server)
    system = await sites.connect(0, user="s", password="s")
    await asyncio.to_thread(sites.wait_for_jetstream)
    await ask(system, "SERVER.REMOVE", peer=name)
    await wait_for_members(near, NEAR_NAMES, {"n4", "n5"} - {name})


async def test_one_that_was_removed_does_not_come_back_by_itself(sites: NatsCluster) -> None:
    near = await connect(sites, 0)
    two = {**READ_REPLICA, "natsd.read_replicas": "2"}
    await create(near, metadata=two)
    await wait_for_members(near, NEAR_NAMES, {"n4", "n5"})
    await ask(near, "STREAM.PEER.REMOVE.S", peer="n4")
    await wait_for_members(near, NEAR_NAMES, {"n5"})
    system = await sites.connect(0, user="s", password="s")
    for name in ("a", "b"):  # a restart brings news, with which the others make what is lacking
        await asyncio.to_thread(sites.restart, named(sites, "n4"))
        await asyncio.to_thread(sites.wait_for_jetstream)
        await ask(near, f"STREAM.CREATE.{name}", name=name, num_replicas=3)
        await ask(system, "META.LEADER.STEPDOWN")
        await asyncio.to_thread(sites.wait_for_jetstream)
        await wait_for_members(near, NEAR_NAMES, {"n5"})
    await update(near, description="unchanged otherwise")
    await wait_for_members(near, NEAR_NAMES, {"n5"})
    await update(near, metadata=READ_REPLICA)  # one less is wanted: which one is said already
    await wait_for_members(near, NEAR_NAMES, {"n5"})
    await update(near, metadata=two)
    await wait_for_members(near, NEAR_NAMES, {"n4", "n5"})


@pytest.mark.parametrize("replicas", [1, 3])
async def test_one_for_which_there_is_no_server_is_made_when_one_joins(replicas: int) -> None:
    per_server = [NEAR, NEAR, NEAR, FAR]
    async with natsd.testing.cluster(4, config=CONFIG, per_server=per_server) as four:
        await asyncio.to_thread(four.wait_for_jetstream)
        near = await connect(four, 0)
        await create(near, num_replicas=replicas)
        gone = await read_replica_of(near, four)
        await store(near, b"one")
        await asyncio.to_thread(four.stop, gone)
        await asyncio.to_thread(four.wait_for_jetstream)
        system = await four.connect(0, user="s", password="s")
        await ask(system, "SERVER.REMOVE", peer="n4")
        await wait_for_members(near, replicas, set())
        shutil.rmtree(gone.directory)
        gone.directory.mkdir()
        with patch.object(meta_group, "REMOVED_S", 0.0):
            await asyncio.to_thread(four.restart, gone)
            await wait_for_members(near, replicas, {"n4"})
        far = await connect(four, gone)
        await answers_as_read_replica(far)
        assert (await get(far)).data == b"one"


async def test_replicas_move_around_read_replicas_and_those_never_lead(
    sites: NatsCluster,
) -> None:
    near = await connect(sites, 0)
    await create(near, num_replicas=1)
    reading = (await read_replica_of(near, sites)).options.server_name
    free = ({"n4", "n5"} - {reading}).pop()
    only = (await ask(near, "STREAM.INFO.S"))["cluster"]["leader"]
    with pytest.raises(APIError, match="no suitable peers"):
        await ask(near, "STREAM.LEADER.STEPDOWN.S", placement={"preferred": reading})
    system = await sites.connect(0, user="s", password="s")
    await near.jetstream().publish("s.a", b"one")
    await ask(system, "ACCOUNT.STREAM.MOVE.A.S", server=only, tags=["region:eu"])
    await wait_for_members(near, {free}, {reading})  # which is the only one that is left
    with pytest.raises(APIError, match="no suitable peers"):
        await ask(system, "ACCOUNT.STREAM.MOVE.A.S", server=free, tags=["region:eu"])
    assert await store(near, b"two") == 2
    far = await connect(sites, named(sites, reading))
    await answers_as_read_replica(far)


async def test_a_read_replica_of_a_mirror_does_not_answer_for_the_origin(
    sites: NatsCluster,
) -> None:
    near = await connect(sites, 0)
    await ask(near, "STREAM.CREATE.O", name="O", subjects=["s.*"], allow_direct=True)
    await create(near, subjects=[], mirror={"name": "O"}, mirror_direct=True)
    await near.jetstream().publish("s.a", b"one")
    far = await connect(sites, await read_replica_of(near, sites))

    async def shows_it(stream: str, *, is_marked: bool) -> bool:
        with contextlib.suppress(nats.errors.TimeoutError, nats.errors.NoRespondersError):
            answer = await far.request(f"$JS.API.DIRECT.GET.{stream}.s.a", b"", timeout=1)
            has_age = "Natsd-Staleness" in (answer.headers or {})
            return bool(answer.data == b"one" and has_age is is_marked)
        return False

    await until(lambda: shows_it("S", is_marked=True))
    await until(lambda: shows_it("O", is_marked=False))
