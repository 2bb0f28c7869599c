"""kill -9 under load of consumers with natsd's extensions.

Ordered work, with a key (docs/ordered-work.md):
- No two messages of a key are in flight at once, and no message is delivered again after a later
  one of its key: within one life of the server, and across lives.
- Nothing is lost or counted wrongly.

Dead letters, on a work queue (docs/dead-letters.md):
- Each message is in the queue, or was acknowledged, or is among the dead letters.
- Each is there once, and as terminated only if a worker terminated it.

`make torture` runs tens of rounds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from tests.clients.target import GO_SERVER, ProcessTarget
from tests.jetstream.behaviour.api import MS, SECOND, Api
from tests.jetstream.behaviour.puller import Puller, sequence_of, status_of
from tests.jetstream.serve import connect, kill_soon, load_until_gone, serve_files
from tests.store.crash import TORTURE

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(bool(GO_SERVER), reason="natsd alone has these"),
]

ROUNDS = 3
WORKERS = 4
KEYS = 5
BATCH = 50
ROUNDS_OF_PUBLISHES = 15

Work = Callable[[Api], Awaitable[None]]


async def lives(
    directory: Path, rounds: int, prepare: Work, work: Sequence[Work], check: Work
) -> tuple[ProcessTarget, Api]:
    """Return the server after `rounds` lives, each of which ends in the middle of the work."""
    chance = random.Random(7)
    for number in range(rounds):
        server = await asyncio.to_thread(serve_files, directory)
        api = Api(await connect(server))
        await (prepare if number == 0 else check)(api)
        killer = asyncio.ensure_future(kill_soon(server, 0.1 + chance.random() * 0.4))
        await load_until_gone(server, work)
        await killer
        await api.nc.close()
    server = await asyncio.to_thread(serve_files, directory)
    return server, Api(await connect(server))


async def publish(api: Api) -> None:
    """Publish messages in groups of 20, of all keys in turn."""
    for _ in range(ROUNDS_OF_PUBLISHES):
        await asyncio.gather(*(api.publish(f"s.{n % KEYS}", b"%d" % n) for n in range(20)))


class Keys:
    """The messages that the workers receive of each key, over all the lives of the server."""

    def __init__(self) -> None:
        self.latest: dict[str, int] = {}
        self.out: dict[str, int] = {}

    def begin(self) -> None:
        """Note that no message is in flight."""
        self.out.clear()

    def take(self, message: Msg) -> None:
        key, sequence = message.subject, sequence_of(message)
        assert self.out.get(key) in (None, sequence), "two of a key at once"
        assert sequence >= self.latest.get(key, 0), "again, behind a later one"
        self.latest[key] = self.out[key] = sequence

    async def work(self, api: Api) -> None:
        """Pull a message, work on it and acknowledge it, again and again."""
        puller = await Puller.of(api.nc, "S", "C")
        while True:
            await puller.ask(batch=1, expires=SECOND)
            message = await puller.next(30)
            if status_of(message) is not None:
                continue
            self.take(message)
            await asyncio.sleep(0)
            self.out.pop(message.subject, None)  # on a slow machine it may be redelivered by now
            await api.nc.publish(message.reply, b"+ACK")


async def test_keys_in_order_across_kills(tmp_path: Path) -> None:
    keys = Keys()

    async def prepare(api: Api) -> None:
        await api.create_stream("S", subjects=["s.*"], storage="file")
        key = {"natsd.key_token": "2"}
        await api.create_consumer("S", "C", ack_wait=60 * SECOND, metadata=key)

    async def check(api: Api) -> None:
        keys.begin()
        await finish(api, keys, most=50)

    work = [publish, *[keys.work] * WORKERS]
    server, api = await lives(tmp_path, ROUNDS * TORTURE, prepare, work, check)
    keys.begin()
    await finish(api, keys)
    last = (await api.stream_state("S"))["last_seq"]
    info = await api.until_consumer("S", "C", num_ack_pending=0, num_pending=0)
    assert info["ack_floor"]["stream_seq"] == last > 0
    await api.nc.close()
    await asyncio.to_thread(server.stop)


async def finish(api: Api, keys: Keys, most: int = 1 << 30) -> None:
    """Acknowledge the remaining messages, at most `most`, and wait for each answer."""
    await redeliver(api)
    puller = await Puller.of(api.nc, "S", "C")
    while most > 0:
        await puller.ask(batch=BATCH, expires=200 * MS)
        for _ in range(BATCH):
            message = await puller.next(30)
            if status_of(message) is not None:
                break
            keys.take(message)
            await api.nc.request(message.reply, b"+ACK", 30)
            del keys.out[message.subject]
            most -= 1
        info = await api.consumer_info("S", "C")
        if not info["num_pending"] and not info["num_ack_pending"]:
            return


async def redeliver(api: Api) -> None:
    """Make the ack wait 100 ms, so that messages in flight at the kill are redelivered."""
    key = {"natsd.key_token": "2"}
    await api.create_consumer("S", "C", ack_wait=100 * MS, metadata=key)


class Deaths:
    """The outcomes of a work queue's messages, as its workers know them."""

    def __init__(self) -> None:
        self.published: set[int] = set()
        self.acknowledged: set[int] = set()
        self.terminated: set[int] = set()

    async def publish(self, api: Api) -> None:
        for _ in range(ROUNDS_OF_PUBLISHES):
            acks = await asyncio.gather(*(api.publish("s.1", b"x") for _ in range(10)))
            self.published |= {ack["seq"] for ack in acks}

    async def work(self, api: Api) -> None:
        puller = await Puller.of(api.nc, "S", "C")
        while True:
            await puller.ask(batch=5, expires=SECOND)
            for _ in range(5):
                message = await puller.next(30)
                if status_of(message) is not None:
                    break
                await self.handle(api, message)

    async def handle(self, api: Api, message: Msg) -> None:
        sequence = sequence_of(message)
        if sequence % 3 == 0:
            self.acknowledged.add(sequence)
            await api.nc.publish(message.reply, b"+ACK")
        elif sequence % 3 == 1:
            self.terminated.add(sequence)
            await api.nc.publish(message.reply, b"+TERM no")
        else:
            await api.nc.publish(message.reply, b"-NAK")

    async def check(self, api: Api) -> None:
        """Check the queue first: a message that leaves it is then a dead letter."""
        state = await api.stream_state("S", deleted_details=True)
        queued = set(range(state["first_seq"], state["last_seq"] + 1))
        queued -= set(state.get("deleted") or [])
        letters = await dead_letters(api)
        dead = [sequence for sequence, _ in letters]
        assert len(dead) == len(set(dead)), "a copy twice"
        assert {s for s, reason in letters if reason != "max_deliver"} <= self.terminated
        assert self.published <= queued | set(dead) | self.acknowledged, "lost"


async def dead_letters(api: Api) -> list[tuple[int, str]]:
    """Return the sequence and the reason of each dead letter."""
    count = (await api.stream_state("DEAD"))["messages"]
    subscription = await api.nc.jetstream().subscribe("dead", ordered_consumer=True)
    found = [(await subscription.next_msg(10)).headers or {} for _ in range(count)]
    await subscription.unsubscribe()
    return [
        (int(headers["Nats-Dead-Letter-Sequence"]), headers["Nats-Dead-Letter-Reason"])
        for headers in found
    ]


async def test_dead_letters_once_across_kills(tmp_path: Path) -> None:
    deaths = Deaths()

    async def prepare(api: Api) -> None:
        await api.create_stream("DEAD", subjects=["dead"], storage="file")
        await api.create_stream("S", subjects=["s.*"], storage="file", retention="workqueue")
        to = {"natsd.dead_letter_subject": "dead"}
        await api.create_consumer(
            "S", "C", ack_wait=300 * MS, max_deliver=2, max_ack_pending=10_000, metadata=to
        )

    work = [deaths.publish, *[deaths.work] * WORKERS]
    server, api = await lives(tmp_path, ROUNDS * TORTURE, prepare, work, deaths.check)
    await deaths.check(api)
    worker = asyncio.ensure_future(deaths.work(api))
    await api.until_messages("S", 0)
    worker.cancel()
    await deaths.check(api)
    assert await dead_letters(api)
    await api.nc.close()
    await asyncio.to_thread(server.stop)
