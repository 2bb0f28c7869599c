"""A client that takes snapshots and restores them, as the `nats` command line tool does.

snapshot = await take(api, "ORDERS")
answer = await restore(api, "ORDERS", snapshot)
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from nats.aio.msg import Msg

from tests.jetstream.behaviour import schemas
from tests.jetstream.behaviour.api import TIMEOUT_S, Api, Json

CHUNK_BYTES = 64 << 10


@dataclass
class Snapshot:
    """The result of a snapshot; `response` is the content of `backup.json`."""

    response: Json
    data: bytes
    status: str
    chunks: list[int]

    @property
    def request(self) -> Json:
        return {"config": self.response["config"], "state": self.response["state"]}


async def take(api: Api, stream: str, *, acknowledges: bool = True, **options: Any) -> Snapshot:
    """Take a snapshot; the status is empty if the last message had none."""
    received: asyncio.Queue[Msg] = asyncio.Queue()
    inbox = api.nc.new_inbox()
    subscription = await api.nc.subscribe(inbox, cb=received.put, pending_bytes_limit=1 << 30)
    response = await api.ok(f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": inbox, **options})
    chunks = []
    while True:
        message = await asyncio.wait_for(received.get(), TIMEOUT_S)
        if not message.data:
            break
        chunks.append(message.data)
        if message.reply and acknowledges:
            await api.nc.publish(message.reply)
    await subscription.unsubscribe()
    headers = message.headers or {}
    status = " ".join(
        part for part in (headers.get("Status", ""), headers.get("Description", "")) if part
    )
    return Snapshot(response, b"".join(chunks), status, [len(chunk) for chunk in chunks])


async def begin(api: Api, stream: str, snapshot: Snapshot, **config: Any) -> str:
    """Begin a restore and return the subject for its chunks."""
    request = {**snapshot.request, "config": {**snapshot.request["config"], **config}}
    response = await api.ok(f"STREAM.RESTORE.{stream}", request)
    subject: str = response["deliver_subject"]
    return subject


async def send(
    api: Api, subject: str, data: bytes, chunk_bytes: int = CHUNK_BYTES, times: int = 1
) -> Json:
    """Send the chunks and return the error that ended the restore, or {}."""
    for at in range(0, len(data), chunk_bytes):
        for _ in range(times):
            answer = await api.nc.request(subject, data[at : at + chunk_bytes], TIMEOUT_S)
            if answer.data:
                return checked(answer.data)
    return {}


async def finish(api: Api, subject: str) -> Json:
    """Send the last message and return its answer."""
    return checked((await api.nc.request(subject, b"", TIMEOUT_S)).data)


async def restore(api: Api, stream: str, snapshot: Snapshot, **config: Any) -> Json:
    subject = await begin(api, stream, snapshot, **config)
    return await send(api, subject, snapshot.data) or await finish(api, subject)


def checked(data: bytes) -> Json:
    response: Json = json.loads(data)
    schemas.check(response, "io.nats.jetstream.api.v1.stream_create_response")
    return response
