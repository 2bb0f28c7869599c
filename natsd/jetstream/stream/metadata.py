"""The server's own entries in a stream's metadata: `_nats.*`.

- Stored: the API level that a server must have to serve the stream.
- Shown only: the version and the level of the server that answers.

Source: ADR-44.
"""

from typing import Final

from natsd.jetstream.models.stream import PersistMode, StreamConfig, StreamInfo
from natsd.jetstream.names import (
    API_LEVEL,
    REQUIRED_LEVEL_KEY,
    SERVER_LEVEL_KEY,
    SERVER_VERSION_KEY,
)
from natsd.version import NATS_VERSION

_SHOWN: Final = frozenset((SERVER_VERSION_KEY, SERVER_LEVEL_KEY))


def with_static_metadata(config: StreamConfig) -> StreamConfig:
    """Return the configuration with the level it requires, and without the entries only shown."""
    metadata = {key: text for key, text in config.metadata.items() if key not in _SHOWN}
    metadata[REQUIRED_LEVEL_KEY] = str(required_level(config))
    return config.model_copy(update={"metadata": metadata})


def with_shown_metadata(info: StreamInfo) -> StreamInfo:
    """Return the info with the entries that requests about one stream are shown."""
    shown = {SERVER_VERSION_KEY: NATS_VERSION, SERVER_LEVEL_KEY: str(API_LEVEL)}
    config = info.config.model_copy(update={"metadata": info.config.metadata | shown})
    return info.model_copy(update={"config": config})


def required_level(config: StreamConfig) -> int:
    """Return the lowest API level that knows all settings of the configuration."""
    if config.allow_batched:
        return 4
    if (
        config.allow_msg_counter
        or config.allow_atomic
        or config.allow_msg_schedules
        or config.persist_mode is PersistMode.ASYNC
    ):
        return 2
    return 1 if config.allow_msg_ttl or config.subject_delete_marker_ttl > 0 else 0
