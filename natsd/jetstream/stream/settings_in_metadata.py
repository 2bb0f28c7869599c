"""The stream settings that nats-server does not have: metadata that begins with `natsd.`.

    natsd.ack                  when a publish is acknowledged, if the stream has replicas:
                               quorum-synced, quorum-written or leader (AckLevel)
    natsd.read_replicas        number of copies that answer direct gets and have no vote
    natsd.read_replica_tags    tags of the servers that get them, separated by commas; `!` before a
                               tag: servers without it
    natsd.read_max_staleness   a copy whose state may be older than this does not answer

Clients pass metadata on unchanged, so these settings work with any client. Other keys that begin
with `natsd.` are refused: a misspelled one would have no effect. All other metadata belongs to the
client.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple, NoReturn

from natsd.core.durations import DurationError, parse_duration_ns
from natsd.jetstream.errors import ErrorId, api_error
from natsd.jetstream.models.stream import StreamConfig

ACK: Final = "natsd.ack"
READ_REPLICAS: Final = "natsd.read_replicas"
READ_REPLICA_TAGS: Final = "natsd.read_replica_tags"
READ_MAX_STALENESS: Final = "natsd.read_max_staleness"

READ_REPLICAS_MAX: Final = 16
STALENESS_NS_MIN: Final = 3_000_000_000
"""A copy asks about every second, over a line that may be long, how old it is."""
_PREFIX: Final = "natsd."


class AckLevel(StrEnum):
    """How safe a publish is when it is acknowledged (docs/jetstream-clusters.md)."""

    QUORUM_SYNCED = "quorum-synced"
    """A majority of the replicas has it on disk, synced: it is committed."""
    QUORUM_WRITTEN = "quorum-written"
    """A majority has written it, and not synced it yet."""
    LEADER = "leader"
    """The leader has it on disk, synced; perhaps no other replica has it."""


class ReadReplicas(NamedTuple):
    """The copies of a stream that only answer direct gets."""

    number: int
    tags: tuple[str, ...]  # of the servers that get them


def ack_level(config: StreamConfig) -> AckLevel:
    """Return when publishes are acknowledged; the configuration must have been checked."""
    return AckLevel(config.metadata.get(ACK, AckLevel.QUORUM_SYNCED))


def read_replicas(config: StreamConfig) -> ReadReplicas:
    """Return which read replicas a stream has; its configuration must have been checked."""
    number = int(config.metadata.get(READ_REPLICAS, "0"))
    return ReadReplicas(number, tuple(_tags(config)) if number else ())


def copies(config: StreamConfig) -> int:
    """Return on how many servers a stream is; its configuration must have been checked."""
    return max(config.num_replicas, 1) + read_replicas(config).number


def read_max_staleness_s(config: StreamConfig) -> float:
    """Return how old a read replica's state may be, in seconds; 0: it has no limit.

    The configuration must have been checked.
    """
    text = config.metadata.get(READ_MAX_STALENESS, "")
    return parse_duration_ns(text) / 1e9 if text else 0.0


def check_settings(config: StreamConfig) -> None:
    """Check the settings. Raises ApiError 10052."""
    for key in config.metadata:
        if not key.startswith(_PREFIX):
            continue
        check = _CHECKS.get(key)
        if check is None:
            _refuse(f"metadata has an unknown setting '{key}'")
        check(config)


def _check_ack(config: StreamConfig) -> None:
    text, levels = config.metadata[ACK], tuple(AckLevel)
    if text not in levels:
        _refuse(f"acknowledgement level '{text}' is not one of {', '.join(levels)}")


def _check_read_replicas(config: StreamConfig) -> None:
    text = config.metadata[READ_REPLICAS]
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(READ_REPLICAS_MAX))
    if not is_number or not 0 < int(text) <= READ_REPLICAS_MAX:
        _refuse(f"number of read replicas '{text}' is not one from 1 to {READ_REPLICAS_MAX}")
    if not config.allow_direct:
        _refuse("with read replicas must allow direct gets")


def _check_tags(config: StreamConfig) -> None:
    _check_needs_read_replicas(config)
    if not all(tag.removeprefix("!") for tag in _tags(config)):
        text = config.metadata[READ_REPLICA_TAGS]
        _refuse(f"tags of read replicas '{text}' are not tags separated by commas")


def _check_staleness(config: StreamConfig) -> None:
    _check_needs_read_replicas(config)
    text = config.metadata[READ_MAX_STALENESS]
    try:
        longest_ns = parse_duration_ns(text)
    except DurationError:
        longest_ns = 0
    if longest_ns < STALENESS_NS_MIN:
        _refuse(f"staleness of read replicas '{text}' is not a duration of 3s or more")


def _check_needs_read_replicas(config: StreamConfig) -> None:
    if READ_REPLICAS not in config.metadata:
        _refuse(f"has settings of read replicas, and no '{READ_REPLICAS}'")


def _tags(config: StreamConfig) -> list[str]:
    text = config.metadata.get(READ_REPLICA_TAGS)
    return [] if text is None else [tag.strip() for tag in text.split(",")]


def _refuse(text: str) -> NoReturn:
    raise api_error(ErrorId.JSStreamInvalidConfigF, err=f"stream {text}")


_CHECKS: Final[Mapping[str, Callable[[StreamConfig], None]]] = MappingProxyType(
    {
        ACK: _check_ack,
        READ_REPLICAS: _check_read_replicas,
        READ_REPLICA_TAGS: _check_tags,
        READ_MAX_STALENESS: _check_staleness,
    }
)
"""Every setting, and what checks it."""
