"""Requests to `$JS.API` as any client can make them: raw JSON, and every response is checked.

    api = Api(nc)
    info = await api.create_stream("ORDERS", subjects=["orders.>"])
    await api.fails("STREAM.INFO.NONE", 10059)

A response must be valid by its JSON schema. An error must have the expected code and the text that
`errors.json` gives it; placeholders in the text may stand for anything.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.jetstream.behaviour import schemas

PREFIX = "$JS.API."
TIMEOUT_S = 10.0
POLL_S = 0.005
ERRORS = schemas.SCHEMAS.parent / "errors.json"

SECOND = 1_000_000_000
MS = 1_000_000

Json = dict[str, Any]


@functools.cache
def texts() -> dict[int, tuple[int, re.Pattern[str]]]:
    """Return the status and the pattern of the text for each error code."""
    if not ERRORS.exists():
        return {}
    return {
        error["error_code"]: (error["code"], _pattern(error["description"]))
        for error in json.loads(ERRORS.read_text())
    }


def _pattern(description: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{\w+\\\}", ".*", re.escape(description)), re.DOTALL)


async def soon(probe: Callable[[], Awaitable[Json | None]]) -> Json:
    """Call the probe until it returns a result, and return that; fail at the deadline."""
    give_up_at = time.monotonic() + TIMEOUT_S
    while (found := await probe()) is None:
        assert time.monotonic() < give_up_at, f"not so after {TIMEOUT_S} s"
        await asyncio.sleep(POLL_S)
    return found


class Api:
    """The API as one client sees it."""

    def __init__(self, nc: Client) -> None:
        self.nc = nc

    async def raw(
        self, subject: str, body: Any = b"", headers: Mapping[str, str] | None = None
    ) -> Msg:
        """Return the reply; `subject` follows `$JS.API.`, and a body other than bytes is JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.nc.request(
            PREFIX + subject, data, TIMEOUT_S, headers=dict(headers) if headers else None
        )

    async def request(
        self, subject: str, body: Any = b"", headers: Mapping[str, str] | None = None
    ) -> Json:
        """Return the response, which may be an error; it must be valid by its schema."""
        response: Json = json.loads((await self.raw(subject, body, headers)).data)
        schemas.check(response)
        return response

    async def ok(
        self, subject: str, body: Any = b"", headers: Mapping[str, str] | None = None
    ) -> Json:
        response = await self.request(subject, body, headers)
        assert "error" not in response, response["error"]
        return response

    async def fails(
        self, subject: str, code: int, body: Any = b"", headers: Mapping[str, str] | None = None
    ) -> str:
        """Check that the request fails with this code, and return the text of the error."""
        response = await self.request(subject, body, headers)
        assert "error" in response, response
        return error_text(response["error"], code)

    async def create_stream(self, name: str, **config: Any) -> Json:
        return await self.ok(f"STREAM.CREATE.{name}", stream_config(name, config))

    async def update_stream(self, name: str, **config: Any) -> Json:
        return await self.ok(f"STREAM.UPDATE.{name}", stream_config(name, config))

    async def refuses_stream(self, name: str, code: int, **config: Any) -> str:
        return await self.fails(f"STREAM.CREATE.{name}", code, stream_config(name, config))

    async def refuses_update(self, name: str, code: int, **config: Any) -> str:
        return await self.fails(f"STREAM.UPDATE.{name}", code, stream_config(name, config))

    async def stream_state(self, name: str, **options: Any) -> Json:
        info = await self.ok(f"STREAM.INFO.{name}", options or b"")
        state: Json = info["state"]
        return state

    async def create_consumer(
        self, stream: str, name: str, *, action: str = "", **config: Any
    ) -> Json:
        return await self.ok(*consumer_request(stream, name, action, config))

    async def refuses_consumer(
        self, stream: str, name: str, code: int, *, action: str = "", **config: Any
    ) -> str:
        subject, body = consumer_request(stream, name, action, config)
        return await self.fails(subject, code, body)

    async def consumer_info(self, stream: str, name: str) -> Json:
        return await self.ok(f"CONSUMER.INFO.{stream}.{name}")

    async def until_messages(self, stream: str, count: int) -> Json:
        """Wait until the stream has `count` messages, and return its state."""

        async def probe() -> Json | None:
            state = await self.stream_state(stream)
            return state if state["messages"] == count else None

        return await soon(probe)

    async def until_consumer(self, stream: str, name: str, **expected: Any) -> Json:
        """Wait until the consumer's info has these fields, and return it; None: absent."""

        async def probe() -> Json | None:
            info = await self.consumer_info(stream, name)
            return info if all(info.get(k) == v for k, v in expected.items()) else None

        return await soon(probe)

    async def until_consumers(self, stream: str, count: int) -> Json:
        """Wait until the stream has `count` consumers, and return their names."""

        async def probe() -> Json | None:
            names = await self.ok(f"CONSUMER.NAMES.{stream}")
            return names if names["total"] == count else None

        return await soon(probe)

    async def publish(self, subject: str, data: bytes = b"", **headers: str) -> Json:
        """Publish and return the PubAck; `Nats_Msg_Id="x"` is the header `Nats-Msg-Id`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        reply = await self.nc.request(subject, data, TIMEOUT_S, headers=named or None)
        response: Json = json.loads(reply.data)
        schemas.check(response, "io.nats.jetstream.api.v1.pub_ack_response")
        return response

    async def refuses_publish(
        self, subject: str, code: int, data: bytes = b"", **headers: str
    ) -> str:
        response = await self.publish(subject, data, **headers)
        assert "error" in response, response
        return error_text(response["error"], code)

    async def fill(self, subject: str, count: int, data: bytes = b"") -> list[int]:
        """Publish `count` messages, one after the other, and return their sequences."""
        return [(await self.publish(subject, data))["seq"] for _ in range(count)]


def error_text(error: Json, code: int) -> str:
    """Return the description of an error, which must have this code and the code's text."""
    assert error["err_code"] == code, error
    if known := texts():
        status, pattern = known[code]
        assert error["code"] == status
        assert pattern.fullmatch(error["description"]), error
    text: str = error["description"]
    return text


def stream_config(name: str, config: Mapping[str, Any]) -> Json:
    """Return a configuration with the members that the request's schema requires."""
    defaults = {"subjects": [name.lower()], "retention": "limits", "storage": "memory"}
    return {"name": name, **defaults, **config}


def consumer_request(
    stream: str, name: str, action: str, config: Mapping[str, Any]
) -> tuple[str, Json]:
    """Return subject and body of `CONSUMER.CREATE`; an empty name makes an ephemeral."""
    chosen = {"deliver_policy": "all", "ack_policy": "explicit", "replay_policy": "instant"}
    named = {"name": name, "durable_name": name} if name else {}
    body: Json = {"stream_name": stream, "config": {**chosen, **named, **config}}
    if action:
        body["action"] = action
    return f"CONSUMER.CREATE.{stream}" + (f".{name}" if name else ""), body
