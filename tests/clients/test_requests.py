"""Request and reply, and the server's 503 if there are no responders."""

from __future__ import annotations

import asyncio

import pytest
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from tests.clients.barrier import processed
from tests.clients.conftest import AnyTarget, Connect


async def test_a_request_is_answered(server: AnyTarget, connect: Connect) -> None:
    asking, answering = await connect(server), await connect(server)

    async def double(message: Msg) -> None:
        await message.respond(b"%d" % (2 * int(message.data)))

    await answering.subscribe("double", cb=double)
    await processed(answering)

    answers = await asyncio.gather(
        *(asking.request("double", b"%d" % number) for number in range(200))
    )
    assert [int(answer.data) for answer in answers] == [2 * number for number in range(200)]


async def test_old_style_request_leaves_no_subscription(
    server: AnyTarget, connect: Connect
) -> None:
    client = await connect(server)

    async def answer(message: Msg) -> None:
        await message.respond(b"first")
        await message.respond(b"second")

    await client.subscribe("ask", cb=answer)
    reply = await client.request("ask", old_style=True)
    assert reply.data == b"first"


async def test_nobody_to_answer(server: AnyTarget, connect: Connect) -> None:
    client = await connect(server)
    with pytest.raises(NoRespondersError):
        await client.request("nobody.there", b"hello", timeout=5)


async def test_the_last_to_answer_has_left(server: AnyTarget, connect: Connect) -> None:
    asking, answering = await connect(server), await connect(server)

    async def answer(message: Msg) -> None:
        await message.respond(b"yes")

    subscription = await answering.subscribe("ask", cb=answer)
    await processed(answering)
    assert (await asking.request("ask")).data == b"yes"

    await subscription.unsubscribe()
    await processed(answering)
    with pytest.raises(NoRespondersError):
        await asking.request("ask", timeout=5)


async def test_a_queue_group_answers_once(server: AnyTarget, connect: Connect) -> None:
    asking, answering = await connect(server), await connect(server)
    asked = []

    async def answer(message: Msg) -> None:
        asked.append(message)
        await message.respond(b"yes")

    for _ in range(3):
        await answering.subscribe("ask", queue="oracles", cb=answer)
    await processed(answering)

    for _ in range(20):
        assert (await asking.request("ask")).data == b"yes"
    assert len(asked) == 20
