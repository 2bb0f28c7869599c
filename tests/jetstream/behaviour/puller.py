"""Pull requests as raw messages: statuses and other details that a client library hides.

puller = await Puller.of(api.nc, "S", "C")
await puller.ask(batch=2, no_wait=True)
assert await puller.take(2) == [(1, b"a"), (2, b"b")]
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

WAIT_S = 10.0


@dataclass(frozen=True)
class Status:
    """A status such as `404 No Messages` and its headers."""

    code: str
    text: str
    headers: dict[str, str]

    @property
    def line(self) -> str:
        return f"{self.code} {self.text}"


class Puller:
    """One inbox, and the pull requests that use it."""

    def __init__(self, nc: Client, subject: str, inbox: str, replies: Subscription) -> None:
        self.nc = nc
        self.subject = subject
        self.inbox = inbox
        self.replies = replies

    @classmethod
    async def of(cls, nc: Client, stream: str, consumer: str) -> Self:
        inbox = nc.new_inbox()
        replies = await nc.subscribe(inbox)
        return cls(nc, f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", inbox, replies)

    async def ask(self, body: bytes | None = None, **request: Any) -> None:
        """Send a pull request; the fields are those of `JSApiConsumerGetNextRequest`."""
        data = json.dumps(request).encode() if body is None and request else body or b""
        await self.nc.publish(self.subject, data, reply=self.inbox)

    async def next(self, wait_s: float = WAIT_S) -> Msg:
        """Return the next message or status."""
        return await self.replies.next_msg(wait_s)

    async def message(self) -> Msg:
        """Return the next message; it must not be a status."""
        got = await self.next()
        assert (status_of(got)) is None, status_of(got)
        return got

    async def messages(self, count: int) -> list[Msg]:
        return [await self.message() for _ in range(count)]

    async def take(self, count: int) -> list[tuple[int, bytes]]:
        """Return stream sequence and data of the next `count` messages."""
        return [(sequence_of(msg), msg.data) for msg in await self.messages(count)]

    async def sequences(self, count: int) -> list[int]:
        return [sequence for sequence, _ in await self.take(count)]

    async def status(self) -> Status:
        """Return the next status; it must not be a message."""
        got = await self.next()
        found = status_of(got)
        assert found is not None, got
        return found

    async def line(self) -> str:
        """Return the line of the next status, such as `404 No Messages`."""
        return (await self.status()).line

    async def nothing(self) -> None:
        """Check that nothing has arrived that was sent before this call."""
        await self.nc.flush()
        assert self.replies.pending_msgs == 0, await self.next()


def status_of(msg: Msg) -> Status | None:
    headers = msg.headers or {}
    if "Status" not in headers:
        return None
    rest = {k: v for k, v in headers.items() if k not in ("Status", "Description")}
    return Status(headers["Status"], headers.get("Description", ""), rest)


def sequence_of(msg: Msg) -> int:
    """Return the stream sequence in the reply subject."""
    return int(msg.reply.split(".")[5])


def deliveries_of(msg: Msg) -> int:
    """Return the number of deliveries in the reply subject."""
    return int(msg.reply.split(".")[4])


def pending_of(msg: Msg) -> int:
    """Return the number of pending messages in the reply subject."""
    return int(msg.reply.split(".")[8])
