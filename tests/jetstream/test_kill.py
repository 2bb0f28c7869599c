"""kill -9 of the whole server under load, many times: acknowledged work survives (docs/store.md).

- An acknowledged publish is there, with its sequence and its bytes.
- A message is not delivered again after its double ack.
- Nothing is skipped: every message of the stream is delivered.
- Sequences have no gaps. A message id is known within its window, so that publishers that publish
  again make no second message.

`make torture` runs tens of rounds.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from tests.clients.target import GO_SERVER
from tests.jetstream.behaviour.api import SECOND, Api
from tests.jetstream.behaviour.puller import Puller, sequence_of, status_of
from tests.jetstream.serve import GONE, connect, kill_soon, load_until_gone, serve_files
from tests.store.crash import TORTURE

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(bool(GO_SERVER), reason="nats-server does not sync by default"),
]

ROUNDS = 2
PUBLISHERS = 3
PULLERS = 3
IN_FLIGHT = 10


class History:
    """The clients' knowledge, over all the lives of the server."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, str] = {}  # sequence -> message id
        self.done: set[int] = set()
        self.tried: set[int] = set()  # their ack was sent; the server may have processed it
        self.next_id = 0

    def make_id(self) -> str:
        self.next_id += 1
        return f"id-{self.next_id}"


async def publish(api: Api, history: History, unsure: list[str]) -> None:
    """Publish until the server is gone; unacknowledged message ids stay in `unsure`."""

    async def one(message_id: str) -> None:
        subject = f"s.{len(message_id) % 3}"
        ack = await api.publish(subject, message_id.encode() * 20, Nats_Msg_Id=message_id)
        assert ack["stream"] == "S", ack
        assert history.acknowledged.setdefault(ack["seq"], message_id) == message_id
        unsure.remove(message_id)

    while True:
        again = unsure[: IN_FLIGHT // 2]
        fresh = [history.make_id() for _ in range(IN_FLIGHT - len(again))]
        unsure.extend(fresh)
        outcomes = await asyncio.gather(*map(one, again + fresh), return_exceptions=True)
        failures = [outcome for outcome in outcomes if outcome is not None]
        for failure in failures:
            if not isinstance(failure, GONE):
                raise failure
        if failures:
            return


async def some(puller: Puller, batch: int) -> list[Msg]:
    """Return the messages of one pull request: `batch`, or fewer and then a status."""
    messages: list[Msg] = []
    while len(messages) < batch and status_of(message := await puller.next(30)) is None:
        messages.append(message)
    return messages


async def consume(api: Api, history: History) -> None:
    """Pull, and wait for the answer to each ack, until the server is gone.

    A message that waits here for longer than the ack wait is delivered again, perhaps to another
    puller, which receives it after the ack. So only acks of the server's earlier lives are checked.
    """
    done_before = set(history.done)
    puller = await Puller.of(api.nc, "S", "C")
    while True:
        await puller.ask(batch=20, expires=SECOND)
        for message in await some(puller, 20):
            sequence = sequence_of(message)
            assert sequence not in done_before, f"{sequence} again after its double ack"
            if sequence % 5:
                history.tried.add(sequence)
                await api.nc.request(message.reply, b"+ACK", 30)
                history.done.add(sequence)


async def check_stream(api: Api, history: History) -> None:
    """Check that everything acknowledged is there, without gaps."""
    state = await api.stream_state("S")
    last = max(history.acknowledged, default=0)
    assert state["first_seq"] == min(1, state["last_seq"])  # it was killed before any was stored
    assert state["last_seq"] >= last
    assert state["messages"] == state["last_seq"], "a gap"
    subscription = await api.nc.jetstream().subscribe("s.*", stream="S", ordered_consumer=True)
    ids: set[bytes] = set()
    for sequence in range(1, state["last_seq"] + 1):
        message = await subscription.next_msg(10)
        assert message.metadata.sequence.stream == sequence
        message_id = (message.headers or {})["Nats-Msg-Id"].encode()
        assert message.data == message_id * 20
        assert history.acknowledged.get(sequence, message_id.decode()) == message_id.decode()
        assert message_id not in ids, f"{message_id!r} twice"
        ids.add(message_id)
    await subscription.unsubscribe()


async def check_consumer(api: Api, history: History) -> None:
    """Check that all unacknowledged messages are delivered, and no others."""
    done_before = set(history.done)
    last = (await api.stream_state("S"))["last_seq"]
    puller = await Puller.of(api.nc, "S", "C")
    missing = set(range(1, last + 1)) - history.done
    while missing - history.tried or await is_owed(api):
        await puller.ask(batch=100, expires=SECOND)
        messages = await some(puller, 100)
        sequences = {sequence_of(message) for message in messages}
        assert not sequences & done_before, "again after its double ack"
        await asyncio.gather(*(api.nc.request(m.reply, b"+ACK", 30) for m in messages))
        history.done |= sequences
        missing -= sequences
    info = await api.consumer_info("S", "C")
    assert info["ack_floor"]["stream_seq"] == last


async def is_owed(api: Api) -> bool:
    """Return whether the consumer's info says that messages are pending or unacknowledged."""
    info = await api.consumer_info("S", "C")
    return bool(info["num_pending"] or info["num_ack_pending"])


async def test_killed_again_and_again(tmp_path: Path) -> None:
    chance = random.Random(11)
    history = History()
    unsure: list[list[str]] = [[] for _ in range(PUBLISHERS)]
    for number in range(ROUNDS * TORTURE):
        server = await asyncio.to_thread(serve_files, tmp_path)
        api = Api(await connect(server))
        if number == 0:
            await api.create_stream("S", subjects=["s.*"], storage="file")
            await api.create_consumer("S", "C", ack_wait=2 * SECOND, max_ack_pending=100_000)
        else:
            await check_stream(api, history)
        killer = asyncio.ensure_future(kill_soon(server, 0.05 + chance.random() * 0.3))
        publishers = [partial(publish, history=history, unsure=mine) for mine in unsure]
        pullers = PULLERS * [partial(consume, history=history)]
        await load_until_gone(server, [*publishers, *pullers])
        await killer
        await api.nc.close()
    server = await asyncio.to_thread(serve_files, tmp_path)
    api = Api(await connect(server))
    await check_stream(api, history)
    await check_consumer(api, history)
    await check_stream(api, history)
    await api.nc.close()
    await asyncio.to_thread(server.stop)
