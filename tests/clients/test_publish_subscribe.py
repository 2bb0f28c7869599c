"""Publish and subscribe, as a nats-py program sees it."""

from __future__ import annotations

import asyncio

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from tests.clients.barrier import processed
from tests.clients.conftest import AnyTarget, Connect


async def test_a_message_reaches_a_subscriber(server: AnyTarget, connect: Connect) -> None:
    alice, bob = await connect(server), await connect(server)
    inbox = await bob.subscribe("greet.bob")
    await processed(bob)

    await alice.publish("greet.bob", b"hello", reply="greet.alice")

    message = await inbox.next_msg()
    assert (message.subject, message.reply, message.data) == ("greet.bob", "greet.alice", b"hello")


async def test_messages_of_one_publisher_arrive_in_order(
    server: AnyTarget, connect: Connect
) -> None:
    alice, bob = await connect(server), await connect(server)
    numbers = await bob.subscribe("numbers")
    await processed(bob)

    for number in range(10_000):
        await alice.publish("numbers", b"%d" % number)

    received = [int((await numbers.next_msg()).data) for _ in range(10_000)]
    assert received == list(range(10_000))


async def test_wildcards_choose_by_token(server: AnyTarget, connect: Connect) -> None:
    client = await connect(server)
    eu = await client.subscribe("orders.eu.*")
    new = await client.subscribe("orders.*.new")
    everything = await client.subscribe("orders.>")

    for subject in ("orders.eu.new", "orders.us.new", "orders.eu.new.big", "orders"):
        await client.publish(subject)
    await processed(client)

    assert await subjects(eu) == ["orders.eu.new"]
    assert await subjects(new) == ["orders.eu.new", "orders.us.new"]
    assert await subjects(everything) == ["orders.eu.new", "orders.us.new", "orders.eu.new.big"]


async def test_every_subscriber_gets_its_copy(server: AnyTarget, connect: Connect) -> None:
    publisher = await connect(server)
    subscribers = [await connect(server) for _ in range(20)]
    subscriptions = [await client.subscribe("news") for client in subscribers]
    for client in subscribers:
        await processed(client)

    for number in range(50):
        await publisher.publish("news", b"%d" % number)

    for subscription in subscriptions:
        received = [(await subscription.next_msg()).data for _ in range(50)]
        assert received == [b"%d" % number for number in range(50)]


async def test_payloads_of_every_size_arrive_whole(server: AnyTarget, connect: Connect) -> None:
    alice, bob = await connect(server), await connect(server)
    subscription = await bob.subscribe("blob")
    await processed(bob)
    sizes = [0, 1, 2, 127, 128, 511, 512, 4095, 4096, 32768, 65535, 65536, 300_000, 1_048_576]

    for size in sizes:
        payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
        await alice.publish("blob", payload)
        assert (await subscription.next_msg(timeout=5)).data == payload


async def test_auto_unsubscribe_ends_a_subscription(server: AnyTarget, connect: Connect) -> None:
    alice, bob = await connect(server), await connect(server)
    subscription = await bob.subscribe("foo")
    await subscription.unsubscribe(limit=3)
    await processed(bob)

    for number in range(10):
        await alice.publish("foo", b"%d" % number)
    await processed(alice)

    assert [message.data async for message in subscription.messages] == [b"0", b"1", b"2"]


async def test_echo_off(server: AnyTarget, connect: Connect) -> None:
    quiet = await connect(server, no_echo=True)
    other = await connect(server)
    own, others = await quiet.subscribe("foo"), await other.subscribe("foo")
    await processed(other)

    await quiet.publish("foo", b"from quiet")
    await other.publish("foo", b"from other")
    await processed(other)
    await processed(quiet)

    assert (await own.next_msg()).data == b"from other"
    assert own.pending_msgs == 0
    assert {(await others.next_msg()).data for _ in range(2)} == {b"from quiet", b"from other"}


async def test_drain_delivers_what_is_under_way(server: AnyTarget, connect: Connect) -> None:
    alice, bob = await connect(server), await connect(server)
    received = []

    async def keep(message: Msg) -> None:
        await asyncio.sleep(0)
        received.append(message)

    await bob.subscribe("foo", cb=keep)
    await processed(bob)
    for _ in range(500):
        await alice.publish("foo")
    await processed(alice)
    await bob.drain()

    assert len(received) == 500
    assert bob.is_closed


async def test_many_subscriptions_on_one_connection(server: AnyTarget, connect: Connect) -> None:
    client = await connect(server)
    received: list[str] = []

    async def keep(message: Msg) -> None:
        received.append(message.subject)

    for number in range(5_000):
        await client.subscribe(f"device.{number}.status", cb=keep)
    for number in range(0, 5_000, 50):
        await client.publish(f"device.{number}.status")
    await processed(client)
    await client.drain()

    assert received == [f"device.{number}.status" for number in range(0, 5_000, 50)]


async def subjects(subscription: Subscription) -> list[str]:
    """Return the subjects of all messages that have arrived."""
    pending = subscription.pending_msgs
    return [(await subscription.next_msg()).subject for _ in range(pending)]
