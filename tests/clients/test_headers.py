"""Headers travel with a message, byte for byte."""

from __future__ import annotations

from nats.aio.msg import Msg

from tests.clients.barrier import processed
from tests.clients.conftest import AnyTarget, Connect


async def test_headers_arrive(server: AnyTarget, connect: Connect) -> None:
    alice, bob = await connect(server), await connect(server)
    subscription = await bob.subscribe("foo")
    await processed(bob)

    headers = {"Nats-Msg-Id": "1", "traceparent": "00-0af7-b7ad-00", "Mixed-Case": "VaLuE ü"}
    await alice.publish("foo", b"hello", headers=headers)

    message = await subscription.next_msg()
    assert message.headers == headers
    assert message.data == b"hello"


async def test_headers_without_payload(server: AnyTarget, connect: Connect) -> None:
    client = await connect(server)
    subscription = await client.subscribe("foo")
    await client.publish("foo", headers={"Only": "headers"})

    message = await subscription.next_msg()
    assert (message.headers, message.data) == ({"Only": "headers"}, b"")


async def test_headers_in_a_request_and_its_reply(server: AnyTarget, connect: Connect) -> None:
    asking, answering = await connect(server), await connect(server)

    async def answer(message: Msg) -> None:
        assert message.headers is not None
        question = message.headers["Question"]
        await answering.publish(
            message.reply,
            headers={"Answer": f"{question}!"},
        )

    await answering.subscribe("ask", cb=answer)
    await processed(answering)
    reply = await asking.request("ask", headers={"Question": "ready"})
    assert reply.headers == {"Answer": "ready!"}


async def test_large_headers(server: AnyTarget, connect: Connect) -> None:
    client = await connect(server)
    subscription = await client.subscribe("foo")
    headers = {f"Key-{number}": "x" * 1000 for number in range(100)}
    await client.publish("foo", b"y" * 100_000, headers=headers)

    message = await subscription.next_msg(timeout=5)
    assert message.headers == headers
    assert message.data == b"y" * 100_000
