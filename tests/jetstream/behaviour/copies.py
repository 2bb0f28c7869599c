"""The contents of streams, to compare a copy with its origin."""

from __future__ import annotations

import base64
from collections.abc import Callable

from tests.jetstream.behaviour.api import Api, Json, soon


async def message(api: Api, stream: str, sequence: int) -> Json:
    """Return a stored message: subject, seq, data, time, and hdrs if it has any."""
    stored: Json = (await api.ok(f"STREAM.MSG.GET.{stream}", {"seq": sequence}))["message"]
    return stored


async def messages(api: Api, stream: str) -> list[Json]:
    """Return all messages of the stream in order."""
    state = await api.stream_state(stream, deleted_details=True)
    gone = set(state.get("deleted", ()))
    sequences = range(state["first_seq"], state["last_seq"] + 1)
    return [await message(api, stream, at) for at in sequences if at not in gone]


def headers_of(stored: Json) -> list[str]:
    """Return the lines of the message's headers."""
    block = base64.b64decode(stored.get("hdrs", "")).decode()
    return block.split("\r\n")[1:-2]


def data_of(stored: Json) -> bytes:
    return base64.b64decode(stored.get("data", ""))


async def until_last(api: Api, stream: str, sequence: int) -> Json:
    """Wait until the stream's last sequence is `sequence`, and return its state."""

    async def probe() -> Json | None:
        state = await api.stream_state(stream)
        return state if state["last_seq"] == sequence else None

    return await soon(probe)


async def until_info(api: Api, stream: str, is_so: Callable[[Json], object]) -> Json:
    """Wait until the stream's info fulfils the condition, and return it."""

    async def probe() -> Json | None:
        info = await api.ok(f"STREAM.INFO.{stream}")
        return info if is_so(info) else None

    return await soon(probe)


def unheard(stored: Json) -> Json:
    """Return the message without the members that differ between streams."""
    return {key: value for key, value in stored.items() if key not in ("hdrs", "seq", "time")}
