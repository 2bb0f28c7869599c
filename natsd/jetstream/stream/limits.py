"""The settings that a stream's configuration means for its store and for its ingest."""

from dataclasses import replace
from functools import partial
from typing import Final

from natsd.config.jetstream_options import JetStreamOptions
from natsd.jetstream.claims import SubjectClaims
from natsd.jetstream.models.stream import (
    Compression,
    DiscardPolicy,
    Storage,
    StreamConfig,
    SubjectTransformConfig,
)
from natsd.jetstream.models.times import bounded_ns
from natsd.jetstream.stream.settings import IngestSettings, Mapping, RepublishSettings
from natsd.jetstream.stream.settings_in_metadata import copies
from natsd.store.store import UNLIMITED, Discard, Limits

UNCOUNTED_BYTES: Final = {Storage.FILE: 10, Storage.MEMORY: 24}
"""Bytes by which a record without headers is longer here than nats-server counts it."""


def store_limits(config: StreamConfig) -> Limits:
    """Return the limits that the store enforces."""
    return Limits(
        max_msgs=config.max_msgs,
        max_bytes=config.max_bytes,
        max_age_ns=bounded_ns(config.max_age),
        max_msgs_per_subject=config.max_msgs_per_subject,
        max_msg_size=config.max_msg_size,
        discard=Discard.NEW if config.discard is DiscardPolicy.NEW else Discard.OLD,
        discard_new_per_subject=config.discard_new_per_subject,
        first_sequence=config.first_seq,
        uncounted_bytes=UNCOUNTED_BYTES[config.storage],
    )


def without_limits(limits: Limits) -> Limits:
    """Return the limits of a follower: what they remove is the leader's decision."""
    return replace(
        limits,
        max_msgs=UNLIMITED,
        max_bytes=UNLIMITED,
        max_age_ns=0,
        max_msgs_per_subject=UNLIMITED,
        max_msg_size=UNLIMITED,
        discard=Discard.OLD,
        discard_new_per_subject=False,
    )


def is_compressed(config: StreamConfig) -> bool:
    """Tell whether full blocks are to be compressed."""
    return config.compression is not Compression.NONE


def ingest_settings(
    config: StreamConfig, options: JetStreamOptions, claims: SubjectClaims
) -> IngestSettings:
    """Return the settings of the publish path. `claims`: which subjects the stream owns."""
    republish = config.republish
    return IngestSettings(
        name=config.name,
        domain=options.domain,
        is_memory=config.storage is Storage.MEMORY,
        no_ack=config.no_ack,
        sealed=config.sealed,
        max_msg_size=config.max_msg_size,
        allows_rollup=config.allow_rollup_hdrs and not config.deny_purge,
        allows_lifetimes=config.allow_msg_ttl,
        lifetime_s_min=_shortest_lifetime_s(config),
        allows_schedules=config.allow_msg_schedules,
        captures=partial(claims.is_owner, config.name),
        counts=config.allow_msg_counter,
        duplicate_window_ns=bounded_ns(config.duplicate_window),
        subject_transform=_mapping(config.subject_transform),
        republish=None
        if republish is None
        else RepublishSettings(Mapping(republish.src, republish.dest), republish.headers_only),
        buffered_msgs_max=options.max_buffered_msgs,
        buffered_bytes_max=options.max_buffered_size,
        copies=copies(config),
    )


def _shortest_lifetime_s(config: StreamConfig) -> int:
    """Return the shortest lifetime in seconds that a message may have; 0: any.

    No message may expire before an earlier delete marker of its subject. Where a subject holds one
    message only, the message has replaced the marker.
    """
    if config.max_msgs_per_subject == 1:
        return 0
    return config.subject_delete_marker_ttl // 1_000_000_000


def _mapping(transform: SubjectTransformConfig | None) -> Mapping | None:
    """Return the mapping; without a destination subjects stay as they are, as on nats-server."""
    if transform is None or not transform.dest:
        return None
    return Mapping(transform.src, transform.dest)
