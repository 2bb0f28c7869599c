"""What ends by itself while the server runs: users, accounts, rights to import; and its renewal."""

import time
from pathlib import Path
from typing import Any

import nats
import nats.errors
from nats.aio.msg import Msg

from natsd.testing.jwts import AccountKeys, token
from tests.server.operators import (
    OPERATOR,
    SYSTEM,
    A,
    connected,
    directory,
    lines,
    memory,
    push,
)
from tests.waiting import eventually_within

B = OPERATOR.account("B")
REFUSED = "-ERR 'Authorization Violation'"


def in_seconds(seconds: int) -> int:
    """Return a Unix time in seconds, as JWTs have them."""
    return time.time_ns() // 10**9 + seconds


EXPORTER = OPERATOR.account(
    "A",
    exports=[
        {"subject": "help", "type": "service", "token_req": True},
        {"subject": "news.>", "type": "stream", "token_req": True},
    ],
)


def importer(**times: int) -> AccountKeys:
    """Return account B, which imports both exports of A with tokens of these times."""

    def activation(subject: str, kind: str) -> dict[str, Any]:
        text = token("activation", B.name, A.key, {"subject": subject, "kind": kind}, **times)
        return {"subject": subject, "type": kind, "account": A.name, "token": text}

    return OPERATOR.account(
        "B",
        imports=[
            {**activation("help", "service"), "local_subject": "ask"},
            {**activation("news.>", "stream"), "local_subject": "from_a.>"},
        ],
    )


async def test_imports_end_with_their_activation_tokens_and_return_with_new_ones(
    tmp_path: Path,
) -> None:
    async with (
        directory(tmp_path) as server,
        connected(server, SYSTEM.user()) as operator,
    ):
        await push(operator, EXPORTER)
        await push(operator, importer())
        async with connected(server, A.user()) as one, connected(server, B.user()) as other:

            async def answer(message: Msg) -> None:
                await message.respond(b"yes")

            await one.subscribe("help", cb=answer)
            await one.flush()
            news = await other.subscribe("from_a.>")
            await other.flush()

            async def passes() -> bool:
                """Return whether the service answers; news, which are sent before, do the same."""
                await one.publish("news.today", b"sun")
                await one.flush()
                try:
                    await other.request("ask", timeout=10)
                except nats.errors.NoRespondersError:
                    assert news.pending_msgs == 0
                    return False
                assert (await news.next_msg(timeout=10)).subject == "from_a.today"
                return True

            assert await passes()
            ends = in_seconds(3)
            await push(operator, importer(exp=ends))
            assert await passes()
            links = server.links
            assert links is not None
            await eventually_within(lambda: not links.permits(B.name))
            assert time.time() >= ends
            assert not await passes()
            await push(operator, importer(exp=in_seconds(100)))
            assert await passes()


async def test_a_user_expires_and_comes_back_with_a_new_jwt() -> None:
    async with memory(A) as server:
        async with lines(server, A.user(exp=in_seconds(3))) as client:
            assert await client.next() == "PONG"
            assert await client.next() == "-ERR 'User Authentication Expired'"
        async with lines(server, A.user(exp=in_seconds(100))) as client:
            assert await client.next() == "PONG"


async def test_an_account_expires_and_is_renewed(tmp_path: Path) -> None:
    async with directory(tmp_path) as server, connected(server, SYSTEM.user()) as operator:
        await push(operator, OPERATOR.account("A", exp=in_seconds(3)))
        async with lines(server, A.user()) as client:
            assert await client.next() == "PONG"
            assert await client.next() == "-ERR 'Account Authentication Expired'"
        async with lines(server, A.user()) as client:
            assert await client.next() == REFUSED
        await push(operator, OPERATOR.account("A", exp=in_seconds(100)))
        async with lines(server, A.user()) as client:
            assert await client.next() == "PONG"


async def test_an_account_is_renewed_before_it_expires(tmp_path: Path) -> None:
    async with directory(tmp_path) as server, connected(server, SYSTEM.user()) as operator:
        ends = in_seconds(2)
        await push(operator, OPERATOR.account("A", exp=ends))
        async with lines(server, A.user()) as client:
            assert await client.next() == "PONG"
            await push(operator, OPERATOR.account("A", exp=in_seconds(100)))
            await eventually_within(lambda: time.time() > ends + 0.5)
            client.writer.write(b"PING\r\n")
            assert await client.next() == "PONG"


async def test_all_users_of_a_time_are_revoked(tmp_path: Path) -> None:
    """The revocation `*` is for all JWTs that were issued until its time, and for no later ones."""
    old, new = A.user(), A.user("new", iat=in_seconds(0))
    async with directory(tmp_path) as server, connected(server, SYSTEM.user()) as operator:
        await push(operator, A)
        async with lines(server, old) as client, lines(server, new) as other:
            assert await client.next() == await other.next() == "PONG"
            await push(operator, OPERATOR.account("A", revocations={"*": in_seconds(-10)}))
            assert await client.next() == "-ERR 'User Authentication Revoked'"
            other.writer.write(b"PING\r\n")
            assert await other.next() == "PONG"
        async with lines(server, old) as client:
            assert await client.next() == REFUSED
