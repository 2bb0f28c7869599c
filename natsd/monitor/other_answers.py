"""Answers of the other servers: gathered for one of ours, or passed on to a client.

    DEBUG.SUBSCRIBERS ─▶ gather: $SYS.REQ.ACCOUNT.NSUBS to all ─▶ the sum of their counts and ours
    $SYS.REQ.ACCOUNT.PING.CONNZ in account A
        ─▶ pass_on: $SYS.REQ.ACCOUNT.A.CONNZ in the system account ─▶ each answer, in account A

- Both end when all servers have answered, or after a time: a server may have nothing to tell.
- Requests of accounts travel in the system account, because only there do all servers listen.

Source: nats-server's `debugSubscribers` and `registerSystemImports` (server/events.go).
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Final

from natsd.accounts import Account
from natsd.accounts.internal_client import InternalClient
from natsd.core.routing import InvalidSubject
from natsd.monitor.service_table import ServiceRequest

GATHER_S: Final = 0.5
PASS_ON_S: Final = 2.0
ANSWERS_MAX: Final = 10_000
"""Answers to one request that are taken; the peers are at most as many."""
_INBOX_BYTES: Final = 12

Take = Callable[[bytes, bytes], object]
"""Called with the headers and the payload of each answer."""


async def ask(
    client: InternalClient,
    subject: str,
    payload: bytes,
    take: Take,
    *,
    expected: int,
    timeout_s: float,
    headers: bytes = b"",
) -> None:
    """Publish a request, and call `take` with its answers, until `expected` ones have come."""
    done = asyncio.get_running_loop().create_future()
    left = min(expected, ANSWERS_MAX)

    def answered(_subject: str, _reply: str | None, head: bytes, data: bytes) -> None:
        nonlocal left
        if left > 0:
            left -= 1
            take(head, data)
        if left <= 0 and not done.done():
            done.set_result(None)

    inbox = f"$SYS._INBOX.{os.urandom(_INBOX_BYTES).hex()}"
    subscription = client.subscribe(inbox, answered)
    try:
        client.publish(subject, payload, reply=inbox, headers=headers)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await done
    finally:
        client.unsubscribe(subscription)


async def sum_of_counts(system: Account, payload: bytes, expected: int) -> int:
    """Return the sum of the numbers with which other servers answer an NSUBS request."""
    counts: list[int] = []

    def take(_headers: bytes, data: bytes) -> None:
        if data.isdigit():
            counts.append(int(data))

    subject = "$SYS.REQ.ACCOUNT.NSUBS"
    client = system.internal_client
    await ask(client, subject, payload, take, expected=expected, timeout_s=GATHER_S)
    return sum(counts)


async def pass_on(system: Account, request: ServiceRequest, servers: int) -> None:
    """Send an account's request to all servers, and their answers to the requestor."""

    def take(headers: bytes, data: bytes) -> None:
        with contextlib.suppress(InvalidSubject):
            request.account.internal_client.publish(request.reply, data, headers=headers)

    await ask(
        system.internal_client,
        f"$SYS.REQ.ACCOUNT.{request.about}.{request.kind.removeprefix('ACCOUNT.')}",
        request.data,
        take,
        expected=servers,
        timeout_s=PASS_ON_S,
        headers=request.headers,
    )
