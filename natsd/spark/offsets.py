"""Offsets: the next sequence to read of each stream, as `{"ORDERS": 41237}`.

- A range is [start, end): as in Kafka's source, the end is not read. So one offset is both the end
  of a batch and the start of the next one, and the end of a stream is its last sequence + 1.
- An edge is the user's choice for one end of a read: "earliest", "latest", or a sequence for each
  stream (-2 means earliest and -1 latest, as in Kafka's source).
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
    """Offsets that do not fit the streams; the text is one line."""


@dataclass(frozen=True)
class SourceStreamState:
    """State of one stream as STREAM.INFO reports it, reduced to the fields that reading needs.

    `first` and `last` are sequences; in an empty stream, `first` is `last` + 1. `messages` counts
    the messages and `size` their bytes. `created` is the creation time in RFC 3339.
    """

    name: str
    first: int
    last: int
    messages: int
    size: int
    created: str
    allow_direct: bool
    overwrites: bool
    """Whether the stream keeps a limited number of messages per subject. Messages that disappear
    from its beginning are then no data loss."""

    @property
    def end(self) -> int:
        """Sequence of the next message that the stream stores."""
        return self.last + 1

    def bytes_per_sequence(self) -> float:
        """Return the average bytes per sequence."""
        return self.size / max(1, self.end - self.first)


def state_of(answer: Mapping[str, object]) -> SourceStreamState:
    """Return the state of a stream from an answer to STREAM.INFO, or an item of STREAM.LIST."""
    config: dict[str, object] = dict(answer["config"])  # type: ignore[call-overload]  # JSON
    state: dict[str, int] = dict(answer["state"])  # type: ignore[call-overload]  # JSON
    return SourceStreamState(
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
    """Parse the text of an edge; other types are returned unchanged. Raises ValueError."""
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
    """Return whether the value is a sequence (1 or more), -2 (earliest) or -1 (latest)."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return is_whole and (value >= 1 or value in _NAMED)  # type: ignore[operator]  # whole by now


def edge_of(edge: Edge, stream: str) -> int | str:
    """Return the edge for one stream: a sequence, "earliest" or "latest".

    Raises OffsetError if the edge has no entry for the stream.
    """
    if isinstance(edge, str):
        return edge
    if stream not in edge:
        raise OffsetError(f'offsets are given, but none for stream "{stream}": add it to them')
    return _NAMED.get(edge[stream], edge[stream])


def check_streams(edge: Edge, streams: Iterable[str], option: str) -> None:
    """Raise OffsetError if the edge names a stream that is not read."""
    for name in sorted(set(edge) - set(streams)) if isinstance(edge, dict) else ():
        raise OffsetError(f'{option} names stream "{name}", which is not among those that are read')


def first_sequence(state: SourceStreamState, edge: Edge, *, fail_on_data_loss: bool) -> int:
    """Return the first sequence to read.

    An explicit sequence that the stream no longer has raises DataLoss, and one beyond its end
    raises OffsetError, unless `fail_on_data_loss` is false. Raises OffsetError also if the edge has
    no entry for the stream.
    """
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


def end_sequence(state: SourceStreamState, edge: Edge, *, fail_on_data_loss: bool) -> int:
    """Return the end of the read, exclusive.

    Raises OffsetError if the edge has no entry for the stream, or if it is beyond the end of the
    stream and `fail_on_data_loss` is true.
    """
    wanted = edge_of(edge, state.name)
    if isinstance(wanted, str):
        return state.end if wanted == LATEST else state.first
    if wanted > state.end and fail_on_data_loss:
        raise beyond_the_end(state, wanted, "endingOffsets")
    return min(wanted, state.end)


def beyond_the_end(state: SourceStreamState, wanted: int, option: str) -> OffsetError:
    """Return the error for a sequence beyond the end of the stream."""
    return OffsetError(
        f'{option} names sequence {wanted} of stream "{state.name}", which ends with {state.last};'
        " give a lower one, or set failOnDataLoss to false to read what is there"
    )
