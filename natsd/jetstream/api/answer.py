"""Encoding of answers: long ones are encoded in steps, so that the event loop is never blocked.

Long members are first left out of the text, with a mark in their place, and filled in afterwards. A
mark occurs only once: it contains quotes, which are escaped inside strings, and stream names
contain none.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from natsd.core.steps import Steps, run_cooperatively
from natsd.jetstream.models.base import Model, Written
from natsd.jetstream.models.go_json import encode, encode_value
from natsd.jetstream.models.response import Response
from natsd.jetstream.models.responses import (
    ConsumerListResponse,
    StreamCreateResponse,
    StreamInfoResponse,
    StreamListResponse,
    StreamUpdateResponse,
)
from natsd.jetstream.models.stream import StreamInfo, StreamSourceInfo

ITEMS_PER_SLICE: Final = 2_000
"""Counts or sequences that are encoded in one step."""
SOURCES_PER_SLICE: Final = 100

_SOURCE_MARK: Final = StreamSourceInfo(name='"')


async def encode_answer(response: Response) -> bytes:
    """Return the answer as JSON, encoded in steps if it is long."""
    match response:
        case StreamListResponse():
            return await run_cooperatively(_encode_list(response, "streams", response.streams))
        case ConsumerListResponse():
            return await run_cooperatively(_encode_list(response, "consumers", response.consumers))
        case StreamInfoResponse() | StreamCreateResponse() | StreamUpdateResponse() if (
            response.info is not None
        ):
            return await run_cooperatively(_encode_info(response, response.info))
        case _:
            return encode(response)


def _encode_list(response: Response, field: str, infos: Sequence[Model | Written]) -> Steps[bytes]:
    parts = []
    for info in infos:
        if isinstance(info, StreamInfo):
            parts.append((yield from _encode_info(info, info)))
        else:
            parts.append(encode(info))
        yield
    text = encode(response.model_copy(update={field: []}))
    whole = f'"{field}":['.encode() + b",".join(parts) + b"]"
    return text.replace(f'"{field}":[]'.encode(), whole, 1)


def _encode_info(answer: Model, info: StreamInfo) -> Steps[bytes]:
    """Encode the info, alone or inside its answer.

    Counts of subjects, sequences of deleted messages and sources can be very many; they are encoded
    in steps.
    """
    state, marked = info.state, dict[str, Any]()
    if len(state.subjects) > ITEMS_PER_SLICE:
        marked["subjects"] = {"": 0}
    if len(state.deleted) > ITEMS_PER_SLICE:
        marked["deleted"] = [0]
    changes: dict[str, Any] = {}
    if marked:
        changes["state"] = state.model_copy(update=marked)
    if len(info.sources) > SOURCES_PER_SLICE:
        changes["sources"] = [_SOURCE_MARK]
    if not changes:
        return encode(answer)
    short = info.model_copy(update=changes)
    text = encode(short if answer is info else answer.model_copy(update={"info": short}))
    yield
    if "subjects" in marked:
        counts = sorted(state.subjects.items())
        parts = yield from _in_slices(
            len(counts), ITEMS_PER_SLICE, lambda at: _bare(dict(counts[at]))
        )
        text = text.replace(b'"subjects":{"":0}', b'"subjects":{' + parts + b"}", 1)
    if "deleted" in marked:
        parts = yield from _in_slices(
            len(state.deleted), ITEMS_PER_SLICE, lambda at: _bare(state.deleted[at])
        )
        text = text.replace(b'"deleted":[0]', b'"deleted":[' + parts + b"]", 1)
    if "sources" in changes:
        parts = yield from _in_slices(
            len(info.sources),
            SOURCES_PER_SLICE,
            lambda at: b",".join(map(encode, info.sources[at])),
        )
        text = text.replace(encode(_SOURCE_MARK), parts, 1)
    return text


def _bare(items: Any) -> bytes:
    """Return the JSON without its outermost brackets."""
    return encode_value(items)[1:-1]


def _in_slices(count: int, per_slice: int, encode_slice: Callable[[slice], bytes]) -> Steps[bytes]:
    """Encode the slices in steps, and return their texts joined by commas."""
    parts = []
    for start in range(0, count, per_slice):
        parts.append(encode_slice(slice(start, start + per_slice)))
        yield
    return b",".join(parts)
