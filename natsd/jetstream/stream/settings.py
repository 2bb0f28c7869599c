"""The part of a stream's configuration that the publish path needs.

Limits and the discard policy are not here: the store enforces them (natsd.store.store.Limits).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from natsd.core.subject_mapping import parse_mapping

BUFFERED_MSGS_MAX = 10_000
BUFFERED_BYTES_MAX = 128 << 20


@dataclass(frozen=True, slots=True)
class Mapping:
    """The subjects that match `source` become `destination`, as SubjectTransform takes them.

    An empty source is `>`.
    """

    source: str
    destination: str

    def __post_init__(self) -> None:
        """Check the mapping, so that existing settings can be applied. Raises InvalidMapping."""
        parse_mapping(self.source, self.destination)


@dataclass(frozen=True, slots=True)
class RepublishSettings:
    """Stored messages are published again as `mapping` says."""

    mapping: Mapping
    headers_only: bool = False


def captures_nothing(_subject: bytes) -> bool:
    """Tell for each subject that the stream does not receive it."""
    return False


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """The settings of a stream's publish path.

    `buffered_msgs_max` and `buffered_bytes_max`: messages and bytes that may wait to be durable
    before publishers wait. `captures`: whether the stream receives publishes to a subject.
    `copies`: on how many servers the stream is, each of which an account's limit counts.
    """

    name: str
    domain: str = ""
    is_memory: bool = False
    no_ack: bool = False
    sealed: bool = False
    max_msg_size: int = -1
    allows_rollup: bool = False  # allow_rollup_hdrs, and not deny_purge
    allows_lifetimes: bool = False  # allow_msg_ttl
    lifetime_s_min: int = 0  # shorter ones are raised to it
    allows_schedules: bool = False  # allow_msg_schedules
    captures: Callable[[bytes], bool] = captures_nothing
    counts: bool = False  # allow_msg_counter
    duplicate_window_ns: int = 0
    subject_transform: Mapping | None = None
    republish: RepublishSettings | None = None
    buffered_msgs_max: int = BUFFERED_MSGS_MAX
    buffered_bytes_max: int = BUFFERED_BYTES_MAX
    copies: int = 1
