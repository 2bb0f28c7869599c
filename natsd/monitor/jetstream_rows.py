"""The rows of `/jsz` for streams and consumers, as msgspec encodes them.

A row has the fields of nats-server's `StreamState` or `ConsumerInfo` in their order; those with
their default are left out. They are copied from the infos of JetStream's API, whose models take
fifty times as long to write. Configurations change rarely: their text is kept.
"""

from typing import Any, Final

import msgspec

from natsd.jetstream.models.base import Model
from natsd.jetstream.models.consumer import ConsumerInfo, SequenceInfo
from natsd.jetstream.models.stream import StreamState
from natsd.jetstream.models.times import format_time

CONFIGS_KEPT_MAX: Final = 32_768


class SequenceRow(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A position of a consumer."""

    consumer_seq: int
    stream_seq: int
    last_active: str = ""


class ConsumerRow(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A consumer."""

    stream_name: str
    name: str
    created: str
    config: msgspec.Raw | None = None
    delivered: SequenceRow
    ack_floor: SequenceRow
    num_ack_pending: int
    num_redelivered: int
    num_waiting: int
    num_pending: int
    push_bound: bool = False
    paused: bool = False
    pause_remaining: int = 0
    ts: str
    priority_groups: list[dict[str, Any]] = []


class StateRow(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """The state of a stream."""

    messages: int
    bytes: int
    first_seq: int
    first_ts: str
    last_seq: int
    last_ts: str
    num_subjects: int = 0
    num_deleted: int = 0
    lost: dict[str, Any] | None = None
    consumer_count: int


def consumer_row(info: ConsumerInfo, config: msgspec.Raw | None) -> ConsumerRow:
    """Return the row of a consumer, with this text of its configuration or without."""
    return ConsumerRow(
        stream_name=info.stream_name,
        name=info.name,
        created=format_time(info.created),
        config=config,
        delivered=_sequence_row(info.delivered),
        ack_floor=_sequence_row(info.ack_floor),
        num_ack_pending=info.num_ack_pending,
        num_redelivered=info.num_redelivered,
        num_waiting=info.num_waiting,
        num_pending=info.num_pending,
        push_bound=info.push_bound,
        paused=info.paused,
        pause_remaining=info.pause_remaining,
        ts=format_time(info.ts),
        priority_groups=[each.model_dump(mode="json") for each in info.priority_groups],
    )


def _sequence_row(info: SequenceInfo) -> SequenceRow:
    active_ns = info.last_active
    return SequenceRow(
        consumer_seq=info.consumer_seq,
        stream_seq=info.stream_seq,
        last_active=format_time(active_ns) if active_ns else "",
    )


def state_row(state: StreamState) -> StateRow:
    """Return the row of a stream's state, without the list of deleted messages."""
    return StateRow(
        messages=state.messages,
        bytes=state.bytes,
        first_seq=state.first_seq,
        first_ts=format_time(state.first_ts),
        last_seq=state.last_seq,
        last_ts=format_time(state.last_ts),
        num_subjects=state.num_subjects,
        num_deleted=state.num_deleted,
        lost=None if state.lost is None else state.lost.model_dump(mode="json"),
        consumer_count=state.consumer_count,
    )


class ConfigTexts:
    """The JSON texts of the latest configurations, which are replaced when they change."""

    def __init__(self) -> None:
        self._texts: dict[int, tuple[Model, msgspec.Raw]] = {}  # by id of the model, which is kept

    def text(self, config: Model) -> msgspec.Raw:
        """Return the text of a configuration of a stream or consumer."""
        known = self._texts.get(id(config))
        if known is None:
            if len(self._texts) >= CONFIGS_KEPT_MAX:
                self._texts.clear()
            text = msgspec.Raw(msgspec.json.encode(config.model_dump(mode="json")))
            known = self._texts[id(config)] = (config, text)
        return known[1]
