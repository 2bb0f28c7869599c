"""Parts of the rows of `/jsz`, as msgspec encodes them: states of streams, and configurations.

The models of JetStream's API take fifty times as long to write. Configurations change rarely: their
text is kept.
"""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from natsd.jetstream.models.base import Model, Written
from natsd.jetstream.models.go_json import encoded
from natsd.jetstream.models.times import format_time

if TYPE_CHECKING:
    from natsd.jetstream.stream.stream import Stream
    from natsd.store.store import StoreState

CONFIGS_KEPT_MAX: Final = 32_768


class StateRow(Written, kw_only=True):
    """The state of a stream, without the list of deleted messages, as nats-server's `StreamState`.

    Fields with their default are left out.
    """

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


def stored(stream: "Stream") -> "StoreState":
    """Return the durable messages of a stream in numbers."""
    from natsd.jetstream.stream.state import visible_state

    return visible_state(stream.readers.log, stream.readers.visible)


def state_row(stream: "Stream") -> StateRow:
    """Return the state of a stream."""
    from natsd.jetstream.stream.info import lost_of

    found, lost = stored(stream), lost_of(stream.damage)
    return StateRow(
        messages=found.msgs,
        bytes=found.bytes,
        first_seq=found.first_sequence,
        first_ts=format_time(found.first_time_ns),
        last_seq=found.last_sequence,
        last_ts=format_time(found.last_time_ns),
        num_subjects=found.num_subjects,
        num_deleted=found.num_deleted,
        lost=None if lost is None else lost.model_dump(),
        consumer_count=len(stream.public_consumers),
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
            known = self._texts[id(config)] = (config, encoded(config))
        return known[1]
