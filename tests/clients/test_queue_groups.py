"""Queue groups: each message goes to one member."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from nats.aio.msg import Msg

from tests.clients.barrier import processed
from tests.clients.conftest import AnyTarget, Connect, StartThreadedServer
from tests.clients.wire import Wire

QUIET = '{"verbose":false,"pedantic":false}'


async def test_each_message_goes_to_one_member(server: AnyTarget, connect: Connect) -> None:
    publisher = await connect(server)
    workers = [await connect(server) for _ in range(3)]
    done: list[tuple[int, bytes]] = []
    for number, worker in enumerate(workers):

        async def work(message: Msg, number: int = number) -> None:
            done.append((number, message.data))

        await worker.subscribe("jobs", queue="workers", cb=work)
        await processed(worker)

    for job in range(600):
        await publisher.publish("jobs", b"%d" % job)
    await processed(publisher)
    for worker in workers:
        await worker.drain()

    assert sorted(int(job) for _, job in done) == list(range(600))
    share = Counter(number for number, _ in done)
    assert min(share.values()) > 120, f"600 jobs were shared unevenly: {share}"


async def test_groups_do_not_compete(server: AnyTarget, connect: Connect) -> None:
    client = await connect(server)
    workers = [await client.subscribe("jobs", queue="workers") for _ in range(2)]
    auditors = [await client.subscribe("jobs.>", queue="auditors") for _ in range(2)]
    auditors += [await client.subscribe("*", queue="auditors")]
    watcher = await client.subscribe("jobs")

    for _ in range(100):
        await client.publish("jobs")
    await processed(client)

    assert sum(subscription.pending_msgs for subscription in workers) == 100
    assert sum(subscription.pending_msgs for subscription in auditors) == 100
    assert watcher.pending_msgs == 100


async def test_a_member_joins_and_leaves(server: AnyTarget, connect: Connect) -> None:
    client = await connect(server)
    first = await client.subscribe("jobs", queue="workers")
    second = await client.subscribe("jobs", queue="workers")
    await second.unsubscribe()

    for _ in range(50):
        await client.publish("jobs")
    await processed(client)

    assert first.pending_msgs == 50


def test_a_closed_member_is_passed_over(
    start_threaded_server: StartThreadedServer, open_wire: Callable[..., Wire]
) -> None:
    """A message goes to the next member as soon as a member's connection is known to be closed."""
    server = start_threaded_server()
    publisher, stays = open_wire(server, QUIET), open_wire(server, QUIET)
    stays.send(b"SUB jobs workers 1\r\n")
    stays.sync()

    for _ in range(20):
        leaves = open_wire(server, QUIET)
        leaves.send(b"SUB jobs workers 1\r\nSUB jobs workers 2\r\n")
        leaves.sync()
        leaves.half_close()
        leaves.read_until_closed()
        publisher.send(b"PUB jobs 1\r\nx\r\n" * 10)
        publisher.sync()
        assert stays.sync() == [b"MSG jobs 1 1\r\nx\r\n"] * 10
