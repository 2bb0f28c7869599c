"""Answers as bytes: long ones are encoded in slices, for nothing may hold the loop.

What is long is left out of the text at first, with a mark in its place, and filled in afterwards.
A mark is found once only: it has quotes, which are escaped inside strings.

Source: reference §6.1.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from natsd.jetstream.api.paging import INFOS_PER_SLICE
from natsd.jetstream.models.base import Model
from natsd.jetstream.models.go_json import encode, encode_value
from natsd.jetstream.models.response import Response
from natsd.jetstream.models.responses import (
    ConsumerListResponse,
    StreamInfoResponse,
    StreamListResponse,
)
from natsd.jetstream.models.stream import StreamState

ITEMS_PER_SLICE: Final = 2_000
"""Counts or sequences that are encoded before others have a turn."""


async def encode_answer(response: Response) -> bytes:
    """The answer as JSON."""
    infos: Sequence[Model]
    match response:
        case StreamListResponse():
            field, infos = "streams", response.streams
        case ConsumerListResponse():
            field, infos = "consumers", response.consumers
        case StreamInfoResponse() if response.info is not None:
            return await _encode_stream_info(response, response.info.state)
        case _:
            return encode(response)
    if len(infos) <= INFOS_PER_SLICE:
        return encode(response)
    parts = await _in_slices(
        len(infos), INFOS_PER_SLICE, lambda at: b",".join(map(encode, infos[at]))
    )
    text = encode(response.model_copy(update={field: []}))
    return text.replace(f'"{field}":[]'.encode(), f'"{field}":['.encode() + parts + b"]", 1)


async def _encode_stream_info(response: StreamInfoResponse, state: StreamState) -> bytes:
    """Counts of subjects and sequences of deleted messages can be very many."""
    marked: dict[str, Any] = {}
    if len(state.subjects) > ITEMS_PER_SLICE:
        marked["subjects"] = {"": 0}
    if len(state.deleted) > ITEMS_PER_SLICE:
        marked["deleted"] = [0]
    if not marked:
        return encode(response)
    assert response.info is not None
    info = response.info.model_copy(update={"state": state.model_copy(update=marked)})
    text = encode(response.model_copy(update={"info": info}))
    if "subjects" in marked:
        counts = sorted(state.subjects.items())
        parts = await _in_slices(len(counts), ITEMS_PER_SLICE, lambda at: _bare(dict(counts[at])))
        text = text.replace(b'"subjects":{"":0}', b'"subjects":{' + parts + b"}", 1)
    if "deleted" in marked:
        parts = await _in_slices(
            len(state.deleted), ITEMS_PER_SLICE, lambda at: _bare(state.deleted[at])
        )
        text = text.replace(b'"deleted":[0]', b'"deleted":[' + parts + b"]", 1)
    return text


def _bare(items: Any) -> bytes:
    """JSON without its outermost brackets."""
    return encode_value(items)[1:-1]


async def _in_slices(count: int, per_slice: int, encode_slice: Callable[[slice], bytes]) -> bytes:
    """The slices' texts, with commas between; others have a turn after each."""
    parts = []
    for start in range(0, count, per_slice):
        parts.append(encode_slice(slice(start, start + per_slice)))
        await asyncio.sleep(0)
    return b",".join(parts)
