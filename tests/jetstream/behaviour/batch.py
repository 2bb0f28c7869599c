"""An atomic batch as a publisher sends it, message by message."""

from __future__ import annotations

import json
from typing import Any

from nats.aio.client import Client

from tests.jetstream.behaviour.api import Json, error_text


class Batch:
    """A publisher's batch; `put` returns the answer, or `{}` if that is empty."""

    def __init__(self, nc: Client, batch_id: str = "batch") -> None:
        self.nc = nc
        self.batch_id = batch_id
        self.count = 0

    async def put(
        self, subject: str, data: bytes = b"", *, sequence: int = 0, **headers: str
    ) -> Json:
        self.count = sequence or self.count + 1
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named |= {"Nats-Batch-Id": self.batch_id, "Nats-Batch-Sequence": str(self.count)}
        reply = await self.nc.request(subject, data, 5, headers=named)
        answer: Json = json.loads(reply.data or b"{}")
        return answer

    async def commit(self, subject: str, data: bytes = b"", **headers: str) -> Json:
        return await self.put(subject, data, Nats_Batch_Commit="1", **headers)

    async def commit_before(self, subject: str) -> Json:
        return await self.put(subject, Nats_Batch_Commit="eob")

    async def fails(self, code: int, subject: str, **options: Any) -> str:
        answer = await self.commit(subject, **options)
        assert answer["seq"] == 0
        return error_text(answer["error"], code)
