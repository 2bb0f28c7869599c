"""Offsets: the next sequence to read of each stream, as `{"ORDERS": 41237}`.

- A range is [start, end): the end is not read, as with Kafka's; so an offset is both where one
  batch ended and where the next one begins, and the end of a stream is its last sequence + 1.
- An edge is what a user says of one end of a read: "earliest", "latest", or a sequence for each
  stream (-2 and -1 mean the same two, as with Kafka's).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from natsd.spark.ranges import DataLoss

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
EARLIEST_SEQUENCE: Final = -2
LATEST_SEQUENCE: Final = -1
_NAMED: Final = {EARLIEST_SEQUENCE: EARLIEST, LATEST_SEQUENCE: LATEST}

Edge = str | dict[str, int]
Offsets = dict[str, int]


class OffsetError(ValueError):
    """Offsets that do not fit the streams, in one line."""


@dataclass(frozen=True)
class StreamState:
    """What STREAM.INFO says, as far as reading goes. Of an empty stream, first is last + 1."""

    name: str
    first: int
    last: int
    messages: int
    size: int
    created: str
    allow_direct: bool
    overwrites: bool
    """Messages go when their subject gets newer ones: a beginning that moves is then no loss."""

    @property
    def end(self) -> int:
        """The sequence that the next message will have."""
        return self.last + 1

    def bytes_per_sequence(self) -> float:
        return self.size / max(1, self.end - self.first)


def state_of(answer: Mapping[str, object]) -> StreamState:
    """Of a stream in the API's answer."""
    config: dict[str, object] = dict(answer["config"])  # type: ignore[call-overload]  # JSON
    state: dict[str, int] = dict(answer["state"])  # type: ignore[call-overload]  # the same
    return StreamState(
        name=str(config["name"]),
        first=max(1, state.get("first_seq", 0), 0 if state["messages"] else state["last_seq"] + 1),
        last=state["last_seq"],
        messages=state["messages"],
        size=state["bytes"],
        created=str(answer.get("created", "")),
        allow_direct=bool(config.get("allow_direct")),
        overwrites=int(str(config.get("max_msgs_per_subject", -1))) > 0,
    )


def parse_edge(value: object) -> object:
    """Raises ValueError."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    advice = 'write "earliest", "latest" or a sequence for each stream, as {"ORDERS": 41237}'
    try:
        sequences = json.loads(text)
    except ValueError:
        raise ValueError(f"is no offset: {advice}") from None
    if not isinstance(sequences, dict) or not all(map(is_offset, sequences.values())):
        raise ValueError(f"is no offset: {advice}")
    return sequences


def is_offset(value: object) -> bool:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return is_whole and (value >= 1 or value in _NAMED)  # type: ignore[operator]  # whole by now


def edge_of(edge: Edge, stream: str) -> int | str:
    """A sequence, "earliest" or "latest". Raises OffsetError."""
    if isinstance(edge, str):
        return edge
    if stream not in edge:
        raise OffsetError(f'offsets are given, but none for stream "{stream}": add it to them')
    return _NAMED.get(edge[stream], edge[stream])


def check_streams(edge: Edge, streams: Iterable[str], option: str) -> None:
    """Raises OffsetError for a stream that is not read."""
    for name in sorted(set(edge) - set(streams)) if isinstance(edge, dict) else ():
        raise OffsetError(f'{option} names stream "{name}", which is not among those that are read')


def first_sequence(state: StreamState, edge: Edge, *, fail_on_data_loss: bool) -> int:
    """Where reading begins. Raises OffsetError, DataLoss."""
    wanted = edge_of(edge, state.name)
    if wanted == EARLIEST:
        return state.first
    if isinstance(wanted, str):
        return state.end
    if wanted < state.first and not state.overwrites and fail_on_data_loss:
        raise DataLoss(state.name, wanted, state.first - 1)
    if wanted > state.end and fail_on_data_loss:
        raise beyond_the_end(state, wanted, "startingOffsets")
    return min(max(wanted, state.first), state.end)


def end_sequence(state: StreamState, edge: Edge, *, fail_on_data_loss: bool) -> int:
    """Where reading ends, exclusive. Raises OffsetError."""
    wanted = edge_of(edge, state.name)
    if isinstance(wanted, str):
        return state.end if wanted == LATEST else state.first
    if wanted > state.end and fail_on_data_loss:
        raise beyond_the_end(state, wanted, "endingOffsets")
    return min(wanted, state.end)


def beyond_the_end(state: StreamState, wanted: int, option: str) -> OffsetError:
    return OffsetError(
        f'{option} names sequence {wanted} of stream "{state.name}", which ends with {state.last};'
        " give a lower one, or set failOnDataLoss to false to read what is there"
    )
