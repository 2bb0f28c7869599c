"""JetStream on its own: a reactor, one account and a directory; no sockets.

async with serving(tmp_path) as jetstream:
    stream, _ = await create(jetstream, "ORDERS", subjects=["orders.>"])
    assert (await publish(jetstream, "orders.new", b"7"))["seq"] == 1
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from natsd.accounts import Account
from natsd.config.jetstream_options import JetStreamOptions
from natsd.core.network import Reactor
from natsd.jetstream.account import JetStreamAccount
from natsd.jetstream.jetstream import JetStream
from natsd.jetstream.models.account import AccountLimits
from natsd.jetstream.models.stream import StreamConfig
from natsd.jetstream.stream.stream import Stream
from natsd.jetstream.tiers import FLAT, UNLIMITED, AccountTiers
from natsd.store.disk.disk import Disk

ACCOUNT = "$G"
GENEROUS = 1 << 40
DEADLINE_S = 20.0


@asynccontextmanager
async def serving(
    directory: Path,
    *,
    disk: Disk | None = None,
    limits: AccountLimits | AccountTiers | None = None,
    **options: Any,
) -> AsyncIterator[JetStream]:
    """Yield a started JetStream with the account `$G`, whose limits may be those of tiers.

    JetStream is stopped at the end, so that it can be started again on the same directory.
    """
    jetstream = build(directory, disk=disk, **options)
    account = Account(ACCOUNT, jetstream.reactor)
    await jetstream.start([])
    try:
        await jetstream.configure_account(account, tiers_of(limits))
        yield jetstream
    finally:
        await jetstream.stop()
        account.close()
        jetstream.reactor.close()


def tiers_of(limits: AccountLimits | AccountTiers | None) -> AccountTiers:
    """Return limits as tiers: limits without a tier are stored under FLAT."""
    if limits is None:
        return UNLIMITED
    return {FLAT: limits} if isinstance(limits, AccountLimits) else limits


def build(
    directory: Path,
    *,
    disk: Disk | None = None,
    clock: Callable[[], int] = time.time_ns,
    has_default_room: bool = False,
    limits_of: Callable[[Account], AccountTiers | None] = lambda _account: UNLIMITED,
    **options: Any,
) -> JetStream:
    """Return a JetStream that is not started yet."""
    settings = {"max_memory_store": GENEROUS, "max_file_store": GENEROUS, **options}
    loop = asyncio.get_running_loop()

    def log_failure(text: str) -> None:
        loop.call_exception_handler({"message": text})

    return JetStream(
        JetStreamOptions(enabled=True, store_dir=directory, **settings),
        Reactor(loop, log_failure),
        loop,
        clock=clock,
        disk=disk,
        has_default_room=has_default_room,
        limits_of=limits_of,
    )


def account_of(jetstream: JetStream) -> JetStreamAccount:
    return jetstream.accounts[ACCOUNT]


async def create(jetstream: JetStream, name: str, **settings: Any) -> Stream:
    stream, _ = await account_of(jetstream).create_stream(StreamConfig(name=name, **settings))
    return stream


async def update(stream: Stream, **changes: Any) -> None:
    await stream.account.update_stream(stream.config.model_copy(update=changes))


async def publish(
    jetstream: JetStream, subject: str, payload: bytes = b"", headers: bytes = b""
) -> dict[str, Any]:
    """Publish a message and return the decoded acknowledgement."""
    _, data = (await ask(jetstream, subject, payload, headers))[0]
    return dict(json.loads(data))


_inboxes = itertools.count(1)


async def ask(
    jetstream: JetStream,
    subject: str,
    payload: bytes = b"",
    headers: bytes = b"",
    *,
    answers: int = 1,
) -> list[tuple[bytes, bytes]]:
    """Send a request and return the headers and payloads of `answers` answers."""
    client = account_of(jetstream).account.internal_client
    inbox = f"_INBOX.{next(_inboxes)}"
    received: list[tuple[bytes, bytes]] = []
    enough = asyncio.Event()

    def answered(_subject: str, _reply: str | None, head: bytes, data: bytes) -> None:
        received.append((head, data))
        if len(received) == answers:
            enough.set()

    subscription = client.subscribe(inbox, answered)
    client.publish(subject, payload, reply=inbox, headers=headers)
    async with asyncio.timeout(DEADLINE_S):
        await enough.wait()
    client.unsubscribe(subscription)
    return received
